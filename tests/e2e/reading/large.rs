//! Collections so large that the server caches their object headers and the sizes of their lists. Whatever is
//! written, lists are correct.

use http::Method;
use plinth_benches::api::client::{Call, Connection, Protocol};
use plinth_tests::server::{Access, TestServer, BARE_NAMESPACES};
use serde_json::{json, Value};

use super::{reader, version, Reader};

const OBJECTS: usize = 160;
/// Together more than a megabyte, of which lists keep nothing once they were counted.
const FILLER: usize = 32 << 10;

fn object(name: &str, label: &str, filler: usize) -> Value {
    json!({"metadata": {"name": name, "labels": {"kind": label}}, "data": {"filler": "x".repeat(filler)}})
}

async fn filled(server: &Access, namespace: &str) -> Reader {
    let mut client = reader(server, namespace).await;
    let path = client.collection.clone();
    for n in 0..OBJECTS {
        client.write(Method::POST, &path, object(&format!("cm-{n:03}"), "common", FILLER)).await;
    }
    client
}

/// The next field of a protobuf message: its number and its bytes. All fields of lists are length-delimited.
fn field<'a>(message: &mut &'a [u8]) -> (u8, &'a [u8]) {
    let (&tag, mut rest) = message.split_first().expect("a tag");
    assert_eq!(tag & 7, 2, "a length-delimited field");
    let (mut length, mut shift) = (0usize, 0);
    loop {
        let (&byte, more) = rest.split_first().expect("a length");
        rest = more;
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    let (bytes, rest) = rest.split_at_checked(length).expect("as many bytes as stated");
    *message = rest;
    (tag >> 3, bytes)
}

/// The names in a list in protobuf, whose every stated length must be right.
fn names_in_protobuf(body: &[u8]) -> Vec<String> {
    let mut envelope = body.strip_prefix(b"k8s\0").expect("an envelope");
    let mut names = Vec::new();
    while !envelope.is_empty() {
        let (number, mut list) = field(&mut envelope);
        if number != 2 {
            continue;
        }
        while !list.is_empty() {
            let (number, mut item) = field(&mut list);
            if number != 2 {
                continue;
            }
            let (number, mut metadata) = field(&mut item);
            assert_eq!(number, 1, "metadata");
            let (number, name) = field(&mut metadata);
            assert_eq!(number, 1, "the name");
            names.push(String::from_utf8(name.to_vec()).expect("UTF-8"));
        }
    }
    names
}

async fn in_protobuf(connection: &mut Connection, path: &str) -> Vec<String> {
    let call = Call::get(path).accept("application/vnd.kubernetes.protobuf");
    names_in_protobuf(&connection.must(&call).await.expect("a list").body)
}

fn names_of(list: &Value, kind: Option<&str>) -> Vec<String> {
    let items = list["items"].as_array().expect("items").iter();
    let wanted = items.filter(|item| kind.is_none_or(|kind| item["metadata"]["labels"]["kind"] == kind));
    wanted.map(|item| item["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test]
async fn every_write_is_in_the_next_list_of_every_kind() {
    let server = TestServer::start(&[BARE_NAMESPACES]).await;
    let mut client = filled(&server, "large").await;
    let path = client.collection.clone();
    for step in 0..24 {
        let name = format!("cm-{:03}", step * 5);
        let one = format!("{path}/{name}");
        let last = match step % 4 {
            0 | 1 => client.write(Method::PUT, &one, object(&name, "rare", FILLER + step)).await,
            2 => client.write(Method::PUT, &one, object(&name, "common", step)).await,
            _ => {
                client.delete(&name).await;
                let name = format!("new-{step}");
                client.write(Method::POST, &path, object(&name, "rare", step)).await
            }
        };
        let (_, all) = client.list("").await;
        for (selector, kind) in [("kind%3Drare", Some("rare")), ("kind%3Dnone", Some("none")), ("kind", None)]
        {
            let (code, list) = client.list(&format!("labelSelector={selector}")).await;
            assert_eq!(
                (code, names_of(&list, None)),
                (200, names_of(&all, kind)),
                "{selector} in step {step}"
            );
            let shown = list["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok());
            assert!(shown >= Some(version(&last)), "{shown:?} in step {step}");
        }
        assert_eq!(in_protobuf(&mut client.connection, &path).await, names_of(&all, None), "step {step}");
        let selected = format!("{path}?labelSelector=kind%3Drare");
        let rare = names_of(&all, Some("rare"));
        assert_eq!(in_protobuf(&mut client.connection, &selected).await, rare, "step {step}");
    }
    let (_, all) = client.list("").await;
    let (_, events) = client.watch("labelSelector=kind%3Drare&timeoutSeconds=1").await;
    let added: Vec<_> = events.iter().map(|e| e["object"]["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(added, names_of(&all, Some("rare")));
    // In pages, too.
    let (_, page) = client.list("labelSelector=kind%3Drare&limit=2").await;
    assert_eq!(names_of(&page, None), names_of(&all, Some("rare"))[..2]);
    let token = page["metadata"]["continue"].as_str().expect("a token");
    let (_, rest) = client.list(&format!("labelSelector=kind%3Drare&limit=500&continue={token}")).await;
    assert_eq!(names_of(&rest, None), names_of(&all, Some("rare"))[2..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_whole_whatever_is_written_beside_them() {
    let server = TestServer::start(&[BARE_NAMESPACES]).await;
    let mut client = filled(&server, "beside").await;
    let path = client.collection.clone();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let mut connection = server.connect(Protocol::Http2).await;
        let path = path.clone();
        writers.spawn(async move {
            for step in 0.. {
                let name = format!("cm-{:03}", (step * 4 + writer) % OBJECTS);
                let body = object(&name, if step % 9 == 0 { "rare" } else { "common" }, step * 37 % 5000);
                let call = Call::new(Method::PUT, format!("{path}/{name}"));
                let call = call.body(plinth_benches::api::client::JSON, body.to_string());
                connection.must(&call).await.expect("a write");
            }
        });
    }
    let expected: Vec<_> = (0..OBJECTS).map(|n| format!("cm-{n:03}")).collect();
    let mut selected = 0;
    for _ in 0..40 {
        assert_eq!(in_protobuf(&mut client.connection, &path).await, expected);
        let (code, list) = client.list("labelSelector=kind%3Drare").await;
        assert_eq!(code, 200);
        assert_eq!(names_of(&list, Some("rare")), names_of(&list, None));
        selected += names_of(&list, None).len();
    }
    assert!(selected > 0);
    writers.abort_all();
}
