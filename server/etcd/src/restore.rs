//! [`Restore`]: a new store with what an etcd had: keys with their revisions, versions and leases, leases,
//! users and roles.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plinth_engine::{At, Engine, Error, KeyRange, Options, Record, StoreBuilder};
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::auth::State;
use crate::leases::{hint_name, lease_name, MAX_TTL};
use crate::member::STORE_MARK;
use crate::value::{encode, entry_key_value, to_engine, to_etcd};
use crate::wire::auth::{Role, User};
use crate::wire::kv::KeyValue;

/// A failed restore.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each error names its fields")]
pub enum RestoreError {
    /// A key has what no etcd gives it.
    #[error("{key}: {reason}")]
    Key { key: String, reason: &'static str },
    /// A lease has what no etcd gives it.
    #[error("lease {id:x}: {reason}")]
    Lease { id: i64, reason: &'static str },
    /// A user or a role is none.
    #[error("a user or a role cannot be decoded")]
    User,
    /// The store failed.
    #[error(transparent)]
    Engine(#[from] Error),
    /// The store does not have what was written.
    #[error("the new store does not have the keys that were written")]
    Different,
}

/// What a restored store has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Number of keys.
    pub keys: u64,
    /// Number of leases.
    pub leases: usize,
    /// Number of users.
    pub users: usize,
    /// The revision, as etcd counts.
    pub revision: i64,
    /// SHA-256 of all keys in order, with their values, revisions, versions and leases.
    pub hash: [u8; 32],
}

/// A store that is being made: leases first, then keys in order.
pub struct Restore {
    dir: PathBuf,
    builder: StoreBuilder,
    leases: BTreeSet<i64>,
    users: usize,
    keys: Tally,
}

/// Keys in order, and a hash of them.
#[derive(Default)]
struct Tally {
    count: u64,
    hash: Sha256,
}

impl Tally {
    fn add(&mut self, kv: &KeyValue) {
        self.count += 1;
        for part in [&kv.key, &kv.value] {
            self.hash.update((part.len() as u64).to_le_bytes());
            self.hash.update(part);
        }
        for number in [kv.create_revision, kv.mod_revision, kv.version, kv.lease] {
            self.hash.update(number.to_le_bytes());
        }
    }
}

fn options(dir: &Path) -> Options {
    Options::new(dir).mark(STORE_MARK)
}

impl Restore {
    /// Begins a store in a directory that is absent or empty. It is usable when it is finished.
    ///
    /// # Errors
    /// When the directory holds something else or cannot be written.
    pub fn begin(dir: &Path) -> Result<Restore, RestoreError> {
        let builder = StoreBuilder::begin(&options(dir))?;
        let (leases, keys) = (BTreeSet::new(), Tally::default());
        Ok(Restore { dir: dir.to_owned(), builder, leases, users: 0, keys })
    }

    /// Adds a lease, by the time to live in seconds that it was granted. It has all of it when the store is
    /// served.
    ///
    /// # Errors
    /// [`RestoreError::Lease`]; errors of the write.
    pub fn lease(&mut self, id: i64, ttl: i64) -> Result<(), RestoreError> {
        if id == 0 || !(1..=MAX_TTL).contains(&ttl) {
            return Err(RestoreError::Lease { id, reason: "the id or the time to live is out of range" });
        }
        self.builder.set_number(&lease_name(id), ttl.unsigned_abs())?;
        self.leases.insert(id);
        Ok(())
    }

    /// Adds users and roles, each as etcd stores it, and whether requests need a user.
    ///
    /// # Errors
    /// [`RestoreError::User`]; errors of the write.
    pub fn users(
        &mut self,
        enabled: bool,
        revision: u64,
        users: &[Vec<u8>],
        roles: &[Vec<u8>],
    ) -> Result<(), RestoreError> {
        self.users = users.len();
        let users = users.iter().map(|record| User::decode(&record[..]));
        let roles = roles.iter().map(|record| Role::decode(&record[..]));
        let users = users.collect::<Result<_, _>>().map_err(|_| RestoreError::User)?;
        let roles = roles.collect::<Result<_, _>>().map_err(|_| RestoreError::User)?;
        for (name, number) in State::new(enabled, revision, users, roles).numbers() {
            self.builder.set_number(&name, number)?;
        }
        Ok(())
    }

    /// Adds a key, greater than those before.
    ///
    /// # Errors
    /// [`RestoreError::Key`]; errors of the write.
    pub fn key(&mut self, kv: &KeyValue) -> Result<(), RestoreError> {
        let damaged = |reason| RestoreError::Key { key: kv.key.escape_ascii().to_string(), reason };
        let version = u64::try_from(kv.version).map_err(|_| damaged("its version is negative"))?;
        let record = Record {
            key: kv.key.clone(),
            value: encode(&kv.value, kv.lease),
            create_revision: to_engine(kv.create_revision),
            mod_revision: to_engine(kv.mod_revision),
            version,
            expires_at_ms: None,
        };
        match self.builder.put(&record) {
            Err(Error::InvalidTransaction { reason }) => return Err(damaged(reason)),
            put => put?,
        }
        if self.leases.contains(&kv.lease) {
            self.builder.set_number(&hint_name(kv.lease, &kv.key), 1)?;
        }
        self.keys.add(kv);
        Ok(())
    }

    /// Makes the store usable, at a revision of etcd, and compares it with what was added.
    ///
    /// # Errors
    /// [`RestoreError::Different`]; errors of the store.
    pub fn finish(self, revision: i64) -> Result<Restored, RestoreError> {
        let Restore { dir, builder, leases, users, keys } = self;
        builder.finish(to_engine(revision))?;
        let engine = Engine::open(options(&dir).expire_keys(false))?;
        let found = tally(&engine)?;
        let revision = to_etcd(engine.current_revision());
        engine.close()?;
        let (hash, expected) = (found.hash.finalize(), keys.hash.finalize());
        if hash != expected || found.count != keys.count {
            return Err(RestoreError::Different);
        }
        Ok(Restored { keys: keys.count, leases: leases.len(), users, revision, hash: hash.into() })
    }
}

fn tally(engine: &Engine) -> Result<Tally, Error> {
    let snapshot = engine.snapshot(At::Latest)?;
    let mut entries = snapshot.range(&KeyRange::all());
    let mut tally = Tally::default();
    while let Some(entry) = entries.next()? {
        tally.add(&entry_key_value(&entry, true));
    }
    Ok(tally)
}
