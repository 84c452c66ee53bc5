//! Standard output and standard error of commands. Neither is certain to take anything: a pipe whose reader
//! has gone, a file on a full disk. `println!` and `eprintln!` panic then, in the middle of the work.
//!
//! A command that was run for what it prints (`write`) fails, with exit code 1. One that changes something
//! (`line`) goes on and reports by its exit code whether that was done.

use std::fmt::Arguments;
use std::io::{self, Write};

use tracing::warn;

/// Writes what a command was run for.
///
/// # Errors
/// When standard output does not take all of it.
pub(super) fn write(text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref())?;
    out.flush()
}

/// Writes text about what a command does, as far as standard output takes it.
pub(super) fn print(text: &str) {
    if let Err(error) = write(text) {
        warn!(%error, "standard output takes nothing");
    }
}

/// As `println!`, as far as standard output takes it.
pub fn line(text: Arguments<'_>) {
    print(&format!("{text}\n"));
}

/// As `eprintln!`, as far as standard error takes it.
pub fn error_line(text: Arguments<'_>) {
    // In one piece, so that lines of several processes do not mix. Where it fails there is nobody to report
    // it to.
    drop(io::stderr().lock().write_all(format!("{text}\n").as_bytes()));
}
