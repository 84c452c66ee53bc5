//! CustomResourceDefinitions and their objects. Tests work on a server that they share, each with an API
//! group of its own; those that restart it or fill it have their own.

mod bad_input;
mod clashes;
mod conversion;
mod kubectl;
mod lifecycle;
mod many;
mod objects;
mod old_layout;
mod operator;
mod parts;
mod published;
mod versions;
