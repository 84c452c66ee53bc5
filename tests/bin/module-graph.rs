//! Draws which module of a crate imports which, as SVG:
//!
//!     cargo run --release --package plinth-tests --bin module-graph -- SRC TITLE > graph.svg

use std::path::Path;
use std::process::ExitCode;

use plinth_tests::module_graph::ModuleGraph;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(sources), Some(title)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: module-graph SOURCES TITLE");
        return ExitCode::FAILURE;
    };
    match ModuleGraph::read(Path::new(&sources)) {
        Ok(graph) => {
            for cycle in graph.cycles() {
                eprintln!("{} modules import each other: {}", cycle.len(), cycle.join(", "));
            }
            print!("{}", graph.to_svg(&title));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("module-graph: cannot read {sources}: {error}");
            ExitCode::FAILURE
        }
    }
}
