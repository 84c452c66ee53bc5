//! Writes: what a change may change, what it is refused for, and what it brings with it.

mod concurrency;
mod pods;
mod services;
mod updates;
