//! Requests and answers below the single kinds: protocols, codes, Status objects, bad input, flow control.

mod bad_input;
mod early_answers;
mod flow_control;
mod health;
mod parameters;
mod protocols;
mod refusals;
mod yaml_bodies;
