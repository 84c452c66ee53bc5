use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body as HttpBody;
use hyper::{Request, Response};
use plinth_api::User;

use super::pace::REQUEST;
use super::stream::{FEW, FRAME, SHORT};
use super::*;
use crate::body::{Body, BodyError, BodyObserver, ChunkStream};
use crate::counted_body::{COUNTED_FROM, STREAM};

const SIZE: usize = 1 << 20;

fn user(name: &str) -> User {
    User { name: name.to_owned(), ..User::default() }
}

fn connection(all: &Arc<UnreadAnswers>) -> Arc<ConnectionUnread> {
    all.connection()
}

fn answer(of: &Arc<ConnectionUnread>, name: &str) -> Body {
    of.count(Body::from(vec![0; SIZE]), Some(&of.of(&user(name))), 1)
}

async fn is_closed(connection: &ConnectionUnread) -> bool {
    tokio::time::timeout(Duration::ZERO, connection.closed()).await.is_ok()
}

#[tokio::test]
async fn short_answers_and_other_forms_are_not_counted() {
    let connection = connection(&UnreadAnswers::new(None));
    let _small = connection.count(Body::from(vec![0; COUNTED_FROM - 1]), None, 1);
    let unread = answer(&connection, "user");
    assert_eq!(connection.answers().bytes(), SIZE);
    drop(unread);
    assert_eq!(connection.answers().bytes(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_wait_go_on_when_answers_are_read() {
    let connection = connection(&UnreadAnswers::new(Some(16 << 20)));
    let mut unread: Vec<Body> = (0..9).map(|_| answer(&connection, "user")).collect();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let connection = connection.clone();
        waiting.spawn(async move {
            let (user, request) = (connection.of(&user("user")), Request::new(()));
            let _begun = connection.wait_for_reader(&user, &request, Duration::from_secs(600)).await.unwrap();
            drop(answer(&connection, "user"));
        });
    }
    tokio::task::yield_now().await;
    // Each that goes on wakes another.
    unread.clear();
    while let Some(ended) = waiting.join_next().await {
        ended.unwrap();
    }
    drop(unread);
    assert_eq!(connection.answers().bytes(), 0);
}

/// Makes what a connection has not read older.
fn age(connection: &ConnectionUnread) {
    connection.age();
    look_now(connection.answers());
}

/// As if it had not been looked for connections to close for a while.
fn look_now(all: &UnreadAnswers) {
    *all.looked.lock() = [None; 2];
}

#[tokio::test]
async fn connections_of_those_with_more_than_their_share_are_closed() {
    let all = UnreadAnswers::new(Some(16 << 20));
    let [stalled, second, slow] = std::array::from_fn(|_| connection(&all));
    let mut held: Vec<Body> = (0..2).map(|_| answer(&slow, "reader")).collect();
    held.extend((0..9).map(|_| answer(&stalled, "many")));
    held.extend((0..6).map(|_| answer(&second, "many")));
    // All are young, and there is not twice as much.
    assert!(!is_closed(&stalled).await && !is_closed(&second).await && !is_closed(&slow).await);
    // The slow reader has less than the share of a user, though its answers are the oldest.
    age(&slow);
    age(&stalled);
    held.push(answer(&slow, "reader"));
    assert!(is_closed(&stalled).await && !is_closed(&second).await && !is_closed(&slow).await);
    assert_eq!(all.bytes(), 9 * SIZE);
    // Nothing more is kept for it, and nothing counted twice.
    assert!(matches!(answer(&stalled, "many"), Body::Stream(_)));
    let (request, user) = (Request::new(()), stalled.of(&user("many")));
    assert!(stalled.wait_for_reader(&user, &request, Duration::from_secs(600)).await.is_none());
    drop(held);
    assert_eq!(all.bytes(), 0);
    drop((stalled, second, slow, user));
    assert!(all.connections.lock().is_empty());
}

#[tokio::test]
async fn with_twice_as_much_young_answers_are_no_reason_to_wait() {
    let all = UnreadAnswers::new(Some(16 << 20));
    let (fresh, slow) = (connection(&all), connection(&all));
    let _read = answer(&slow, "reader");
    age(&slow);
    let _held: Vec<Body> = (0..31).map(|_| answer(&fresh, "many")).collect();
    assert!(!is_closed(&fresh).await && !is_closed(&slow).await);
    look_now(&all);
    let _more = answer(&fresh, "many");
    assert!(is_closed(&fresh).await && !is_closed(&slow).await);
    // What all answers share takes no memory, whoever reads it.
    let document = Bytes::from(vec![0; SIZE]);
    let _shared = slow.count(Body::Full(document.clone()), None, 1);
    assert_eq!(all.bytes(), SIZE);
}

#[tokio::test]
async fn a_connection_counts_for_the_one_who_has_most() {
    let all = UnreadAnswers::new(Some(16 << 20));
    let (mixed, large, slow) = (connection(&all), connection(&all), connection(&all));
    let mut held = vec![answer(&mixed, "little"), answer(&slow, "reader")];
    held.extend((0..9).map(|_| answer(&mixed, "many")));
    held.extend((0..5).map(|_| answer(&large, "many")));
    [&mixed, &slow].into_iter().for_each(|connection| age(connection));
    held.push(answer(&slow, "reader"));
    assert!(is_closed(&mixed).await && !is_closed(&large).await && !is_closed(&slow).await);
}

#[tokio::test]
async fn who_has_much_begins_one_after_the_other_and_others_as_ever() {
    let all = UnreadAnswers::new(Some(16 << 20));
    let [first, second] = std::array::from_fn(|_| connection(&all));
    let _held: Vec<Body> = (0..9).map(|_| answer(&first, "many")).collect();
    let request = Request::new(());
    let begins = async |of: &Arc<ConnectionUnread>, name: &str| {
        of.wait_for_reader(&of.of(&user(name)), &request, Duration::from_millis(1)).await
    };
    let begun = begins(&second, "many").await;
    assert!(begun.is_some() && begins(&second, "many").await.is_none());
    drop(begun);
    assert!(begins(&second, "many").await.is_some());
    let _unread = answer(&second, "reader");
    let both = [begins(&second, "reader").await, begins(&second, "reader").await];
    assert!(both.iter().all(Option::is_some));
}

#[tokio::test]
async fn the_streams_of_a_connection_with_many_count() {
    let connection = connection(&UnreadAnswers::new(None));
    let short = || Body::from(vec![0; 100]);
    let _few = connection.count(short(), None, MANY_STREAMS - 1);
    assert_eq!(connection.answers().bytes(), 0);
    let many = connection.count(short(), None, MANY_STREAMS);
    let _empty = connection.count(Body::empty(), None, MANY_STREAMS);
    assert_eq!(connection.answers().bytes(), STREAM);
    let request = connection.count_request(&Request::new(()), MANY_STREAMS);
    assert!(connection.count_request(&Request::new(()), MANY_STREAMS - 1).is_none());
    assert!(connection.answers().bytes() >= STREAM + REQUEST);
    drop((many, request));
    assert_eq!(connection.answers().bytes(), 0);
}

/// A stream of chunks.
struct Chunks(Vec<Bytes>);

impl ChunkStream for Chunks {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        Poll::Ready(self.get_mut().0.pop().map(Ok))
    }
}

struct Unobserved;

impl BodyObserver for Unobserved {
    fn sent(&mut self, _: &Bytes) {}
}

/// What the connection takes of the body of an answer.
async fn taken(mut body: Body) -> Vec<Bytes> {
    let mut chunks = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        chunks.push(frame.unwrap().into_data().unwrap());
    }
    chunks
}

fn streamed(of: &Arc<ConnectionUnread>, name: &str, chunks: Vec<Bytes>) -> Body {
    let body = Body::Stream(Box::pin(Chunks(chunks))).observed(Unobserved);
    of.count(body, Some(&of.of(&user(name))), 1)
}

fn large() -> Bytes {
    Bytes::from(vec![7; SIZE])
}

#[tokio::test]
async fn chunks_count_until_the_connection_has_sent_them() {
    let all = UnreadAnswers::new(None);
    let connection = connection(&all);
    let short = Bytes::from(vec![7; SHORT - 1]);
    let mut chunks = taken(streamed(&connection, "user", vec![large(), short, large()])).await;
    // The body is gone, and they are not.
    assert_eq!(all.bytes(), 2 * SIZE);
    assert_eq!(chunks[0], large());
    chunks.pop();
    assert_eq!(all.bytes(), SIZE);
    drop(chunks);
    // Whole answers that are observed, too.
    let observed = connection.count(Body::Full(large()).observed(Unobserved), None, 1);
    assert_eq!(all.bytes(), SIZE);
    let chunks = taken(observed).await;
    assert_eq!((all.bytes(), chunks.concat()), (SIZE, large().to_vec()));
    drop(chunks);
    assert_eq!(all.bytes(), 0);
}

#[tokio::test]
async fn short_chunks_count_where_a_stream_has_many() {
    let all = UnreadAnswers::new(None);
    let connection = connection(&all);
    let short = Bytes::from_static(&[7; 1000]);
    let few = FEW / (short.len() + FRAME);
    let mut chunks = taken(streamed(&connection, "user", vec![short.clone(); few])).await;
    assert_eq!(all.bytes(), 0);
    chunks.extend(taken(streamed(&connection, "user", vec![short.clone(); few + 10])).await);
    assert_eq!(all.bytes(), 10 * (short.len() + FRAME));
    assert!(chunks.iter().all(|chunk| *chunk == short));
    drop(chunks);
    assert_eq!(all.bytes(), 0);
}

#[tokio::test]
async fn what_streams_hold_counts_as_answers_do() {
    let all = UnreadAnswers::new(Some(16 << 20));
    let [stalled, moving, slow] = std::array::from_fn(|_| connection(&all));
    let of_stalled = taken(streamed(&stalled, "many", (0..8).map(|_| large()).collect())).await;
    let mut of_moving = taken(streamed(&moving, "many", (0..8).map(|_| large()).collect())).await;
    assert_eq!(all.bytes(), 16 * SIZE);
    age(&stalled);
    age(&moving);
    // One of them reads.
    of_moving.pop();
    let _more = answer(&moving, "many");
    let _read = answer(&slow, "reader");
    assert!(is_closed(&stalled).await && !is_closed(&moving).await && !is_closed(&slow).await);
    assert_eq!(all.bytes(), 9 * SIZE);
    // Nothing is subtracted twice, and no stream is begun on a connection that is closed.
    drop(of_stalled);
    assert_eq!(all.bytes(), 9 * SIZE);
    let refused = streamed(&stalled, "many", vec![large()]);
    let Body::Observed(_) = &refused else { panic!("observed") };
    drop((refused, of_moving));
    assert_eq!(all.bytes(), 2 * SIZE);
}

#[tokio::test]
async fn chunks_that_many_have_count_once() {
    let all = UnreadAnswers::new(Some(16 << 20));
    let readers: Vec<_> = (0..100).map(|_| connection(&all)).collect();
    let event = large();
    let mut held = Vec::new();
    for reader in &readers {
        held.push(taken(streamed(reader, "watcher", vec![event.clone()])).await);
    }
    assert_eq!(all.bytes(), SIZE);
    // 200 MiB of them are 17, of a bound of 16: nobody is closed for what all have for a moment.
    let mut second = Vec::new();
    for event in (0..17).map(|_| large()).collect::<Vec<_>>() {
        let _kept = event.clone();
        second.push(taken(streamed(&readers[0], "watcher", vec![event])).await);
    }
    assert_eq!(all.bytes(), 18 * SIZE);
    assert!(!is_closed(&readers[0]).await);
    drop(held);
    drop(second);
    assert_eq!(all.bytes(), 0);
    drop(readers);
    assert_eq!(all.closing.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn who_keeps_chunks_that_others_have_had_is_closed() {
    for is_old in [true, false] {
        let all = UnreadAnswers::new(Some(16 << 20));
        let [keeps, reads, watches] = std::array::from_fn(|_| connection(&all));
        // An answer of somebody else, and events that two have.
        let _other = answer(&reads, "reader");
        let events: Vec<Bytes> = (0..if is_old { 17 } else { 32 }).map(|_| large()).collect();
        let (mut kept, mut read) = (Vec::new(), Vec::new());
        for event in &events {
            read.extend(taken(streamed(&watches, "watcher", vec![event.clone()])).await);
            kept.extend(taken(streamed(&keeps, "keeper", vec![event.clone()])).await);
            read.drain(..read.len() - 1);
        }
        assert!(!is_closed(&keeps).await);
        if is_old {
            age(&keeps);
        }
        look_now(&all);
        let _more = answer(&reads, "reader");
        assert!(is_closed(&keeps).await && !is_closed(&reads).await && !is_closed(&watches).await);
        // Until they are dropped they are memory; nobody else is closed for it.
        assert!(all.bytes() > 17 * SIZE && all.remaining() < 4 * SIZE, "{}", all.remaining());
        drop((kept, read));
        assert_eq!((all.bytes(), all.remaining()), (2 * SIZE, 2 * SIZE));
    }
}

#[tokio::test]
async fn requests_that_wait_for_a_reader_have_the_bound_too() {
    let all = UnreadAnswers::new(Some(16 << 20));
    let [stalled, waits, other] = std::array::from_fn(|_| connection(&all));
    let _held: Vec<Body> = (0..9).map(|_| answer(&stalled, "many")).collect();
    // A body that does not come, and requests with long heads behind it.
    let user = waits.of(&user("many"));
    let request = Request::builder().header("long", "x".repeat(SIZE)).body(()).unwrap();
    let _begun = waits.wait_for_reader(&user, &request, Duration::from_secs(600)).await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (waits, user) = (waits.clone(), user.clone());
        let request = Request::builder().header("long", "x".repeat(SIZE)).body(()).unwrap();
        waiting.spawn(async move {
            waits.wait_for_reader(&user, &request, Duration::from_secs(600)).await.is_none()
        });
    }
    // Those beyond the bound are refused at once.
    for _ in 0..32 {
        assert!(waiting.join_next().await.unwrap().unwrap());
    }
    assert!((16 * SIZE..18 * SIZE).contains(&all.bytes()));
    // Whoever takes more than that is not the one who is closed.
    let _more: Vec<Body> = (0..15).map(|_| answer(&other, "other")).collect();
    look_now(&all);
    let _last = answer(&other, "other");
    assert!(!is_closed(&other).await && (is_closed(&waits).await || is_closed(&stalled).await));
}

#[tokio::test]
async fn an_answer_that_is_being_read_does_not_wait() {
    for is_read in [true, false] {
        let all = UnreadAnswers::new(Some(16 << 20));
        let [slow, others] = std::array::from_fn(|_| connection(&all));
        let mut long = slow.count(Body::from(vec![7; 9 * SIZE]), Some(&slow.of(&user("reader"))), 1);
        assert_eq!(long.size_hint().exact(), Some(9 * SIZE as u64));
        let _others: Vec<Body> = (0..7).map(|n| answer(&others, &n.to_string())).collect();
        age(&slow);
        let mut parts = Vec::new();
        if is_read {
            let frame = std::future::poll_fn(|cx| Pin::new(&mut long).poll_frame(cx)).await;
            parts.push(frame.unwrap().unwrap().into_data().unwrap());
        }
        let _more = answer(&others, "more");
        assert_eq!(is_closed(&slow).await, !is_read);
        parts.extend(taken(long).await);
        assert_eq!(parts.concat(), vec![7; 9 * SIZE]);
    }
}

#[tokio::test]
async fn long_heads_count_until_the_first_chunk_is_sent() {
    let all = UnreadAnswers::new(None);
    let connection = connection(&all);
    let respond = |length: usize, body: Body| {
        let response = Response::builder().header("long", "x".repeat(length)).body(body).unwrap();
        connection.count_response(response, None, (1, false)).into_body()
    };
    let short = respond(1000, Body::empty());
    assert!(short.is_end_stream() && all.bytes() == 0);
    let long = Response::builder().header("long", "x".repeat(SIZE)).body(Body::empty()).unwrap();
    assert!(connection.count_response(long, None, (1, true)).body().is_end_stream());
    for (body, length, expected) in [
        (Body::empty(), None, vec![Bytes::new()]),
        (Body::from(vec![7; 10]), Some(10), vec![Bytes::from(vec![7; 10])]),
        (Body::Stream(Box::pin(Chunks(vec![large(), large()]))), None, vec![large(), large()]),
        (Body::Stream(Box::pin(Chunks(vec![]))), None, vec![Bytes::new()]),
    ] {
        let is_large = expected[0].len() == SIZE;
        let counted = respond(SIZE, body);
        assert!(all.bytes() >= 2 * SIZE && !counted.is_end_stream());
        assert_eq!(counted.size_hint().exact(), length);
        let mut chunks = taken(counted).await;
        assert_eq!(chunks, expected);
        assert_eq!(all.bytes() / SIZE, if is_large { 4 } else { 2 });
        chunks.remove(0);
        assert_eq!(all.bytes() / SIZE, usize::from(is_large));
    }
    assert_eq!(all.bytes(), 0);
}

/// With twice the bound, of many users who each have more than their share.
#[tokio::test]
async fn what_is_read_fast_is_closed_last() {
    for is_read in [true, false] {
        let all = UnreadAnswers::new(Some(16 << 20));
        let [reads, more] = std::array::from_fn(|_| connection(&all));
        let _long = reads.count(Body::from(vec![7; 8 * SIZE]), Some(&reads.of(&user("reader"))), 1);
        let waiting: Vec<_> = (0..12).map(|_| connection(&all)).collect();
        let _held: Vec<[Body; 2]> = waiting
            .iter()
            .enumerate()
            .map(|(n, of)| std::array::from_fn(|_| answer(of, &n.to_string())))
            .collect();
        waiting.iter().chain([&reads]).for_each(|connection| age(connection));
        if is_read {
            // Seven eighths, in no time.
            reads.is_taken(7 * SIZE);
        }
        look_now(&all);
        let _last = answer(&more, "more");
        assert_eq!(is_closed(&reads).await, !is_read);
        let mut closed = 0;
        for of in &waiting {
            closed += usize::from(is_closed(of).await);
        }
        assert_eq!(closed, if is_read { 5 } else { 1 });
    }
}

/// With twice the bound, of users who connect again whenever they are closed.
#[tokio::test]
async fn who_was_closed_and_connects_again_is_not_new() {
    let all = UnreadAnswers::new(Some(16 << 20));
    let of_all = |sizes: usize| -> Vec<(Arc<ConnectionUnread>, Vec<Body>)> {
        let one = |n: usize| {
            let connection = connection(&all);
            let answers = (0..sizes).map(|_| answer(&connection, &n.to_string())).collect();
            (connection, answers)
        };
        (0..12).map(one).collect()
    };
    let first = of_all(3);
    for (of, _) in &first {
        age(of);
    }
    look_now(&all);
    let more = connection(&all);
    let last = answer(&more, "more");
    let closed = async |connections: &[(Arc<ConnectionUnread>, Vec<Body>)]| {
        let mut closed = 0;
        for (of, _) in connections {
            closed += usize::from(is_closed(of).await);
        }
        closed
    };
    assert!(closed(&first).await >= 4);
    drop((first, last));
    assert_eq!(all.bytes(), 0);
    // Each has less than one who has just begun to read a list.
    let reads = connection(&all);
    let _long = reads.count(Body::from(vec![7; 8 * SIZE]), Some(&reads.of(&user("reader"))), 1);
    let again = of_all(2);
    for of in again.iter().map(|(of, _)| of).chain([&reads]) {
        of.age_by(Duration::from_millis(200));
    }
    look_now(&all);
    let _last = answer(&more, "more");
    assert!(!is_closed(&reads).await && closed(&again).await > 0);
}

/// With twice the bound: who takes answers back is no newcomer either, on the same connections.
#[tokio::test]
async fn who_takes_answers_back_unread_is_not_new() {
    for is_read in [true, false] {
        let all = UnreadAnswers::new(Some(16 << 20));
        let [back, other, more] = std::array::from_fn(|_| connection(&all));
        let before: Vec<Body> = (0..10).map(|_| answer(&back, "back")).collect();
        if is_read {
            back.is_taken(10 * SIZE);
        }
        drop(before);
        let _others: Vec<Body> = (0..20).map(|_| answer(&other, "other")).collect();
        let _again: Vec<Body> = (0..10).map(|_| answer(&back, "back")).collect();
        // It has waited for longer.
        other.age_by(Duration::from_secs(2));
        back.age_by(Duration::from_secs(1));
        let _more = [answer(&more, "more"), answer(&more, "more")];
        look_now(&all);
        let _last = answer(&more, "more");
        assert_eq!((is_closed(&back).await, is_closed(&other).await), (!is_read, is_read));
    }
}
