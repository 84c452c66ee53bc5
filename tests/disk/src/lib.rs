//! What tests of power cuts and disk errors stand on: traces of file-system calls, a model of the disk below
//! them, and processes that run with the interposer. `docs/reliability.md` documents the model.

// No lock here outlives a panic that matters: the test fails with it. Threads that wait for another process
// sleep.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod campaign;
pub mod disk;
pub mod process;
pub mod server;
pub mod trace;
