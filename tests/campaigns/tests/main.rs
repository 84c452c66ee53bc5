//! One binary for both campaigns.

mod api_fuzz;
mod kills;
