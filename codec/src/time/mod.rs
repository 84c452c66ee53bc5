//! Times and durations in their canonical form.
