//! One binary for all campaigns.

mod api_fuzz;
mod clients;
mod kills;
mod replicas;
