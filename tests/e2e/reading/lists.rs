//! list: the table of `resourceVersion`, `resourceVersionMatch`, `limit` and `continue`, cell by cell.

use plinth_tests::server::{shared, TestServer, BARE_NAMESPACES};
use serde_json::{json, Value};
use Cell::{Any, BadRequest, Exact, ExactFirstPage, FirstPage, Invalid, MostRecent, NotOlderThan, Rest};

use super::{items, reader, refusal, version, Reader};

/// The result that a cell of the table promises.
#[derive(Clone, Copy, Debug)]
enum Cell {
    /// The newest state.
    MostRecent,
    /// Any state; ours is the newest, of which `limit` cuts nothing off.
    Any,
    /// A state at or after the revision given; ours is the newest.
    NotOlderThan,
    /// The first page of the newest state.
    FirstPage,
    /// All that follows the first page of the newest state.
    Rest,
    /// The state at the revision given.
    Exact,
    /// The first page of that state.
    ExactFirstPage,
    /// 422 with a cause for each of these fields.
    Invalid(&'static [&'static str]),
    /// 400 with a message that contains this.
    BadRequest(&'static str),
}

const MATCH: &str = "resourceVersionMatch";
const NO_CONTINUE: &str = "not allowed when using continue";

/// The query (`OLD` stands for an old revision, `TOKEN` for a continue token of a first page) and its cell.
/// The first rows are those of the API documentation, in its order; then come the combinations that it leaves
/// out.
const TABLE: &[(&str, Cell)] = &[
    ("", MostRecent),
    ("resourceVersion=0", Any),
    ("resourceVersion=OLD", NotOlderThan),
    ("limit=1", FirstPage),
    ("limit=1&resourceVersion=0", Any),
    ("limit=1&resourceVersion=OLD", ExactFirstPage),
    // More of limit and continue without a revision: `pages`.
    ("limit=1&continue=TOKEN&resourceVersion=0", Rest),
    ("continue=TOKEN", Rest),
    ("limit=9&continue=TOKEN", Rest),
    ("limit=1&continue=TOKEN&resourceVersion=OLD", BadRequest(NO_CONTINUE)),
    ("resourceVersionMatch=Exact", Invalid(&[MATCH])),
    ("resourceVersionMatch=Exact&resourceVersion=0", Invalid(&[MATCH])),
    ("resourceVersionMatch=Exact&resourceVersion=OLD", Exact),
    ("resourceVersionMatch=Exact&limit=1", Invalid(&[MATCH])),
    ("resourceVersionMatch=Exact&limit=1&resourceVersion=0", Invalid(&[MATCH])),
    ("resourceVersionMatch=Exact&limit=1&resourceVersion=OLD", ExactFirstPage),
    ("resourceVersionMatch=NotOlderThan", Invalid(&[MATCH])),
    ("resourceVersionMatch=NotOlderThan&resourceVersion=0", Any),
    ("resourceVersionMatch=NotOlderThan&resourceVersion=OLD", NotOlderThan),
    ("resourceVersionMatch=NotOlderThan&limit=1", Invalid(&[MATCH])),
    ("resourceVersionMatch=NotOlderThan&limit=1&resourceVersion=0", Any),
    ("resourceVersionMatch=NotOlderThan&limit=1&resourceVersion=OLD", FirstPage),
    // Not in the table: a match with a token, words that are none, what is for watches alone, numbers that
    // are none.
    ("resourceVersionMatch=Exact&limit=1&continue=TOKEN", Invalid(&[MATCH, MATCH])),
    ("resourceVersionMatch=Exact&limit=1&continue=TOKEN&resourceVersion=OLD", Invalid(&[MATCH])),
    ("resourceVersionMatch=NotOlderThan&limit=1&continue=TOKEN&resourceVersion=OLD", Invalid(&[MATCH])),
    ("resourceVersionMatch=exact&resourceVersion=OLD", Invalid(&[MATCH])),
    ("resourceVersionMatch=Foo&resourceVersion=0", Invalid(&[MATCH])),
    ("sendInitialEvents=true", Invalid(&["sendInitialEvents"])),
    ("sendInitialEvents=false&resourceVersion=0", Invalid(&["sendInitialEvents"])),
    ("resourceVersion=x", BadRequest("Invalid value: \"x\"")),
    ("resourceVersion=-1", BadRequest("Invalid value: \"-1\"")),
    ("resourceVersion=1.5", BadRequest("Invalid value: \"1.5\"")),
    ("limit=x", BadRequest("strconv.ParseInt: parsing \"x\": invalid syntax")),
    ("continue=TOKEN&limit=1&resourceVersion=x", BadRequest("")),
    ("continue=x&limit=1", BadRequest("continue key is not valid")),
    // A negative limit is none.
    ("limit=-1", MostRecent),
    ("limit=0", MostRecent),
];

#[tokio::test]
async fn every_cell_of_the_table_of_lists() {
    let server = shared().await;
    let mut client = reader(server, "list-table").await;
    client.create("a", json!({})).await;
    client.create("b", json!({})).await;
    let old = client.create("c", json!({})).await;
    client.delete("a").await;
    client.change("b", 1).await;
    let newest = client.create("d", json!({})).await;
    let token = client.list("limit=1").await.1["metadata"]["continue"].as_str().expect("a token").to_owned();
    for (query, cell) in TABLE {
        let actual_query = query.replace("OLD", &old.to_string()).replace("TOKEN", &token);
        let (status, list) = client.list(&actual_query).await;
        check(query, *cell, status, &list, old, newest);
    }
}

fn check(query: &str, cell: Cell, status: u16, list: &Value, old: u64, newest: u64) {
    let context = format!("{query}: {list}");
    match cell {
        Invalid(fields) => {
            assert_eq!(refusal(list), (422, "Invalid", fields.to_vec()), "{context}");
            assert_eq!(list["details"]["kind"], "ListOptions", "{context}");
            assert_eq!(list["details"]["group"], "meta.k8s.io", "{context}");
            return;
        }
        BadRequest(text) => {
            assert_eq!((status, list["reason"].as_str()), (400, Some("BadRequest")), "{context}");
            assert!(list["message"].as_str().is_some_and(|m| m.contains(text)), "{context}");
            return;
        }
        _ => assert_eq!((status, list["kind"].as_str()), (200, Some("ConfigMapList")), "{context}"),
    }
    let own = |all: Vec<(String, String)>| -> Vec<String> {
        let own = all.into_iter().filter(|(name, _)| name.len() == 1);
        own.map(|(name, step)| format!("{name}{step}")).collect()
    };
    let at_old = ["a0", "b0", "c0"];
    let at_newest = ["b1", "c0", "d0"];
    let seen = version(list);
    match cell {
        Rest => {
            assert_eq!(own(items(list)), at_newest[1..], "{context}");
            assert!(list["metadata"].get("continue").is_none(), "{context}");
            assert!(seen >= newest, "{context}");
        }
        Exact => assert_eq!((own(items(list)), seen), (at_old.map(String::from).to_vec(), old), "{context}"),
        ExactFirstPage => {
            assert_eq!(
                (own(items(list)), seen),
                (at_old[..1].iter().map(|s| s.to_string()).collect(), old),
                "{context}"
            );
            assert_eq!(list["metadata"]["remainingItemCount"], 2, "{context}");
        }
        FirstPage => {
            assert_eq!(own(items(list)), at_newest[..1], "{context}");
            assert!(list["metadata"]["continue"].is_string(), "{context}");
            assert!(seen >= newest, "{context}");
        }
        _ => {
            assert_eq!(own(items(list)), at_newest, "{context}");
            assert!(list["metadata"].get("continue").is_none(), "{context}");
            assert!(seen >= newest, "{context}");
        }
    }
}

#[tokio::test]
async fn a_revision_of_the_future_is_waited_for_and_then_refused() {
    let server = shared().await;
    let mut client = reader(server, "list-future").await;
    let now = client.create("a", json!({})).await;
    let far = now + 1_000_000_000;
    let collection = client.collection.clone();
    let rows = [
        format!("{collection}?resourceVersion={far}"),
        format!("{collection}?resourceVersion={far}&resourceVersionMatch=NotOlderThan"),
        format!("{collection}?resourceVersion={far}&resourceVersionMatch=Exact"),
        format!("{collection}?resourceVersion={far}&limit=1"),
        format!("{collection}/a?resourceVersion={far}"),
        format!("{collection}?resourceVersion={}", u64::MAX),
    ];
    let answers = rows.iter().map(|path| {
        let mut connection = client.connection.share().expect("another stream");
        let call = plinth_benches::api::client::Call::get(path.as_str());
        async move { connection.call(&call).await.expect("an answer") }
    });
    for (path, reply) in rows.iter().zip(futures::future::join_all(answers).await) {
        let status: Value = serde_json::from_slice(&reply.body).expect("a Status");
        assert_eq!(
            (status["code"].as_u64(), status["reason"].as_str()),
            (Some(504), Some("Timeout")),
            "{path}: {status}"
        );
        // What client-go recognises.
        assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge", "{path}: {status}");
        assert!(
            status["message"].as_str().is_some_and(|m| m.contains("Too large resource version")),
            "{status}"
        );
        assert!(status["details"]["retryAfterSeconds"].as_u64().is_some_and(|s| s > 0), "{path}: {status}");
        assert!(reply.headers.contains_key("retry-after"), "{path}");
    }
    // A request whose timeout is shorter than the wait gets 504.
    let (code, short) = client.list(&format!("resourceVersion={far}&timeout=1s")).await;
    let over = "Timeout: request did not complete within the allotted timeout";
    assert_eq!((code, short["message"].as_str()), (504, Some(over)), "{short}");
    // A revision that is reached while a client waits is answered. Every write of the server advances it.
    let path = format!("{collection}?resourceVersion={}", now + 5);
    let mut connection = client.connection.share().expect("another stream");
    let waiting = tokio::spawn(async move {
        connection.call(&plinth_benches::api::client::Call::get(path)).await.expect("an answer").status
    });
    for step in 1..=5 {
        client.change("a", step).await;
    }
    assert_eq!(waiting.await.expect("the waiting client"), 200);
}

/// Waits until the revision is compacted.
async fn until_compacted(client: &mut Reader, revision: u64) -> Value {
    let query = format!("resourceVersion={revision}&resourceVersionMatch=Exact");
    for _ in 0..600 {
        let (status, answer) = client.list(&query).await;
        if status != 200 {
            return answer;
        }
        // History goes by age, and only what was changed has any.
        client.change("c", 7).await;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("revision {revision} was never compacted");
}

#[tokio::test]
async fn compacted_history_is_gone_and_a_page_can_go_on_inconsistently() {
    let arguments = ["--history-retention=1s", "--compaction-interval=1s", BARE_NAMESPACES];
    let server = TestServer::start(&arguments).await;
    let mut client = reader(&server, "expired").await;
    for name in ["a", "b", "c"] {
        client.create(name, json!({})).await;
    }
    let old = client.change("c", 1).await;
    let (_, first) = client.list("limit=1").await;
    let token = first["metadata"]["continue"].as_str().expect("a token").to_owned();
    let gone = until_compacted(&mut client, old).await;
    assert_eq!(refusal(&gone), (410, "Expired", vec![]), "{gone}");
    for query in [
        format!("resourceVersion={old}&limit=1"),
        format!("resourceVersion={old}&limit=1&resourceVersionMatch=Exact"),
    ] {
        let (status, gone) = client.list(&query).await;
        assert_eq!((status, gone["reason"].as_str()), (410, Some("Expired")), "{query}: {gone}");
        assert!(gone["metadata"].get("continue").is_none(), "nothing to go on with: {gone}");
    }
    // Not older than it is another matter.
    assert_eq!(client.list(&format!("resourceVersion={old}")).await.0, 200);

    // The page that was promised is gone; the answer has a token to go on without consistency.
    let (status, gone) = client.list(&format!("limit=1&continue={token}")).await;
    assert_eq!((status, gone["reason"].as_str()), (410, Some("Expired")), "{gone}");
    assert!(gone["message"].as_str().is_some_and(|m| m.contains("inconsistent list")), "{gone}");
    let inconsistent = gone["metadata"]["continue"].as_str().expect("a token to go on").to_owned();
    client.create("bb", json!({})).await;
    let (status, page) = client.list(&format!("limit=2&continue={inconsistent}")).await;
    assert_eq!(status, 200, "{page}");
    let names: Vec<String> = items(&page).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["b", "bb"], "what was made since shows up: {page}");
    assert!(version(&page) > old);
    // From here on the pages are of one moment again.
    client.create("cc", json!({})).await;
    let token = page["metadata"]["continue"].as_str().expect("a token").to_owned();
    let (_, last) = client.list(&format!("limit=9&continue={token}")).await;
    assert_eq!(items(&last).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["c"], "{last}");
    assert_eq!(version(&last), version(&page));

    // A watch from there: HTTP 200 and one ERROR event, or 410.
    let (status, events) = client.watch(&format!("resourceVersion={old}")).await;
    assert_eq!((status, events.len()), (200, 1), "{events:?}");
    assert_eq!(events[0]["type"], "ERROR");
    assert_eq!(refusal(&events[0]["object"]), (410, "Expired", vec![]), "{events:?}");
    assert!(events[0]["object"]["message"].as_str().is_some_and(|m| m.contains("too old resource version")));
}
