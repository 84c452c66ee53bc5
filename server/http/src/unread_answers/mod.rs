//! Answers in memory that their clients have not read yet (`docs/design/0043-unread-answers.md`).
//!
//! An answer that is whole in memory has left the request's seat and slot behind, and a client that opens
//! many streams and reads none (HTTP/2 with a closed window) would collect them without bound. Two rules:
//!
//! - *Pace.* Where half of the bound is used, and a quarter by one user, one request after the other of that
//!   user is begun on each connection, when the answer to the one before is read. Others are served as ever,
//!   and nobody waits for what others read.
//! - *Bound.* Where a server holds more than it may ([`UnreadAnswers::new`]), connections are closed: those
//!   of users who have more than their share, the largest first, and of these the connections whose answers
//!   have waited longest, if that is [`answers::YOUNG`] at least; with twice as much, whatever that is. Then
//!   those go first whose answers have waited longest, or would take longest to read as fast as their
//!   connection's socket takes them: many users may have less each than one who reads a long list. How young
//!   its answers are, and on how many connections, is in a client's hands; so it is the user who counts, and
//!   for a minute it counts that a connection of it was closed, or that it reset requests without reading
//!   their answers. A connection of several users counts for the one of them who has most. All clients that
//!   are anonymous, or not authenticated yet, are one user: addresses are cheap.
//!
//! Requests that wait count as answers that are not read, for a reader or, where a connection has many, for
//! their processor time; so do the streams of such a connection. Documents that all answers share do not.
//!
//! Bodies that are streams ([`UnreadStream`]) count with each chunk until the connection has sent it, and
//! with what is produced ahead (`paced_response`). A chunk that several streams have, as an event of many
//! watches, is in memory once and counts once; each of them has a part of it, and who keeps it when all
//! others have read it has all. A long head counts until the first chunk behind it is sent.
//!
//! | module | subject |
//! |---|---|
//! | `answers` | what is unread, by user and connection; who is closed for it |
//! | `owners` | users, and who of them did not read lately |
//! | `pace` | requests that wait |
//! | `stream` | bodies that are streams, and answers that are sent in parts |
//! | `taken` | what the socket of a connection took: how fast its client reads |

mod answers;
mod owners;
mod pace;
mod stream;
mod taken;

pub use self::answers::{ConnectionUnread, UnreadAnswers, UserUnread};
pub(crate) use self::pace::MANY_STREAMS;
pub use self::pace::{BegunRequest, UnbegunRequest};
pub use self::stream::{CountedAnswer, HeldBytes, UnreadStream};

#[cfg(test)]
mod tests;
