//! What the user of the journal may do with its topic.

use plinth_journal::{Error, Result};

use crate::client::CALL_TIMEOUT;
use crate::shared::Shared;
use crate::wire::{self, View};

/// The rights that a replica needs throughout: their names, and codes of Kafka's `AclOperation`.
const NEEDED: [(&str, u8); 2] = [("READ", 3), ("WRITE", 4)];
/// What a broker reports that was not asked for rights.
const NOT_REPORTED: i32 = i32::MIN;

/// The first right that is missing among those that a broker reports, a bit for each operation. None where it
/// reports no right at all: a user without any sees no topic.
pub(crate) fn missing(rights: i32) -> Option<&'static str> {
    if matches!(rights, 0 | NOT_REPORTED) {
        return None;
    }
    NEEDED.iter().find(|(_, code)| rights & (1 << code) == 0).map(|(name, _)| *name)
}

impl Shared {
    /// Refuses a user who may not read or write the topic: each call would be waited for, for ever. Brokers
    /// that do not answer, or report no rights, are believed.
    pub(crate) fn check_rights(&self, view: &View) -> Result<()> {
        let body = wire::metadata_with_rights(&self.topic);
        for address in self.client.addresses(view) {
            let Ok(answer) = self.client.call(address, wire::METADATA, &body, CALL_TIMEOUT) else { continue };
            let Ok(answered) = View::decode(answer) else { continue };
            if answered.topic != view.topic {
                continue;
            }
            let Some(right) = missing(answered.rights) else { break };
            let message = format!(
                "this user has no right to {right} topic {:?}: give the user READ, WRITE, DESCRIBE, \
                 DESCRIBE_CONFIGS and DELETE",
                self.topic
            );
            return Err(Error::Refused { message });
        }
        Ok(())
    }
}
