//! The engine's benchmarks as a program of their own: `cargo run --release --example engine -- --help`.

use clap::Parser;
use plinth_benches::engine::{run, Error, Options};

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

fn main() -> Result<(), Error> {
    run(&Arguments::parse().options).map(|_| ())
}
