//! End-to-end tests: the real binary, real clients, one module for each subject. See the harness
//! (`plinth_tests`) for how servers are started.

mod access_reviews;
mod admission_plugins;
mod admission_policies;
mod audit;
mod authorization;
mod authorized;
mod bad_input;
mod certificate_requests;
mod certificates;
mod concurrency;
mod control_plane;
mod controllers;
mod custom_resources;
mod discovery;
mod durability;
mod every_kind;
mod guards;
mod hostile;
mod identity;
mod kubectl;
mod lost_files;
mod manifest;
mod mutating_policies;
mod oidc;
mod outward;
mod private_files;
mod process;
mod protocols;
mod reading;
mod readme;
mod refusals;
mod reserved_paths;
mod storage_failure;
mod watching;
mod writing;
