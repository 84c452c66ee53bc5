//! What clients do while failures happen: every kind of request on a few objects, noted with its answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use plinth_benches::api::client::{Call, Connection, Reply, JSON};
use plinth_benches::api::objects::Rng;
use plinth_campaigns::history::linear::{Answer, Operation, Request};
use plinth_campaigns::history::observations::{Listed, Objects, Scope};
use serde_json::{json, Value};

pub(crate) const NAMESPACES: [&str; 2] = ["load-0", "load-1"];

/// What differs between campaigns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Objects of each namespace: few, so that requests meet.
    pub names: u64,
    /// How long a client waits for an answer; the server is given half of that. `None`: until the connection
    /// breaks.
    pub patience: Option<Duration>,
    /// Whether 503 promises that nothing was written, nor will be.
    pub unavailable_is_not_written: bool,
}

/// State that the clients share.
pub(crate) struct SharedState {
    rules: Rules,
    started: Instant,
    /// When a write was acknowledged last, and the longest time between two since it was asked for.
    acknowledged: AtomicU64,
    longest_pause: AtomicU64,
    /// Set when clients are to end.
    pub stop: AtomicBool,
    content: AtomicU64,
    /// What was checked last, and the newest version that a client saw: lists at exact revisions are of those
    /// between.
    pub checked: AtomicU64,
    recent: AtomicU64,
    /// 410s to lists and watches: compacted history.
    pub expired: AtomicU64,
    /// Answers above 499 to single requests.
    pub refused: AtomicU64,
}

impl SharedState {
    pub(crate) fn new(rules: Rules) -> SharedState {
        SharedState {
            rules,
            started: Instant::now(),
            acknowledged: AtomicU64::new(0),
            longest_pause: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            content: AtomicU64::new(1),
            checked: AtomicU64::new(0),
            recent: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Nanoseconds of the clients' clock.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn content(&self) -> u64 {
        self.content.fetch_add(1, Ordering::Relaxed)
    }

    /// A write was acknowledged.
    fn acknowledge(&self, now: u64) {
        let before = self.acknowledged.fetch_max(now, Ordering::Relaxed);
        self.longest_pause.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
    }

    /// The longest time without an acknowledged write since the last call.
    pub(crate) fn longest_pause(&self) -> Duration {
        self.acknowledge(self.now());
        Duration::from_nanos(self.longest_pause.swap(0, Ordering::Relaxed))
    }

    fn saw(&self, version: u64) {
        self.recent.fetch_max(version, Ordering::Relaxed);
    }
}

/// What one client did until it was stopped or its connection broke.
#[derive(Default)]
pub(crate) struct ClientLog {
    /// Requests by object.
    pub operations: Vec<(String, Operation)>,
    /// What lists have returned.
    pub lists: Vec<Listed>,
    /// The error that ended it early.
    pub broken: Option<String>,
    /// Answers that are violations.
    pub wrong: Vec<String>,
}

/// Version and content of an object of this test; `None` for any other.
pub(crate) fn content_and_version(object: &Value) -> Option<(String, u64, u64)> {
    let metadata = &object["metadata"];
    let name = format!("{}/{}", metadata["namespace"].as_str()?, metadata["name"].as_str()?);
    let version = metadata["resourceVersion"].as_str()?.parse().ok()?;
    Some((name, object["data"]["v"].as_str()?.parse().ok()?, version))
}

/// One client.
pub(crate) struct Client<'a> {
    pub shared: &'a SharedState,
    pub connection: Connection,
    pub rng: Rng,
    pub done: ClientLog,
    /// Versions that this client saw last.
    known: BTreeMap<String, u64>,
}

/// The connection broke; why.
struct ConnectionLost(String);

impl<'a> Client<'a> {
    pub(crate) fn new(shared: &'a SharedState, connection: Connection, rng: Rng) -> Client<'a> {
        Client { shared, connection, rng, done: ClientLog::default(), known: BTreeMap::new() }
    }

    /// Works until it is stopped or the connection breaks.
    pub(crate) async fn work(mut self) -> ClientLog {
        while !self.shared.stop.load(Ordering::Acquire) {
            let namespace = NAMESPACES[self.rng.below(2) as usize];
            let name = format!("o{}", self.rng.below(self.shared.rules.names));
            if let Err(ConnectionLost(why)) = self.step(namespace, &name).await {
                self.done.broken = Some(why);
                break;
            }
        }
        self.done
    }

    async fn step(&mut self, namespace: &str, name: &str) -> Result<(), ConnectionLost> {
        let object = format!("{namespace}/{name}");
        let known = self.known.get(&object).copied();
        let content = self.shared.content();
        let update = |expected| Request::Update { content, expected };
        match (self.rng.below(100), known) {
            (0..16, _) => self.request(namespace, name, Request::Create(content), false).await,
            (16..30, _) => self.request(namespace, name, Request::Read, false).await,
            (30..45, Some(version)) => self.request(namespace, name, update(Some(version)), false).await,
            (45..52, _) => self.request(namespace, name, update(None), false).await,
            (52..62, _) => self.request(namespace, name, update(None), true).await,
            (62..68, Some(version)) => self.request(namespace, name, update(Some(version)), true).await,
            (68..78, _) => self.request(namespace, name, Request::Apply(content), false).await,
            (78..86, _) => self.request(namespace, name, Request::Delete { expected: None }, false).await,
            (86..90, Some(version)) => {
                self.request(namespace, name, Request::Delete { expected: Some(version) }, false).await
            }
            (90..93, _) => self.list(namespace, None, None).await,
            (93..96, _) => {
                let checked = self.shared.checked.load(Ordering::Relaxed);
                let newest = self.shared.recent.load(Ordering::Relaxed);
                if checked == 0 || newest < checked {
                    return Ok(());
                }
                let version = checked + self.rng.below(newest - checked + 1);
                self.list(namespace, Some(version), None).await
            }
            (96..99, _) => self.list(namespace, None, Some(4)).await,
            // Not bounded by a time, and large.
            (99, _) if self.shared.rules.patience.is_none() && self.rng.below(4) == 0 => self.backup().await,
            _ => self.request(namespace, name, Request::Read, false).await,
        }
    }

    async fn call(&mut self, call: &Call) -> Result<Reply, ConnectionLost> {
        let reply = self.connection.call(call);
        let reply = match self.shared.rules.patience {
            None => reply.await,
            Some(patience) => match tokio::time::timeout(patience, reply).await {
                Ok(reply) => reply,
                Err(_) => return Err(ConnectionLost(format!("no answer in {patience:?}"))),
            },
        };
        reply.map_err(|e| ConnectionLost(e.to_string()))
    }

    /// The path with the time that the server is given.
    fn limited(&self, path: &str) -> String {
        match self.shared.rules.patience {
            None => path.to_owned(),
            Some(patience) => {
                let separator = if path.contains('?') { '&' } else { '?' };
                format!("{path}{separator}timeout={}ms", patience.as_millis() / 2)
            }
        }
    }

    /// Sends a request and notes its answer.
    async fn request(
        &mut self,
        namespace: &str,
        name: &str,
        request: Request,
        patch: bool,
    ) -> Result<(), ConnectionLost> {
        let object = format!("{namespace}/{name}");
        let mut call = call_of(namespace, name, request, patch);
        call.path = self.limited(&call.path);
        let called = self.shared.now();
        let outcome = self.call(&call).await;
        let returned = self.shared.now();
        let answer = match &outcome {
            Ok(reply) => self.answer(request, &call, reply),
            // The time is set once the process is known to have ended.
            Err(_) => Some(Answer::Unknown),
        };
        if matches!(answer, Some(Answer::Done(_))) {
            self.shared.acknowledge(returned);
        }
        match answer {
            Some(Answer::Done(Some(version)) | Answer::Found { version, .. }) => {
                self.shared.saw(version);
                self.known.insert(object.clone(), version);
            }
            Some(Answer::Done(None) | Answer::NotFound) => drop(self.known.remove(&object)),
            _ => {}
        }
        if let Some(answer) = answer {
            let returned = if answer == Answer::Unknown { u64::MAX } else { returned };
            self.done.operations.push((object, Operation { called, returned, request, answer }));
        }
        outcome.map(drop)
    }

    /// The meaning of an answer; `None` where it leaves the outcome open.
    fn answer(&mut self, request: Request, call: &Call, reply: &Reply) -> Option<Answer> {
        let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let (status, reason) = (reply.status.as_u16(), body["reason"].as_str().unwrap_or_default());
        let written = match request {
            Request::Create(content) | Request::Apply(content) | Request::Update { content, .. } => {
                Some(content)
            }
            Request::Read | Request::Delete { .. } => None,
        };
        let answer = match (status, reason, content_and_version(&body)) {
            (200 | 201, _, Some((_, content, version))) if request == Request::Read => {
                Answer::Found { content, version }
            }
            (200 | 201, _, Some((_, content, version))) if written == Some(content) => {
                Answer::Done(Some(version))
            }
            (200, _, _) if matches!(request, Request::Delete { .. }) => Answer::Done(None),
            (404, "NotFound", _) => Answer::NotFound,
            (409, "AlreadyExists", _) => Answer::AlreadyExists,
            (409, "Conflict", _) => Answer::Conflict,
            // Nothing was done.
            (429, _, _) => return None,
            (503, _, _) if self.shared.rules.unavailable_is_not_written => {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            (500.., _, _) => {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
                return (request != Request::Read).then_some(Answer::Unknown);
            }
            _ => {
                self.done.wrong.push(format!("{} {}: {status} {}", call.method, call.path, reply.text()));
                return None;
            }
        };
        Some(answer)
    }

    /// A list: of one namespace or of all, the newest or an exact revision, in one piece or in pages.
    async fn list(
        &mut self,
        namespace: &str,
        exact: Option<u64>,
        limit: Option<u64>,
    ) -> Result<(), ConnectionLost> {
        let scope = match self.rng.below(3) {
            0 => Scope::All,
            _ => Scope::Namespace(namespace.to_owned()),
        };
        let base = collection(&scope);
        let mut query = match (exact, limit) {
            (Some(version), _) => format!("resourceVersion={version}&resourceVersionMatch=Exact"),
            (None, Some(limit)) => format!("limit={limit}"),
            (None, None) => String::new(),
        };
        let called = self.shared.now();
        let (mut objects, mut version) = (Objects::new(), None);
        loop {
            let call = Call::get(self.limited(&format!("{base}?{query}")));
            let reply = self.call(&call).await?;
            match reply.status.as_u16() {
                200 => {}
                410 => {
                    self.shared.expired.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                429 | 500.. => {
                    self.shared.refused.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                status => {
                    self.done.wrong.push(format!("{}: {status} {}", call.path, reply.text()));
                    return Ok(());
                }
            }
            let page: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            let at = page["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok());
            let requested = version.or(exact);
            if at.is_none() || requested.is_some_and(|requested| at != Some(requested)) {
                self.done
                    .wrong
                    .push(format!("{}: a list at {at:?} where it is to be at {requested:?}", call.path));
                return Ok(());
            }
            version = at;
            for object in page["items"].as_array().into_iter().flatten() {
                let Some((name, content, version)) = content_and_version(object) else { continue };
                if objects.insert(name.clone(), (content, version)).is_some() {
                    self.done.wrong.push(format!("{}: {name} is listed twice", call.path));
                }
            }
            match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
                Some(token) => query = format!("limit=3&continue={token}"),
                None => break,
            }
        }
        let returned = self.shared.now();
        let most_recent = exact.is_none();
        if let Some(version) = version {
            if most_recent {
                self.shared.saw(version);
            }
            self.done.lists.push(Listed { called, returned, most_recent, scope, version, objects });
        }
        Ok(())
    }

    /// A backup that is under way when the server is killed, or is not.
    async fn backup(&mut self) -> Result<(), ConnectionLost> {
        let reply = self.call(&Call::get("/plinth/backup").accept("*/*")).await?;
        if !reply.status.is_success() {
            self.done.wrong.push(format!("/plinth/backup: {} {}", reply.status, reply.text()));
        }
        Ok(())
    }

    /// All objects, by a list.
    pub(crate) async fn everything(&mut self) -> Option<Objects> {
        let reply = self.call(&Call::get(collection(&Scope::All))).await.ok()?;
        let list: Value = serde_json::from_slice(&reply.body).ok()?;
        let items = list["items"].as_array()?.iter().filter_map(content_and_version);
        Some(items.map(|(name, content, version)| (name, (content, version))).collect())
    }

    /// Writes the last object of a namespace before a check, and returns its version.
    pub(crate) async fn barrier(&mut self, namespace: &str) -> Option<u64> {
        let request = Request::Apply(self.shared.content());
        self.request(namespace, "barrier", request, false).await.ok()?;
        match self.done.operations.last()?.1.answer {
            Answer::Done(version) => version,
            _ => None,
        }
    }
}

/// The path of a list or a watch.
pub(crate) fn collection(scope: &Scope) -> String {
    match scope {
        Scope::All => "/api/v1/configmaps".to_owned(),
        Scope::Namespace(namespace) => format!("/api/v1/namespaces/{namespace}/configmaps"),
        Scope::Object(object) => {
            let namespace = object.split('/').next().unwrap_or_default();
            format!("/api/v1/namespaces/{namespace}/configmaps")
        }
    }
}

fn call_of(namespace: &str, name: &str, request: Request, patch: bool) -> Call {
    let all = format!("/api/v1/namespaces/{namespace}/configmaps");
    let one = format!("{all}/{name}");
    let object = |content: u64, version: Option<u64>| {
        let mut metadata = json!({"name": name});
        if let Some(version) = version {
            metadata["resourceVersion"] = json!(version.to_string());
        }
        let data = json!({"v": content.to_string()});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}).to_string()
    };
    match request {
        Request::Create(content) => Call::new(Method::POST, all).body(JSON, object(content, None)),
        Request::Read => Call::get(one),
        Request::Update { content, expected } if patch => {
            Call::new(Method::PATCH, one).body("application/merge-patch+json", object(content, expected))
        }
        Request::Update { content, expected } => {
            Call::new(Method::PUT, one).body(JSON, object(content, expected))
        }
        Request::Apply(content) => Call::new(Method::PATCH, format!("{one}?fieldManager=load&force=true"))
            .body("application/apply-patch+yaml", object(content, None)),
        Request::Delete { expected: None } => Call::new(Method::DELETE, one),
        Request::Delete { expected: Some(version) } => {
            let body = json!({"preconditions": {"resourceVersion": version.to_string()}});
            Call::new(Method::DELETE, one).body(JSON, body.to_string())
        }
    }
}
