//! Checks of what clients saw of a server that is killed again and again.
//!
//! | module | what must hold |
//! |---|---|
//! | [`linear`] | the answers of each object's requests have an order in which each takes effect at one moment between its call and its return |
//! | [`events`] | watches have no gap, no double and no turned order; a resourceVersion never goes back and never comes with other content; lists at a revision are what the events up to it make |
//! | [`observations`] | what clients observe: events, watches, lists |
//!
//! Every write of a history has unique content (a number), so that an answer or an event identifies its
//! write.

pub mod events;
pub mod observations;

pub use plinth_linearizability::{self as linear, Violation};

macro_rules! violation {
    ($($argument:tt)*) => { $crate::history::Violation(format!($($argument)*)) };
}
pub(crate) use violation;
