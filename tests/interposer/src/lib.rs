//! A library for `LD_PRELOAD` that stands between a program and the C library's file-system functions.
//!
//! For paths below the directory `PLINTH_DISK_ROOT` it does one or both of:
//!
//! - append each call that changes something, with its data and in its order, to the file `PLINTH_DISK_TRACE`
//!   (see `trace` for the format);
//! - make calls fail: `PLINTH_DISK_ERROR=KIND:FIRST:COUNT:WHAT` lets call number `FIRST` (counted from 1) of
//!   a kind and the `COUNT - 1` after it fail, be short, be slow, wait or kill the process (see `inject`).
//!
//! It also moves the wall clock of a process (see `clock`).
//!
//! Traced calls are serialized by one lock that is held for the call and its record, so that the order of the
//! trace is the order of the effects. Programs that bypass the C library (rustix with its Linux backend,
//! io_uring) are not seen; the tests compare the replayed trace with the directory to notice that.
//!
//! Not linked by anybody: cargo builds it as a shared library because the tests in `tests/disk` depend on it.

// A lock of parking_lot's allocates and calls into what this library stands in front of; a slow disk is a
// thread that sleeps.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod calls;
mod clock;
mod inject;
mod state;
mod trace;
