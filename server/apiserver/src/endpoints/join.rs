//! `/plinth/join`: what a new replica asks, with a join token in the place of a user's credentials.
//!
//! Whoever sends a request here is nobody to the rest of the server (`authn`), whatever credentials come with
//! it: the token alone decides, here, and it grants this and nothing else. `GET` returns the certificate of
//! the authority, which is no secret, so that the joining side can compare it with its token before it sends
//! anything. `POST` redeems the token and returns the cluster's keys and the store.
//!
//! A token is used up before the first byte is sent, by a deletion on the condition that nobody has changed
//! or deleted its Secret: of several requests with it, on whichever replicas, one gets the keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::{HeaderMap, AUTHORIZATION};
use hyper::{Method, Request, Response, StatusCode};
use plinth_codec::time::Timestamp;
use plinth_codec::{json, Value};
use plinth_engine::Revision;
use plinth_pki::{
    JoinCredential, JOIN_TOKEN_EXPIRATION, JOIN_TOKEN_HASH, JOIN_TOKEN_ID, JOIN_TOKEN_NAMESPACE,
    JOIN_TOKEN_SECRET_PREFIX, JOIN_TOKEN_SECRET_TYPE, JOIN_TOKEN_USAGE,
};

use super::replicas::{make_checkpoint, no_replica};
use super::{stream, text};
use crate::audit::Recorder;
use crate::authn::service_account::bindings::secret_text;
use crate::context::{Context, Server};
use crate::handlers::delete;
use plinth_api::{metadata_text, ApiError, Reason, Verb};
use plinth_http::Body;
use plinth_registry::{object_key, resource_prefix};
use plinth_storage::{Fetched, Stored};

/// How long a token that is not known here is waited for: it may have just been created on another replica.
const LAG: Duration = Duration::from_secs(2);
/// Annotation of audit events with the ID of the token that was used.
const TOKEN_ANNOTATION: &str = "plinth/join-token";

/// Answers a request for the path.
///
/// # Errors
/// 404 of a single store, 401 without a valid token, 429 while others join, 503 when the journal does not
/// answer.
pub(super) async fn serve<B>(
    server: &Arc<Server>,
    request: &Request<B>,
    audit: &Recorder,
) -> Result<Response<Body>, ApiError> {
    let Some(replica) = server.replica.clone() else { return Err(no_replica()) };
    if *request.method() == Method::GET {
        return Ok(text(StatusCode::OK, "application/pem-certificate-chain", replica.authority().to_vec()));
    }
    let credential = credential(request.headers()).ok_or_else(refused)?;
    let secret = find(server, &credential).await?;
    // For who has a token, and before it is used up. Held until everything has been sent.
    let Ok(permit) = server.joining.clone().try_acquire_owned() else {
        let message = "other replicas are joining through this one; the token is still valid, try again";
        return Err(ApiError::new(429, Reason::TooManyRequests, message).retry_after(10));
    };
    // Before the token is used up: all that can fail here and try again.
    let thread = stream::reserve(server)?;
    let write = make_checkpoint(&replica).await?;
    redeem(server, &credential, secret).await?;
    audit.annotate(TOKEN_ANNOTATION, credential.id());
    // By default warnings are all that is logged, and this is to be seen.
    tracing::warn!(
        token = credential.id(),
        "a join token was used: the cluster's keys and a checkpoint are sent to a new replica"
    );
    stream::respond(server, thread, move |out| {
        let _permit = permit;
        write(out)
    })
}

/// The answer to every token that does not grant anything: it does not say why.
fn refused() -> ApiError {
    let message =
        "the join token is not valid, is expired or was used; \"plinth token create\" makes another one";
    ApiError::new(401, Reason::Unauthorized, message)
}

/// The credential of `Authorization: Bearer ID.SECRET`.
fn credential(headers: &HeaderMap) -> Option<JoinCredential> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.to_str().ok()?;
    JoinCredential::parse(value.strip_prefix("Bearer ")?).ok()
}

/// A Secret that grants joining, as it was when that was checked.
struct JoinSecret {
    name: String,
    uid: String,
    revision: Revision,
}

/// The Secret of a token.
///
/// # Errors
/// 401 where it does not grant joining.
async fn find(server: &Arc<Server>, credential: &JoinCredential) -> Result<JoinSecret, ApiError> {
    let name = format!("{}{}", JOIN_TOKEN_SECRET_PREFIX, credential.id());
    let key = object_key(&resource_prefix("", "secrets"), JOIN_TOKEN_NAMESPACE, &name);
    // Whether there is one shows to nobody, also where it cannot be decrypted here.
    let unreadable = |error: ApiError| {
        tracing::warn!(token = credential.id(), error = error.message, "join token refused");
        refused()
    };
    // Of every token alike, so that the answer while the journal is away reveals nothing of this one.
    server.store.reach_most_recent(Instant::now().checked_add(LAG)).await?;
    let record = server.store.newest(key).await.map_err(unreadable)?.ok_or_else(refused)?;
    let restored = server.store.engine().restored().map_err(ApiError::from)?;
    let checked = match record.create_revision > restored {
        true => check(&record, credential, Timestamp::now()),
        // It may have been used after the backup.
        false => Err("created before the store was restored from a backup"),
    };
    let uid = checked.map_err(|why| {
        tracing::warn!(token = credential.id(), error = why, "join token refused");
        refused()
    })?;
    Ok(JoinSecret { name, uid, revision: record.mod_revision })
}

/// Uses a token up.
///
/// # Errors
/// 401 where somebody else has used it, or changed its Secret, meanwhile.
async fn redeem(
    server: &Arc<Server>,
    credential: &JoinCredential,
    secret: JoinSecret,
) -> Result<(), ApiError> {
    let secrets = ("", "v1", "secrets");
    let cx = Context::internal(server, secrets, JOIN_TOKEN_NAMESPACE, &secret.name, Verb::Delete)?;
    match delete::delete_one(&cx, "Background", &secret.uid, Some(secret.revision)).await {
        Err(error) if error.has_changed() => {
            tracing::warn!(token = credential.id(), error = "used, changed or deleted", "join token refused");
            Err(refused())
        }
        Err(mut error) if error.code >= 500 => {
            tracing::warn!(
                token = credential.id(),
                error = error.message,
                "it is not known whether a join token was used up; nothing was sent"
            );
            let hint = "it is not known whether the token was used up, \"plinth token list\" shows it";
            error.message = format!("{}; {hint}", error.message);
            Err(error)
        }
        deleted => deleted,
    }
}

/// The UID of a Secret that grants joining to a credential.
fn check(record: &Fetched, credential: &JoinCredential, now: Timestamp) -> Result<String, &'static str> {
    const UNREADABLE: &str = "the Secret cannot be read";
    let stored = Stored::parse(&record.value).map_err(|_| UNREADABLE)?;
    if stored.deleting() {
        return Err("the Secret is being deleted");
    }
    let object = json::parse(stored.body()).map_err(|_| UNREADABLE)?;
    grants(&object, credential, now)?;
    Ok(metadata_text(&object, "uid").to_owned())
}

/// Whether a Secret grants joining, and only that.
fn grants(object: &Value, credential: &JoinCredential, now: Timestamp) -> Result<(), &'static str> {
    let text = |key: &str| {
        secret_text(object, key).and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    };
    if !credential.matches(&text(JOIN_TOKEN_HASH)) {
        return Err("invalid secret");
    }
    if object.str_at(&["type"]) != Some(JOIN_TOKEN_SECRET_TYPE) {
        return Err("invalid type");
    }
    if text(JOIN_TOKEN_ID) != credential.id() {
        return Err("invalid token-id");
    }
    if text(JOIN_TOKEN_USAGE) != "true" {
        return Err("not marked as one for joining");
    }
    let data = object.at(&["data"]).and_then(Value::as_object).ok_or("no data")?;
    let is_foreign = |key: &str| key.starts_with("usage-") && key != JOIN_TOKEN_USAGE;
    if data.iter().any(|(key, _)| is_foreign(key) || &**key == "token-secret") {
        return Err("it has other usages, or a secret in plain text");
    }
    match Timestamp::parse(&text(JOIN_TOKEN_EXPIRATION)) {
        Ok(end) if now < end => Ok(()),
        Ok(_) => Err("expired"),
        Err(_) => Err("no expiration"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::{base64_text, tree, Map};
    use plinth_pki::{
        JOIN_TOKEN_DESCRIPTION, JOIN_TOKEN_EXPIRATION, JOIN_TOKEN_HASH, JOIN_TOKEN_ID,
        JOIN_TOKEN_SECRET_TYPE, JOIN_TOKEN_USAGE,
    };

    const TEXT: &str = "abcdef.0123456789abcdefghijklmnopqrstuv";

    fn secret(kind: &str, data: &[(&str, &str)]) -> Value {
        let mut map = Map::new();
        for (key, value) in data.iter().filter(|(_, value)| *value != "ABSENT") {
            map.insert(*key, base64_text::encode(value));
        }
        tree!({ "type": kind, "data": Value::Object(map) })
    }

    #[test]
    fn secrets_by_table() {
        let credential = JoinCredential::parse(TEXT).unwrap();
        let hash = credential.hash();
        let good = [
            (JOIN_TOKEN_ID, "abcdef"),
            (JOIN_TOKEN_HASH, hash.as_str()),
            (JOIN_TOKEN_USAGE, "true"),
            (JOIN_TOKEN_EXPIRATION, "2030-01-01T00:00:00Z"),
            (JOIN_TOKEN_DESCRIPTION, "rack 4"),
        ];
        let now = Timestamp { seconds: 1_800_000_000, nanos: 0 };
        let with = |kind: &str, change: (&str, &str)| {
            let mut data: Vec<_> = good.iter().filter(|(key, _)| *key != change.0).copied().collect();
            data.push(change);
            grants(&secret(kind, &data), &credential, now)
        };
        assert_eq!(with(JOIN_TOKEN_SECRET_TYPE, (JOIN_TOKEN_DESCRIPTION, "")), Ok(()));
        let other = JoinCredential::parse("abcdef.0123456789abcdefghijklmnopqrstuw").unwrap().hash();
        for (kind, change, why) in [
            ("Opaque", ("", ""), "invalid type"),
            (JOIN_TOKEN_SECRET_TYPE, (JOIN_TOKEN_HASH, other.as_str()), "invalid secret"),
            (JOIN_TOKEN_SECRET_TYPE, (JOIN_TOKEN_HASH, "ABSENT"), "invalid secret"),
            (JOIN_TOKEN_SECRET_TYPE, (JOIN_TOKEN_ID, "abcdeg"), "invalid token-id"),
            (JOIN_TOKEN_SECRET_TYPE, (JOIN_TOKEN_USAGE, "ABSENT"), "not marked as one for joining"),
            (JOIN_TOKEN_SECRET_TYPE, (JOIN_TOKEN_USAGE, "yes"), "not marked as one for joining"),
            (JOIN_TOKEN_SECRET_TYPE, (JOIN_TOKEN_EXPIRATION, "2020-01-01T00:00:00Z"), "expired"),
            (JOIN_TOKEN_SECRET_TYPE, (JOIN_TOKEN_EXPIRATION, "ABSENT"), "no expiration"),
            (JOIN_TOKEN_SECRET_TYPE, (JOIN_TOKEN_EXPIRATION, "never"), "no expiration"),
            (
                JOIN_TOKEN_SECRET_TYPE,
                ("usage-bootstrap-authentication", "false"),
                "it has other usages, or a secret in plain text",
            ),
            (
                JOIN_TOKEN_SECRET_TYPE,
                ("token-secret", "0123456789abcdef"),
                "it has other usages, or a secret in plain text",
            ),
        ] {
            assert_eq!(with(kind, change), Err(why), "{change:?}");
        }
    }

    #[test]
    fn a_request_has_one_credential() {
        let headers = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().unwrap());
            }
            headers
        };
        let bearer = format!("Bearer {TEXT}");
        assert!(credential(&headers(&[&bearer])).is_some());
        for values in [
            &[][..],
            &[TEXT],
            &[&bearer, &bearer],
            &[&format!("Basic {TEXT}")],
            &["Bearer abcdef.0123456789abcdef"],
            &["Bearer "],
        ] {
            assert!(credential(&headers(values)).is_none(), "{values:?}");
        }
    }
}
