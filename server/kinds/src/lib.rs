//! What each kind does that others do not: defaults, validation, fields that may not change, status rules,
//! subresources, warnings, columns of Tables, selectable fields, managed fields, conversion of versions.
//!
//! One file per kind, in a folder per group: `apps/deployment.rs`. It starts with the kind's [`Strategy`],
//! and what the strategy names follows in this order: defaults, preparation, checks, rules of updates,
//! status, subresources, warnings, selectable fields, conversion, columns. `rows.rs` lists the strategies by
//! resource. Everything here is a function over trees, which a few give times of the clock (when a volume's
//! phase changed, when a taint was added): what needs the store or the authorizers is done by the server.
//!
//! | what several kinds share | module |
//! |---|---|
//! | the strategy itself | `strategy` |
//! | rows of defaults, of checks; lists of warnings; columns | `defaults`, `checks`, `warnings`, `columns` |
//! | the part of an object that a check reads and reports errors of | `checks::part` |
//! | pod templates: containers, volumes, affinity, security contexts | `pod_template` |
//! | claims on volumes, `status.loadBalancer` | `volume_claim`, `load_balancer_status` |
//! | how objects are deleted; fields by dotted paths; fields of feature gates | `deletion`, `path`, `gated_fields` |
//!
//! ```
//! use plinth_codec::tree;
//!
//! let strategy = plinth_kinds::of("apps", "deployments");
//! let mut deployment = tree!({ "metadata": tree!({ "name": "web" }), "spec": tree!({}) });
//! strategy.default(&mut deployment);
//! assert_eq!(deployment.str_at(&["spec", "strategy", "type"]), Some("RollingUpdate"));
//! assert!(strategy.create_errors(&deployment).iter().any(|error| error.field == "spec.selector"));
//! ```

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "tables of tests"))]

mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apiserverinternal;
mod apps;
mod autoscaling;
mod batch;
mod certificates;
mod checks;
mod columns;
mod coordination;
mod core;
mod defaults;
mod deletion;
mod discovery;
mod events;
mod flowcontrol;
mod gated_fields;
mod load_balancer_status;
mod networking;
mod node;
mod path;
mod pod_template;
mod policy;
mod rbac;
mod resource;
mod rows;
mod scheduling;
mod storage;
mod storagemigration;
mod strategy;
#[cfg(test)]
mod tests;
mod volume_claim;
mod warnings;

pub use admissionregistration::environment::environment as policy_environment;
pub use apiextensions::custom_resource_definition;
pub use autoscaling::scale;
pub use certificates::certificate_signing_request;
pub use checks::comparison::same;
pub use checks::quantities;
pub use core::pod::conditions::set_condition as set_pod_condition;
pub use core::pod::qos::quality_of_service;
pub use core::service::addresses as service_addresses;
pub use core::service::families as service_families;
pub use core::service::ranges as service_ranges;
pub use defaults::{DefaultRule, Literal};
pub use deletion::{Deletion, DeletionRequest};
pub use pod_template::scheduling::tolerations as validate_tolerations;
pub use pod_template::MIRROR_ANNOTATION;
pub use rows::of;
pub use strategy::{
    keep_metadata, AdmissionExemption, Conversion, Generation, NameRule, Strategy, SubresourceStrategy,
    Unwritten, BASE, CUSTOM,
};
