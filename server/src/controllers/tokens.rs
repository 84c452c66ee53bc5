//! Token Secrets (type `kubernetes.io/service-account-token`): filled with the token of their account, and
//! deleted with it.
//!
//! A Secret whose account does not exist, or has another UID, is deleted. Otherwise missing data are added:
//! the UID of the account as an annotation, `token`, `ca.crt` and `namespace`; an existing token is kept. The
//! account has to be created before the Secret, as upstream (kubernetes
//! `pkg/controller/serviceaccount/tokens_controller.go`).

use std::sync::Arc;
use std::time::Duration;

use plinth_codec::{base64_text, Value};
use plinth_engine::{Entry, Event, EventKind, Revision};

use super::accounts::Account;
use crate::reconciler::{Action, Reconciler, Settings, Start};
use plinth_api::{is_deleting, metadata_text, ApiError, Verb};
use plinth_apiserver::authn::service_account::claims::Reference;
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::{delete, internal};
use plinth_registry::{collection_prefix, prefix_range, resource_prefix, split_key};
use plinth_storage::{decode_object, Header};

/// The controller's name.
pub(super) const NAME: &str = "serviceaccount-token-controller";
/// The type of the Secrets.
const TYPE: &str = "kubernetes.io/service-account-token";
/// The annotations that name the account.
pub(super) const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
pub(super) const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// Maximum number of concurrent workers.
const WORKERS: usize = 4;
/// First and longest delay before a retry.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
const SECRETS: (&str, &str, &str) = ("", "v1", "secrets");
const ACCOUNTS: (&str, &str, &str) = ("", "v1", "serviceaccounts");

/// Namespace and name of a Secret.
type Key = (String, String);

pub(super) struct TokenSecrets {
    server: Arc<Server>,
    root_ca: String,
    secrets_prefix: String,
    accounts_prefix: String,
}

impl TokenSecrets {
    pub(super) fn new(server: &Arc<Server>, root_ca: &str) -> TokenSecrets {
        TokenSecrets {
            server: server.clone(),
            root_ca: root_ca.to_owned(),
            secrets_prefix: resource_prefix("", SECRETS.2),
            accounts_prefix: resource_prefix("", ACCOUNTS.2),
        }
    }
}

impl Reconciler for TokenSecrets {
    type Key = Key;

    fn settings(&self) -> Settings {
        Settings { name: NAME, workers: WORKERS, retry: RETRY, gather: Duration::ZERO }
    }

    async fn start(&self) -> Result<Start<Key>, ApiError> {
        let (found, revision) = of_namespace(&self.server, "").await?;
        Start::new(found).watch(&self.server, &self.secrets_prefix, revision)?.watch(
            &self.server,
            &self.accounts_prefix,
            revision,
        )
    }

    /// Changed token Secrets, and those of namespaces in which an account was deleted.
    async fn changed(&self, events: &[Arc<Event>]) -> Result<Vec<Key>, ApiError> {
        let mut keys = Vec::new();
        for event in events {
            match &event.kind {
                EventKind::Put { value, .. } if holds_token(value) => {
                    let split = split_key(&self.secrets_prefix, true, &event.key);
                    keys.extend(split.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())));
                }
                EventKind::Put { .. } => {}
                EventKind::Delete => {
                    let Some((namespace, _)) = split_key(&self.accounts_prefix, true, &event.key) else {
                        continue;
                    };
                    keys.extend(of_namespace(&self.server, namespace).await?.0);
                }
            }
        }
        Ok(keys)
    }

    async fn reconcile(&self, key: Key) -> Result<Action, ApiError> {
        reconcile(&self.server, &self.root_ca, &key).await.map(|()| Action::AwaitChange)
    }
}

/// Whether a stored Secret is a token Secret, according to its header, which is never encrypted.
fn holds_token(value: &[u8]) -> bool {
    // The type is the last of a Secret's selectable fields, which are few.
    Header::parse(value)
        .is_ok_and(|header| (0..).map_while(|place| header.field(place)).any(|field| field == TYPE))
}

/// The token Secrets of a namespace, or of all if it is empty, and the revision.
pub(super) async fn of_namespace(server: &Server, namespace: &str) -> Result<(Vec<Key>, Revision), ApiError> {
    let prefix = resource_prefix("", SECRETS.2);
    let range = prefix_range(&collection_prefix(&prefix, namespace));
    let pick = move |entry: &Entry<'_>| {
        let (namespace, name) = split_key(&prefix, true, entry.key).filter(|_| holds_token(entry.value))?;
        Some((namespace.to_owned(), name.to_owned()))
    };
    server.store.scan(range, pick).await
}

/// The current state of an object.
pub(super) async fn read(
    server: &Arc<Server>,
    resource: (&str, &str, &str),
    key: (&str, &str),
) -> Result<Option<Value>, ApiError> {
    let cx = Context::internal(server, resource, key.0, key.1, Verb::Get)?;
    let Some(form) = &cx.resource.storage else { return Ok(None) };
    let record = server.store.get(form, key.0, key.1).await?;
    record.map(|record| decode_object(&cx.resource, &record)).transpose()
}

/// Fills a Secret, or deletes it.
async fn reconcile(server: &Arc<Server>, root_ca: &str, key: &Key) -> Result<(), ApiError> {
    let (namespace, name) = (key.0.as_str(), key.1.as_str());
    let Some(secret) = read(server, SECRETS, (namespace, name)).await? else { return Ok(()) };
    if secret.str_at(&["type"]) != Some(TYPE) || is_deleting(&secret) {
        return Ok(());
    }
    let annotation = |key: &str| secret.str_at(&["metadata", "annotations", key]).unwrap_or_default();
    let account = read(server, ACCOUNTS, (namespace, annotation(ACCOUNT_NAME))).await?;
    let account = account.filter(|account| {
        let wanted = annotation(ACCOUNT_UID);
        wanted.is_empty() || wanted == metadata_text(account, "uid")
    });
    let outcome = match account {
        None => {
            let cx = Account::Manager.request(server, SECRETS, namespace, name, Verb::Delete)?;
            delete::delete_one(&cx, "Background", metadata_text(&secret, "uid"), None).await
        }
        Some(account) => {
            let account = Reference::new(metadata_text(&account, "name"), metadata_text(&account, "uid"));
            if is_full(&secret, &account, root_ca) {
                return Ok(());
            }
            let token = server.authenticator.service_accounts().issue_legacy(namespace, &account, name)?;
            let cx = Account::Manager.request(server, SECRETS, namespace, name, Verb::Update)?;
            let uid = metadata_text(&secret, "uid");
            internal::update(&cx, &|live| {
                let live = live.cloned().unwrap_or_default();
                match metadata_text(&live, "uid") == uid {
                    true => Ok(fill(live, &account, &token, root_ca)),
                    // Another object of that name: the feed delivers its own change.
                    false => Ok(live),
                }
            })
            .await
        }
    };
    match outcome {
        // Deleted, or replaced by another one of that name.
        Err(error) if error.has_changed() => Ok(()),
        outcome => outcome,
    }
}

/// The decoded value of a key in a Secret's data.
fn decoded(secret: &Value, key: &str) -> Vec<u8> {
    base64_text::decode(secret.str_at(&["data", key]).unwrap_or_default()).unwrap_or_default()
}

fn is_full(secret: &Value, account: &Reference, root_ca: &str) -> bool {
    let annotation = |key: &str| secret.str_at(&["metadata", "annotations", key]).unwrap_or_default();
    annotation(ACCOUNT_UID) == account.uid
        && decoded(secret, "ca.crt") == root_ca.as_bytes()
        && !decoded(secret, "namespace").is_empty()
        && !decoded(secret, "token").is_empty()
}

fn fill(mut secret: Value, account: &Reference, token: &str, root_ca: &str) -> Value {
    let namespace = metadata_text(&secret, "namespace").to_owned();
    let lacks = |key: &str| decoded(&secret, key).is_empty();
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
        assert_eq!(decoded(&full, "token"), b"TOKEN");
        assert_eq!(decoded(&full, "namespace"), b"n");
        assert_eq!(full.str_at(&["metadata", "annotations", ACCOUNT_UID]), Some("u"));
        // A new authority is replaced, a token is not.
        let renewed = fill(full, &account, "OTHER", "NEW");
        assert_eq!(
            (decoded(&renewed, "token"), decoded(&renewed, "ca.crt")),
            (b"TOKEN".to_vec(), b"NEW".to_vec())
        );
        assert!(!is_full(&renewed, &account, "PEM"));
    }
}
