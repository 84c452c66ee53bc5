//! Deletes decided and stale requests after some time.

use std::sync::Arc;
use std::time::Duration;

use plinth_codec::time::Timestamp;
use plinth_codec::{base64_text, Value};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::super::accounts;
use super::request::RESOURCE;
use crate::reconciler::Action;
use plinth_api::{metadata_text, ApiError, Verb};
use plinth_apiserver::context::Server;
use plinth_apiserver::handlers::delete;
use plinth_pki::parse_certificates;

/// Interval at which a request is examined.
const PERIOD: Duration = Duration::from_secs(3600);
/// How long decided requests are kept, in seconds.
const DECIDED: i64 = 3600;
/// How long undecided or unsigned requests are kept, in seconds.
const PENDING: i64 = 24 * 3600;

/// Deletes one request if it has expired.
pub(super) async fn clean(server: &Arc<Server>, request: &Value) -> Result<Action, ApiError> {
    if !is_over(request, OffsetDateTime::now_utc()) {
        return Ok(Action::RequeueAfter(PERIOD));
    }
    let cx =
        accounts::CERTIFICATES.request(server, RESOURCE, "", metadata_text(request, "name"), Verb::Delete)?;
    match delete::delete_one(&cx, "Background", metadata_text(request, "uid"), None).await {
        // Deleted, or replaced by another one of that name, whose event has added its key.
        Err(error) if !error.has_changed() => Err(error),
        _ => Ok(Action::AwaitChange),
    }
}

fn is_over(request: &Value, now: OffsetDateTime) -> bool {
    let older = |time: &str, seconds: i64| {
        Timestamp::parse(time).is_ok_and(|then| now.unix_timestamp() - then.seconds > seconds)
    };
    let conditions = request.list_at(&["status", "conditions"]);
    let certificate = request.str_at(&["status", "certificate"]).filter(|text| !text.is_empty());
    if conditions.is_empty() {
        return older(metadata_text(request, "creationTimestamp"), PENDING);
    }
    conditions.iter().any(|condition| {
        let updated = condition.str_at(&["lastUpdateTime"]).unwrap_or_default();
        match condition.str_at(&["type"]).unwrap_or_default() {
            "Denied" | "Failed" => older(updated, DECIDED),
            "Approved" => match certificate {
                Some(certificate) => older(updated, DECIDED) || has_ended(certificate, now),
                None => older(updated, PENDING),
            },
            _ => false,
        }
    })
}

fn has_ended(certificate: &str, now: OffsetDateTime) -> bool {
    let pem = base64_text::decode(certificate).unwrap_or_default();
    let certificates = parse_certificates(&pem).unwrap_or_default();
    let parsed = certificates.first().and_then(|der| X509Certificate::from_der(der).ok());
    parsed.is_some_and(|(_, cert)| cert.validity().not_after.to_datetime() < now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;
    use time::format_description::well_known::Rfc3339;

    #[test]
    fn what_is_over_by_table() {
        let now = OffsetDateTime::parse("2026-01-02T00:00:00Z", &Rfc3339).unwrap();
        let rows = [
            ("[]", "2025-12-31T23:00:00Z", "", true),
            ("[]", "2026-01-01T01:00:00Z", "", false),
            (r#"[{"type":"Denied","lastUpdateTime":"2026-01-01T22:00:00Z"}]"#, "", "", true),
            (r#"[{"type":"Denied","lastUpdateTime":"2026-01-01T23:30:00Z"}]"#, "", "", false),
            (r#"[{"type":"Failed","lastUpdateTime":"2026-01-01T22:00:00Z"}]"#, "", "", true),
            (r#"[{"type":"Approved","lastUpdateTime":"2026-01-01T22:00:00Z"}]"#, "", "eA==", true),
            (r#"[{"type":"Approved","lastUpdateTime":"2026-01-01T22:00:00Z"}]"#, "", "", false),
            (r#"[{"type":"Approved","lastUpdateTime":"2025-12-31T22:00:00Z"}]"#, "", "", true),
            (
                r#"[{"type":"Other","lastUpdateTime":"2020-01-01T22:00:00Z"}]"#,
                "2020-01-01T00:00:00Z",
                "",
                false,
            ),
        ];
        for (conditions, created, certificate, over) in rows {
            let text = format!(
                r#"{{"metadata":{{"creationTimestamp":"{created}"}},"status":{{"conditions":{conditions},"certificate":"{certificate}"}}}}"#
            );
            assert_eq!(is_over(&json::parse(text.as_bytes()).unwrap(), now), over, "{text}");
        }
    }
}
