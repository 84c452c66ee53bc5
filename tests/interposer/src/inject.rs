//! Errors on demand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libc::c_int;

/// Kinds of calls that can fail. Each counts by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Site {
    Open,
    Read,
    Write,
    Sync,
    Rename,
    Unlink,
    Mkdir,
    Resize,
    Allocate,
    Link,
    Stat,
}

const NAMES: [(&str, Site); 11] = [
    ("open", Site::Open),
    ("read", Site::Read),
    ("write", Site::Write),
    ("sync", Site::Sync),
    ("rename", Site::Rename),
    ("unlink", Site::Unlink),
    ("mkdir", Site::Mkdir),
    ("resize", Site::Resize),
    ("allocate", Site::Allocate),
    ("link", Site::Link),
    ("stat", Site::Stat),
];

/// How long a slow call takes longer.
pub(crate) const SLOW: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// The call fails with this error number and has no effect.
    Fail(c_int),
    /// A sync fails with this error number, and its caller learns that a while after everybody else could.
    FailLate(c_int),
    /// A write or read handles half of its bytes.
    Short,
    /// The call succeeds, late.
    Slow,
    /// A write handles half of its bytes, and what follows fails as on a full disk.
    Torn,
    /// The call is made when the file that says it was reached is gone again.
    Hold,
    /// The process is killed before the call.
    Kill,
}

/// Which calls fail, and how.
pub(crate) struct Injection {
    site: Site,
    first: u64,
    count: u64,
    what: Action,
    calls: AtomicU64,
}

impl Injection {
    /// Parses `KIND:FIRST:COUNT:WHAT`.
    pub(crate) fn parse(text: &str) -> Option<Injection> {
        let mut parts = text.split(':');
        let (site, first, count, what) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let site = NAMES.iter().find(|(name, _)| *name == site)?.1;
        let what = match what {
            "EIO" => Action::Fail(libc::EIO),
            "ENOSPC" => Action::Fail(libc::ENOSPC),
            "EDQUOT" => Action::Fail(libc::EDQUOT),
            "EACCES" => Action::Fail(libc::EACCES),
            "LATE" => Action::FailLate(libc::EIO),
            "SHORT" => Action::Short,
            "SLOW" => Action::Slow,
            "TORN" => Action::Torn,
            "HOLD" => Action::Hold,
            "KILL" => Action::Kill,
            _ => return None,
        };
        let (first, count) = (first.parse().ok()?, count.parse().ok()?);
        Some(Injection { site, first, count, what, calls: AtomicU64::new(0) })
    }

    pub(crate) fn is_for(&self, site: Site) -> bool {
        site == self.site
    }

    /// Counts a call; what is to happen to it. Slow calls sleep here. The first call that is hit leaves `hit`
    /// as an empty file beside the trace, so that a test knows.
    pub(crate) fn pass(&self, site: Site, hit: impl FnOnce()) -> Option<Action> {
        if site != self.site {
            return None;
        }
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if number < self.first || number - self.first >= self.count {
            return None;
        }
        if number == self.first {
            hit();
        }
        match self.what {
            Action::Slow => {
                std::thread::sleep(SLOW);
                None
            }
            Action::Kill => kill(),
            Action::Torn if number == self.first => Some(Action::Short),
            Action::Torn => Some(Action::Fail(libc::ENOSPC)),
            what => Some(what),
        }
    }
}

/// Ends this process as `kill -9` does.
fn kill() -> ! {
    loop {
        // SAFETY: both calls take plain numbers.
        unsafe { libc::syscall(libc::SYS_kill, libc::syscall(libc::SYS_getpid), libc::SIGKILL) };
    }
}
