//! Kinds of `resource.k8s.io`.

mod allocation;
mod capacity;
mod claim_spec;
mod conversion;
mod device;
pub(crate) mod device_class;
pub(crate) mod device_taint_rule;
pub(crate) mod resource_claim;
pub(crate) mod resource_claim_template;
pub(crate) mod resource_pool_status_request;
pub(crate) mod resource_slice;
mod selector;
mod slice_device;
