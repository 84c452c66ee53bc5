//! Long tests of the real `plinth` binary through its sockets, in a short form for every run of the tests.
//!
//! | module | subject |
//! |---|---|
//! | [`history`] | checks of what clients saw of a server that was killed |
//! | [`server`] | servers to kill and to send anything |
//!
//! `docs/reliability.md` has what they found; `scripts/campaign` runs the long forms.

pub mod history;
pub mod server;
