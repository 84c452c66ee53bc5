//! Servers in this process. One program for all of these tests: linking a server takes a minute.

mod claims;
mod deep_objects;
mod differing;
mod join_directories;
mod joining;
mod rejoining;
mod replicas;
mod single;
mod slow_peers;
mod trust;
mod two_servers;
