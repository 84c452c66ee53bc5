//! How much memory the process may have.

use std::fs;
use std::path::Path;

use rustix::process::{getrlimit, Resource};

/// Bytes of memory that the process may have: those of the machine, or of its control group (`memory.max` of
/// cgroups(7), version 2) or its resource limits where these are less. 4 GiB where nothing is known.
pub(crate) fn memory_limit() -> u64 {
    const UNKNOWN: u64 = 4 << 30;
    let limits = [Resource::As, Resource::Data].map(|resource| getrlimit(resource).current);
    let known = limits.into_iter().chain([of_machine(), of_control_group()]).flatten();
    known.min().unwrap_or(UNKNOWN)
}

fn of_machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

fn of_control_group() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own = Path::new("/sys/fs/cgroup").join(path);
    let limits = own.ancestors().take_while(|folder| folder.starts_with("/sys/fs/cgroup"));
    limits.filter_map(|folder| fs::read_to_string(folder.join("memory.max")).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_some() {
        assert!(memory_limit() > 64 << 20);
    }
}
