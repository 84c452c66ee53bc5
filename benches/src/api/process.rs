//! CPU seconds and memory of processes, from `/proc`. Zero where there is no `/proc`.

use std::fs;

/// What processes have used so far, summed over all of them.
#[derive(Debug, Default, Clone, Copy)]
pub struct Usage {
    /// User and system time, in seconds.
    pub cpu_seconds: f64,
    /// Memory resident now, in MiB.
    pub rss_mib: f64,
    /// The most memory that was ever resident, in MiB, or since the peak was last forgotten.
    pub peak_rss_mib: f64,
    /// What the peak is above what was resident when a measurement began, in MiB.
    pub growth_mib: f64,
}

/// Resets the peak of the given processes to their current memory. Where the system does not permit that, it
/// counts from their start.
pub fn forget_peak(pids: &[u32]) {
    for pid in pids {
        // 5 is "reset the peak resident set size" in proc(5).
        drop(fs::write(format!("/proc/{pid}/clear_refs"), "5"));
    }
}

/// Reads the usage of the given processes; one that has ended is ignored.
pub fn usage(pids: &[u32]) -> Usage {
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    let mut sum = Usage::default();
    for pid in pids {
        if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
            sum.cpu_seconds += cpu_ticks(&stat) as f64 / ticks_per_second;
        }
        if let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) {
            sum.rss_mib += kib_of(&status, "VmRSS:") / 1024.0;
            sum.peak_rss_mib += kib_of(&status, "VmHWM:") / 1024.0;
        }
    }
    sum
}

/// Fields 14 and 15 of proc(5) `stat`, counted after the command, which may contain anything.
fn cpu_ticks(stat: &str) -> u64 {
    let Some((_, fields)) = stat.rsplit_once(')') else { return 0 };
    fields.split_whitespace().skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum()
}

fn kib_of(status: &str, key: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_after_the_command() {
        let stat = "42 (a b) c) S 1 42 42 0 -1 4194560 1 0 0 0 70 30 0 0 20 0 9 0";
        assert_eq!(cpu_ticks(stat), 100);
        assert_eq!(kib_of("VmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n", "VmRSS:"), 1024.0);
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(usage(&[std::process::id()]).rss_mib > 0.0);
    }
}
