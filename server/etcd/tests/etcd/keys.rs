//! Reads, puts, deletions and transactions.

use plinth_etcd::wire::kv::compare::Operand;
use plinth_etcd::wire::kv::request_op::Request;
use plinth_etcd::wire::kv::response_op::Response;
use plinth_etcd::wire::kv::{
    compare_result, compare_target, sort_order, sort_target, CompactionRequest, Compare, DeleteRangeRequest,
    DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, TxnRequest,
};
use plinth_etcd::wire::HeaderResponse;
use tonic::Code;

use crate::support::{bytes, op, put, server};

fn mod_is(key: &str, revision: i64) -> Compare {
    Compare {
        result: compare_result::EQUAL,
        target: compare_target::MOD,
        key: bytes(key),
        operand: Some(Operand::ModRevision(revision)),
        range_end: bytes(""),
    }
}

fn get(key: &str) -> RangeRequest {
    RangeRequest { key: bytes(key), ..RangeRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_are_those_of_etcd() {
    let (_dir, server, client) = server(&[]).await;
    assert_eq!(client.all().await.header.unwrap().revision, 1, "an empty store");
    assert_eq!(client.put("a", "1").await.header.unwrap().revision, 2);
    assert_eq!(client.put("a", "2").await.header.unwrap().revision, 3);
    let kv = client.get("a").await.unwrap();
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (2, 3, 2));

    // Deleting nothing takes no revision.
    let nothing = DeleteRangeRequest { key: bytes("b"), ..DeleteRangeRequest::default() };
    let deleted: DeleteRangeResponse = client.call("KV/DeleteRange", nothing).await.unwrap();
    assert_eq!((deleted.deleted, deleted.header.unwrap().revision), (0, 3));
    let one = DeleteRangeRequest { key: bytes("a"), prev_kv: true, ..DeleteRangeRequest::default() };
    let deleted: DeleteRangeResponse = client.call("KV/DeleteRange", one).await.unwrap();
    assert_eq!((deleted.deleted, deleted.header.unwrap().revision), (1, 4));
    assert_eq!(deleted.prev_kvs, [kv]);
    // A new life begins at version one.
    client.put("a", "3").await;
    let kv = client.get("a").await.unwrap();
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (5, 5, 1));
    server.stop().await;
}

/// A response of which the most part is read again while the client takes it is of one revision, and whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_range_is_of_one_revision() {
    let (_dir, server, client) = server(&[]).await;
    let value = "v".repeat(40_000);
    let mut written = 1;
    for n in 0..100 {
        written = client.put(&format!("key-{n:02}"), &value).await.header.unwrap().revision;
    }
    let all = RangeRequest { key: bytes("key-"), range_end: bytes("key."), ..RangeRequest::default() };
    let change = async {
        for n in 0..100 {
            let key = format!("key-{:02}", 99 - n);
            match n % 2 {
                0 => drop(client.put(&key, "changed").await),
                _ => {
                    let key = DeleteRangeRequest { key: bytes(&key), ..DeleteRangeRequest::default() };
                    let _: DeleteRangeResponse = client.call("KV/DeleteRange", key).await.unwrap();
                }
            }
        }
    };
    let read = async {
        let mut responses = Vec::new();
        for _ in 0..10 {
            responses.push(client.range(all.clone()).await.unwrap());
        }
        responses
    };
    let ((), responses) = tokio::join!(change, read);
    for response in responses {
        let revision = response.header.unwrap().revision;
        let changes = usize::try_from(revision - written).unwrap();
        assert_eq!(response.count, i64::try_from(response.kvs.len()).unwrap());
        assert_eq!(response.kvs.len(), 100 - changes / 2);
        for kv in &response.kvs {
            let n: usize = std::str::from_utf8(&kv.key[4..]).unwrap().parse().unwrap();
            let is_old = 99 - n >= changes;
            assert_eq!(
                (kv.value == value, kv.version),
                (is_old, if is_old { 1 } else { 2 }),
                "{n} at {changes}"
            );
        }
    }
    let first = RangeRequest { limit: 60, ..all.clone() };
    let response = client.range(RangeRequest { revision: written, ..first }).await.unwrap();
    assert_eq!((response.kvs.len(), response.count, response.more), (60, 100, true));
    assert!(response.kvs.iter().all(|kv| kv.value == value));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_has_one_revision_and_sees_its_own_changes() {
    let (_dir, server, client) = server(&[]).await;
    client.put("a", "old").await;
    let range = RangeRequest { key: bytes("a"), range_end: bytes("z"), ..RangeRequest::default() };
    let response = client
        .txn(TxnRequest {
            compare: vec![mod_is("a", 2)],
            success: vec![
                op(Request::Range(range.clone())),
                op(Request::Put(put("b", "new"))),
                op(Request::DeleteRange(DeleteRangeRequest { key: bytes("a"), ..Default::default() })),
                op(Request::Range(range)),
                op(Request::Txn(TxnRequest {
                    compare: vec![mod_is("b", 0)],
                    success: vec![op(Request::Put(put("c", "nested")))],
                    failure: vec![],
                })),
            ],
            failure: vec![],
        })
        .await
        .unwrap();
    assert!(response.succeeded);
    assert_eq!(response.header.unwrap().revision, 3);
    let revisions: Vec<i64> = response
        .responses
        .iter()
        .map(|operation| match operation.response.as_ref().unwrap() {
            Response::Range(range) => range.header.unwrap().revision,
            Response::Put(put) => put.header.unwrap().revision,
            Response::DeleteRange(delete) => delete.header.unwrap().revision,
            Response::Txn(txn) => txn.header.unwrap().revision,
        })
        .collect();
    assert_eq!(revisions, [2, 3, 3, 3, 0]);
    let Some(Response::Range(after)) = &response.responses[3].response else { panic!("no range") };
    let seen: Vec<_> = after.kvs.iter().map(|kv| (kv.key.clone(), kv.create_revision, kv.version)).collect();
    assert_eq!(seen, [(bytes("b"), 3, 1)]);
    let Some(Response::Txn(nested)) = &response.responses[4].response else { panic!("no txn") };
    assert!(nested.succeeded, "conditions are about the state before the transaction");
    let stored: Vec<_> = client.all().await.kvs.into_iter().map(|kv| (kv.key, kv.mod_revision)).collect();
    assert_eq!(stored, [(bytes("b"), 3), (bytes("c"), 3)]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_transactions_of_kubernetes_behave() {
    let (_dir, server, client) = server(&[]).await;
    let create = TxnRequest {
        compare: vec![mod_is("/registry/pods/a", 0)],
        success: vec![op(Request::Put(put("/registry/pods/a", "1")))],
        failure: vec![op(Request::Range(get("/registry/pods/a")))],
    };
    let created = client.txn(create.clone()).await.unwrap();
    assert!(created.succeeded);
    let again = client.txn(create).await.unwrap();
    assert!(!again.succeeded);
    let Some(Response::Range(present)) = &again.responses[0].response else { panic!("no range") };
    assert_eq!((present.kvs[0].mod_revision, again.header.unwrap().revision), (2, 2));

    let stale = client
        .txn(TxnRequest {
            compare: vec![mod_is("/registry/pods/a", 1)],
            success: vec![op(Request::DeleteRange(DeleteRangeRequest {
                key: bytes("/registry/pods/a"),
                ..Default::default()
            }))],
            failure: vec![op(Request::Range(get("/registry/pods/a")))],
        })
        .await
        .unwrap();
    assert!(!stale.succeeded);
    assert!(client.get("/registry/pods/a").await.is_some());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_concurrent_updates_of_a_revision_succeeds() {
    let (_dir, server, client) = server(&[]).await;
    client.put("counter", "0").await;
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..8 {
        let client = client.clone();
        tasks.spawn(async move {
            let mut done = 0;
            while done < 20 {
                let kv = client.get("counter").await.unwrap();
                let count: u32 = std::str::from_utf8(&kv.value).unwrap().parse().unwrap();
                let mut success = vec![op(Request::Put(put("counter", &(count + 1).to_string())))];
                // Every other one reads a range, and so runs alone.
                if worker % 2 == 0 {
                    let range = RangeRequest { range_end: bytes("d"), ..get("c") };
                    success.push(op(Request::Range(range)));
                }
                let compare = vec![mod_is("counter", kv.mod_revision)];
                let response = client.txn(TxnRequest { compare, success, failure: vec![] }).await.unwrap();
                done += u32::from(response.succeeded);
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let kv = client.get("counter").await.unwrap();
    assert_eq!((kv.value, kv.version, kv.mod_revision), (bytes("160"), 161, 162));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_limited_counted_sorted_and_filtered() {
    let (_dir, server, client) = server(&[]).await;
    for (key, value) in [("a", "3"), ("b", "1"), ("c", "2"), ("a", "4"), ("\u{7f}", "9")] {
        client.put(key, value).await;
    }
    let from = |key: &str| RangeRequest { key: bytes(key), range_end: bytes("\0"), ..Default::default() };
    let keys = |response: plinth_etcd::wire::kv::RangeResponse| -> String {
        response.kvs.iter().map(|kv| String::from_utf8_lossy(&kv.key).into_owned()).collect()
    };
    let limited = client.range(RangeRequest { limit: 2, ..from("a") }).await.unwrap();
    assert_eq!((limited.more, limited.count, keys(limited)), (true, 4, "ab".to_owned()));
    let counted = client.range(RangeRequest { count_only: true, ..from("b") }).await.unwrap();
    assert_eq!((counted.count, counted.kvs.len()), (3, 0));
    let by_value = RangeRequest {
        sort_target: sort_target::VALUE,
        sort_order: sort_order::DESCEND,
        limit: 2,
        keys_only: true,
        ..from("a")
    };
    let by_value = client.range(by_value).await.unwrap();
    assert!(by_value.kvs.iter().all(|kv| kv.value.is_empty()));
    assert_eq!((by_value.more, keys(by_value)), (true, "\u{7f}a".to_owned()));
    let new = client.range(RangeRequest { min_mod_revision: 4, max_create_revision: 4, ..from("a") });
    let new = new.await.unwrap();
    assert_eq!((new.count, keys(new)), (4, "ac".to_owned()));
    let old = client.range(RangeRequest { revision: 4, ..from("a") }).await.unwrap();
    assert_eq!((old.header.unwrap().revision, keys(old)), (6, "abc".to_owned()));
    let inverted = RangeRequest { key: bytes("c"), range_end: bytes("a"), ..Default::default() };
    assert_eq!(client.range(inverted).await.unwrap().count, 0);
    let prefix = RangeRequest { key: bytes("a"), range_end: bytes("b"), ..Default::default() };
    assert_eq!(keys(client.range(prefix).await.unwrap()), "a");
    server.stop().await;
}

/// Keys are counted without being read once that was done: also then the number is that of the revision.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_has_the_number_of_all_keys_at_its_revision() {
    let (_dir, server, client) = server(&[]).await;
    let key = |n: i64| format!("k/{n:04}");
    for n in (0..1000).step_by(100) {
        let success = (n..n + 100).map(|n| op(Request::Put(put(&key(n), "v")))).collect();
        client.txn(TxnRequest { success, ..TxnRequest::default() }).await.unwrap();
    }
    let page = |from: &str, limit, revision| RangeRequest {
        key: bytes(from),
        range_end: bytes("k0"),
        limit,
        revision,
        ..RangeRequest::default()
    };
    let mut filled = 0;
    // What was counted once is kept, and what was never counted is not.
    for round in 0..3 {
        let first = client.range(page("k/", 10, 0)).await.unwrap();
        assert_eq!((first.count, first.kvs.len(), first.more), (1000, 10, true), "round {round}");
        filled = first.header.unwrap().revision;
    }
    for n in 0..300 {
        let delete = DeleteRangeRequest { key: bytes(&key(n * 3)), ..DeleteRangeRequest::default() };
        let _: DeleteRangeResponse = client.call("KV/DeleteRange", delete).await.unwrap();
        let now = client.range(page("k/", 1, 0)).await.unwrap();
        assert_eq!(now.count, 999 - n);
        let then = client.range(page("k/0500", 1, filled)).await.unwrap();
        assert_eq!((then.count, then.kvs.len(), then.more), (500, 1, true), "at the revision before");
        let between = client.range(page("k/", 1, filled + n / 2)).await.unwrap();
        assert_eq!(between.count, 1000 - n / 2);
    }
    let revision = filled + 200;
    let compact = CompactionRequest { revision, physical: true };
    let _: HeaderResponse = client.call("KV/Compact", compact).await.unwrap();
    // Pages at one revision, while keys are put.
    let (mut from, mut left) = ("k/".to_owned(), 800);
    loop {
        let response = client.range(page(&from, 90, revision)).await.unwrap();
        assert_eq!((response.count, response.more), (left, left > 90), "{from}");
        left -= response.kvs.len() as i64;
        let Some(last) = response.kvs.last().filter(|_| response.more) else { break };
        from = String::from_utf8([last.key.as_ref(), b"\0"].concat()).unwrap();
        client.put(&format!("k/new-{left}"), "v").await;
    }
    assert_eq!(left, 0);
    // A transaction that reads its own changes, and a number alone.
    let count = RangeRequest { count_only: true, ..page("k/", 0, 0) };
    let before = client.range(count.clone()).await.unwrap().count;
    let success = vec![
        op(Request::Put(put("k/0000a", "v"))),
        op(Request::Put(put("k/zzz", "v"))),
        op(Request::Range(page("k/", 2, 0))),
        op(Request::Range(count)),
    ];
    let response = client.txn(TxnRequest { success, ..TxnRequest::default() }).await.unwrap();
    let counted = response.responses.iter().filter_map(|operation| match &operation.response {
        Some(Response::Range(range)) => Some((range.count, range.kvs.len())),
        _ => None,
    });
    assert_eq!(counted.collect::<Vec<_>>(), [(before + 2, 2), (before + 2, 0)]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_string_is_a_key() {
    let (_dir, server, client) = server(&[]).await;
    let keys: [&'static [u8]; 6] = [b"\0", b"\0\0", b"\x01", b"a\0b", b"\xff", b"\xff\xff"];
    for key in keys {
        let request = PutRequest { key: key.into(), value: key.into(), ..Default::default() };
        let _: PutResponse = client.call("KV/Put", request).await.unwrap();
    }
    let all: Vec<_> = client.all().await.kvs.into_iter().map(|kv| kv.key).collect();
    assert_eq!(all, keys);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn puts_can_keep_value_or_lease_and_return_what_was() {
    let (_dir, server, client) = server(&[]).await;
    let absent = PutRequest { ignore_value: true, ..put("a", "") };
    let refused = client.call::<_, PutResponse>("KV/Put", absent).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "etcdserver: key not found"));
    client.put("a", "1").await;
    let kept = PutRequest { ignore_value: true, prev_kv: true, ..put("a", "") };
    let kept: PutResponse = client.call("KV/Put", kept).await.unwrap();
    assert_eq!((kept.prev_kv.unwrap().mod_revision, kept.header.unwrap().revision), (2, 3));
    let kv = client.get("a").await.unwrap();
    assert_eq!((kv.value, kv.version), (bytes("1"), 2));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compacted_and_future_revisions_are_refused_and_the_compacted_one_is_not() {
    let (dir, server, client) = server(&[]).await;
    for value in ["1", "2", "3"] {
        client.put("a", value).await;
    }
    let compact = |revision| CompactionRequest { revision, physical: true };
    let future = client.call::<_, HeaderResponse>("KV/Compact", compact(5)).await.unwrap_err();
    let text = "etcdserver: mvcc: required revision is a future revision";
    assert_eq!((future.code(), future.message()), (Code::OutOfRange, text));
    let compacted: HeaderResponse = client.call("KV/Compact", compact(3)).await.unwrap();
    assert_eq!(compacted.header.unwrap().revision, 4);
    let again = client.call::<_, HeaderResponse>("KV/Compact", compact(3)).await.unwrap_err();
    let text = "etcdserver: mvcc: required revision has been compacted";
    assert_eq!((again.code(), again.message()), (Code::OutOfRange, text));

    let at = |revision| RangeRequest { revision, ..get("a") };
    let old = client.range(at(2)).await.unwrap_err();
    assert_eq!((old.code(), old.message()), (Code::OutOfRange, text));
    assert_eq!(client.range(at(3)).await.unwrap().kvs[0].value, "2");
    let future = client.range(at(5)).await.unwrap_err();
    assert_eq!(future.message(), "etcdserver: mvcc: required revision is a future revision");

    // It is remembered.
    server.stop().await;
    let server = crate::support::TestServer::start(dir.path(), &[]).await;
    let client = server.client().await;
    assert_eq!(client.range(at(2)).await.unwrap_err().message(), text);
    assert_eq!(client.range(at(3)).await.unwrap().kvs[0].value, "2");
    assert_eq!(client.all().await.header.unwrap().revision, 4);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_is_deleted_whole_whatever_is_put_meanwhile() {
    const TASKS: usize = 8;
    const KEYS: usize = 200;
    let (_dir, server, client) = server(&[]).await;
    let mut puts = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let client = client.clone();
        puts.spawn(async move {
            for n in 0..KEYS {
                client.put(&format!("k{task}-{n}"), "v").await;
            }
        });
    }
    let (mut deleted, mut last) = (0, 0);
    loop {
        let delete = DeleteRangeRequest { key: bytes("k"), range_end: bytes("l"), prev_kv: false };
        let operations = vec![op(Request::DeleteRange(delete)), op(Request::Put(put("deletions", "v")))];
        let done = client.txn(TxnRequest { success: operations, ..Default::default() }).await.unwrap();
        last = last.max(done.header.unwrap().revision);
        match &done.responses[0].response {
            Some(Response::DeleteRange(delete)) => {
                // The revision after the operation: the put is the first change where nothing is deleted.
                let changed = i64::from(delete.deleted > 0);
                assert_eq!(delete.header.as_ref().unwrap().revision, last - 1 + changed);
                deleted += usize::try_from(delete.deleted).unwrap();
            }
            other => panic!("{other:?}"),
        }
        while let Some(put) = puts.try_join_next() {
            put.unwrap();
        }
        if puts.is_empty() {
            break;
        }
    }
    let left = client.range(RangeRequest { key: bytes("k"), range_end: bytes("l"), ..Default::default() });
    let left = left.await.unwrap().kvs;
    assert!(left.iter().all(|kv| kv.mod_revision > last), "what was there before the last deletion is gone");
    assert_eq!(deleted + left.len(), TASKS * KEYS, "each was deleted once");
    server.stop().await;
}

/// As in etcd's own suite: a target is sorted by without an order, after the limit has cut by the key.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_without_an_order_is_sorted_by() {
    let (_dir, server, client) = server(&[]).await;
    for (key, value) in [("a", "3"), ("b", "1"), ("c", "2"), ("d", "0")] {
        client.put(key, value).await;
    }
    let keys = async |limit| {
        let request = RangeRequest {
            key: bytes("\0"),
            range_end: bytes("\0"),
            limit,
            sort_target: sort_target::VALUE,
            ..Default::default()
        };
        let found = client.range(request).await.unwrap();
        (found.kvs.into_iter().map(|kv| kv.key).collect::<Vec<_>>(), found.more, found.count)
    };
    assert_eq!(keys(0).await, (["d", "b", "c", "a"].map(bytes).to_vec(), false, 4));
    assert_eq!(keys(2).await, (["b", "c"].map(bytes).to_vec(), true, 4));
    server.stop().await;
}
