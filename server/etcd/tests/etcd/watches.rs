//! Watches.

use plinth_etcd::wire::kv::request_op::Request;
use plinth_etcd::wire::kv::{
    CompactionRequest, DeleteRangeRequest, DeleteRangeResponse, Event, PutRequest, PutResponse, TxnRequest,
};
use plinth_etcd::wire::watch::{watch_request, WatchCancelRequest, WatchCreateRequest};
use plinth_etcd::wire::{Empty, HeaderResponse};

use crate::support::{bytes, op, put, server};

fn all() -> WatchCreateRequest {
    WatchCreateRequest { key: bytes("\0"), range_end: bytes("\0"), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_of_a_stream_get_their_own_events_in_order() {
    let (_dir, server, client) = server(&[]).await;
    let mut watch = client.watch().await;
    let first = watch.create(WatchCreateRequest { key: bytes("a"), ..Default::default() }).await;
    assert!(first.created && first.watch_id == 0 && first.header.unwrap().revision == 1);
    let chosen = watch.create(WatchCreateRequest { watch_id: 7, ..all() }).await;
    assert_eq!(chosen.watch_id, 7);
    let duplicate = watch.create(WatchCreateRequest { watch_id: 7, ..all() }).await;
    assert!(duplicate.created && duplicate.canceled && duplicate.watch_id == -1);
    assert_eq!(duplicate.cancel_reason, "mvcc: duplicate watch ID provided on the WatchStream");

    client.put("b", "1").await;
    client.put("a", "2").await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let response = watch.next().await;
        for event in response.events {
            seen.push((response.watch_id, event.kv.unwrap().mod_revision));
        }
    }
    let of = |id| seen.iter().filter(|(of, _)| *of == id).map(|(_, revision)| *revision).collect::<Vec<_>>();
    assert_eq!((of(0), of(7)), (vec![3], vec![2, 3]));

    watch.send(watch_request::Request::Cancel(WatchCancelRequest { watch_id: 7 })).await;
    let canceled = watch.next().await;
    assert!(canceled.canceled && canceled.watch_id == 7);
    client.put("b", "3").await;
    client.put("a", "4").await;
    assert_eq!(watch.next().await.watch_id, 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn history_filters_and_previous_values_are_delivered() {
    let (_dir, server, client) = server(&[]).await;
    client.put("a", "1").await;
    client.put("a", "2").await;
    let one = DeleteRangeRequest { key: bytes("a"), ..Default::default() };
    let _: DeleteRangeResponse = client.call("KV/DeleteRange", one).await.unwrap();

    let mut watch = client.watch().await;
    watch.create(WatchCreateRequest { start_revision: 1, prev_kv: true, ..all() }).await;
    let mut events: Vec<Event> = Vec::new();
    while events.len() < 3 {
        events.extend(watch.next().await.events);
    }
    let previous: Vec<i64> =
        events.iter().map(|event| event.prev_kv.as_ref().map_or(0, |kv| kv.mod_revision)).collect();
    assert_eq!(previous, [0, 2, 3]);
    let deleted = events[2].kv.as_ref().unwrap();
    assert_eq!((events[2].kind, deleted.mod_revision, deleted.version), (Event::DELETE, 4, 0));

    let mut watch = client.watch().await;
    let filters = vec![WatchCreateRequest::NO_PUT];
    watch.create(WatchCreateRequest { start_revision: 2, filters, ..all() }).await;
    let response = watch.next().await;
    assert_eq!(response.events.len(), 1);
    assert_eq!(response.events[0].kind, Event::DELETE);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_future_start_waits_and_an_empty_range_is_refused() {
    let (_dir, server, client) = server(&[]).await;
    let mut watch = client.watch().await;
    watch.create(WatchCreateRequest { start_revision: 4, ..all() }).await;
    for value in ["1", "2", "3"] {
        client.put("a", value).await;
    }
    assert_eq!(watch.next().await.events[0].kv.as_ref().unwrap().mod_revision, 4);
    let empty = WatchCreateRequest { key: bytes("b"), range_end: bytes("a"), ..Default::default() };
    let refused = watch.create(empty).await;
    assert!(refused.canceled && refused.cancel_reason == "mvcc: watcher range is empty");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compacted_start_is_canceled_and_the_compacted_revision_itself_is_delivered() {
    let (_dir, server, client) = server(&[]).await;
    client.put("a", "1").await;
    client.put("b", "1").await;
    let one = DeleteRangeRequest { key: bytes("b"), ..Default::default() };
    let _: DeleteRangeResponse = client.call("KV/DeleteRange", one).await.unwrap();
    client.put("a", "2").await;
    let compact = CompactionRequest { revision: 4, physical: true };
    let _: HeaderResponse = client.call("KV/Compact", compact).await.unwrap();

    let mut watch = client.watch().await;
    assert!(watch.create(WatchCreateRequest { start_revision: 3, ..all() }).await.created);
    let canceled = watch.next().await;
    assert!(canceled.canceled && !canceled.created);
    assert_eq!((canceled.compact_revision, canceled.header.unwrap().revision), (4, 0));

    let created = watch.create(WatchCreateRequest { start_revision: 4, prev_kv: true, ..all() }).await;
    let mut events: Vec<Event> = Vec::new();
    while events.len() < 2 {
        let response = watch.next().await;
        assert_eq!(response.watch_id, created.watch_id);
        events.extend(response.events);
    }
    assert_eq!(events[0].kind, Event::DELETE);
    assert!(events[0].prev_kv.is_none(), "what was before it is compacted");
    assert_eq!(events[1].prev_kv.as_ref().unwrap().mod_revision, 2);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_comes_after_every_event_up_to_it() {
    let (_dir, server, client) = server(&["--watch-progress-notify-interval", "100ms"]).await;
    let mut watch = client.watch().await;
    for key in ["a", "b", "c"] {
        watch.create(WatchCreateRequest { key: bytes(key), ..Default::default() }).await;
    }
    for round in 0..20 {
        client.put(["a", "b", "c"][round % 3], "v").await;
        let written = 2 + round as i64;
        watch.send(watch_request::Request::Progress(Empty {})).await;
        let event = watch.next().await;
        assert_eq!(event.events[0].kv.as_ref().unwrap().mod_revision, written);
        let progress = watch.next().await;
        assert_eq!((progress.watch_id, progress.events.len()), (-1, 0));
        assert_eq!(progress.header.unwrap().revision, written);
    }
    // In intervals, of a watch that wants it.
    let mut watch = client.watch().await;
    let quiet = WatchCreateRequest { key: bytes("quiet"), progress_notify: true, ..Default::default() };
    let created = watch.create(quiet).await;
    let progress = watch.next().await;
    assert_eq!((progress.watch_id, progress.events.len()), (created.watch_id, 0));
    assert_eq!(progress.header.unwrap().revision, 21);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_is_one_response_unless_fragments_are_wanted() {
    let (_dir, server, client) = server(&["--max-request-bytes", "1048576"]).await;
    let large = "x".repeat(700 << 10);
    let mut mentioned = Vec::new();
    for key in ["a", "b", "c", "d"] {
        client.put(key, &large).await;
        mentioned.push(op(Request::Put(PutRequest { ignore_value: true, ..put(key, "") })));
    }
    let request = TxnRequest { success: mentioned, ..Default::default() };
    assert_eq!(client.txn(request).await.unwrap().header.unwrap().revision, 6);

    let mut whole = client.watch().await;
    whole.create(WatchCreateRequest { start_revision: 6, ..all() }).await;
    assert_eq!(whole.next().await.events.len(), 4);
    let mut split = client.watch().await;
    split.create(WatchCreateRequest { start_revision: 6, fragment: true, ..all() }).await;
    let (mut events, mut fragments) = (0, 0);
    loop {
        let response = split.next().await;
        events += response.events.len();
        fragments += 1;
        if !response.fragment {
            break;
        }
    }
    assert_eq!((events, fragments), (4, 2));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_watches_share_a_stream() {
    const WATCHES: usize = 10_000;
    let (_dir, server, client) = server(&[]).await;
    let mut watch = client.watch().await;
    for number in 0..WATCHES {
        let key = bytes(&format!("key-{number}"));
        let request = WatchCreateRequest { key, ..Default::default() };
        watch.send(watch_request::Request::Create(request)).await;
    }
    for number in 0..WATCHES {
        assert_eq!(watch.next().await.watch_id, number as i64);
    }
    for number in [0, 5_000, 9_999] {
        client.put(&format!("key-{number}"), "v").await;
        let response = watch.next().await;
        assert_eq!((response.watch_id, response.events.len()), (number, 1));
    }
    watch.send(watch_request::Request::Progress(Empty {})).await;
    let progress = watch.next().await;
    assert_eq!((progress.watch_id, progress.header.unwrap().revision), (-1, 4));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_misses_nothing() {
    const PUTS: i64 = 300;
    let (_dir, server, client) = server(&[]).await;
    let mut watch = client.watch().await;
    watch.create(all()).await;
    // More than all buffers between the two hold.
    let value = "x".repeat(100 << 10);
    for _ in 0..PUTS {
        let _: PutResponse = client.call("KV/Put", put("a", &value)).await.unwrap();
    }
    let mut next = 2;
    while next < 2 + PUTS {
        for event in watch.next().await.events {
            assert_eq!(event.kv.unwrap().mod_revision, next);
            next += 1;
        }
    }
    server.stop().await;
}
