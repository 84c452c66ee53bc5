//! Admission: built-in plugins and policies.

mod hardening;
mod limits;
mod mutating_policies;
mod plugins;
mod scales;
mod validating_policies;
