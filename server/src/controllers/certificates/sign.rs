//! Signs approved requests for built-in signers with the server's authority.

use std::sync::Arc;

use plinth_codec::{base64_text, Value};
use time::{Duration, OffsetDateTime};

use super::request::{add_condition, update, SigningOptions};
use plinth_api::ApiError;
use plinth_apiserver::context::Server;
use plinth_kinds::certificate_signing_request as csr;
use plinth_pki::{certificate_uses, Authority, Template, SIGNERS};

/// How far certificates are backdated, for clocks that are behind.
const BACKDATE: Duration = Duration::minutes(5);
/// Certificates with a shorter validity do not expire earlier because they are backdated.
const SHORT: Duration = Duration::hours(8);
/// Minimum validity.
const LEAST: Duration = Duration::minutes(10);

/// Signs one request if it is approved and has no certificate yet. The authority is read from its files each
/// time: signatures are rare, and the files may be replaced.
pub(super) async fn sign(
    server: &Arc<Server>,
    options: &SigningOptions,
    request: &Value,
) -> Result<(), ApiError> {
    let is_signed = request.str_at(&["status", "certificate"]).is_some_and(|text| !text.is_empty());
    if is_signed
        || !csr::has(request, "Approved")
        || csr::has(request, "Denied")
        || csr::has(request, "Failed")
    {
        return Ok(());
    }
    let wanted = request.str_at(&["spec", "signerName"]).unwrap_or_default();
    let Some(signer) = SIGNERS.iter().find(|signer| signer.name == wanted) else { return Ok(()) };
    let parsed = match csr::read(request) {
        Ok(parsed) => parsed,
        Err(error) => return fail(server, request, &error.to_string()).await,
    };
    let usages = csr::usages(request);
    if let Some(error) = (signer.error)(&parsed, &usages) {
        return fail(server, request, &error).await;
    }
    let Some(uses) = certificate_uses(&usages) else {
        return fail(server, request, "unrecognized usage values").await;
    };
    let requested = request.at(&["spec", "expirationSeconds"]).and_then(Value::as_int);
    let lives = lives(requested, Duration::try_from(options.lifetime).unwrap_or(Duration::days(365)));
    let (options, now) = (options.clone(), OffsetDateTime::now_utc());
    let signed = tokio::task::spawn_blocking(move || {
        Authority::read(&options.certificate, &options.key)?.sign(&Template {
            subject: &parsed.subject.issued(),
            public_key: &parsed.public_key,
            names: &parsed.names,
            uses,
            not_before: now - BACKDATE,
            not_after: now + if lives < SHORT { lives } else { lives - BACKDATE },
        })
    })
    .await
    .map_err(ApiError::internal)?;
    let certificate = base64_text::encode(signed.map_err(ApiError::internal)?);
    update(server, request, "status", |request| {
        if let Some(status) = request.object_at_mut(&["status"]) {
            status.insert("certificate", certificate.as_str());
        }
    })
    .await
}

/// Marks a request that violates its signer's rules as failed.
async fn fail(server: &Arc<Server>, request: &Value, why: &str) -> Result<(), ApiError> {
    update(server, request, "status", |request| {
        add_condition(request, "Failed", "SignerValidationFailure", why);
    })
    .await
}

/// The validity of a certificate: as requested, between the minimum and the maximum.
fn lives(requested: Option<i64>, most: Duration) -> Duration {
    requested.map_or(most, |seconds| Duration::seconds(seconds).min(most).max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_by_table() {
        let most = Duration::hours(1);
        for (asked, seconds) in [(None, 3600), (Some(1), 600), (Some(900), 900), (Some(7200), 3600)] {
            assert_eq!(lives(asked, most).whole_seconds(), seconds, "{asked:?}");
        }
    }
}
