//! Exit codes of the process.

/// The exit code of a server whose storage has failed: that of `EX_IOERR` in sysexits.h.
pub(super) const STORAGE_FAILED: u8 = 74;
