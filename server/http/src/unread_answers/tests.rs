use super::*;
use crate::body::BodyObserver;

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
    assert_eq!(connection.all.bytes(), SIZE);
    drop(unread);
    assert_eq!(connection.all.bytes(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_wait_go_on_when_answers_are_read() {
    let connection = connection(&UnreadAnswers::new(Some(4 << 20)));
    let mut unread: Vec<Body> = (0..3).map(|_| answer(&connection, "user")).collect();
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
    assert_eq!(connection.all.bytes(), 0);
}

/// Makes what a connection has not read older.
fn age(connection: &ConnectionUnread) {
    connection.state.lock().unread.values_mut().for_each(|item| item.since -= YOUNG);
    *connection.all.looked.lock() = [None; 2];
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
    assert_eq!(connection.all.bytes(), 0);
    let many = connection.count(short(), None, MANY_STREAMS);
    let _empty = connection.count(Body::empty(), None, MANY_STREAMS);
    assert_eq!(connection.all.bytes(), STREAM);
    let request = connection.count_request(&Request::new(()), MANY_STREAMS);
    assert!(connection.count_request(&Request::new(()), MANY_STREAMS - 1).is_none());
    assert!(connection.all.bytes() >= STREAM + REQUEST);
    drop((many, request));
    assert_eq!(connection.all.bytes(), 0);
}

/// A stream that holds what it was told to.
struct Holds(Arc<Mutex<Option<UnreadStream>>>);

impl ChunkStream for Holds {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        Poll::Pending
    }

    fn count_ahead(self: Pin<&mut Self>, counted: UnreadStream) {
        *self.0.lock() = Some(counted);
    }
}

struct Unobserved;

impl BodyObserver for Unobserved {
    fn sent(&mut self, _: &Bytes) {}
}

#[tokio::test]
async fn what_streams_hold_counts_as_answers_do() {
    let all = UnreadAnswers::new(Some(16 << 20));
    let [stalled, moving, slow] = std::array::from_fn(|_| connection(&all));
    let stream = |of: &Arc<ConnectionUnread>| {
        let held = Arc::new(Mutex::new(None));
        let body = Body::Stream(Box::pin(Holds(held.clone()))).observed(Unobserved);
        let body = of.count(body, Some(&of.of(&user("many"))), 1);
        let counted = held.lock().take().unwrap();
        (body, counted)
    };
    let (_first, of_stalled) = stream(&stalled);
    let (_second, of_moving) = stream(&moving);
    of_stalled.set(8 * SIZE);
    of_moving.set(8 * SIZE);
    assert_eq!(all.bytes(), 16 * SIZE);
    age(&stalled);
    age(&moving);
    // One of them reads.
    of_moving.set(7 * SIZE);
    of_moving.set(8 * SIZE);
    let _read = answer(&slow, "reader");
    assert!(is_closed(&stalled).await && !is_closed(&moving).await && !is_closed(&slow).await);
    assert_eq!(all.bytes(), 9 * SIZE);
    // Nothing more counts on a connection that is closed, and no stream is begun.
    of_stalled.set(SIZE);
    assert!(matches!(stalled.count(Body::Stream(Box::pin(Dropped)), None, 1), Body::Stream(_)));
    drop((of_stalled, of_moving));
    assert_eq!(all.bytes(), SIZE);
}
