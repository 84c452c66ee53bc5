//! What tests of power cuts and disk errors stand on: traces of file-system calls, a model of the disk below
//! them, and processes that run with the interposer. `docs/reliability.md` documents the model.

pub mod campaign;
pub mod disk;
pub mod process;
pub mod server;
pub mod trace;
