//! Secrets of type `kubernetes.io/service-account-token` get the token of the account that they name, and go with it.
//!
//! A Secret whose account is absent, or another one by its UID, is deleted. One whose account is there gets what it lacks: the
//! UID of the account as an annotation, `token`, `ca.crt` and `namespace`; a token that is there stays. Where Secret and
//! account come at once the account has to come first, as upstream (kubernetes
//! `pkg/controller/serviceaccount/tokens_controller.go`).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::{base64_text, Value};
use plinth_engine::{Entry, EventKind, Feed, Revision, Subscribe};

use super::workers::Workers;
use plinth_api::api_error::ApiError;
use plinth_api::metadata;
use plinth_api::request_info::Verb;
use plinth_apiserver::authn::service_account::claims::Reference;
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::{delete, internal};
use plinth_registry::key;
use plinth_storage::object;
use plinth_storage::stored::Head;

/// The controller's name.
pub(super) const NAME: &str = "serviceaccount-token-controller";
/// The type of the Secrets that it fills.
const TYPE: &str = "kubernetes.io/service-account-token";
/// The annotations that name the account.
pub(super) const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
pub(super) const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// Secrets that are worked on at a time.
const WORKERS: usize = 4;
/// First and longest pause before what failed is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
const SECRETS: (&str, &str, &str) = ("", "v1", "secrets");
const ACCOUNTS: (&str, &str, &str) = ("", "v1", "serviceaccounts");

/// Namespace and name of a Secret.
type Key = (String, String);

/// Follows Secrets and accounts; starts again from the present state when a feed breaks off.
pub(super) async fn lead(server: Arc<Server>, root_ca: String) {
    let root_ca: Arc<str> = root_ca.into();
    super::again(NAME, RETRY.1, || follow(&server, &root_ca)).await;
}

async fn follow(server: &Arc<Server>, root_ca: &Arc<str>) -> Result<Infallible, ApiError> {
    let (secrets_prefix, accounts_prefix) =
        (key::resource_prefix("", SECRETS.2), key::resource_prefix("", ACCOUNTS.2));
    let subscribe = |prefix: &str, revision: Revision| {
        server.store.engine().subscribe(Subscribe::new(key::range(prefix.as_bytes())).after(revision))
    };
    let mut workers = Workers::new(NAME, WORKERS, RETRY);
    let (found, revision) = token_secrets(server, &secrets_prefix, "").await?;
    found.into_iter().for_each(|key| workers.add(key));
    let mut secrets = subscribe(&secrets_prefix, revision)?;
    let mut accounts = subscribe(&accounts_prefix, revision)?;
    loop {
        tokio::select! {
            changes = secrets.next() => {
                let Feed::Events(events) = changes? else { continue };
                for event in events.iter() {
                    let EventKind::Put { value, .. } = &event.kind else { continue };
                    let split = key::split(&secrets_prefix, true, &event.key).filter(|_| holds_token(value));
                    if let Some((namespace, name)) = split {
                        workers.add((namespace.to_owned(), name.to_owned()));
                    }
                }
            }
            changes = accounts.next() => {
                let Feed::Events(events) = changes? else { continue };
                for event in events.iter().filter(|event| !matches!(event.kind, EventKind::Put { .. })) {
                    let Some((namespace, _)) = key::split(&accounts_prefix, true, &event.key) else { continue };
                    let (found, _) = token_secrets(server, &secrets_prefix, namespace).await?;
                    found.into_iter().for_each(|key| workers.add(key));
                }
            }
            () = workers.advance(|key| look_at(server.clone(), root_ca.clone(), key)) => {}
        }
    }
}

/// Whether a stored Secret is of the type. Its header says so, which is never encrypted.
fn holds_token(value: &[u8]) -> bool {
    // The type is the last of a Secret's selectable fields; so few are looked through.
    Head::parse(value).is_ok_and(|head| (0..).map_while(|place| head.field(place)).any(|field| field == TYPE))
}

/// The Secrets for tokens of a namespace, of all for an empty one, and the revision that this is true at.
pub(super) async fn of_namespace(server: &Server, namespace: &str) -> Result<(Vec<Key>, Revision), ApiError> {
    token_secrets(server, &key::resource_prefix("", SECRETS.2), namespace).await
}

/// The Secrets for tokens of a namespace, of all for an empty one, and the revision that this is true at.
async fn token_secrets(
    server: &Server,
    prefix: &str,
    namespace: &str,
) -> Result<(Vec<Key>, Revision), ApiError> {
    let range = key::range(&key::collection(prefix, namespace));
    let prefix = prefix.to_owned();
    let pick = move |entry: &Entry<'_>| {
        let (namespace, name) = key::split(&prefix, true, entry.key).filter(|_| holds_token(entry.value))?;
        Some((namespace.to_owned(), name.to_owned()))
    };
    server.store.survey(range, pick).await
}

/// An object as it is now.
pub(super) async fn read(
    server: &Arc<Server>,
    resource: (&str, &str, &str),
    key: (&str, &str),
) -> Result<Option<Value>, ApiError> {
    let cx = Context::internal(server, resource, key.0, key.1, Verb::Get)?;
    let Some(form) = &cx.resource.storage else { return Ok(None) };
    let record = server.store.get(form, key.0, key.1).await?;
    record.map(|record| object::to_tree(&cx.resource, &record)).transpose()
}

/// Fills a Secret, or deletes it.
async fn look_at(server: Arc<Server>, root_ca: Arc<str>, key: Key) -> Result<(), ApiError> {
    let (namespace, name) = (key.0.as_str(), key.1.as_str());
    let Some(secret) = read(&server, SECRETS, (namespace, name)).await? else { return Ok(()) };
    if secret.str_at(&["type"]) != Some(TYPE) || metadata::is_deleting(&secret) {
        return Ok(());
    }
    let annotation = |key: &str| secret.str_at(&["metadata", "annotations", key]).unwrap_or_default();
    let account = read(&server, ACCOUNTS, (namespace, annotation(ACCOUNT_NAME))).await?;
    let account = account.filter(|account| {
        let wanted = annotation(ACCOUNT_UID);
        wanted.is_empty() || wanted == metadata::text(account, "uid")
    });
    let outcome = match account {
        None => {
            let cx = Context::internal(&server, SECRETS, namespace, name, Verb::Delete)?;
            delete::delete_one(&cx, "Background", metadata::text(&secret, "uid"), None).await
        }
        Some(account) => {
            let account = Reference::new(metadata::text(&account, "name"), metadata::text(&account, "uid"));
            if is_full(&secret, &account, &root_ca) {
                return Ok(());
            }
            let token = server.authenticator.service_accounts().issue_legacy(namespace, &account, name)?;
            let cx = Context::internal(&server, SECRETS, namespace, name, Verb::Update)?;
            let uid = metadata::text(&secret, "uid");
            internal::update(&cx, &|live| {
                let live = live.cloned().unwrap_or_default();
                match metadata::text(&live, "uid") == uid {
                    true => Ok(fill(live, &account, &token, &root_ca)),
                    // Another one of that name: its own change comes by.
                    false => Ok(live),
                }
            })
            .await
        }
    };
    match outcome {
        // Gone since, or another one of that name.
        Err(error) if matches!(error.code, 404 | 409) => Ok(()),
        outcome => outcome,
    }
}

/// What a Secret has under a key, decoded.
fn held(secret: &Value, key: &str) -> Vec<u8> {
    base64_text::decode(secret.str_at(&["data", key]).unwrap_or_default()).unwrap_or_default()
}

fn is_full(secret: &Value, account: &Reference, root_ca: &str) -> bool {
    let annotation = |key: &str| secret.str_at(&["metadata", "annotations", key]).unwrap_or_default();
    annotation(ACCOUNT_UID) == account.uid
        && held(secret, "ca.crt") == root_ca.as_bytes()
        && !held(secret, "namespace").is_empty()
        && !held(secret, "token").is_empty()
}

fn fill(mut secret: Value, account: &Reference, token: &str, root_ca: &str) -> Value {
    let namespace = metadata::text(&secret, "namespace").to_owned();
    let lacks = |key: &str| held(&secret, key).is_empty();
    let (needs_namespace, needs_token) = (lacks("namespace"), lacks("token"));
    if let Some(annotations) = secret.object_at_mut(&["metadata", "annotations"]) {
        annotations.insert(ACCOUNT_NAME, account.name.as_str());
        annotations.insert(ACCOUNT_UID, account.uid.as_str());
    }
    if let Some(data) = secret.object_at_mut(&["data"]) {
        data.insert("ca.crt", base64_text::encode(root_ca));
        if needs_namespace {
            data.insert("namespace", base64_text::encode(namespace));
        }
        if needs_token {
            data.insert("token", base64_text::encode(token));
        }
    }
    secret
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::tree;

    #[test]
    fn what_is_missing_is_filled_in_and_what_is_there_stays() {
        let account = Reference::new("acc", "u");
        let annotations = tree!({ "kubernetes.io/service-account.name": "acc" });
        let metadata = tree!({ "name": "s", "namespace": "n", "annotations": annotations });
        let bare = tree!({ "metadata": metadata.clone() });
        assert!(!is_full(&bare, &account, "PEM"));
        let full = fill(bare, &account, "TOKEN", "PEM");
        assert!(is_full(&full, &account, "PEM"));
        assert_eq!(held(&full, "token"), b"TOKEN");
        assert_eq!(held(&full, "namespace"), b"n");
        assert_eq!(full.str_at(&["metadata", "annotations", ACCOUNT_UID]), Some("u"));
        // A new authority is written over, a token is not.
        let renewed = fill(full, &account, "OTHER", "NEW");
        assert_eq!((held(&renewed, "token"), held(&renewed, "ca.crt")), (b"TOKEN".to_vec(), b"NEW".to_vec()));
        assert!(!is_full(&renewed, &account, "PEM"));
    }
}
