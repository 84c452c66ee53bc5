//! Built-in kinds: discovery and OpenAPI, and the same life for an object of each.

mod devices;
mod discovery;
mod every_kind;
mod two_groups;
