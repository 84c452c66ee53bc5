//! What benchmarks print while they run. A run of minutes does not end because nobody reads it: `println!`
//! and `eprintln!` panic where a pipe's reader has gone or a disk is full.

use std::fmt::Arguments;
use std::io::Write;

/// As `println!`, as far as standard output takes it.
pub(crate) fn line(text: Arguments<'_>) {
    drop(std::io::stdout().lock().write_all(format!("{text}\n").as_bytes()));
}

/// As `eprintln!`, as far as standard error takes it.
pub(crate) fn error_line(text: Arguments<'_>) {
    drop(std::io::stderr().lock().write_all(format!("{text}\n").as_bytes()));
}
