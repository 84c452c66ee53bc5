//! Transactions: what is refused before anything is read (`check`), conditions (`compare`), and what the
//! operations of the chosen branches read and change (`evaluate`).

pub(crate) mod check;
mod compare;
pub(crate) mod evaluate;
mod intervals;
