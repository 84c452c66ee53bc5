//! Kinds of `autoscaling`.

pub(crate) mod horizontal_pod_autoscaler;
pub mod scale;
