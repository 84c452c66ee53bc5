//! Services: cluster IPs and node ports.
//!
//! | module | subject |
//! |---|---|
//! | `allocate` | what a Service holds: keys of the engine |
//! | `networks` | where cluster IPs come from: ServiceCIDRs |
//!
//! Which fields want an address or a port is in `plinth_kinds` (`core/service/`), and so are the ranges of
//! the flags. `server/src/controllers/allocations.rs` restores what a Service lacks.

mod allocate;
mod networks;

pub(super) use allocate::{allocate, release};
pub use allocate::{allocated_keys, owner_of, restore_allocations};
pub use networks::DEFAULT_SERVICE_CIDR;
