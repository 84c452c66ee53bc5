//! Kinds of tokens, who waits for one, and what is remembered of them.

use std::path::Path;

use plinth_etcd::wire::auth::{permission_type, ChangePasswordRequest, UserRoleRequest};
use plinth_etcd::wire::kv::{PutRequest, PutResponse};
use plinth_etcd::wire::lease::{LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseRequest};
use plinth_etcd::wire::{Empty, HeaderResponse};
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};

use crate::support::{put, server, Client, TestServer};
use crate::users::{
    add_user, by_name, denied, grant, grant_role, guarded, refused, token, try_get, try_put, user, FLAGS,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_of_token_that_is_not_known_is_refused_at_the_start() {
    let dir: &Path = &tempfile::tempdir().unwrap().keep();
    for (kind, reason) in [
        ("paseto", "auth: invalid auth options"),
        ("jwt", "auth: invalid auth options"),
        ("jwt,sign-method=RS256", "auth: missing key data"),
        ("jwt,sign-method=RS256,priv-key=/nowhere/key", "auth: invalid auth options: /nowhere/key"),
    ] {
        let refused = TestServer::refused(dir, &["--auth-token", kind]).await;
        assert!(refused.starts_with(&format!("--auth-token: {reason}")), "{kind}: {refused}");
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// Makes root, who may do everything, and `u`, who may write `c`; returns their clients.
async fn guard(client: &Client) -> (Client, Client) {
    add_user(client, "root", "secret").await.unwrap();
    grant_role(client, "root", "root").await.unwrap();
    add_user(client, "u", "pw").await.unwrap();
    by_name(client, "Auth/RoleAdd", "r").await.unwrap();
    grant(client, "r", permission_type::READWRITE, "c", "").await.unwrap();
    grant_role(client, "u", "r").await.unwrap();
    client.call::<_, HeaderResponse>("Auth/AuthEnable", Empty {}).await.unwrap();
    (user(client, "root", "secret").await, user(client, "u", "pw").await)
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_tokens_outlive_the_server_and_end_with_each_change_of_users() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let ec = rcgen::KeyPair::generate().unwrap();
    let ed = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let rsa = include_str!("../../../pki/src/jwt/testdata/rsa-pkcs1.pem");
    let methods = [
        ("ES256", file("ec", &ec.serialize_pem())),
        ("EdDSA", file("ed", &ed.serialize_pem())),
        ("RS256", file("rsa", rsa)),
        ("PS384", file("rsa", rsa)),
        ("HS512", file("secret", "a secret of some length")),
    ];
    for (method, key) in methods {
        let data = dir.path().join(method);
        let kind = format!("jwt,sign-method={method},priv-key={key},ttl=1h");
        let flags = [&FLAGS[..], &["--auth-token", kind.as_str()]].concat();
        let server = TestServer::start(&data, &flags).await;
        let nobody = server.client().await;
        let (root, user) = guard(&nobody).await;
        assert_eq!(user.token().unwrap().split('.').count(), 3, "{method}");
        try_put(&user, "c").await.unwrap();
        denied(try_put(&user, "d").await);
        try_put(&root, "d").await.unwrap();
        // Also as other programs send it.
        try_put(&nobody.with_token(&format!("Bearer {}", user.token().unwrap())), "c").await.unwrap();
        let invalid = "etcdserver: invalid auth token";
        let mut forged = user.token().unwrap().to_owned();
        forged.replace_range(forged.rfind('.').unwrap() + 1.., "AAAA");
        for token in [forged.as_str(), "x", "a.b.c", ""] {
            refused(try_put(&nobody.with_token(token), "c").await, Code::Unauthenticated, invalid);
        }
        server.stop().await;

        // It is known to another server with the key, until users or roles change.
        let server = TestServer::start(&data, &flags).await;
        let client = server.client().await;
        let (root, old) =
            (client.with_token(root.token().unwrap()), client.with_token(user.token().unwrap()));
        try_put(&old, "c").await.unwrap();
        let (requests, mut responses) =
            old.stream::<LeaseRequest, LeaseKeepAliveResponse>("Lease/LeaseKeepAlive").await;
        requests.send(LeaseRequest { id: 1 }).await.unwrap();
        responses.next().await.unwrap().unwrap();
        by_name(&root, "Auth/RoleAdd", "s").await.unwrap();
        let ended = "etcdserver: revision of auth store is old";
        refused(try_put(&old, "c").await, Code::InvalidArgument, ended);
        refused(try_get(&old, "c", "").await, Code::InvalidArgument, ended);
        let new = crate::users::user(&client, "u", "pw").await;
        try_put(&new, "c").await.unwrap();
        // Root may manage users meanwhile, as in etcd.
        by_name(&root, "Auth/UserDelete", "u").await.unwrap();
        refused(try_put(&new, "c").await, Code::InvalidArgument, ended);
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_public_key_reads_tokens_and_signs_none() {
    let dir = tempfile::tempdir().unwrap();
    let pair = rcgen::KeyPair::generate().unwrap();
    let (private, public) = (dir.path().join("private"), dir.path().join("public"));
    std::fs::write(&private, pair.serialize_pem()).unwrap();
    std::fs::write(&public, pair.public_key_pem()).unwrap();
    let data = dir.path().join("data");
    let kind = |keys: &str| format!("jwt,sign-method=ES256,{keys}");
    let (private, public) = (private.display(), public.display());
    let (both, one) =
        (kind(&format!("priv-key={private},pub-key={public}")), kind(&format!("pub-key={public}")));
    let server = TestServer::start(&data, &[&FLAGS[..], &["--auth-token", both.as_str()]].concat()).await;
    let (_root, user) = guard(&server.client().await).await;
    server.stop().await;
    let server = TestServer::start(&data, &[&FLAGS[..], &["--auth-token", one.as_str()]].concat()).await;
    let client = server.client().await;
    try_put(&client.with_token(user.token().unwrap()), "c").await.unwrap();
    let verify_only = "auth: token signing attempted with verify-only key";
    refused(token(&client, "u", "pw").await, Code::Unknown, verify_only);
    let failed = "etcdserver: authentication failed, invalid user ID or password";
    refused(token(&client, "u", "wrong").await, Code::InvalidArgument, failed);
    server.stop().await;
}

/// Logins from an address that come at once: their results as they come.
fn logins(client: &Client, count: usize) -> tokio::task::JoinSet<Result<String, Status>> {
    let mut logins = tokio::task::JoinSet::new();
    for _ in 0..count {
        let client = client.clone();
        logins.spawn(async move { token(&client, "u", "pw").await });
    }
    logins
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_of_several_addresses_alternate_when_they_log_in_and_few_wait() {
    let (_dir, server, client) = server(&["--bcrypt-cost", "8"]).await;
    let (root, _) = guard(&client).await;
    // Twice as many as may wait.
    let mut many = logins(&client, 512);
    let first = many.join_next().await.unwrap().unwrap();
    let refusal = match first {
        Err(refused) => refused,
        Ok(_) => loop {
            if let Err(refused) = many.join_next().await.expect("some are refused").unwrap() {
                break refused;
            }
        },
    };
    assert_eq!(
        (refusal.code(), refusal.message()),
        (Code::ResourceExhausted, "etcdserver: too many requests")
    );
    let mut refused = 1;
    while let Some(Ok(Err(status))) = many.try_join_next() {
        assert_eq!(status.code(), Code::ResourceExhausted);
        refused += 1;
    }
    assert!(refused <= 256, "{refused}");
    // Another address, and root's change of a password, wait for a turn and not for all of them.
    let other = server.client_from([127, 0, 0, 2].into()).await;
    token(&other, "u", "pw").await.unwrap();
    let change = ChangePasswordRequest { name: "root".to_owned(), password: "new".to_owned() };
    root.call::<_, HeaderResponse>("Auth/UserChangePassword", change).await.unwrap();
    let mut later = 0;
    while let Some(done) = many.join_next().await {
        later += usize::from(done.unwrap().is_ok());
    }
    assert!(later > 64, "{later} were answered later");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_kept_alive_by_who_may_write_what_it_has_got_since() {
    let (_dir, server, _nobody, root, user) = guarded().await;
    let request = LeaseGrantRequest { ttl: 600, id: 1 };
    user.call::<_, LeaseGrantResponse>("Lease/LeaseGrant", request).await.unwrap();
    let (requests, mut responses) =
        user.stream::<LeaseRequest, LeaseKeepAliveResponse>("Lease/LeaseKeepAlive").await;
    let attach = |client: &Client, key: &str| {
        let (client, request) = (client.clone(), PutRequest { lease: 1, ..put(key, "v") });
        async move { client.call::<_, PutResponse>("KV/Put", request).await.unwrap() }
    };
    attach(&user, "c").await;
    for _ in 0..3 {
        requests.send(LeaseRequest { id: 1 }).await.unwrap();
        assert_eq!(responses.next().await.unwrap().unwrap().ttl, 600);
    }
    attach(&root, "d").await;
    requests.send(LeaseRequest { id: 1 }).await.unwrap();
    denied(responses.next().await.unwrap());
    // What is permitted differently is seen by a stream that was permitted before.
    by_name(&root, "Auth/RoleAdd", "all").await.unwrap();
    grant(&root, "all", permission_type::READWRITE, "\0", "\0").await.unwrap();
    grant_role(&root, "u", "all").await.unwrap();
    let (requests, mut responses) =
        user.stream::<LeaseRequest, LeaseKeepAliveResponse>("Lease/LeaseKeepAlive").await;
    requests.send(LeaseRequest { id: 1 }).await.unwrap();
    assert_eq!(responses.next().await.unwrap().unwrap().ttl, 600);
    let revoke = UserRoleRequest { user: "u".to_owned(), role: "all".to_owned() };
    root.call::<_, HeaderResponse>("Auth/UserRevokeRole", revoke).await.unwrap();
    requests.send(LeaseRequest { id: 1 }).await.unwrap();
    denied(responses.next().await.unwrap());
    server.stop().await;
}
