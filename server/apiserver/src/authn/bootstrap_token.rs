//! Bootstrap tokens: `ID.SECRET`, stored in Secrets of `kube-system`, with which a node requests its first
//! certificate (kubernetes `plugin/pkg/auth/authenticator/token/bootstrap`).

use std::sync::Arc;

use plinth_codec::json;
use plinth_codec::time::Timestamp;

use super::service_account::bindings::secret_text;
use plinth_api::{ApiError, User};
use plinth_pki::constant_time_eq;
use plinth_registry::{object_key, resource_prefix};
use plinth_storage::{Store, Stored};

/// The namespace of the Secrets.
const NAMESPACE: &str = "kube-system";
/// The type of the Secrets.
const TYPE: &str = "bootstrap.kubernetes.io/token";
/// The group of every bootstrap token, and the prefix of its other groups.
const GROUP: &str = "system:bootstrappers";
/// Longest name of a group after `system:bootstrappers:`, in characters.
const MAX_GROUP_LENGTH: usize = 256;

/// Authenticates tokens against their Secrets.
pub struct BootstrapTokens {
    store: Store,
}

impl BootstrapTokens {
    /// Reads the Secrets of this store.
    pub fn new(store: Store) -> BootstrapTokens {
        BootstrapTokens { store }
    }

    /// The user of a token; `None` when it is not a bootstrap token or its Secret does not allow it. Costs a
    /// read.
    ///
    /// # Errors
    /// When the Secret cannot be read.
    pub async fn authenticate(&self, token: &str) -> Result<Option<Arc<User>>, ApiError> {
        let Some((id, secret)) = split(token) else { return Ok(None) };
        let key = object_key(&resource_prefix("", "secrets"), NAMESPACE, &format!("bootstrap-token-{id}"));
        let Some(record) = self.store.newest(key).await? else { return Ok(None) };
        let stored = Stored::parse(&record.value).map_err(ApiError::internal)?;
        if stored.deleting() {
            return Ok(None);
        }
        let object = json::parse(stored.body()).map_err(ApiError::internal)?;
        match user(&object, id, secret, Timestamp::now()) {
            Ok(user) => Ok(Some(Arc::new(user))),
            Err(why) => {
                tracing::info!(token = id, error = why, "bootstrap token does not match its Secret");
                Ok(None)
            }
        }
    }
}

/// ID (public) and secret of a token: six and sixteen digits and lowercase letters.
fn split(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let fits = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
    };
    (fits(id, 6) && fits(secret, 16)).then_some((id, secret))
}

fn user(object: &plinth_codec::Value, id: &str, secret: &str, now: Timestamp) -> Result<User, &'static str> {
    let text = |key: &str| {
        secret_text(object, key).and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    };
    if object.str_at(&["type"]) != Some(TYPE) {
        return Err("invalid type");
    }
    if !constant_time_eq(&text("token-secret"), secret) {
        return Err("invalid token-secret");
    }
    if text("token-id") != id {
        return Err("invalid token-id");
    }
    let expiration = text("expiration");
    if !expiration.is_empty() {
        match Timestamp::parse(&expiration) {
            Ok(end) if now < end => {}
            Ok(_) => return Err("expired"),
            Err(_) => return Err("unparseable expiration"),
        }
    }
    if text("usage-bootstrap-authentication") != "true" {
        return Err("not marked usage-bootstrap-authentication=true");
    }
    let mut groups = vec![GROUP.to_owned()];
    let extra = text("auth-extra-groups");
    let mut more: Vec<&str> = extra.split(',').filter(|group| !group.is_empty()).collect();
    if !more.iter().all(|group| is_group(group)) {
        return Err("invalid auth-extra-groups");
    }
    more.sort_unstable();
    more.dedup();
    groups.extend(more.into_iter().map(str::to_owned));
    Ok(User { name: format!("system:bootstrap:{id}"), groups, ..User::default() }.authenticated())
}

/// `system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]`.
fn is_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix(':')) else { return false };
    let word = |b: u8| b.is_ascii_digit() || b.is_ascii_lowercase();
    rest.len() <= MAX_GROUP_LENGTH
        && rest.bytes().all(|b| word(b) || matches!(b, b':' | b'-'))
        && rest.bytes().last().is_some_and(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use plinth_codec::{Map, Value};

    #[test]
    fn token_forms_by_table() {
        let rows = [
            ("abcdef.0123456789abcdef", true),
            ("abcde.0123456789abcdef", false),
            ("abcdef.0123456789abcde", false),
            ("abcdef.0123456789abcdeF", false),
            ("abcdef.0123456789abcdef.x", false),
            ("abcdef0123456789abcdef", false),
        ];
        for (token, fits) in rows {
            assert_eq!(split(token).is_some(), fits, "{token}");
        }
    }

    #[test]
    fn secrets_by_table() {
        let good = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a"),
            ("expiration", "2030-01-01T00:00:00Z"),
        ];
        let secret = |change: (&str, &str), kind: &str| {
            let mut data = Map::new();
            for (key, value) in good.iter().filter(|(key, _)| *key != change.0).chain([&change]) {
                data.insert(*key, base64::engine::general_purpose::STANDARD.encode(value));
            }
            plinth_codec::tree!({ "type": kind, "data": Value::Object(data) })
        };
        let now = Timestamp { seconds: 1_800_000_000, nanos: 0 };
        let ask = |object: &Value| user(object, "abcdef", "0123456789abcdef", now);
        let found = ask(&secret(("", ""), TYPE)).unwrap();
        assert_eq!(found.name, "system:bootstrap:abcdef");
        let groups = [GROUP, "system:bootstrappers:a", "system:bootstrappers:b", "system:authenticated"];
        assert_eq!(found.groups, groups);
        let rows = [
            (("token-secret", "0123456789abcdeX"), TYPE, "invalid token-secret"),
            (("token-id", "abcdeg"), TYPE, "invalid token-id"),
            (("expiration", "2020-01-01T00:00:00Z"), TYPE, "expired"),
            (("expiration", "soon"), TYPE, "unparseable expiration"),
            (
                ("usage-bootstrap-authentication", "yes"),
                TYPE,
                "not marked usage-bootstrap-authentication=true",
            ),
            (("auth-extra-groups", "system:masters"), TYPE, "invalid auth-extra-groups"),
            (("auth-extra-groups", "system:bootstrappers:a-"), TYPE, "invalid auth-extra-groups"),
            (("", ""), "Opaque", "invalid type"),
        ];
        for (change, kind, why) in rows {
            assert_eq!(ask(&secret(change, kind)).unwrap_err(), why, "{change:?}");
        }
    }
}
