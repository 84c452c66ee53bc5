//! Users, roles, permissions, and tokens.

use plinth_etcd::wire::auth::{
    permission_type, AuthStatusResponse, AuthenticateRequest, AuthenticateResponse, ChangePasswordRequest,
    GrantPermissionRequest, NameRequest, NamesResponse, Permission, RevokePermissionRequest, RoleGetResponse,
    UserAddOptions, UserAddRequest, UserRoleRequest,
};
use plinth_etcd::wire::concurrency::{
    CampaignRequest, CampaignResponse, LeaderRequest, LeaderResponse, LockRequest, LockResponse,
    ResignRequest,
};
use plinth_etcd::wire::kv::request_op::Request;
use plinth_etcd::wire::kv::{
    CompactionRequest, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest,
    RangeResponse, RequestOp, TxnRequest, TxnResponse,
};
use plinth_etcd::wire::lease::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseLeasesResponse, LeaseRequest,
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use plinth_etcd::wire::maintenance::{
    alarm, alarm_action, AlarmRequest, AlarmResponse, MembersResponse, StatusResponse,
};
use plinth_etcd::wire::watch::{watch_request, WatchCreateRequest, WatchRequest, WatchResponse};
use plinth_etcd::wire::{Empty, HeaderResponse};
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};

use crate::support::{bytes, put, server, Client, TestServer};

/// Cheap hashes.
pub(crate) const FLAGS: [&str; 2] = ["--bcrypt-cost", "4"];
const DENIED: &str = "etcdserver: permission denied";
const NO_USER: &str = "etcdserver: user name is empty";

pub(crate) type Changed = Result<HeaderResponse, Status>;

pub(crate) async fn add_user(client: &Client, name: &str, password: &str) -> Changed {
    let request = UserAddRequest { name: name.to_owned(), password: password.to_owned(), options: None };
    client.call("Auth/UserAdd", request).await
}

pub(crate) async fn by_name(client: &Client, method: &str, name: &str) -> Changed {
    client.call(method, NameRequest { name: name.to_owned() }).await
}

pub(crate) async fn grant_role(client: &Client, user: &str, role: &str) -> Changed {
    let request = UserRoleRequest { user: user.to_owned(), role: role.to_owned() };
    client.call("Auth/UserGrantRole", request).await
}

pub(crate) async fn grant(client: &Client, role: &str, perm_type: i32, key: &str, end: &str) -> Changed {
    let permission = Permission { perm_type, key: bytes(key), range_end: bytes(end) };
    let request = GrantPermissionRequest { name: role.to_owned(), permission: Some(permission) };
    client.call("Auth/RoleGrantPermission", request).await
}

pub(crate) async fn token(client: &Client, name: &str, password: &str) -> Result<String, Status> {
    let request = AuthenticateRequest { name: name.to_owned(), password: password.to_owned() };
    let answer: AuthenticateResponse = client.call("Auth/Authenticate", request).await?;
    Ok(answer.token)
}

/// A client with the token of a user.
pub(crate) async fn user(client: &Client, name: &str, password: &str) -> Client {
    client.with_token(&token(client, name, password).await.unwrap())
}

async fn status(client: &Client) -> AuthStatusResponse {
    client.call("Auth/AuthStatus", Empty {}).await.unwrap()
}

pub(crate) async fn try_put(client: &Client, key: &str) -> Result<PutResponse, Status> {
    client.call("KV/Put", put(key, "v")).await
}

pub(crate) async fn try_get(client: &Client, key: &str, end: &str) -> Result<RangeResponse, Status> {
    client.range(RangeRequest { key: bytes(key), range_end: bytes(end), ..RangeRequest::default() }).await
}

pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, text: &str) {
    let status = answer.expect_err(text);
    assert_eq!((status.code(), status.message()), (code, text));
}

pub(crate) fn denied<T: std::fmt::Debug>(answer: Result<T, Status>) {
    refused(answer, Code::PermissionDenied, DENIED);
}

/// A server with authentication, with root, and with a user who may read `a/`, write `b/`, and do both with
/// `c`.
pub(crate) async fn guarded() -> (tempfile::TempDir, TestServer, Client, Client, Client) {
    let (dir, server, client) = server(&FLAGS).await;
    add_user(&client, "root", "secret").await.unwrap();
    grant_role(&client, "root", "root").await.unwrap();
    add_user(&client, "u", "pw").await.unwrap();
    by_name(&client, "Auth/RoleAdd", "r").await.unwrap();
    grant(&client, "r", permission_type::READ, "a/", "a0").await.unwrap();
    grant(&client, "r", permission_type::WRITE, "b/", "b0").await.unwrap();
    grant(&client, "r", permission_type::READWRITE, "c", "").await.unwrap();
    grant_role(&client, "u", "r").await.unwrap();
    client.call::<_, HeaderResponse>("Auth/AuthEnable", Empty {}).await.unwrap();
    let (root, user) = (user(&client, "root", "secret").await, user(&client, "u", "pw").await);
    (dir, server, client, root, user)
}

#[tokio::test(flavor = "multi_thread")]
async fn users_and_roles_have_etcds_rules() {
    let (_dir, server, client) = server(&FLAGS).await;
    let enable = || client.call::<_, HeaderResponse>("Auth/AuthEnable", Empty {});
    refused(
        token(&client, "root", "x").await,
        Code::FailedPrecondition,
        "etcdserver: authentication is not enabled",
    );
    refused(enable().await, Code::FailedPrecondition, "etcdserver: root user does not exist");
    assert_eq!((status(&client).await.enabled, status(&client).await.auth_revision), (false, 1));
    refused(add_user(&client, "", "x").await, Code::InvalidArgument, NO_USER);
    add_user(&client, "root", "secret").await.unwrap();
    assert_eq!(status(&client).await.auth_revision, 2);
    refused(
        add_user(&client, "root", "x").await,
        Code::FailedPrecondition,
        "etcdserver: user name already exists",
    );
    let long = "x".repeat(73);
    refused(
        add_user(&client, "long", &long).await,
        Code::Unknown,
        "bcrypt: password length exceeds 72 bytes",
    );
    refused(enable().await, Code::FailedPrecondition, "etcdserver: root user does not have root role");
    let no_role = "etcdserver: role name not found";
    refused(grant_role(&client, "root", "r").await, Code::FailedPrecondition, no_role);
    refused(
        grant_role(&client, "nobody", "root").await,
        Code::FailedPrecondition,
        "etcdserver: user name not found",
    );
    grant_role(&client, "root", "root").await.unwrap();
    let revision = status(&client).await.auth_revision;
    grant_role(&client, "root", "root").await.unwrap();
    assert_eq!(status(&client).await.auth_revision, revision, "granted before");

    refused(
        by_name(&client, "Auth/RoleAdd", "").await,
        Code::InvalidArgument,
        "etcdserver: role name is empty",
    );
    by_name(&client, "Auth/RoleAdd", "r").await.unwrap();
    let exists = "etcdserver: role name already exists";
    refused(by_name(&client, "Auth/RoleAdd", "r").await, Code::FailedPrecondition, exists);
    let none = GrantPermissionRequest { name: "r".to_owned(), permission: None };
    let none = client.call::<_, HeaderResponse>("Auth/RoleGrantPermission", none).await;
    refused(none, Code::InvalidArgument, "etcdserver: permission not given");
    let management = "etcdserver: invalid auth management";
    for (key, end) in [("b", "a"), ("", ""), ("a", "a")] {
        refused(grant(&client, "r", 0, key, end).await, Code::InvalidArgument, management);
    }
    refused(grant(&client, "s", 0, "a", "").await, Code::FailedPrecondition, no_role);
    grant(&client, "r", permission_type::READ, "b", "").await.unwrap();
    grant(&client, "r", permission_type::READ, "a", "b").await.unwrap();
    grant(&client, "r", permission_type::WRITE, "b", "").await.unwrap();
    let role = || client.call::<_, RoleGetResponse>("Auth/RoleGet", NameRequest { name: "r".to_owned() });
    let found: Vec<_> = role().await.unwrap().permissions.into_iter().map(|p| (p.key, p.perm_type)).collect();
    assert_eq!(found, [(bytes("a"), permission_type::READ), (bytes("b"), permission_type::WRITE)]);
    let revoke = |key, end| {
        let request =
            RevokePermissionRequest { role: "r".to_owned(), key: bytes(key), range_end: bytes(end) };
        client.call::<_, HeaderResponse>("Auth/RoleRevokePermission", request)
    };
    let not_granted = "etcdserver: permission is not granted to the role";
    refused(revoke("a", "").await, Code::FailedPrecondition, not_granted);
    revoke("a", "b").await.unwrap();
    assert_eq!(role().await.unwrap().permissions.len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_is_gone_and_root_stays() {
    let (_dir, server, client) = server(&FLAGS).await;
    let enable = || client.call::<_, HeaderResponse>("Auth/AuthEnable", Empty {});
    let management = "etcdserver: invalid auth management";
    add_user(&client, "root", "secret").await.unwrap();
    grant_role(&client, "root", "root").await.unwrap();
    by_name(&client, "Auth/RoleAdd", "r").await.unwrap();
    add_user(&client, "u", "pw").await.unwrap();
    grant_role(&client, "u", "r").await.unwrap();
    let roles =
        |name: &str| client.call::<_, NamesResponse>("Auth/UserGet", NameRequest { name: name.to_owned() });
    assert_eq!(roles("u").await.unwrap().names, ["r"]);
    by_name(&client, "Auth/RoleDelete", "r").await.unwrap();
    assert_eq!(roles("u").await.unwrap().names, Vec::<String>::new(), "its users lose it");
    let revoke = UserRoleRequest { user: "u".to_owned(), role: "r".to_owned() };
    let revoked = client.call::<_, HeaderResponse>("Auth/UserRevokeRole", revoke).await;
    refused(revoked, Code::FailedPrecondition, "etcdserver: role is not granted to the user");
    let users: NamesResponse = client.call("Auth/UserList", Empty {}).await.unwrap();
    assert_eq!(users.names, ["root", "u"]);
    by_name(&client, "Auth/UserDelete", "u").await.unwrap();
    refused(roles("u").await, Code::FailedPrecondition, "etcdserver: user name not found");

    // What would lock everybody out.
    enable().await.unwrap();
    let root = user(&client, "root", "secret").await;
    for (method, name) in [("Auth/UserDelete", "root"), ("Auth/RoleDelete", "root")] {
        refused(by_name(&root, method, name).await, Code::InvalidArgument, management);
    }
    let revoke = UserRoleRequest { user: "root".to_owned(), role: "root".to_owned() };
    let revoked = root.call::<_, HeaderResponse>("Auth/UserRevokeRole", revoke).await;
    refused(revoked, Code::InvalidArgument, management);
    refused(enable().await, Code::InvalidArgument, NO_USER);
    root.call::<_, HeaderResponse>("Auth/AuthDisable", Empty {}).await.unwrap();
    assert!(!status(&client).await.enabled);
    try_put(&client, "free").await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_read_and_written_by_who_may() {
    let (_dir, server, nobody, root, user) = guarded().await;
    refused(try_put(&nobody, "c").await, Code::InvalidArgument, NO_USER);
    refused(try_get(&nobody, "c", "").await, Code::InvalidArgument, NO_USER);
    refused(try_put(&nobody, "").await, Code::InvalidArgument, "etcdserver: key is not provided");
    for key in ["a/1", "b/1", "c", "d"] {
        try_put(&root, key).await.unwrap();
    }
    for (key, end, reads) in [
        ("a/", "a0", true),
        ("a/1", "", true),
        ("c", "", true),
        ("b/1", "", false),
        ("a/", "c", false),
        ("\0", "\0", false),
    ] {
        match try_get(&user, key, end).await {
            Ok(_) => assert!(reads, "{key} {end}"),
            refused => {
                assert!(!reads, "{key} {end}");
                denied(refused);
            }
        }
    }
    for (key, writes) in [("b/2", true), ("c", true), ("a/1", false), ("d", false)] {
        assert_eq!(try_put(&user, key).await.is_ok(), writes, "{key}");
    }
    let with_previous = PutRequest { prev_kv: true, ..put("b/1", "v") };
    denied(user.call::<_, PutResponse>("KV/Put", with_previous).await);
    let delete = |key: &str, end: &str, prev_kv| {
        let request = DeleteRangeRequest { key: bytes(key), range_end: bytes(end), prev_kv };
        user.call::<_, DeleteRangeResponse>("KV/DeleteRange", request)
    };
    denied(delete("b/", "b0", true).await);
    denied(delete("a/", "a0", false).await);
    assert_eq!(delete("b/", "b0", false).await.unwrap().deleted, 2);

    // A transaction needs what any of its branches does.
    let operation = |request| RequestOp { request: Some(request) };
    let range = |key: &str| Request::Range(RangeRequest { key: bytes(key), ..RangeRequest::default() });
    let txn = |success: Vec<Request>, failure: Vec<Request>| {
        let operations = |requests: Vec<Request>| requests.into_iter().map(operation).collect();
        let request = TxnRequest {
            success: operations(success),
            failure: operations(failure),
            ..TxnRequest::default()
        };
        user.call::<_, TxnResponse>("KV/Txn", request)
    };
    txn(vec![range("a/1"), Request::Put(put("b/1", "v"))], vec![]).await.unwrap();
    denied(txn(vec![range("a/1")], vec![range("d")]).await);
    denied(txn(vec![Request::Put(put("a/1", "v"))], vec![]).await);
    let nested = TxnRequest { success: vec![operation(range("d"))], ..TxnRequest::default() };
    denied(txn(vec![Request::Txn(nested)], vec![]).await);

    // What was permitted is not any more, by the same token.
    let revoke = RevokePermissionRequest { role: "r".to_owned(), key: bytes("c"), range_end: bytes("") };
    root.call::<_, HeaderResponse>("Auth/RoleRevokePermission", revoke).await.unwrap();
    denied(try_put(&user, "c").await);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_begin_for_who_may_read() {
    let (_dir, server, nobody, root, user) = guarded().await;
    for (client, key, reason) in [
        (&nobody, "a/", "rpc error: code = InvalidArgument desc = etcdserver: user name is empty"),
        (&user, "b/1", "rpc error: code = PermissionDenied desc = etcdserver: permission denied"),
        (
            &nobody.with_token("wrong.1"),
            "c",
            "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token",
        ),
        (&user, "a/1", ""),
        (&root, "d", ""),
    ] {
        let (requests, mut responses) = client.stream::<WatchRequest, WatchResponse>("Watch/Watch").await;
        let create = WatchCreateRequest { key: bytes(key), ..WatchCreateRequest::default() };
        let create = WatchRequest { request: Some(watch_request::Request::Create(create)) };
        requests.send(create).await.unwrap();
        let response = responses.next().await.unwrap().unwrap();
        assert_eq!(response.cancel_reason, reason, "{key}");
        assert_eq!((response.created, response.canceled), (true, !reason.is_empty()));
        if reason.is_empty() {
            try_put(&root, key).await.unwrap();
            let events = responses.next().await.unwrap().unwrap().events;
            assert_eq!(events[0].kv.as_ref().unwrap().key, key);
        } else {
            assert_eq!(response.watch_id, -1);
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_of_who_may_write_their_keys() {
    let (_dir, server, nobody, root, user) = guarded().await;
    let grant_lease = |client: &Client, id| {
        let client = client.clone();
        async move {
            client.call::<_, LeaseGrantResponse>("Lease/LeaseGrant", LeaseGrantRequest { ttl: 600, id }).await
        }
    };
    refused(grant_lease(&nobody, 1).await, Code::InvalidArgument, NO_USER);
    grant_lease(&user, 1).await.unwrap();
    grant_lease(&root, 2).await.unwrap();
    let leased = |key: &str, lease| PutRequest { lease, ..put(key, "v") };
    user.call::<_, PutResponse>("KV/Put", leased("c", 1)).await.unwrap();
    root.call::<_, PutResponse>("KV/Put", leased("d", 2)).await.unwrap();
    // Whoever attaches a key to a lease could delete the others that are attached.
    denied(user.call::<_, PutResponse>("KV/Put", leased("b/1", 2)).await);
    let leased = RequestOp { request: Some(Request::Put(leased("b/1", 2))) };
    let txn = TxnRequest { success: vec![leased], ..TxnRequest::default() };
    denied(user.call::<_, TxnResponse>("KV/Txn", txn).await);
    denied(user.call::<_, HeaderResponse>("Lease/LeaseRevoke", LeaseRequest { id: 2 }).await);
    let time_to_live = |client: &Client, id, keys| {
        let client = client.clone();
        async move {
            client
                .call::<_, LeaseTimeToLiveResponse>(
                    "Lease/LeaseTimeToLive",
                    LeaseTimeToLiveRequest { id, keys },
                )
                .await
        }
    };
    refused(time_to_live(&nobody, 1, false).await, Code::InvalidArgument, NO_USER);
    assert_eq!(time_to_live(&user, 1, true).await.unwrap().keys, [bytes("c")]);
    time_to_live(&user, 2, false).await.unwrap();
    denied(time_to_live(&user, 2, true).await);
    denied(user.call::<_, LeaseLeasesResponse>("Lease/LeaseLeases", Empty {}).await);
    assert_eq!(
        root.call::<_, LeaseLeasesResponse>("Lease/LeaseLeases", Empty {}).await.unwrap().leases.len(),
        2
    );
    for (client, id, expected) in
        [(&user, 1, None), (&root, 2, None), (&user, 2, Some(DENIED)), (&nobody, 1, Some(NO_USER))]
    {
        let (requests, mut responses) =
            client.stream::<LeaseRequest, LeaseKeepAliveResponse>("Lease/LeaseKeepAlive").await;
        requests.send(LeaseRequest { id }).await.unwrap();
        let answer = responses.next().await.unwrap();
        assert_eq!(answer.as_ref().err().map(Status::message), expected, "{id}");
        assert!(answer.is_err() || answer.unwrap().ttl == 600);
    }
    user.call::<_, HeaderResponse>("Lease/LeaseRevoke", LeaseRequest { id: 1 }).await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_is_for_root_or_for_users() {
    let (_dir, server, nobody, root, user) = guarded().await;
    // For users.
    refused(
        nobody.call::<_, StatusResponse>("Maintenance/Status", Empty {}).await,
        Code::InvalidArgument,
        NO_USER,
    );
    user.call::<_, StatusResponse>("Maintenance/Status", Empty {}).await.unwrap();
    refused(
        nobody.call::<_, MembersResponse>("Cluster/MemberList", Empty {}).await,
        Code::InvalidArgument,
        NO_USER,
    );
    user.call::<_, MembersResponse>("Cluster/MemberList", Empty {}).await.unwrap();
    user.call::<_, AlarmResponse>("Maintenance/Alarm", AlarmRequest::default()).await.unwrap();
    // For root.
    let raise = AlarmRequest { action: alarm_action::ACTIVATE, member_id: 0, alarm: alarm::CORRUPT };
    denied(user.call::<_, AlarmResponse>("Maintenance/Alarm", raise).await);
    for method in ["Maintenance/Defragment", "Maintenance/Hash", "Maintenance/HashKV", "Cluster/MemberAdd"] {
        denied(user.call::<_, Empty>(method, Empty {}).await);
        refused(nobody.call::<_, Empty>(method, Empty {}).await, Code::InvalidArgument, NO_USER);
    }
    // A name that is none is not counted, whoever has it asked for.
    for method in ["Maintenance/Nothing", "Cluster/Nothing"] {
        assert_eq!(nobody.call::<_, Empty>(method, Empty {}).await.unwrap_err().code(), Code::Unimplemented);
    }
    denied(user.parts::<_, Empty>("Maintenance/Snapshot", Empty {}).await);
    denied(user.call::<_, Empty>("KV/Compact", CompactionRequest { revision: 1, physical: false }).await);
    for method in ["Auth/UserList", "Auth/RoleList", "Auth/AuthDisable", "Auth/AuthEnable"] {
        denied(user.call::<_, Empty>(method, Empty {}).await);
    }
    denied(add_user(&user, "v", "x").await);
    denied(grant_role(&user, "u", "root").await);
    denied(grant(&user, "r", permission_type::READWRITE, "\0", "\0").await);
    // What a user may know of itself.
    let get =
        |name: &str| user.call::<_, NamesResponse>("Auth/UserGet", NameRequest { name: name.to_owned() });
    assert_eq!(get("u").await.unwrap().names, ["r"]);
    denied(get("root").await);
    let role = |client: &Client, name: &str| {
        let (client, name) = (client.clone(), name.to_owned());
        async move { client.call::<_, RoleGetResponse>("Auth/RoleGet", NameRequest { name }).await }
    };
    assert_eq!(role(&user, "r").await.unwrap().permissions.len(), 3);
    denied(role(&user, "root").await);
    // Locks and elections are keys.
    let lock = |client: &Client, name: &str| {
        let (client, name) = (client.clone(), bytes(name));
        async move { client.call::<_, LockResponse>("v3lockpb.Lock/Lock", LockRequest { name, lease: 0 }).await }
    };
    denied(lock(&user, "lock").await);
    denied(lock(&user, "b").await);
    let (first, end) = ("locks/", "locks0");
    grant(&root, "r", permission_type::READWRITE, first, end).await.unwrap();
    let held = lock(&user, "locks").await.unwrap();
    assert!(held.key.starts_with(b"locks/"));
    let leader = LeaderRequest { name: bytes("election") };
    denied(user.call::<_, LeaderResponse>("v3electionpb.Election/Leader", leader).await);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_is_observed_by_who_may_see_it() {
    let (_dir, server, _nobody, root, user) = guarded().await;
    let name = bytes("election");
    let campaign = CampaignRequest { name: name.clone(), lease: 0, value: bytes("first") };
    let first: CampaignResponse =
        root.call("v3electionpb.Election/Campaign", campaign.clone()).await.unwrap();
    grant(&root, "r", permission_type::READ, "election/", "election0").await.unwrap();
    let observe = LeaderRequest { name };
    let mut seen = user.parts::<_, LeaderResponse>("v3electionpb.Election/Observe", observe).await.unwrap();
    assert_eq!(seen.next().await.unwrap().unwrap().kv.unwrap().value, "first");
    let (key, range_end) = (bytes("election/"), bytes("election0"));
    let revoke = RevokePermissionRequest { role: "r".to_owned(), key, range_end };
    root.call::<_, HeaderResponse>("Auth/RoleRevokePermission", revoke).await.unwrap();
    let resign = ResignRequest { leader: first.leader };
    root.call::<_, HeaderResponse>("v3electionpb.Election/Resign", resign).await.unwrap();
    let campaign = CampaignRequest { value: bytes("second"), ..campaign };
    root.call::<_, CampaignResponse>("v3electionpb.Election/Campaign", campaign).await.unwrap();
    denied(seen.next().await.unwrap());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_end_with_the_password_and_with_the_server() {
    let (dir, server, nobody, root, user) = guarded().await;
    let failed = "etcdserver: authentication failed, invalid user ID or password";
    refused(token(&nobody, "u", "wrong").await, Code::InvalidArgument, failed);
    refused(token(&nobody, "nobody", "pw").await, Code::InvalidArgument, failed);
    let invalid = "etcdserver: invalid auth token";
    refused(try_put(&nobody.with_token("x"), "c").await, Code::Unauthenticated, invalid);
    let change = ChangePasswordRequest { name: "u".to_owned(), password: "new".to_owned() };
    denied(user.call::<_, HeaderResponse>("Auth/UserChangePassword", change.clone()).await);
    root.call::<_, HeaderResponse>("Auth/UserChangePassword", change).await.unwrap();
    refused(try_put(&user, "c").await, Code::Unauthenticated, invalid);
    refused(token(&nobody, "u", "pw").await, Code::InvalidArgument, failed);
    let changed = nobody.with_token(&token(&nobody, "u", "new").await.unwrap());
    try_put(&changed, "c").await.unwrap();
    by_name(&root, "Auth/UserDelete", "u").await.unwrap();
    refused(try_put(&changed, "c").await, Code::Unauthenticated, invalid);
    let no_password = UserAddRequest {
        name: "certified".to_owned(),
        password: String::new(),
        options: Some(UserAddOptions { no_password: true }),
    };
    root.call::<_, HeaderResponse>("Auth/UserAdd", no_password).await.unwrap();
    let text = "auth: authentication failed, password was given for no password user";
    refused(token(&nobody, "certified", "").await, Code::Unknown, text);
    let before = status(&root).await;
    server.stop().await;

    // Users stay, tokens do not.
    let server = TestServer::start(dir.path(), &FLAGS).await;
    let client = server.client().await;
    let old = client.with_token(root.token().unwrap());
    refused(old.call::<_, Empty>("Auth/UserList", Empty {}).await, Code::Unauthenticated, invalid);
    let root = self::user(&client, "root", "secret").await;
    let after = status(&root).await;
    assert_eq!((after.enabled, after.auth_revision), (true, before.auth_revision));
    let users: NamesResponse = root.call("Auth/UserList", Empty {}).await.unwrap();
    assert_eq!(users.names, ["certified", "root"]);
    assert_eq!(
        client
            .range(RangeRequest { key: bytes("c"), ..RangeRequest::default() })
            .await
            .unwrap_err()
            .message(),
        NO_USER
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_certificate_is_a_user() {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    let dir = tempfile::tempdir().unwrap();
    let (ca_key, server_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = ca.self_signed(&ca_key).unwrap().pem();
    let issuer = Issuer::new(ca, ca_key);
    let issue = |key: &KeyPair, name: &str| {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.signed_by(key, &issuer).unwrap().pem()
    };
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let files = [
        ("--cert-file", file("server.crt", &issue(&server_key, "server"))),
        ("--key-file", file("server.key", &server_key.serialize_pem())),
        ("--trusted-ca-file", file("ca.crt", &authority)),
    ];
    let mut flags = vec!["--listen-client-urls", "https://127.0.0.1:0", "--bcrypt-cost", "4"];
    flags.extend(files.iter().flat_map(|(flag, path)| [*flag, path.as_str()]));
    let data = dir.path().join("data");
    for uses_names in [true, false] {
        let flags = match uses_names {
            true => [&flags[..], &["--client-cert-auth"]].concat(),
            false => flags.clone(),
        };
        let server = TestServer::start(&data, &flags).await;
        let connect = async |name: &str| {
            let key = KeyPair::generate().unwrap();
            let identity = tonic::transport::Identity::from_pem(issue(&key, name), key.serialize_pem());
            server.tls_client(&authority, Some(identity)).await.unwrap()
        };
        let (root, other) = (connect("root").await, connect("other").await);
        if uses_names {
            add_user(&root, "root", "secret").await.unwrap();
            grant_role(&root, "root", "root").await.unwrap();
            root.call::<_, HeaderResponse>("Auth/AuthEnable", Empty {}).await.unwrap();
            try_put(&root, "a").await.unwrap();
            denied(try_put(&other, "a").await);
            // A token goes before the certificate.
            try_put(&other.with_token(&token(&other, "root", "secret").await.unwrap()), "a").await.unwrap();
        } else {
            refused(try_put(&root, "a").await, Code::InvalidArgument, NO_USER);
        }
        server.stop().await;
    }
}
