//! What lists of a collection come to, for encodings that state it in front of the items.
//!
//! Protobuf states the length of a list before its first item, CBOR their number. To learn that is to walk over the collection once
//! more and to encode what nobody has measured yet. What one list has found out is therefore kept and follows the engine's feed:
//! each change adds what the new object takes and subtracts what the old one took. So the next list begins to write at once, at the
//! revision up to which the account is true; since the engine publishes a commit before it acknowledges it, that revision covers every
//! write that was acknowledged before.

use std::sync::Arc;

use parking_lot::Mutex;
use plinth_engine::{Event, EventKind, Feed, Revision, Subscribe, Subscription};

use super::{Item, ListWriter, Representation, RepresentationKey, Totals};
use plinth_api::api_error::ApiError;
use plinth_registry::key;
use plinth_registry::ResourceType;
use plinth_storage::Store;

/// Accounts that are kept. Each is a subscription of the engine and a few words.
const MOST: usize = 64;
/// Changes that an account takes in at once; behind more of them a walk over the collection is the shorter way.
const CHANGES: usize = 1000;

/// The accounts of the collections listed lately. The lock of the list is held to look for one; that of an account while it takes
/// in what has changed.
#[derive(Default)]
pub struct Ledger {
    /// The one used last is the last.
    kept: Mutex<Vec<Arc<Account>>>,
}

struct Account {
    /// What all keys of the collection start with.
    collection: Vec<u8>,
    form: RepresentationKey,
    /// The form tells resources apart by where they lie in memory; as long as this one is kept nothing else can lie there.
    _resource: Arc<ResourceType>,
    balance: Mutex<Balance>,
}

struct Balance {
    feed: Subscription,
    totals: Totals,
}

impl Ledger {
    /// What the items of a whole collection take, and the revision at which this is true; none when nobody knows. Blocks.
    pub fn totals(
        &self,
        store: &Store,
        collection: &[u8],
        representation: &Representation,
    ) -> Option<(Revision, Totals)> {
        let form = representation.key()?;
        let account = {
            let mut kept = self.kept.lock();
            let is_it = |account: &Arc<Account>| account.form == form && account.collection == collection;
            let place = kept.iter().position(is_it)?;
            let account = kept.remove(place);
            kept.push(account.clone());
            account
        };
        let mut balance = account.balance.lock();
        if let Ok(true) = balance.catch_up(store, representation) {
            return Some((balance.feed.position(), balance.totals));
        }
        self.kept.lock().retain(|kept| !Arc::ptr_eq(kept, &account));
        None
    }

    /// Keeps what a walk over a whole collection at that revision has found out.
    pub fn keep(
        &self,
        store: &Store,
        collection: &[u8],
        representation: &Representation,
        revision: Revision,
        totals: Totals,
    ) {
        let subscribe = Subscribe::new(key::range(collection)).after(revision).previous(true);
        // An engine that is being closed has no feeds.
        let (Some(form), Ok(feed)) = (representation.key(), store.engine().subscribe(subscribe)) else {
            return;
        };
        let account = Account {
            collection: collection.to_vec(),
            form,
            _resource: representation.resource.clone(),
            balance: Mutex::new(Balance { feed, totals }),
        };
        let mut kept = self.kept.lock();
        kept.retain(|other| other.form != form || other.collection != collection);
        if kept.len() >= MOST {
            kept.remove(0);
        }
        kept.push(Arc::new(account));
    }

    /// Forgets all accounts.
    pub fn forget(&self) {
        self.kept.lock().clear();
    }
}

impl Balance {
    /// Takes in what the feed has; false when that is too much, or not everything.
    fn catch_up(&mut self, store: &Store, representation: &Representation) -> Result<bool, ApiError> {
        let wanted = store.engine().current_revision();
        let mut list = ListWriter::new(representation)?;
        let mut changes = 0;
        while let Some(feed) = self.feed.try_next()? {
            let Feed::Events(events) = feed else { continue };
            changes += events.len();
            if changes > CHANGES {
                return Ok(false);
            }
            for event in events.iter() {
                if !self.take(store, &mut list, event)? {
                    return Ok(false);
                }
            }
        }
        Ok(self.feed.position() >= wanted)
    }

    /// Takes one change in; false when the old object cannot be told.
    fn take(
        &mut self,
        store: &Store,
        list: &mut ListWriter<&Representation>,
        event: &Event,
    ) -> Result<bool, ApiError> {
        let mut out = Vec::new();
        let mut length = |value: &[u8], revision| -> Result<usize, ApiError> {
            out.clear();
            if list.states_bytes() {
                list.item(&Item::new(&store.open(&event.key, value)?, revision)?, &mut out)?;
            }
            Ok(out.len())
        };
        let (mut items, mut bytes) = (Some(self.totals.items), Some(self.totals.bytes));
        if let Some(old) = &event.previous {
            let old = length(&old.value, old.mod_revision)?;
            items = items.and_then(|items| items.checked_sub(1));
            bytes = bytes.and_then(|bytes| bytes.checked_sub(old));
        }
        if let EventKind::Put { value, .. } = &event.kind {
            let new = length(value, event.revision)?;
            items = items.map(|items| items + 1);
            bytes = bytes.map(|bytes| bytes + new);
        }
        let (Some(items), Some(bytes)) = (items, bytes) else { return Ok(false) };
        self.totals = Totals { items, bytes };
        Ok(true)
    }
}
