//! Users, roles and permissions: who may do what, as in etcd's `server/auth`.
//!
//! Users and roles are few, and are all in memory. On disk they are numbers of the store, whose *names* hold
//! the records: they take no revision, and are not among the keys of clients.
//!
//! | name | number |
//! |---|---|
//! | `auth.enabled` | 1: requests need a user |
//! | `auth.revision` | one more with each change |
//! | `auth.user.` and an encoded [`User`] | 1 |
//! | `auth.role.` and an encoded [`Role`] | 1 |
//!
//! Requests hold [`Auth::shared`] from the check of their permission until they are carried out, or until
//! what they read is pinned. A change is stored and published, and then waits for the requests that began
//! before it: once it is acknowledged nothing is carried out that it forbids. No request waits for a change.

mod hashing;
mod jwt;
mod permissions;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use plinth_engine::{Engine, Error, Transaction};
use prost::Message as _;
use tokio::sync::{Mutex, OwnedRwLockReadGuard, RwLock as Gate};
use tonic::Status;

use crate::wire::auth::{Role, User};
use crate::{errors, numbers};
#[cfg(test)]
pub(crate) use hashing::most_at_once;
pub(crate) use hashing::{HashQueue, QueueKey};
pub(crate) use jwt::JwtOptions;
use permissions::UserPermissions;
pub(crate) use permissions::{is_valid_range, Needs};
pub(crate) use tokens::{TokenKind, Tokens};

/// The user and the role that may do everything.
pub(crate) const ROOT: &str = "root";
const ENABLED: &str = "auth.enabled";
const REVISION: &str = "auth.revision";
const USER: &[u8] = b"auth.user.";
const ROLE: &[u8] = b"auth.role.";

/// How users show who they are.
#[derive(Debug, Clone)]
pub(crate) struct AuthOptions {
    /// Kind of their tokens.
    pub tokens: TokenKind,
    /// The cost of hashes by bcrypt, a power of two.
    pub bcrypt_cost: u32,
    /// Whether the common name of a client certificate is a user.
    pub uses_certificates: bool,
}

/// What a request has brought along.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credentials {
    /// A token that the server has issued.
    pub token: Option<Arc<str>>,
    /// The common name of the client certificate of its connection.
    pub common_name: Option<Arc<str>>,
    /// The address of its client.
    pub peer: Option<IpAddr>,
}

/// The user of a request, and the revision of users and roles at which that was found out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Empty for none.
    pub(crate) name: Arc<str>,
    revision: u64,
}

/// The name of a bucket, with keys and values in order.
pub(crate) type Records = (&'static str, Vec<(Vec<u8>, Vec<u8>)>);

/// Users and roles of a revision.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) enabled: bool,
    pub(crate) revision: u64,
    pub(crate) users: BTreeMap<String, User>,
    pub(crate) roles: BTreeMap<String, Role>,
    /// What each user may do with keys, by the user's name.
    pub(crate) permitted: BTreeMap<String, Arc<UserPermissions>>,
}

/// The users and roles of a store.
pub(crate) struct Auth {
    pub(crate) options: AuthOptions,
    /// As in the state: most stores have no users, and ask nothing else then.
    pub(crate) enabled: AtomicBool,
    pub(crate) state: RwLock<Arc<State>>,
    pub(crate) tokens: Tokens,
    pub(crate) hashing: HashQueue,
    /// Held while users or roles are changed: by one request at a time.
    pub(crate) changing: Mutex<()>,
    /// Held by the requests that began since the last change; each change makes another one.
    gate: RwLock<Arc<Gate<()>>>,
}

/// A request that was permitted is being carried out. None where everything is permitted.
pub(crate) type Unchanged = Option<OwnedRwLockReadGuard<()>>;

impl State {
    /// Reads what a store has.
    fn load(engine: &Engine) -> Result<State, Error> {
        let number = |name| numbers::number(engine, name).map(Option::unwrap_or_default);
        let users =
            records(engine, USER)?.into_iter().map(|record| User::decode(record).map_err(|_| damaged(USER)));
        let roles =
            records(engine, ROLE)?.into_iter().map(|record| Role::decode(record).map_err(|_| damaged(ROLE)));
        let (users, roles) = (users.collect::<Result<_, _>>()?, roles.collect::<Result<_, _>>()?);
        Ok(State::new(number(ENABLED)? == 1, number(REVISION)?, users, roles))
    }

    /// Of users and roles as etcd stores them.
    pub(crate) fn new(enabled: bool, revision: u64, users: Vec<User>, roles: Vec<Role>) -> State {
        let mut state = State {
            enabled,
            revision: revision.max(1),
            users: users.into_iter().map(|user| (name(&user.name), user)).collect(),
            roles: roles.into_iter().map(|role| (name(&role.name), role)).collect(),
            ..State::default()
        };
        state.permit();
        state
    }

    /// The numbers of a store that has it.
    pub(crate) fn numbers(&self) -> Vec<(Bytes, u64)> {
        let settings = [(ENABLED.into(), self.enabled.into()), (REVISION.into(), self.revision)];
        settings.into_iter().chain(self.records().into_iter().map(|record| (record, 1))).collect()
    }

    /// Computes what users may do.
    pub(crate) fn permit(&mut self) {
        let permitted = self.users.iter().map(|(name, user)| {
            let roles = user.roles.iter().filter_map(|role| self.roles.get(role));
            (name.clone(), Arc::new(UserPermissions::by(roles)))
        });
        self.permitted = permitted.collect();
    }

    /// The names of its numbers that hold a record.
    fn records(&self) -> BTreeSet<Bytes> {
        let named = |prefix: &[u8], record: Vec<u8>| Bytes::from([prefix, &record].concat());
        let users = self.users.values().map(|user| named(USER, user.encode_to_vec()));
        users.chain(self.roles.values().map(|role| named(ROLE, role.encode_to_vec()))).collect()
    }

    /// What makes it the state of a store that has another one.
    pub(crate) fn change_from(&self, before: &State) -> Transaction {
        let after = self.numbers();
        let kept: BTreeSet<&Bytes> = after.iter().map(|(name, _)| name).collect();
        let gone = before.records().into_iter().filter(|name| !kept.contains(name));
        let transaction = gone.fold(Transaction::new(), Transaction::remove_number);
        let records = before.records();
        let new = after.iter().filter(|(name, _)| !records.contains(name));
        new.fold(transaction, |transaction, (name, number)| transaction.set_number(name.clone(), *number))
    }

    /// The buckets of a file of etcd, by name, with what is in them.
    pub(crate) fn buckets(&self) -> [Records; 3] {
        let settings = vec![
            (b"authEnabled".to_vec(), vec![self.enabled.into()]),
            (b"authRevision".to_vec(), self.revision.to_be_bytes().to_vec()),
        ];
        let roles = self.roles.values().map(|role| (role.name.to_vec(), role.encode_to_vec()));
        let users = self.users.values().map(|user| (user.name.to_vec(), user.encode_to_vec()));
        [("auth", settings), ("authRoles", roles.collect()), ("authUsers", users.collect())]
    }

    pub(crate) fn is_root(&self, user: &str) -> bool {
        self.users.get(user).is_some_and(|user| user.roles.iter().any(|role| role == ROOT))
    }
}

/// A name as text: whoever has put another one was not a client of etcd.
fn name(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn damaged(what: &'static [u8]) -> Error {
    let reason = "the record of a user or role cannot be decoded";
    Error::Corrupt { key: Bytes::from_static(what), revision: plinth_engine::Revision::ZERO, reason }
}

/// The records that names with a prefix hold.
fn records(engine: &Engine, prefix: &[u8]) -> Result<Vec<Bytes>, Error> {
    let mut records = Vec::new();
    for page in numbers::pages(engine, prefix, numbers::PAGE) {
        records.extend(page?.iter().map(|(name, _)| name.slice(prefix.len()..)));
    }
    Ok(records)
}

impl Auth {
    /// Reads the users and roles of a store.
    pub(crate) fn load(engine: &Engine, options: AuthOptions) -> Result<Auth, Error> {
        let state = State::load(engine)?;
        Ok(Auth {
            enabled: AtomicBool::new(state.enabled),
            state: RwLock::new(Arc::new(state)),
            tokens: Tokens::new(&options.tokens),
            hashing: HashQueue::default(),
            changing: Mutex::default(),
            gate: RwLock::default(),
            options,
        })
    }

    /// Whether requests need a user.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    /// Users and roles as they are now.
    pub(crate) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.read())
    }

    /// Held while a request that was permitted is carried out.
    pub(crate) async fn shared(&self) -> Unchanged {
        if !self.is_enabled() {
            return None;
        }
        loop {
            let gate = Arc::clone(&self.gate.read());
            let held = Arc::clone(&gate).read_owned().await;
            // A change has begun to wait for those that hold the one before.
            if Arc::ptr_eq(&gate, &self.gate.read()) {
                return Some(held);
            }
        }
    }

    /// Makes users and roles those of a state, and waits for requests that were permitted by the one before.
    pub(crate) async fn publish(&self, state: State) {
        let enabled = state.enabled;
        *self.state.write() = Arc::new(state);
        self.enabled.store(enabled, Ordering::Release);
        let before = std::mem::take(&mut *self.gate.write());
        drop(before.write().await);
    }

    /// The user of a request; none if it has brought nothing along.
    ///
    /// # Errors
    /// When its token is none, or none any more.
    pub(crate) fn caller(&self, credentials: &Credentials) -> Result<Caller, Status> {
        if !self.is_enabled() {
            return Ok(Caller::default());
        }
        let revision = self.state().revision;
        if let Some(token) = &credentials.token {
            let (name, revision) = self.tokens.user(token, revision).ok_or_else(errors::invalid_token)?;
            return Ok(Caller { name, revision });
        }
        Ok(match &credentials.common_name {
            Some(name) if self.options.uses_certificates => Caller { name: Arc::clone(name), revision },
            _ => Caller::default(),
        })
    }

    /// The user of a request, which must have one where requests need one.
    pub(crate) fn known_caller(&self, credentials: &Credentials) -> Result<Caller, Status> {
        let caller = self.caller(credentials)?;
        match self.is_enabled() && caller.revision == 0 {
            true => Err(errors::user_empty()),
            false => Ok(caller),
        }
    }

    /// Refuses a request of who is not root.
    pub(crate) fn check_root(&self, credentials: &Credentials) -> Result<Caller, Status> {
        let caller = self.caller(credentials)?;
        self.check_root_caller(&caller).map(|()| caller)
    }

    pub(crate) fn check_root_caller(&self, caller: &Caller) -> Result<(), Status> {
        if !self.is_enabled() {
            return Ok(());
        }
        let state = self.state();
        match &*caller.name {
            "" => Err(errors::user_empty()),
            name if !state.users.contains_key(name) => Err(errors::user_not_found()),
            name if !state.is_root(name) => Err(errors::permission_denied()),
            _ => Ok(()),
        }
    }

    /// Refuses a request that its user may not make, the leases apart.
    pub(crate) fn check_ranges(&self, caller: &Caller, needs: &Needs) -> Result<(), Status> {
        if !self.is_enabled() {
            return Ok(());
        }
        if caller.revision == 0 {
            return Err(errors::user_empty());
        }
        let state = self.state();
        if caller.revision < state.revision {
            return Err(errors::old_auth_revision());
        }
        if state.is_root(&caller.name) {
            return Ok(());
        }
        let permitted = state.permitted.get(&*caller.name).ok_or_else(errors::permission_denied)?;
        let reads = needs.reads.iter().all(|(key, end)| permitted.may_read(key, end));
        let writes = needs.writes.iter().all(|(key, end)| permitted.may_write(key, end));
        match reads && writes {
            true => Ok(()),
            false => Err(errors::permission_denied()),
        }
    }

    /// Refuses what was answered when users or roles have changed meanwhile.
    pub(crate) fn check_unchanged(&self, caller: &Caller) -> Result<(), Status> {
        match self.is_enabled() && caller.revision != 0 && caller.revision != self.state().revision {
            true => Err(errors::old_auth_revision()),
            false => Ok(()),
        }
    }
}
