//! PersistentVolumes and their claims.

use plinth_codec::time::Timestamp;
use plinth_codec::Value;

/// A volume tells since when it is in its phase.
pub fn prepare_volume_for_create(volume: &mut Value) {
    if let Some(status) = volume.object_at_mut(&["status"]) {
        status.insert("phase", "Pending");
        status.insert("lastPhaseTransitionTime", Timestamp::now().to_rfc3339());
    }
}
