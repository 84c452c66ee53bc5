//! Clients of servers to which failures happen, and what they note.
//!
//! | module | subject |
//! |---|---|
//! | [`load`] | every kind of request on a few objects |
//! | [`watcher`] | watches that are resumed |

pub(crate) mod load;
pub(crate) mod watcher;
