//! Service accounts: their tokens are issued, checked and revoked here (kubernetes `pkg/serviceaccount`).
//!
//! A *bound* token is made on request (TokenRequest), names its audiences and its end, and dies with the object that
//! it is bound to. A *legacy* token lies in a Secret of type `kubernetes.io/service-account-token`, has no end, and
//! dies with the Secret. A signature is checked once per token and then remembered; what can change (the time, the
//! bound objects) is checked for each request.

pub mod bindings;
pub mod claims;
pub mod discovery;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::jwt::{self, JwtError, KeyError, SigningKey, VerifyingKey};
use super::{Authenticated, User};
use crate::status::ApiError;
use crate::storage::Store;
use bindings::{Bindings, Bound, Kind};
use claims::{BoundClaims, LegacyClaims, MissingClaim, Reference};

/// The label that switches the token in a Secret off.
pub const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// The issuer unless `--service-account-issuer` names others: the name by which pods reach the server.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Verified tokens that are remembered; beyond them all are forgotten and verified again.
const REMEMBERED: usize = 4096;
/// The longest life of a token that upstream extends for clients that do not reload it, in seconds: a year.
const EXTENDED: i64 = 365 * 24 * 3600;
/// The life that the token volume of upstream's pods asks for, which marks the tokens to extend.
pub const WARN_ONLY_EXPIRATION: i64 = 3607;

/// Why a service-account token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the texts, upstream's, say it
pub enum TokenError {
    #[error("service account {0}")]
    Jwt(#[from] JwtError),
    #[error("token audiences {tokens:?} is invalid for the target audiences {wanted:?}")]
    Audience { tokens: Vec<String>, wanted: Vec<String> },
    #[error("{0}")]
    Claim(String),
    #[error("serviceaccounts {0:?} not found")]
    NoAccount(String),
    #[error("{kind} UID ({is}) does not match claim ({claimed})")]
    Uid { kind: &'static str, is: String, claimed: String },
    #[error("service account {0} has been deleted")]
    AccountDeleted(String),
    #[error("service account token has been invalidated")]
    Invalidated,
    #[error("Token does not match server's copy")]
    NotTheSecrets,
    #[error("the token in secret {0} has been marked invalid")]
    MarkedInvalid(String),
    #[error("cannot read what the token is bound to: {0}")]
    Read(String),
}

impl From<MissingClaim> for TokenError {
    fn from(fault: MissingClaim) -> TokenError {
        TokenError::Claim(fault.to_string())
    }
}

/// Where keys come from and what tokens say.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Issuers that are accepted; the first one issues.
    pub issuers: Vec<String>,
    /// Audiences of this server.
    pub audiences: Vec<String>,
    /// The private key that signs.
    pub signing_key_file: PathBuf,
    /// Public keys that verify; the signing key's own when there are none.
    pub key_files: Vec<PathBuf>,
    /// The longest life that can be asked for, in seconds; longer ones are cut.
    pub max_expiration: Option<i64>,
    /// Whether the tokens of pods live a year, so that clients that do not reload them go on.
    pub extend: bool,
    /// Whether legacy tokens must be in their Secret.
    pub lookup: bool,
}

/// Issues and checks tokens. The map of remembered tokens is locked to look up and to put.
pub struct ServiceAccounts {
    settings: Settings,
    signing: SigningKey,
    keys: Vec<VerifyingKey>,
    bindings: Bindings,
    remembered: Mutex<HashMap<[u8; 32], Arc<Verified>>>,
}

/// A token whose signature and shape are right; neither changes.
struct Verified {
    user: Arc<User>,
    audiences: Vec<String>,
    registered: jwt::Registered,
    namespace: String,
    account: Reference,
    to: Binding,
}

/// What else than its account a token is bound to.
enum Binding {
    Nothing,
    Object(Kind, Reference),
    /// The Secret that it lies in.
    Legacy(String),
}

impl ServiceAccounts {
    /// Reads the keys.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn new(settings: Settings, store: Store) -> Result<ServiceAccounts, KeyError> {
        let signing = SigningKey::read(&settings.signing_key_file)?;
        let mut keys = Vec::new();
        for file in &settings.key_files {
            keys.extend(jwt::keys::read_public(file)?);
        }
        if keys.is_empty() {
            keys.push(signing.public().clone());
        }
        let remembered = Mutex::default();
        Ok(ServiceAccounts { settings, signing, keys, bindings: Bindings::new(store), remembered })
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The keys that verify.
    pub fn keys(&self) -> &[VerifyingKey] {
        &self.keys
    }

    /// What keeps the knowledge of bound objects fresh; runs as long as the server.
    pub async fn follow(&self) {
        self.bindings.follow().await;
    }

    /// Who a token stands for, and for which of the wanted audiences; `None` for tokens of other issuers.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn authenticate(
        &self,
        token: &str,
        wanted: &[String],
    ) -> Result<Option<Authenticated>, TokenError> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let known = self.remembered.lock().get(&hash).cloned();
        let verified = match known {
            Some(verified) => verified,
            None => match self.verify(token)? {
                Some(verified) => self.remember(hash, verified),
                None => return Ok(None),
            },
        };
        let audiences: Vec<String> =
            verified.audiences.iter().filter(|a| wanted.contains(a)).cloned().collect();
        if audiences.is_empty() && !self.settings.audiences.is_empty() {
            let (tokens, wanted) = (verified.audiences.clone(), wanted.to_vec());
            return Err(TokenError::Audience { tokens, wanted });
        }
        let now = jwt::now();
        verified.registered.check_time(now)?;
        self.check_bindings(&verified, &hash, now).await?;
        Ok(Some(Authenticated { user: verified.user.clone(), audiences }))
    }

    fn remember(&self, hash: [u8; 32], verified: Verified) -> Arc<Verified> {
        let verified = Arc::new(verified);
        let mut remembered = self.remembered.lock();
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(hash, verified.clone());
        verified
    }

    /// Signature and shape; `None` for tokens of other issuers.
    fn verify(&self, token: &str) -> Result<Option<Verified>, TokenError> {
        #[derive(Deserialize)]
        struct Issuer {
            #[serde(default)]
            iss: String,
        }
        let Ok(Issuer { iss }) = jwt::unverified(token) else { return Ok(None) };
        let legacy = iss == claims::LEGACY_ISSUER;
        if !legacy && !self.settings.issuers.contains(&iss) {
            return Ok(None);
        }
        let kid = jwt::header(token)?.kid.unwrap_or_default();
        let keys = self.keys.iter().filter(|key| kid.is_empty() || key.id() == kid);
        match legacy {
            true => {
                let claims: LegacyClaims = jwt::verify(token, keys)?;
                claims.check()?;
                Ok(Some(self.legacy(claims)))
            }
            false => Ok(Some(self.bound(jwt::verify(token, keys)?)?)),
        }
    }

    fn bound(&self, claims: BoundClaims) -> Result<Verified, TokenError> {
        let user = Arc::new(claims::bound_user(&claims));
        let BoundClaims { registered, kubernetes } = claims;
        let to = match (kubernetes.secret, kubernetes.pod, kubernetes.node) {
            (Some(secret), None, _) => Binding::Object(Kind::Secret, secret),
            // The node of a pod-bound token is information: the pod counts.
            (None, Some(pod), _) => Binding::Object(Kind::Pod, pod),
            (None, None, Some(node)) => Binding::Object(Kind::Node, node),
            (None, None, None) => Binding::Nothing,
            (Some(_), Some(_), _) => {
                return Err(TokenError::Claim("token can only be bound to one object type".into()))
            }
        };
        let audiences = self.audiences_of(&registered);
        let (namespace, account) = (kubernetes.namespace, kubernetes.serviceaccount);
        Ok(Verified { user, audiences, registered, namespace, account, to })
    }

    fn legacy(&self, claims: LegacyClaims) -> Verified {
        let account = Reference { name: claims.account_name, uid: claims.account_uid };
        Verified {
            user: Arc::new(claims::account_user(&claims.namespace, &account)),
            audiences: self.audiences_of(&claims.registered),
            registered: claims.registered,
            namespace: claims.namespace,
            account,
            to: match self.settings.lookup {
                true => Binding::Legacy(claims.secret_name),
                false => Binding::Nothing,
            },
        }
    }

    /// A token that names no audience is meant for this server.
    fn audiences_of(&self, registered: &jwt::Registered) -> Vec<String> {
        match registered.aud.is_empty() {
            true => self.settings.audiences.clone(),
            false => registered.aud.clone(),
        }
    }

    async fn check_bindings(&self, token: &Verified, hash: &[u8; 32], now: i64) -> Result<(), TokenError> {
        let is_legacy = token.registered.iss == claims::LEGACY_ISSUER;
        if is_legacy && !self.settings.lookup {
            return Ok(());
        }
        if let Binding::Legacy(name) = &token.to {
            let secret = self.get(Kind::Secret, &token.namespace, name).await?;
            let secret = secret.filter(|s| s.deleted_at.is_none()).ok_or(TokenError::Invalidated)?;
            if secret.token.as_ref() != Some(hash) {
                return Err(TokenError::NotTheSecrets);
            }
            if secret.invalid_since.is_some() {
                return Err(TokenError::MarkedInvalid(format!("{}/{name}", token.namespace)));
            }
        }
        let account = self.get(Kind::ServiceAccount, &token.namespace, &token.account.name).await?;
        let account = account.ok_or_else(|| TokenError::NoAccount(token.account.name.clone()))?;
        same_uid("service account", &account, &token.account)?;
        // A legacy token ends when its account begins to go, a bound one has the time that clocks may differ.
        let gone_since = if is_legacy { i64::MAX } else { now.saturating_sub(jwt::LEEWAY) };
        if account.deleted_at.is_some_and(|when| when < gone_since) {
            let name = format!("{}/{}", token.namespace, token.account.name);
            return Err(TokenError::AccountDeleted(name));
        }
        if let Binding::Object(kind, reference) = &token.to {
            let bound = self.get(*kind, &token.namespace, &reference.name).await?;
            let bound = bound.ok_or(TokenError::Invalidated)?;
            let kind = match kind {
                Kind::Pod => "pod",
                Kind::Secret => "secret",
                _ => "node",
            };
            same_uid(kind, &bound, reference)?;
            if bound.deleted_at.is_some_and(|when| when < gone_since) {
                return Err(TokenError::Invalidated);
            }
        }
        Ok(())
    }

    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Arc<Bound>>, TokenError> {
        let read = self.bindings.get(kind, namespace, name).await;
        read.map_err(|fault: ApiError| TokenError::Read(fault.to_string()))
    }

    /// Signs a bound token; the caller has checked that its objects are there. `lives` in seconds.
    ///
    /// # Errors
    /// When the key fails.
    pub fn issue(
        &self,
        kubernetes: claims::Kubernetes,
        audiences: Vec<String>,
        lives: i64,
    ) -> Result<Issued, ApiError> {
        let now = jwt::now();
        let mut kubernetes = kubernetes;
        let ours = audiences.iter().all(|a| self.settings.audiences.contains(a));
        let extended =
            self.settings.extend && kubernetes.pod.is_some() && lives == WARN_ONLY_EXPIRATION && ours;
        if extended {
            kubernetes.warnafter = Some(now + lives);
        }
        let exp = now + if extended { EXTENDED } else { lives };
        let jti = uuid::Uuid::new_v4().to_string();
        let registered = jwt::Registered {
            iss: self.settings.issuers.first().cloned().unwrap_or_default(),
            sub: super::user::service_account_name(&kubernetes.namespace, &kubernetes.serviceaccount.name),
            aud: audiences,
            exp: Some(exp),
            nbf: Some(now),
            iat: Some(now),
            jti: jti.clone(),
        };
        let token = jwt::sign(&self.signing, &BoundClaims { registered, kubernetes });
        let token =
            token.map_err(|fault| ApiError::internal(format!("failed to generate token: {fault}")))?;
        Ok(Issued { token, expires: now + lives, credential_id: format!("JTI={jti}") })
    }

    /// Signs the token of a Secret.
    ///
    /// # Errors
    /// When the key fails.
    pub fn issue_legacy(
        &self,
        namespace: &str,
        account: &Reference,
        secret: &str,
    ) -> Result<String, ApiError> {
        jwt::sign(&self.signing, &LegacyClaims::new(namespace, account, secret))
            .map_err(|fault| ApiError::internal(format!("failed to generate token: {fault}")))
    }
}

/// A token that was made.
#[derive(Debug)]
pub struct Issued {
    /// The token.
    pub token: String,
    /// When a client should have another one, in seconds since 1970.
    pub expires: i64,
    /// What audit calls it.
    pub credential_id: String,
}

fn same_uid(kind: &'static str, is: &Bound, claimed: &Reference) -> Result<(), TokenError> {
    match is.uid == claimed.uid {
        true => Ok(()),
        false => Err(TokenError::Uid { kind, is: is.uid.clone(), claimed: claimed.uid.clone() }),
    }
}

#[cfg(test)]
mod tests;
