//! Resource quantities and their canonical form.
