//! How many brokers Kafka has, those that are down included: a topic is to have as many replicas, and has
//! them for ever.

use plinth_journal::{Error, Result};

use crate::client::CALL_TIMEOUT;
use crate::codec::{Decoded, Decoder, Encoder};
use crate::connection::CallError;
use crate::error_code::{code, error_name};
use crate::shared::Shared;
use crate::wire::{View, DESCRIBE_CLUSTER};

impl Shared {
    /// How many brokers Kafka has, as one of those that are up reports.
    pub(crate) fn registered_brokers(&self, view: &View) -> Result<usize> {
        let body = describe_cluster();
        let mut failed = CallError::NotMade("no broker of Kafka is up".to_owned());
        for address in self.client.addresses(view) {
            let answer = match self.client.call(address, DESCRIBE_CLUSTER, &body, CALL_TIMEOUT) {
                Ok(answer) => answer,
                Err(error) => {
                    failed = failed.or(error);
                    continue;
                }
            };
            let malformed = |_| Error::Unavailable { message: format!("{address} gave a malformed answer") };
            match decode(answer).map_err(malformed)? {
                (code::NONE, brokers) => return Ok(brokers),
                (error, _) => {
                    let message = format!("{address} does not name the brokers: {}", error_name(error));
                    failed = failed.or(CallError::NotMade(message));
                }
            }
        }
        Err(failed.of_all())
    }
}

fn describe_cluster() -> Vec<u8> {
    const BROKERS: i8 = 1;
    let mut out = Encoder::default();
    out.bool(false); // no rights
    out.i8(BROKERS);
    out.bool(true); // those that are fenced as well
    out.tags();
    out.0
}

/// An error, and the number of brokers.
fn decode(mut answer: Decoder) -> Decoded<(i16, usize)> {
    answer.i32()?; // throttled
    let error = answer.i16()?;
    answer.nullable_string()?;
    answer.i8()?; // brokers, not controllers
    answer.string()?; // the cluster
    answer.i32()?; // the controller
    let brokers = answer.elements(|broker| {
        broker.i32()?;
        broker.string()?;
        broker.i32()?; // port
        broker.nullable_string()?; // rack
        broker.bool()?; // fenced
        broker.tags()
    })?;
    Ok((error, brokers.len()))
}
