//! The cells that take more than a path, by subject. The rules are those of upstream's
//! `pkg/printers/internalversion/printers.go`; names are the columns'.

pub(super) mod admin;
pub(super) mod autoscaling;
pub(super) mod event;
pub(super) mod network;
pub(super) mod node;
pub(super) mod pod;
pub(super) mod storage;
pub(super) mod workload;

use super::age::Now;
use super::cell::{Cell, Computation};
use super::read;

/// Texts joined by a separator, truncated after `max` with the number of the rest. `count` is the total
/// number.
fn with_more<'a>(texts: impl Iterator<Item = &'a str>, separator: &str, count: usize, max: usize) -> String {
    let mut text = read::join(texts.take(max), separator);
    if count > max {
        text.push_str(&format!(" + {} more...", count - max));
    }
    text
}
