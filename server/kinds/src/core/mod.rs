//! core/v1: what its kinds do at create, at update, and what they may hold.

pub mod app_armor;
pub mod data;
pub mod devices;
mod label_keys;
pub mod namespace;
pub mod node;
pub mod pod;
pub mod service;
pub mod storage;
