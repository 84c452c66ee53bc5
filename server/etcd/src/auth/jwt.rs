//! Signed tokens: `--auth-token jwt,…` (etcd's `server/auth/jwt.go` and `options.go`). A token has the name
//! of its user and the revision of users and roles, so that each change of one ends all of them. None is kept
//! here, and one lives until it expires, whatever becomes of the server.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plinth_pki::{MethodError, MethodKind, SigningMethod};
use serde::{Deserialize, Serialize};
use tonic::Status;

use crate::errors;

/// How long a token lives where no time is given.
const DEFAULT_TTL: Duration = Duration::from_secs(300);
/// etcd's error for options that are none.
const INVALID_OPTIONS: &str = "auth: invalid auth options";

/// The signing method, and how long tokens live.
#[derive(Debug, Clone)]
pub(crate) struct JwtOptions {
    method: Arc<SigningMethod>,
    time_to_live: Duration,
}

/// What a token claims when it is issued.
#[derive(Serialize)]
struct Issued<'a> {
    username: &'a str,
    revision: u64,
    exp: u64,
}

/// What is read of one. Numbers may have fractions.
#[derive(Deserialize)]
struct Claims {
    username: String,
    revision: f64,
    exp: Option<f64>,
    nbf: Option<f64>,
}

impl JwtOptions {
    /// Reads what follows `jwt` in the value of the flag, and the files that it names. Options that etcd does
    /// not know are ignored with a warning, as by etcd.
    pub(crate) fn read(
        text: &str,
        duration: fn(&str) -> Result<Duration, String>,
    ) -> Result<JwtOptions, String> {
        let invalid = |reason: String| format!("{INVALID_OPTIONS}: {reason}");
        let mut options: BTreeMap<&str, &str> = BTreeMap::new();
        for option in text.split(',').skip(1) {
            match option.split('=').collect::<Vec<_>>()[..] {
                [name, value] if !options.contains_key(name) => options.insert(name, value),
                _ => return Err(invalid(format!("{option:?} is not NAME=VALUE, or given twice"))),
            };
        }
        let mut take = |name| options.remove(name).filter(|value| !value.is_empty());
        let time_to_live = take("ttl").map(duration).transpose().map_err(invalid)?;
        let read =
            |path: &str| std::fs::read(Path::new(path)).map_err(|error| invalid(format!("{path}: {error}")));
        let public = take("pub-key").map(read).transpose()?;
        let private = take("priv-key").map(read).transpose()?;
        let name = take("sign-method").unwrap_or_default();
        for unknown in options.keys() {
            tracing::warn!(option = unknown, "option of --auth-token is not known and ignored");
        }
        let method = SigningMethod::new(name, public.as_deref(), private.as_deref());
        let method = method.map_err(|error| match error {
            MethodError::Unknown => invalid(format!("auth: invalid auth signature method {name:?}")),
            error => reason_of(&error).to_owned(),
        })?;
        Ok(JwtOptions { method: Arc::new(method), time_to_live: time_to_live.unwrap_or(DEFAULT_TTL) })
    }

    /// A token of a user.
    pub(crate) fn issue(&self, user: &str, revision: u64) -> Result<String, Status> {
        if !self.method.can_sign() {
            return Err(errors::verify_only());
        }
        let expires = now().saturating_add(self.time_to_live);
        let claims = Issued { username: user, revision, exp: expires.as_secs() };
        self.method.sign(&claims).map_err(|error| Status::unknown(error.to_string()))
    }

    /// User and revision of a token.
    pub(crate) fn user(&self, token: &str) -> Option<(Arc<str>, u64)> {
        let claims: Claims = match self.method.verify(token) {
            Ok(claims) => claims,
            Err(error) => {
                tracing::debug!(%error, "token was refused");
                return None;
            }
        };
        let now = now().as_secs_f64();
        let is_valid = claims.exp.is_none_or(|exp| now < exp) && claims.nbf.is_none_or(|nbf| now >= nbf);
        // The cast saturates.
        is_valid.then(|| (claims.username.into(), claims.revision as u64))
    }
}

/// Since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The text of etcd, or of the library that it parses keys with.
fn reason_of(error: &MethodError) -> &'static str {
    match error {
        MethodError::Unknown => INVALID_OPTIONS,
        MethodError::Missing => "auth: missing key data",
        MethodError::Mismatch => "auth: public and private keys don't match",
        MethodError::Pem(_) => "invalid key: Key must be a PEM encoded PKCS1 or PKCS8 key",
        MethodError::Private(MethodKind::Rsa) => "key is not a valid RSA private key",
        MethodError::Private(MethodKind::Ecdsa) => "key is not a valid ECDSA private key",
        MethodError::Private(_) => "key is not a valid Ed25519 private key",
        MethodError::Public(MethodKind::Rsa) => "key is not a valid RSA public key",
        MethodError::Public(MethodKind::Ecdsa) => "key is not a valid ECDSA public key",
        MethodError::Public(_) => "key is not a valid Ed25519 public key",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duration(text: &str) -> Result<Duration, String> {
        text.parse().map(Duration::from_secs).map_err(|_| format!("{text:?} is not a duration"))
    }

    fn read(dir: &Path, text: &str) -> Result<JwtOptions, String> {
        JwtOptions::read(&text.replace("DIR", dir.to_str().unwrap()), duration)
    }

    #[test]
    fn options_are_refused_with_the_words_of_etcd() {
        let dir = tempfile::tempdir().unwrap();
        let pair = rcgen::KeyPair::generate().unwrap();
        std::fs::write(dir.path().join("key"), pair.serialize_pem()).unwrap();
        std::fs::write(dir.path().join("pub"), pair.public_key_pem()).unwrap();
        let other = rcgen::KeyPair::generate().unwrap();
        std::fs::write(dir.path().join("other"), other.public_key_pem()).unwrap();
        std::fs::write(dir.path().join("text"), "text").unwrap();
        for (options, reason) in [
            ("jwt", "auth: invalid auth options: auth: invalid auth signature method \"\""),
            (
                "jwt,sign-method=none,priv-key=DIR/key",
                "auth: invalid auth options: auth: invalid auth signature",
            ),
            ("jwt,sign-method", "auth: invalid auth options: \"sign-method\" is not NAME=VALUE"),
            ("jwt,ttl=a=b", "auth: invalid auth options"),
            ("jwt,ttl=1,ttl=2", "auth: invalid auth options"),
            ("jwt,sign-method=ES256,priv-key=DIR/key,ttl=often", "auth: invalid auth options: \"often\""),
            ("jwt,sign-method=ES256,priv-key=DIR/none", "auth: invalid auth options"),
            ("jwt,sign-method=ES256", "auth: missing key data"),
            ("jwt,sign-method=ES256,pub-key=,priv-key=", "auth: missing key data"),
            ("jwt,sign-method=HS256,pub-key=DIR/pub", "auth: missing key data"),
            (
                "jwt,sign-method=ES256,priv-key=DIR/key,pub-key=DIR/other",
                "auth: public and private keys don't match",
            ),
            ("jwt,sign-method=RS256,priv-key=DIR/key", "key is not a valid RSA private key"),
            ("jwt,sign-method=RS256,pub-key=DIR/pub", "key is not a valid RSA public key"),
            ("jwt,sign-method=ES384,priv-key=DIR/key", "key is not a valid ECDSA private key"),
            ("jwt,sign-method=EdDSA,priv-key=DIR/key", "key is not a valid Ed25519 private key"),
            ("jwt,sign-method=ES256,priv-key=DIR/text", "invalid key: Key must be a PEM encoded"),
        ] {
            let refused = read(dir.path(), options).expect_err(options);
            assert!(refused.starts_with(reason), "{options}: {refused}");
        }
        for options in
            ["pub-key=DIR/pub,priv-key=DIR/key,ttl=60", "pub-key=DIR/pub", "priv-key=DIR/key,later=1"]
        {
            read(dir.path(), &format!("jwt,sign-method=ES256,{options}")).expect(options);
        }
    }

    #[test]
    fn a_token_is_read_until_it_expires() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("key"), "some secret").unwrap();
        let options =
            |ttl| read(dir.path(), &format!("jwt,sign-method=HS256,priv-key=DIR/key,ttl={ttl}")).unwrap();
        let tokens = options(300);
        let token = tokens.issue("u", 7).unwrap();
        assert_eq!(tokens.user(&token), Some(("u".into(), 7)));
        assert_eq!(tokens.user(&options(0).issue("u", 7).unwrap()), None);
        for (claims, user) in [
            (serde_json::json!({"username": "u", "revision": 7}), Some(7)),
            (serde_json::json!({"username": "u", "revision": 7.9, "nbf": 1}), Some(7)),
            (serde_json::json!({"username": "u", "revision": 7, "nbf": 1e12}), None),
            (serde_json::json!({"username": "u", "revision": 7, "exp": 1}), None),
            (serde_json::json!({"username": "u", "revision": 7, "exp": "never"}), None),
            (serde_json::json!({"username": "u", "revision": "7"}), None),
            (serde_json::json!({"username": "u"}), None),
            (serde_json::json!({"username": 1, "revision": 7}), None),
            (serde_json::json!({"revision": 7}), None),
        ] {
            let found = tokens.user(&tokens.method.sign(&claims).unwrap());
            assert_eq!(found, user.map(|revision| ("u".into(), revision)), "{claims}");
        }
        assert_eq!(tokens.user("a.b.c"), None);
    }
}
