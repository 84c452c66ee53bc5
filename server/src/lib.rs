//! placeholder
pub mod discovery;
