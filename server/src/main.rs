//! The `plinth` program.

use std::process::ExitCode;

use clap::Parser;
use plinth_server::cli::{self, Cli};

fn main() -> ExitCode {
    cli::allocator::configure();
    match cli::run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("plinth: {fault}");
            ExitCode::FAILURE
        }
    }
}
