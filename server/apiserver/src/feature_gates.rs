//! The feature gates that switch something here.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The gates that are on, of those that can be on or off. What they switch are kinds, and what belongs to
/// them: rows of the table of resources and of the bootstrap policy name a gate. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates(Arc<BTreeSet<&'static str>>);

impl FeatureGates {
    /// Whether a gate is on.
    pub fn is_on(&self, gate: &str) -> bool {
        self.0.contains(gate)
    }
}

impl FromIterator<&'static str> for FeatureGates {
    fn from_iter<I: IntoIterator<Item = &'static str>>(gates: I) -> FeatureGates {
        FeatureGates(Arc::new(gates.into_iter().collect()))
    }
}
