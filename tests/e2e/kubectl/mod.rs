//! Flows of a real kubectl. Each call of it costs a tenth of a second or two, so a test is a flow
//! of many steps, not a step.

mod imperative;
mod manifests;
mod terminals;
