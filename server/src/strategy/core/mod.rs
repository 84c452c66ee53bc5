//! core/v1: what its kinds do at create, at update, and what they may hold.

pub mod data;
pub mod namespace;
pub mod pod;
pub mod service;
pub mod storage;
