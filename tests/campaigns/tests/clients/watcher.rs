//! Watches that go on after each failure from the version that they saw last.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use plinth_benches::api::client::{Call, Connection, Endpoint, Protocol};
use plinth_benches::api::objects::Rng;
use plinth_campaigns::history::observations::{Change, Event, Listed, Objects, Scope, Watch};
use plinth_campaigns::history::Violation;
use serde_json::Value;

use super::load::{collection, content_and_version, SharedState, NAMESPACES};

/// How a watcher learns where to begin, the first time and after a 410.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// By a list, and a watch from its version.
    List,
    /// By a watch that sends what there is first.
    InitialEvents,
}

/// One watcher.
pub(crate) struct Watcher {
    pub scope: Scope,
    begin: Begin,
    bookmarks: bool,
    state: Mutex<WatchLog>,
}

/// What a watcher saw since the last [`Watcher::take`].
#[derive(Default)]
pub(crate) struct WatchLog {
    /// The watch as it stands; `None` when it has to begin.
    watch: Option<Watch>,
    /// What earlier ones saw.
    pub watches: Vec<Watch>,
    pub lists: Vec<Listed>,
    pub wrong: Vec<String>,
}

/// The reason for which reading ended.
enum End {
    /// The stream or the connection did; the watch goes on from where it is.
    Stream,
    /// History was compacted.
    Expired,
    Wrong(String),
}

impl From<Violation> for End {
    fn from(violation: Violation) -> End {
        End::Wrong(violation.to_string())
    }
}

impl Watcher {
    pub(crate) fn new(scope: Scope, begin: Begin, bookmarks: bool) -> Watcher {
        Watcher { scope, begin, bookmarks, state: Mutex::default() }
    }

    /// Up to which version it has seen everything.
    pub(crate) fn position(&self) -> Option<u64> {
        self.state.lock().watch.as_ref().map(Watch::position)
    }

    /// Forgets its position, so that the next connection begins with a list again.
    pub(crate) fn forget(&self) {
        let mut state = self.state.lock();
        if let Some(watch) = state.watch.take() {
            state.watches.push(watch);
        }
    }

    /// What it saw since the last call.
    pub(crate) fn take(&self) -> WatchLog {
        let mut state = self.state.lock();
        let current = state.watch.as_mut().map(Watch::take);
        let watch = state.watch.take();
        let mut seen = std::mem::take(&mut *state);
        state.watch = watch;
        seen.watches.extend(current);
        seen
    }

    /// Watches until the server is gone, at first by a connection that others may share.
    pub(crate) async fn run(
        &self,
        shared: &SharedState,
        endpoint: Endpoint,
        protocol: Protocol,
        mut connection: Connection,
    ) {
        loop {
            match self.watch(shared, &mut connection).await {
                Ok(()) | Err(End::Stream) => {}
                Err(End::Expired) => {
                    shared.expired.fetch_add(1, Ordering::Relaxed);
                    self.forget();
                }
                Err(End::Wrong(what)) => {
                    self.state.lock().wrong.push(what);
                    return;
                }
            }
            // A stream that ended is requested again, over a new connection where this one ended as well.
            connection = match endpoint.connect(protocol).await {
                Ok(connection) => connection,
                Err(_) => return,
            };
        }
    }

    /// Watches at one server after the other, at each for a while, until it is aborted.
    pub(crate) async fn roam(&self, shared: &SharedState, endpoints: &[Endpoint], mut rng: Rng) {
        /// How long one server is watched, in milliseconds.
        const STAY: u64 = 4000;
        const CONNECT_WITHIN: Duration = Duration::from_secs(1);
        loop {
            let endpoint = &endpoints[rng.below(endpoints.len() as u64) as usize];
            let protocol = if rng.below(2) == 0 { Protocol::Http1 } else { Protocol::Http2 };
            let connecting = tokio::time::timeout(CONNECT_WITHIN, endpoint.connect(protocol));
            let Ok(Ok(mut connection)) = connecting.await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let stay = Duration::from_millis(100 + rng.below(STAY));
            match tokio::time::timeout(stay, self.watch(shared, &mut connection)).await {
                Err(_) | Ok(Ok(()) | Err(End::Stream)) => {}
                Ok(Err(End::Expired)) => {
                    shared.expired.fetch_add(1, Ordering::Relaxed);
                    self.forget();
                }
                Ok(Err(End::Wrong(what))) => {
                    self.state.lock().wrong.push(what);
                    return;
                }
            }
        }
    }

    fn path(&self, query: &str) -> String {
        let selector = match &self.scope {
            Scope::Object(object) => {
                format!("fieldSelector=metadata.name={}&", object.split('/').next_back().unwrap_or_default())
            }
            _ => String::new(),
        };
        format!("{}?{selector}{query}", collection(&self.scope))
    }

    async fn watch(&self, shared: &SharedState, connection: &mut Connection) -> Result<(), End> {
        let bookmarks = if self.bookmarks { "&allowWatchBookmarks=true" } else { "" };
        let position = self.position();
        let path = match (position, self.begin) {
            (Some(version), _) => self.path(&format!("watch=1&resourceVersion={version}{bookmarks}")),
            (None, Begin::List) => {
                let version = self.list(shared, connection).await?;
                self.path(&format!("watch=1&resourceVersion={version}{bookmarks}"))
            }
            (None, Begin::InitialEvents) => self.path(
                "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            ),
        };
        let called = shared.now();
        let response = connection.open(&Call::get(&path)).await.map_err(|_| End::Stream)?;
        match response.status().as_u16() {
            200 => {}
            410 => return Err(End::Expired),
            // Refused for now, of a version that this replica has not, or by one whose disk is full: retried.
            429 | 500.. => return Err(End::Stream),
            status => return Err(End::Wrong(format!("{path}: {status}"))),
        }
        let mut lines = Lines { body: response.into_body(), rest: Vec::new() };
        if self.position().is_none() {
            let list = self.initial(shared, &mut lines, called).await?;
            let mut state = self.state.lock();
            state.watch = Some(Watch::new(self.scope.clone(), list.version));
            state.lists.push(list);
        }
        while let Some(line) = lines.next().await {
            self.line(shared.now(), &line)?;
        }
        Ok(())
    }

    async fn list(&self, shared: &SharedState, connection: &mut Connection) -> Result<u64, End> {
        let called = shared.now();
        let reply = connection.call(&Call::get(self.path(""))).await.map_err(|_| End::Stream)?;
        if !reply.status.is_success() {
            return Err(End::Stream);
        }
        let list: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let version = list["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok());
        let version =
            version.ok_or_else(|| End::Wrong(format!("a list without a version: {}", reply.text())))?;
        let items = list["items"].as_array().into_iter().flatten().filter_map(content_and_version);
        let objects = items.map(|(name, content, version)| (name, (content, version))).collect();
        let (returned, scope) = (shared.now(), self.scope.clone());
        let mut state = self.state.lock();
        state.lists.push(Listed { called, returned, most_recent: true, scope, version, objects });
        state.watch = Some(Watch::new(self.scope.clone(), version));
        Ok(version)
    }

    /// The first events of a watch that sends them, up to their bookmark.
    async fn initial(&self, shared: &SharedState, lines: &mut Lines, called: u64) -> Result<Listed, End> {
        let mut objects = Objects::new();
        while let Some(line) = lines.next().await {
            let (kind, object) = parse(&line)?;
            let annotation = object["metadata"]["annotations"]["k8s.io/initial-events-end"].as_str();
            match kind.as_str() {
                "ADDED" => {
                    let Some((name, content, version)) = content_and_version(&object) else { continue };
                    if objects.insert(name, (content, version)).is_some() {
                        return Err(End::Wrong(format!("twice among the initial events: {object}")));
                    }
                }
                "BOOKMARK" if annotation == Some("true") => {
                    let version = version_of(&object)?;
                    let (returned, scope) = (shared.now(), self.scope.clone());
                    return Ok(Listed { called, returned, most_recent: true, scope, version, objects });
                }
                _ => return Err(End::Wrong(format!("{kind} among the initial events: {object}"))),
            }
        }
        Err(End::Stream)
    }

    fn line(&self, seen: u64, line: &[u8]) -> Result<(), End> {
        let (kind, object) = parse(line)?;
        let mut state = self.state.lock();
        let Some(watch) = state.watch.as_mut() else { return Err(End::Stream) };
        let change = match kind.as_str() {
            "ADDED" => Change::Added,
            "MODIFIED" => Change::Modified,
            "DELETED" => Change::Deleted,
            "BOOKMARK" => return Ok(watch.bookmark(seen, version_of(&object)?)?),
            "ERROR" if object["code"] == 410 => return Err(End::Expired),
            // A server that ends, for want of room say.
            "ERROR" if object["code"].as_u64() >= Some(500) => return Err(End::Stream),
            _ => return Err(End::Wrong(format!("{kind}: {object}"))),
        };
        match content_and_version(&object) {
            Some((object, content, version)) => {
                Ok(watch.event(seen, Event { change, object, content, version })?)
            }
            // Not of these clients: what comes after it is newer all the same.
            None if is_foreign(&object) => Ok(watch.bookmark(seen, version_of(&object)?)?),
            None => Err(End::Wrong(format!("{kind} of no object of ours: {object}"))),
        }
    }
}

fn parse(line: &[u8]) -> Result<(String, Value), End> {
    let bad = || End::Wrong(format!("no event: {}", String::from_utf8_lossy(line)));
    let mut event: Value = serde_json::from_slice(line).map_err(|_| bad())?;
    let kind = event["type"].as_str().ok_or_else(bad)?.to_owned();
    Ok((kind, event["object"].take()))
}

/// An object of another namespace, or what a controller publishes in each.
fn is_foreign(object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata["namespace"].as_str().is_some_and(|namespace| !NAMESPACES.contains(&namespace))
        || metadata["name"] == "kube-root-ca.crt"
}

fn version_of(object: &Value) -> Result<u64, End> {
    let version = object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok());
    version.ok_or_else(|| End::Wrong(format!("no resourceVersion: {object}")))
}

/// The lines of a stream; a part of a line at its end is none.
struct Lines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Lines {
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let after = self.rest.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.rest, after);
                line.pop();
                return Some(line);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.rest.extend(frame.into_data().unwrap_or_default()),
                Some(Err(_)) | None => return None,
            }
        }
    }
}
