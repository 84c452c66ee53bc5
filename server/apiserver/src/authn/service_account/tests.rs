use std::sync::atomic::{AtomicBool, Ordering};

use plinth_engine::{Engine, Options, Transaction};

use super::claims::Kubernetes;
use super::*;
use plinth_pki::{sign_jwt, unix_now, unverified_claims};
use plinth_registry::{object_key, resource_prefix};
use plinth_storage::{HeaderFields, BODY_START};

const AUDIENCE: &str = "https://issuer.example";

/// A store with a service account, a pod, a Secret and a node, and an issuer of tokens.
struct World {
    accounts: Arc<ServiceAccounts>,
    store: Store,
    engine: Engine,
    dir: tempfile::TempDir,
}

impl World {
    async fn new(change: impl FnOnce(&mut ServiceAccountSettings)) -> World {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path().join("store"))).unwrap();
        let key_file = dir.path().join("sa.key");
        std::fs::write(&key_file, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
        let mut settings = ServiceAccountSettings {
            issuers: vec![AUDIENCE.into()],
            audiences: vec![AUDIENCE.into()],
            signing_key_file: key_file,
            key_files: Vec::new(),
            max_expiration: None,
            extend: true,
            lookup: true,
        };
        change(&mut settings);
        let store = Store::new(engine.clone(), Arc::default());
        let accounts = Arc::new(ServiceAccounts::new(settings, store.clone()).unwrap());
        let world = World { accounts, store, engine, dir };
        for (kind, name) in [
            (BoundKind::ServiceAccount, "sa"),
            (BoundKind::Pod, "pod"),
            (BoundKind::Secret, "secret"),
            (BoundKind::Node, "node"),
        ] {
            world.put(kind, name, &format!("uid-{name}"), "", "").await;
        }
        world
    }

    /// Stores an object; `more` are additional fields of its metadata, `rest` of the object.
    async fn put(&self, kind: BoundKind, name: &str, uid: &str, more: &str, rest: &str) {
        let metadata = format!(r#"{{"name":"{name}","uid":"{uid}"{more}}}"#);
        let body = format!(r#"{{"metadata":{metadata}{rest}}}"#);
        assert!(body.as_bytes().starts_with(BODY_START));
        let labels = match more.contains(INVALID_SINCE) {
            true => vec![(INVALID_SINCE, "2026-01-01")],
            false => Vec::new(),
        };
        let header = HeaderFields {
            version: "v1",
            uid,
            deleting: more.contains("deletionTimestamp"),
            labels,
            ..HeaderFields::default()
        };
        let value = header.encode(metadata.len(), body.as_bytes());
        self.store
            .commit_by(Transaction::new().put(self.key(kind, name), value), None)
            .await
            .unwrap()
            .unwrap();
    }

    async fn delete(&self, kind: BoundKind, name: &str) {
        self.store.commit_by(Transaction::new().delete(self.key(kind, name)), None).await.unwrap().unwrap();
    }

    fn key(&self, kind: BoundKind, name: &str) -> Vec<u8> {
        let namespace = if kind == BoundKind::Node { "" } else { "ns" };
        object_key(&resource_prefix("", kind.plural()), namespace, name)
    }

    fn issue(&self, change: impl FnOnce(&mut Kubernetes)) -> String {
        let mut claims = Kubernetes {
            namespace: "ns".into(),
            serviceaccount: Reference::new("sa", "uid-sa"),
            ..Kubernetes::default()
        };
        change(&mut claims);
        self.accounts.issue(claims, vec![AUDIENCE.into()], 600).unwrap().token
    }

    async fn ask(&self, token: &str) -> Result<Option<Authenticated>, TokenError> {
        self.accounts.authenticate(token, &[AUDIENCE.to_owned()], &mut Vec::new()).await
    }

    /// A token with claims that the issuer would not issue.
    fn sign(&self, claims: &BoundClaims) -> String {
        sign_jwt(&SigningKey::read(&self.accounts.settings.signing_key_file).unwrap(), claims).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.engine.close();
        let _ = self.dir.path();
    }
}

fn pod(claims: &mut Kubernetes) {
    claims.pod = Some(Reference::new("pod", "uid-pod"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_says_who_and_where() {
    let world = World::new(|_| {}).await;
    let token = world.issue(|claims| {
        pod(claims);
        claims.node = Some(Reference::new("gone", ""));
    });
    let user = world.ask(&token).await.unwrap().unwrap().user;
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:ns:sa", "uid-sa"));
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
    let extra = |key: &str| user.extra_value(&format!("authentication.kubernetes.io/{key}"));
    assert_eq!((extra("pod-name"), extra("pod-uid")), (Some("pod"), Some("uid-pod")));
    assert_eq!((extra("node-name"), extra("node-uid")), (Some("gone"), None));
    let claims: BoundClaims = unverified_claims(&token).unwrap();
    assert_eq!(user.credential_id(), Some(format!("JTI={}", claims.registered.jti).as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_die_with_what_they_are_bound_to() {
    type Bind = fn(&mut Kubernetes);
    let secret: Bind = |c| c.secret = Some(Reference::new("secret", "uid-secret"));
    let node: Bind = |c| c.node = Some(Reference::new("node", "uid-node"));
    let nothing: Bind = |_| {};
    let rows = [
        (nothing, BoundKind::ServiceAccount, "sa"),
        (pod as Bind, BoundKind::ServiceAccount, "sa"),
        (pod as Bind, BoundKind::Pod, "pod"),
        (secret, BoundKind::Secret, "secret"),
        (node, BoundKind::Node, "node"),
    ];
    for (bind, kind, name) in rows {
        let world = World::new(|_| {}).await;
        let token = world.issue(bind);
        let ask = || world.ask(&token);
        let long_ago = r#","deletionTimestamp":"2020-01-01T00:00:00Z""#;
        let just_now =
            time::OffsetDateTime::now_utc().format(&time::format_description::well_known::Rfc3339).unwrap();
        let just_now = format!(r#","deletionTimestamp":"{just_now}""#);
        assert!(ask().await.unwrap().is_some(), "{kind:?}");
        world.put(kind, name, &format!("uid-{name}"), &just_now, "").await;
        assert!(ask().await.unwrap().is_some(), "{kind:?} has a minute to go");
        world.put(kind, name, &format!("uid-{name}"), long_ago, "").await;
        assert!(
            matches!(ask().await, Err(TokenError::Invalidated | TokenError::AccountDeleted(_))),
            "{kind:?} is going"
        );
        world.put(kind, name, "another", "", "").await;
        assert!(matches!(ask().await, Err(TokenError::Uid { .. })), "another {kind:?} of that name");
        world.delete(kind, name).await;
        assert!(
            matches!(ask().await, Err(TokenError::Invalidated | TokenError::NoAccount(_))),
            "no {kind:?}"
        );
    }
}

/// Each change counts for the next request, while other requests keep the cache busy.
#[tokio::test(flavor = "multi_thread")]
async fn the_request_after_a_change_sees_it() {
    let world = World::new(|_| {}).await;
    let token = world.issue(pod);
    let done = AtomicBool::new(false);
    let others = async {
        while !done.load(Ordering::Relaxed) {
            let _ = world.ask(&token).await;
            tokio::task::yield_now().await;
        }
    };
    let changes = async {
        for round in 0..200 {
            assert!(world.ask(&token).await.is_ok(), "round {round}");
            world.delete(BoundKind::Pod, "pod").await;
            assert_eq!(world.ask(&token).await.unwrap_err(), TokenError::Invalidated, "round {round}");
            world.put(BoundKind::Pod, "pod", "uid-pod", "", "").await;
        }
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(others, changes);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_by_table() {
    let world = World::new(|_| {}).await;
    let good: BoundClaims = unverified_claims(&world.issue(|_| {})).unwrap();
    let now = unix_now();
    let with = |change: fn(&mut BoundClaims, i64)| {
        let mut claims = good.clone();
        change(&mut claims, now);
        world.sign(&claims)
    };
    let expired = TokenError::Jwt(JwtError::Expired);
    let audience =
        |tokens: &str| TokenError::Audience { tokens: vec![tokens.into()], wanted: vec![AUDIENCE.into()] };
    let rows = [
        ("as issued", with(|_, _| {}), Ok(true)),
        ("expired", with(|c, now| c.registered.exp = Some(now - 61)), Err(expired)),
        ("just expired", with(|c, now| c.registered.exp = Some(now - 30)), Ok(true)),
        (
            "not yet",
            with(|c, now| c.registered.nbf = Some(now + 120)),
            Err(TokenError::Jwt(JwtError::NotYet)),
        ),
        ("other audience", with(|c, _| c.registered.aud = vec!["vault".into()]), Err(audience("vault"))),
        ("no audience", with(|c, _| c.registered.aud.clear()), Ok(true)),
        ("other issuer", with(|c, _| c.registered.iss = "https://other.example".into()), Ok(false)),
        ("no issuer", with(|c, _| c.registered.iss.clear()), Ok(false)),
        (
            "other account",
            with(|c, _| c.kubernetes.serviceaccount.name = "x".into()),
            Err(TokenError::NoAccount("x".into())),
        ),
        ("not a token", "abc".to_owned(), Ok(false)),
    ];
    for (what, token, outcome) in rows {
        // Twice: a cached token is checked like a new one.
        for _ in 0..2 {
            assert_eq!(world.ask(&token).await.map(|a| a.is_some()), outcome, "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_secrets_by_table() {
    let world = World::new(|_| {}).await;
    let account = Reference::new("sa", "uid-sa");
    let token = world.accounts.issue_legacy("ns", &account, "secret").unwrap();
    let data = |token: &str| {
        use base64::Engine as _;
        format!(r#","data":{{"token":"{}"}}"#, base64::engine::general_purpose::STANDARD.encode(token))
    };
    let marked = format!(r#","labels":{{"{INVALID_SINCE}":"2026-01-01"}}"#);
    let going = r#","deletionTimestamp":"2099-01-01T00:00:00Z""#;
    let rows = [
        ("", data(&token), Ok(true)),
        ("", String::new(), Err(TokenError::SecretMismatch)),
        ("", data("other"), Err(TokenError::SecretMismatch)),
        (
            marked.as_str(),
            data(&token),
            Err(TokenError::MarkedInvalid { secret: "ns/secret".into(), account: "ns/sa".into() }),
        ),
        (going, data(&token), Err(TokenError::Invalidated)),
    ];
    for (metadata, data, outcome) in rows {
        world.put(BoundKind::Secret, "secret", "any", metadata, &data).await;
        assert_eq!(world.ask(&token).await.map(|a| a.is_some()), outcome, "{metadata} {data}");
    }
    world.put(BoundKind::Secret, "secret", "any", "", &data(&token)).await;
    world.put(BoundKind::ServiceAccount, "sa", "uid-sa", going, "").await;
    assert_eq!(world.ask(&token).await.unwrap_err(), TokenError::AccountDeleted("ns/sa".into()));
    let relaxed = World::new(|settings| settings.lookup = false).await;
    let token = relaxed.accounts.issue_legacy("ns", &account, "not there").unwrap();
    assert!(relaxed.ask(&token).await.unwrap().is_some());
}

#[test]
fn legacy_claims_must_be_complete() {
    let good = LegacyClaims::new("ns", &Reference::new("sa", "u"), "secret");
    assert_eq!(good.check(), Ok(()));
    let rows: [(&str, fn(&mut LegacyClaims)); 6] = [
        ("sub claim is missing", |c| c.registered.sub.clear()),
        ("namespace claim is missing", |c| c.namespace.clear()),
        ("secretName claim is missing", |c| c.secret_name.clear()),
        ("serviceAccountName claim is missing", |c| c.account_name.clear()),
        ("serviceAccountUID claim is missing", |c| c.account_uid.clear()),
        ("sub claim is invalid", |c| c.namespace = "other".into()),
    ];
    for (error, change) in rows {
        let mut claims = good.clone();
        change(&mut claims);
        assert_eq!(claims.check().unwrap_err().to_string(), error);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lives_by_table() {
    let world = World::new(|_| {}).await;
    // bound to a pod, audience, requested lifetime, lifetime, warns
    let rows = [
        (true, AUDIENCE, 3607, EXTENDED, true),
        (true, AUDIENCE, 3600, 3600, false),
        (true, "vault", 3607, 3607, false),
        (false, AUDIENCE, 3607, 3607, false),
    ];
    for (bound, audience, asked, lives, warns) in rows {
        let mut claims = Kubernetes {
            namespace: "ns".into(),
            serviceaccount: Reference::new("sa", "uid-sa"),
            ..Kubernetes::default()
        };
        if bound {
            pod(&mut claims);
        }
        let issued = world.accounts.issue(claims, vec![audience.into()], asked).unwrap();
        let claims: BoundClaims = unverified_claims(&issued.token).unwrap();
        let registered = claims.registered;
        let issued_at = registered.iat.unwrap();
        assert_eq!((registered.exp.unwrap() - issued_at, issued.expires - issued_at), (lives, asked));
        assert_eq!(claims.kubernetes.warnafter.is_some(), warns);
        assert_eq!(registered.sub, "system:serviceaccount:ns:sa");
    }
}
