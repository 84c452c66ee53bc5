//! What the machine does without any store.

use std::fs::File;
use std::io::Write;
use std::time::Instant;

use super::report::Report;
use super::{Error, Options};

/// Appending synced writes per second, each of a value's size.
///
/// # Errors
/// When the file cannot be written.
pub fn fdatasync_rate(options: &Options) -> Result<f64, Error> {
    let dir = options.scratch()?;
    let mut file = File::create(dir.path().join("appended"))?;
    let value = options.value(0);
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < options.time() {
        file.write_all(&value)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / started.elapsed().as_secs_f64())
}

/// Bytes per second that are copied in memory, from and to more than the caches hold.
pub fn copy_speed(options: &Options) -> f64 {
    let from = vec![1u8; 64 << 20];
    let mut to = vec![0u8; 64 << 20];
    let started = Instant::now();
    let mut copied = 0;
    while started.elapsed() < options.time() {
        to.copy_from_slice(&from);
        std::hint::black_box(&mut to);
        copied += from.len();
    }
    copied as f64 / started.elapsed().as_secs_f64()
}

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Error> {
    report.add("limits", "fdatasync after appending a value", (fdatasync_rate(options)?, "1/s"), None, None);
    report.add("limits", "memory copy", (copy_speed(options) / 1e9, "GB/s"), None, None);
    Ok(())
}
