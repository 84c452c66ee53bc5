//! The messages that the gateway translates, as tables: names, numbers and types of the fields of etcd's
//! `rpc.proto`, `kv.proto`, `v3lock.proto` and `v3election.proto`.

/// The fields of a message.
pub(super) struct Message {
    pub fields: &'static [Field],
}

/// A field of a message.
pub(super) struct Field {
    pub number: u32,
    pub name: &'static str,
    pub is_repeated: bool,
    /// The group of fields of which a message has one at most.
    pub one_of: Option<&'static str>,
    pub kind: Kind,
}

/// The type of a field.
pub(super) enum Kind {
    /// `int64` or `uint64`: a string in JSON.
    Long {
        is_signed: bool,
    },
    /// `uint32`.
    Int,
    Bool,
    Bytes,
    Text,
    /// The names of the values from zero on.
    Enum(&'static [&'static str]),
    Message(&'static Message),
}

const LONG: Kind = Kind::Long { is_signed: true };
const ULONG: Kind = Kind::Long { is_signed: false };
const INT: Kind = Kind::Int;
const BOOL: Kind = Kind::Bool;
const BYTES: Kind = Kind::Bytes;
const TEXT: Kind = Kind::Text;

const fn one(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, is_repeated: false, one_of: None, kind }
}

const fn one_of(group: &'static str, number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, is_repeated: false, one_of: Some(group), kind }
}

const fn many(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, is_repeated: true, one_of: None, kind }
}

macro_rules! messages {
    ($($name:ident: $($field:expr),*;)*) => {
        $(pub(super) static $name: Message = Message { fields: &[$($field),*] };)*
    };
}

const SORT_ORDERS: Kind = Kind::Enum(&["NONE", "ASCEND", "DESCEND"]);
const SORT_TARGETS: Kind = Kind::Enum(&["KEY", "VERSION", "CREATE", "MOD", "VALUE"]);
const COMPARE_RESULTS: Kind = Kind::Enum(&["EQUAL", "GREATER", "LESS", "NOT_EQUAL"]);
const COMPARE_TARGETS: Kind = Kind::Enum(&["VERSION", "CREATE", "MOD", "VALUE", "LEASE"]);
const EVENT_TYPES: Kind = Kind::Enum(&["PUT", "DELETE"]);
const FILTERS: Kind = Kind::Enum(&["NOPUT", "NODELETE"]);
const ALARM_ACTIONS: Kind = Kind::Enum(&["GET", "ACTIVATE", "DEACTIVATE"]);
const ALARMS: Kind = Kind::Enum(&["NONE", "NOSPACE", "CORRUPT"]);
const PERMISSION_TYPES: Kind = Kind::Enum(&["READ", "WRITE", "READWRITE"]);
const DOWNGRADE_ACTIONS: Kind = Kind::Enum(&["VALIDATE", "ENABLE", "CANCEL"]);

const OPERAND: &str = "etcdserverpb.Compare.target_union";
const OPERATION: &str = "etcdserverpb.RequestOp.request";
const WATCH: &str = "etcdserverpb.WatchRequest.request_union";

const HEADER: Field = one(1, "header", Kind::Message(&RESPONSE_HEADER));

messages! {
    EMPTY:;
    RESPONSE_HEADER: one(1, "cluster_id", ULONG), one(2, "member_id", ULONG), one(3, "revision", LONG),
        one(4, "raft_term", ULONG);
    HEADER_RESPONSE: HEADER;
    KEY_VALUE: one(1, "key", BYTES), one(2, "create_revision", LONG), one(3, "mod_revision", LONG),
        one(4, "version", LONG), one(5, "value", BYTES), one(6, "lease", LONG);
    RANGE_REQUEST: one(1, "key", BYTES), one(2, "range_end", BYTES), one(3, "limit", LONG),
        one(4, "revision", LONG), one(5, "sort_order", SORT_ORDERS), one(6, "sort_target", SORT_TARGETS),
        one(7, "serializable", BOOL), one(8, "keys_only", BOOL), one(9, "count_only", BOOL),
        one(10, "min_mod_revision", LONG), one(11, "max_mod_revision", LONG),
        one(12, "min_create_revision", LONG), one(13, "max_create_revision", LONG);
    RANGE_RESPONSE: HEADER, many(2, "kvs", Kind::Message(&KEY_VALUE)), one(3, "more", BOOL),
        one(4, "count", LONG);
    PUT_REQUEST: one(1, "key", BYTES), one(2, "value", BYTES), one(3, "lease", LONG), one(4, "prev_kv", BOOL),
        one(5, "ignore_value", BOOL), one(6, "ignore_lease", BOOL);
    PUT_RESPONSE: HEADER, one(2, "prev_kv", Kind::Message(&KEY_VALUE));
    DELETE_REQUEST: one(1, "key", BYTES), one(2, "range_end", BYTES), one(3, "prev_kv", BOOL);
    DELETE_RESPONSE: HEADER, one(2, "deleted", LONG), many(3, "prev_kvs", Kind::Message(&KEY_VALUE));
    COMPARE: one(1, "result", COMPARE_RESULTS), one(2, "target", COMPARE_TARGETS), one(3, "key", BYTES),
        one_of(OPERAND, 4, "version", LONG), one_of(OPERAND, 5, "create_revision", LONG),
        one_of(OPERAND, 6, "mod_revision", LONG), one_of(OPERAND, 7, "value", BYTES),
        one_of(OPERAND, 8, "lease", LONG), one(64, "range_end", BYTES);
    REQUEST_OP: one_of(OPERATION, 1, "request_range", Kind::Message(&RANGE_REQUEST)),
        one_of(OPERATION, 2, "request_put", Kind::Message(&PUT_REQUEST)),
        one_of(OPERATION, 3, "request_delete_range", Kind::Message(&DELETE_REQUEST)),
        one_of(OPERATION, 4, "request_txn", Kind::Message(&TXN_REQUEST));
    RESPONSE_OP: one(1, "response_range", Kind::Message(&RANGE_RESPONSE)),
        one(2, "response_put", Kind::Message(&PUT_RESPONSE)),
        one(3, "response_delete_range", Kind::Message(&DELETE_RESPONSE)),
        one(4, "response_txn", Kind::Message(&TXN_RESPONSE));
    TXN_REQUEST: many(1, "compare", Kind::Message(&COMPARE)), many(2, "success", Kind::Message(&REQUEST_OP)),
        many(3, "failure", Kind::Message(&REQUEST_OP));
    TXN_RESPONSE: HEADER, one(2, "succeeded", BOOL), many(3, "responses", Kind::Message(&RESPONSE_OP));
    COMPACTION_REQUEST: one(1, "revision", LONG), one(2, "physical", BOOL);
    WATCH_CREATE: one(1, "key", BYTES), one(2, "range_end", BYTES), one(3, "start_revision", LONG),
        one(4, "progress_notify", BOOL), many(5, "filters", FILTERS), one(6, "prev_kv", BOOL),
        one(7, "watch_id", LONG), one(8, "fragment", BOOL);
    WATCH_CANCEL: one(1, "watch_id", LONG);
    WATCH_REQUEST: one_of(WATCH, 1, "create_request", Kind::Message(&WATCH_CREATE)),
        one_of(WATCH, 2, "cancel_request", Kind::Message(&WATCH_CANCEL)),
        one_of(WATCH, 3, "progress_request", Kind::Message(&EMPTY));
    EVENT: one(1, "type", EVENT_TYPES), one(2, "kv", Kind::Message(&KEY_VALUE)),
        one(3, "prev_kv", Kind::Message(&KEY_VALUE));
    WATCH_RESPONSE: HEADER, one(2, "watch_id", LONG), one(3, "created", BOOL), one(4, "canceled", BOOL),
        one(5, "compact_revision", LONG), one(6, "cancel_reason", TEXT), one(7, "fragment", BOOL),
        many(11, "events", Kind::Message(&EVENT));
    GRANT_REQUEST: one(1, "TTL", LONG), one(2, "ID", LONG);
    GRANT_RESPONSE: HEADER, one(2, "ID", LONG), one(3, "TTL", LONG), one(4, "error", TEXT);
    LEASE_REQUEST: one(1, "ID", LONG);
    KEEP_ALIVE_RESPONSE: HEADER, one(2, "ID", LONG), one(3, "TTL", LONG);
    TIME_TO_LIVE_REQUEST: one(1, "ID", LONG), one(2, "keys", BOOL);
    TIME_TO_LIVE_RESPONSE: HEADER, one(2, "ID", LONG), one(3, "TTL", LONG), one(4, "grantedTTL", LONG),
        many(5, "keys", BYTES);
    LEASES_RESPONSE: HEADER, many(2, "leases", Kind::Message(&LEASE_REQUEST));
    MEMBER: one(1, "ID", ULONG), one(2, "name", TEXT), many(3, "peerURLs", TEXT), many(4, "clientURLs", TEXT),
        one(5, "isLearner", BOOL);
    MEMBER_REQUEST: one(1, "ID", ULONG);
    MEMBERS_RESPONSE: HEADER, many(2, "members", Kind::Message(&MEMBER));
    ALARM_REQUEST: one(1, "action", ALARM_ACTIONS), one(2, "memberID", ULONG), one(3, "alarm", ALARMS);
    ALARM_MEMBER: one(1, "memberID", ULONG), one(2, "alarm", ALARMS);
    ALARM_RESPONSE: HEADER, many(2, "alarms", Kind::Message(&ALARM_MEMBER));
    DOWNGRADE_INFO: one(1, "enabled", BOOL), one(2, "targetVersion", TEXT);
    STATUS_RESPONSE: HEADER, one(2, "version", TEXT), one(3, "dbSize", LONG), one(4, "leader", ULONG),
        one(5, "raftIndex", ULONG), one(6, "raftTerm", ULONG), one(7, "raftAppliedIndex", ULONG),
        many(8, "errors", TEXT), one(9, "dbSizeInUse", LONG), one(10, "isLearner", BOOL),
        one(11, "storageVersion", TEXT), one(12, "dbSizeQuota", LONG),
        one(13, "downgradeInfo", Kind::Message(&DOWNGRADE_INFO));
    HASH_RESPONSE: HEADER, one(2, "hash", INT);
    HASH_KV_REQUEST: one(1, "revision", LONG);
    HASH_KV_RESPONSE: HEADER, one(2, "hash", INT), one(3, "compact_revision", LONG),
        one(4, "hash_revision", LONG);
    SNAPSHOT_RESPONSE: HEADER, one(2, "remaining_bytes", ULONG), one(3, "blob", BYTES),
        one(4, "version", TEXT);
    MOVE_LEADER_REQUEST: one(1, "targetID", ULONG);
    DOWNGRADE_REQUEST: one(1, "action", DOWNGRADE_ACTIONS), one(2, "version", TEXT);
    DOWNGRADE_RESPONSE: HEADER, one(2, "version", TEXT);
    AUTH_STATUS_RESPONSE: HEADER, one(2, "enabled", BOOL), one(3, "authRevision", ULONG);
    AUTHENTICATE_REQUEST: one(1, "name", TEXT), one(2, "password", TEXT);
    AUTHENTICATE_RESPONSE: HEADER, one(2, "token", TEXT);
    USER_OPTIONS: one(1, "no_password", BOOL);
    USER_ADD_REQUEST: one(1, "name", TEXT), one(2, "password", TEXT),
        one(3, "options", Kind::Message(&USER_OPTIONS)), one(4, "hashedPassword", TEXT);
    CHANGE_PASSWORD_REQUEST: one(1, "name", TEXT), one(2, "password", TEXT), one(3, "hashedPassword", TEXT);
    NAME_REQUEST: one(1, "name", TEXT);
    GRANT_ROLE_REQUEST: one(1, "user", TEXT), one(2, "role", TEXT);
    REVOKE_ROLE_REQUEST: one(1, "name", TEXT), one(2, "role", TEXT);
    ROLE_REQUEST: one(1, "role", TEXT);
    PERMISSION: one(1, "permType", PERMISSION_TYPES), one(2, "key", BYTES), one(3, "range_end", BYTES);
    GRANT_PERMISSION_REQUEST: one(1, "name", TEXT), one(2, "perm", Kind::Message(&PERMISSION));
    REVOKE_PERMISSION_REQUEST: one(1, "role", TEXT), one(2, "key", BYTES), one(3, "range_end", BYTES);
    ROLE_GET_RESPONSE: HEADER, many(2, "perm", Kind::Message(&PERMISSION));
    USERS_RESPONSE: HEADER, many(2, "users", TEXT);
    ROLES_RESPONSE: HEADER, many(2, "roles", TEXT);
    LOCK_REQUEST: one(1, "name", BYTES), one(2, "lease", LONG);
    LOCK_RESPONSE: HEADER, one(2, "key", BYTES);
    UNLOCK_REQUEST: one(1, "key", BYTES);
    LEADER_KEY: one(1, "name", BYTES), one(2, "key", BYTES), one(3, "rev", LONG), one(4, "lease", LONG);
    CAMPAIGN_REQUEST: one(1, "name", BYTES), one(2, "lease", LONG), one(3, "value", BYTES);
    CAMPAIGN_RESPONSE: HEADER, one(2, "leader", Kind::Message(&LEADER_KEY));
    PROCLAIM_REQUEST: one(1, "leader", Kind::Message(&LEADER_KEY)), one(2, "value", BYTES);
    LEADER_REQUEST: one(1, "name", BYTES);
    LEADER_RESPONSE: HEADER, one(2, "kv", Kind::Message(&KEY_VALUE));
    RESIGN_REQUEST: one(1, "leader", Kind::Message(&LEADER_KEY));
}

/// A method behind a path.
pub(super) struct Method {
    /// Service and method of gRPC.
    pub call: &'static str,
    pub request: &'static Message,
    pub response: &'static Message,
    /// Whether the response is a stream.
    pub is_stream: bool,
}

/// The method of a path below `/v3/`.
pub(super) fn method(path: &str) -> Option<Method> {
    let unary = |call, request, response| Some(Method { call, request, response, is_stream: false });
    let stream = |call, request, response| Some(Method { call, request, response, is_stream: true });
    match path {
        "kv/range" => unary("etcdserverpb.KV/Range", &RANGE_REQUEST, &RANGE_RESPONSE),
        "kv/put" => unary("etcdserverpb.KV/Put", &PUT_REQUEST, &PUT_RESPONSE),
        "kv/deleterange" => unary("etcdserverpb.KV/DeleteRange", &DELETE_REQUEST, &DELETE_RESPONSE),
        "kv/txn" => unary("etcdserverpb.KV/Txn", &TXN_REQUEST, &TXN_RESPONSE),
        "kv/compaction" => unary("etcdserverpb.KV/Compact", &COMPACTION_REQUEST, &HEADER_RESPONSE),
        "watch" => stream("etcdserverpb.Watch/Watch", &WATCH_REQUEST, &WATCH_RESPONSE),
        "lease/grant" => unary("etcdserverpb.Lease/LeaseGrant", &GRANT_REQUEST, &GRANT_RESPONSE),
        "lease/revoke" | "kv/lease/revoke" => {
            unary("etcdserverpb.Lease/LeaseRevoke", &LEASE_REQUEST, &HEADER_RESPONSE)
        }
        "lease/keepalive" => {
            stream("etcdserverpb.Lease/LeaseKeepAlive", &LEASE_REQUEST, &KEEP_ALIVE_RESPONSE)
        }
        "lease/timetolive" | "kv/lease/timetolive" => {
            unary("etcdserverpb.Lease/LeaseTimeToLive", &TIME_TO_LIVE_REQUEST, &TIME_TO_LIVE_RESPONSE)
        }
        "lease/leases" | "kv/lease/leases" => {
            unary("etcdserverpb.Lease/LeaseLeases", &EMPTY, &LEASES_RESPONSE)
        }
        "lock/lock" => unary("v3lockpb.Lock/Lock", &LOCK_REQUEST, &LOCK_RESPONSE),
        "lock/unlock" => unary("v3lockpb.Lock/Unlock", &UNLOCK_REQUEST, &HEADER_RESPONSE),
        "election/campaign" => unary("v3electionpb.Election/Campaign", &CAMPAIGN_REQUEST, &CAMPAIGN_RESPONSE),
        "election/proclaim" => unary("v3electionpb.Election/Proclaim", &PROCLAIM_REQUEST, &HEADER_RESPONSE),
        "election/leader" => unary("v3electionpb.Election/Leader", &LEADER_REQUEST, &LEADER_RESPONSE),
        "election/observe" => stream("v3electionpb.Election/Observe", &LEADER_REQUEST, &LEADER_RESPONSE),
        "election/resign" => unary("v3electionpb.Election/Resign", &RESIGN_REQUEST, &HEADER_RESPONSE),
        path => member_method(path),
    }
}

/// The methods about users and roles, by their paths below `auth/`.
fn user_or_role_method(path: &str) -> Option<Method> {
    let method = |call, request, response| Some(Method { call, request, response, is_stream: false });
    let change = |call, request| method(call, request, &HEADER_RESPONSE);
    match path {
        "user/add" => change("etcdserverpb.Auth/UserAdd", &USER_ADD_REQUEST),
        "user/get" => method("etcdserverpb.Auth/UserGet", &NAME_REQUEST, &ROLES_RESPONSE),
        "user/list" => method("etcdserverpb.Auth/UserList", &EMPTY, &USERS_RESPONSE),
        "user/delete" => change("etcdserverpb.Auth/UserDelete", &NAME_REQUEST),
        "user/changepw" => change("etcdserverpb.Auth/UserChangePassword", &CHANGE_PASSWORD_REQUEST),
        "user/grant" => change("etcdserverpb.Auth/UserGrantRole", &GRANT_ROLE_REQUEST),
        "user/revoke" => change("etcdserverpb.Auth/UserRevokeRole", &REVOKE_ROLE_REQUEST),
        "role/add" => change("etcdserverpb.Auth/RoleAdd", &NAME_REQUEST),
        "role/get" => method("etcdserverpb.Auth/RoleGet", &ROLE_REQUEST, &ROLE_GET_RESPONSE),
        "role/list" => method("etcdserverpb.Auth/RoleList", &EMPTY, &ROLES_RESPONSE),
        "role/delete" => change("etcdserverpb.Auth/RoleDelete", &ROLE_REQUEST),
        "role/grant" => change("etcdserverpb.Auth/RoleGrantPermission", &GRANT_PERMISSION_REQUEST),
        "role/revoke" => change("etcdserverpb.Auth/RoleRevokePermission", &REVOKE_PERMISSION_REQUEST),
        _ => None,
    }
}

/// The methods of Maintenance and Cluster, and those of Auth that are about all users.
fn member_method(path: &str) -> Option<Method> {
    let unary = |call, request, response| Some(Method { call, request, response, is_stream: false });
    match path {
        "maintenance/alarm" => unary("etcdserverpb.Maintenance/Alarm", &ALARM_REQUEST, &ALARM_RESPONSE),
        "maintenance/status" => unary("etcdserverpb.Maintenance/Status", &EMPTY, &STATUS_RESPONSE),
        "maintenance/defragment" => unary("etcdserverpb.Maintenance/Defragment", &EMPTY, &HEADER_RESPONSE),
        "maintenance/hash" => unary("etcdserverpb.Maintenance/Hash", &EMPTY, &HASH_RESPONSE),
        "maintenance/hashkv" => unary("etcdserverpb.Maintenance/HashKV", &HASH_KV_REQUEST, &HASH_KV_RESPONSE),
        "maintenance/snapshot" => Some(Method {
            call: "etcdserverpb.Maintenance/Snapshot",
            request: &EMPTY,
            response: &SNAPSHOT_RESPONSE,
            is_stream: true,
        }),
        "maintenance/transfer-leadership" => {
            unary("etcdserverpb.Maintenance/MoveLeader", &MOVE_LEADER_REQUEST, &HEADER_RESPONSE)
        }
        "maintenance/downgrade" => {
            unary("etcdserverpb.Maintenance/Downgrade", &DOWNGRADE_REQUEST, &DOWNGRADE_RESPONSE)
        }
        "cluster/member/list" => unary("etcdserverpb.Cluster/MemberList", &EMPTY, &MEMBERS_RESPONSE),
        "cluster/member/add" => unary("etcdserverpb.Cluster/MemberAdd", &EMPTY, &MEMBERS_RESPONSE),
        "cluster/member/remove" => {
            unary("etcdserverpb.Cluster/MemberRemove", &MEMBER_REQUEST, &MEMBERS_RESPONSE)
        }
        "cluster/member/update" => {
            unary("etcdserverpb.Cluster/MemberUpdate", &MEMBER_REQUEST, &MEMBERS_RESPONSE)
        }
        "cluster/member/promote" => {
            unary("etcdserverpb.Cluster/MemberPromote", &MEMBER_REQUEST, &MEMBERS_RESPONSE)
        }
        "auth/status" => unary("etcdserverpb.Auth/AuthStatus", &EMPTY, &AUTH_STATUS_RESPONSE),
        "auth/enable" => unary("etcdserverpb.Auth/AuthEnable", &EMPTY, &HEADER_RESPONSE),
        "auth/disable" => unary("etcdserverpb.Auth/AuthDisable", &EMPTY, &HEADER_RESPONSE),
        "auth/authenticate" => {
            unary("etcdserverpb.Auth/Authenticate", &AUTHENTICATE_REQUEST, &AUTHENTICATE_RESPONSE)
        }
        path => user_or_role_method(path.strip_prefix("auth/")?),
    }
}
