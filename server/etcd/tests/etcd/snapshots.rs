//! Snapshot: what is streamed is a file of etcd. `scripts/test-etcd` restores one with etcdutl.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use plinth_bolt::{BoltError, BoltFile};
use plinth_etcd::wire::kv::{KeyValue, PutRequest, PutResponse};
use plinth_etcd::wire::lease::{Lease, LeaseGrantRequest, LeaseGrantResponse, LeaseRequest};
use plinth_etcd::wire::maintenance::SnapshotResponse;
use plinth_etcd::wire::{Empty, HeaderResponse};
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tokio_stream::StreamExt as _;

use crate::support::{bytes, put, server, Client};

async fn snapshot(client: &Client) -> Vec<u8> {
    let mut parts = client.parts::<_, SnapshotResponse>("Maintenance/Snapshot", Empty {}).await.unwrap();
    let (mut file, mut remaining) = (Vec::new(), None);
    while let Some(part) = parts.next().await {
        let part = part.unwrap();
        assert_eq!(part.header, None);
        // The hash is not counted.
        if part.remaining_bytes > 0 || remaining != Some(0) {
            let left = remaining.map(|remaining: u64| remaining - part.blob.len() as u64);
            assert_eq!(left.unwrap_or(part.remaining_bytes), part.remaining_bytes);
        }
        remaining = Some(part.remaining_bytes);
        file.extend_from_slice(&part.blob);
    }
    assert_eq!(remaining, Some(0));
    let (content, hash) = file.split_at(file.len() - 32);
    assert_eq!(content.len() % 512, 0);
    assert_eq!(Sha256::digest(content).as_slice(), hash);
    content.to_vec()
}

fn bucket(content: &[u8], name: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    let file = BoltFile::open(file, content.len() as u64).unwrap();
    let mut found = BTreeMap::new();
    file.bucket(name, &mut |key, value, _| {
        found.insert(key.to_vec(), value.to_vec());
        Ok::<(), BoltError>(())
    })
    .unwrap();
    found
}

fn revision(main: i64, sub: i64) -> Vec<u8> {
    [&main.to_be_bytes()[..], b"_", &sub.to_be_bytes()].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_has_every_key_with_its_revisions_and_every_lease() {
    let (_dir, server, client) = server(&[]).await;
    // An empty store has a file, too.
    let empty = snapshot(&client).await;
    assert!(bucket(&empty, b"key").is_empty());
    assert_eq!(bucket(&empty, b"meta")[b"finishedCompactRev".as_slice()], revision(1, 0));

    let grant = LeaseGrantRequest { ttl: 600, id: 9 };
    client.call::<_, LeaseGrantResponse>("Lease/LeaseGrant", grant).await.unwrap();
    for number in 0..2000 {
        client.put(&format!("key/{number:04}"), &"x".repeat(number % 700)).await;
    }
    let mut leased = put("key/0000", "leased");
    leased.lease = 9;
    client.call::<_, PutResponse>("KV/Put", leased).await.unwrap();
    let content = snapshot(&client).await;
    let all = client.all().await;
    let keys = bucket(&content, b"key");
    let mut expected = all.kvs.clone();
    expected.sort_by_key(|kv| kv.mod_revision);
    let found: Vec<KeyValue> = keys.values().map(|value| KeyValue::decode(&value[..]).unwrap()).collect();
    assert_eq!(found, expected);
    let places: Vec<Vec<u8>> = expected.iter().map(|kv| revision(kv.mod_revision, 0)).collect();
    assert_eq!(keys.keys().cloned().collect::<Vec<_>>(), places);
    let last = found.last().unwrap();
    assert_eq!((last.key.clone(), last.lease, last.version), (bytes("key/0000"), 9, 2));
    let leases = bucket(&content, b"lease");
    assert_eq!(Lease::decode(&leases[9i64.to_be_bytes().as_slice()][..]).unwrap().ttl, 600);
    let meta = bucket(&content, b"meta");
    assert_eq!(meta[b"finishedCompactRev".as_slice()], revision(all.header.unwrap().revision, 0));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_of_a_snapshot_names_a_lease_that_it_lacks() {
    let (_dir, server, client) = server(&[]).await;
    let grant = async |client: &Client, id| {
        let grant = LeaseGrantRequest { ttl: 600, id };
        client.call::<_, LeaseGrantResponse>("Lease/LeaseGrant", grant).await.unwrap();
    };
    // Some leases that stay, so that reading them takes a while.
    for id in 1..2000 {
        grant(&client, id).await;
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let changing = tokio::spawn({
        let (client, is_over) = (client.clone(), Arc::clone(&is_over));
        async move {
            for id in 1_000_000.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                grant(&client, id).await;
                let leased = PutRequest { lease: id, ..put(&format!("key/{}", id % 10), "value") };
                client.call::<_, PutResponse>("KV/Put", leased).await.unwrap();
                let revoke = LeaseRequest { id };
                client.call::<_, HeaderResponse>("Lease/LeaseRevoke", revoke).await.unwrap();
            }
        }
    });
    let mut attached = 0;
    for _ in 0..150 {
        let content = snapshot(&client).await;
        let leases = bucket(&content, b"lease");
        for value in bucket(&content, b"key").values() {
            let kv = KeyValue::decode(&value[..]).unwrap();
            attached += usize::from(kv.lease != 0);
            assert!(leases.contains_key(kv.lease.to_be_bytes().as_slice()), "{kv:?}");
        }
    }
    is_over.store(true, Ordering::Relaxed);
    changing.await.unwrap();
    assert!(attached > 0, "no snapshot had a key with a lease");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_leave_a_snapshot_make_room_for_others() {
    let (_dir, server, client) = server(&[]).await;
    for number in 0..400 {
        client.put(&format!("key/{number}"), &"x".repeat(4000)).await;
    }
    let mut left = Vec::new();
    for _ in 0..5 {
        let mut parts = server
            .client()
            .await
            .parts::<_, SnapshotResponse>("Maintenance/Snapshot", Empty {})
            .await
            .unwrap();
        if left.len() < 2 {
            parts.next().await.unwrap().unwrap();
        }
        left.push(parts);
    }
    drop(left);
    assert!(!bucket(&snapshot(&client).await, b"key").is_empty());
    server.stop().await;
}
