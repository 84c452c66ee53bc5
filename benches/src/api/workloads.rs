//! What each workload does. A workload is a row of [`WORKLOADS`]; its clients are [`Session`]s.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http::Method;

use super::client::{Call, JSON};
use super::drive::{Session, Target};
use super::objects::{self, Rng};
use super::{Error, Options};

/// A workload: its name, how many clients it has and how it runs.
pub struct Workload {
    /// The name on the command line and in reports.
    pub name: &'static str,
    /// What it does, in a few words.
    pub about: &'static str,
    /// Concurrent clients by default.
    pub clients: usize,
    /// How it runs.
    pub run: Run,
}

/// The ways in which workloads run.
pub enum Run {
    /// Starts servers and times them.
    Start,
    /// Starts a server and measures its memory, empty and full.
    Memory,
    /// Starts a server and fills it with definitions of custom resources.
    Definitions,
    /// Clients that send request after request for a time.
    Sessions(Prepare),
    /// Few writers and many watchers.
    Watch {
        /// Watchers by default.
        watchers: usize,
        /// Writers by default; each has an object of its own.
        writers: usize,
        /// Writes per second of each by default; 0 is as fast as it can.
        rate: f64,
    },
    /// Clients that send request after request, alone and while others attack.
    Hostile(Prepare),
    /// Watchers to which nothing happens.
    Idle {
        /// Watchers by default.
        watchers: usize,
    },
}

/// Fills the server and makes the clients of a workload.
pub type Prepare = for<'a> fn(&'a Target, &'a Options, usize) -> Prepared<'a>;
type Prepared<'a> = Pin<Box<dyn Future<Output = Result<Vec<Box<dyn Session>>, Error>> + 'a>>;

/// Every workload, in the order in which a run without names takes them.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "start",
        about: "time to ready: first start, empty, loaded",
        clients: 1,
        run: Run::Start,
    },
    Workload { name: "memory", about: "resident memory, idle and loaded", clients: 1, run: Run::Memory },
    Workload {
        name: "definitions",
        about: "500 definitions: create until served, memory, time to ready",
        clients: 1,
        run: Run::Definitions,
    },
    Workload {
        name: "create-single",
        about: "create ConfigMaps, one client",
        clients: 1,
        run: Run::Sessions(create),
    },
    Workload { name: "create", about: "create ConfigMaps", clients: 64, run: Run::Sessions(create) },
    Workload { name: "get", about: "get ConfigMaps", clients: 64, run: Run::Sessions(get) },
    Workload {
        name: "get-any",
        about: "get ConfigMaps, any state that the server has",
        clients: 64,
        run: Run::Sessions(get_any),
    },
    Workload {
        name: "update",
        about: "compare-and-swap PUT of Leases",
        clients: 64,
        run: Run::Sessions(update),
    },
    Workload {
        name: "apply",
        about: "server-side apply of ConfigMaps",
        clients: 64,
        run: Run::Sessions(apply),
    },
    Workload {
        name: "patch",
        about: "strategic merge patch of pods",
        clients: 64,
        run: Run::Sessions(patch),
    },
    Workload {
        name: "hostile",
        about: "get ConfigMaps, alone and under attack",
        clients: 8,
        run: Run::Hostile(get),
    },
    Workload { name: "list", about: "list all pods, JSON", clients: 1, run: Run::Sessions(list) },
    Workload {
        name: "list-any",
        about: "the same at resourceVersion=0",
        clients: 1,
        run: Run::Sessions(list_any),
    },
    Workload {
        name: "list-protobuf",
        about: "the same as protobuf",
        clients: 1,
        run: Run::Sessions(list_protobuf),
    },
    Workload { name: "list-table", about: "the same as Table", clients: 1, run: Run::Sessions(list_table) },
    Workload {
        name: "list-page",
        about: "list pods with limit=500",
        clients: 1,
        run: Run::Sessions(list_page),
    },
    Workload {
        name: "list-selector",
        about: "list the one pod of all that a label selects",
        clients: 1,
        run: Run::Sessions(list_selector),
    },
    Workload {
        name: "list-exact",
        about: "list all pods as they were before half of them changed",
        clients: 1,
        run: Run::Sessions(list_exact),
    },
    Workload {
        name: "list-latest",
        about: "list all pods after half of them changed, to compare",
        clients: 1,
        run: Run::Sessions(list_latest),
    },
    Workload {
        name: "list-long",
        about: "list ten times as many pods",
        clients: 1,
        run: Run::Sessions(list_long),
    },
    Workload {
        name: "watch-fanout",
        about: "100 watchers, one writer at full speed",
        clients: 1,
        run: Run::Watch { watchers: 100, writers: 1, rate: 0.0 },
    },
    Workload {
        name: "watch-many",
        about: "1,000 watchers, 100 writes per second",
        clients: 1,
        run: Run::Watch { watchers: 1000, writers: 1, rate: 100.0 },
    },
    Workload {
        name: "watch-saturated",
        about: "1,000 watchers, 16 writers at full speed",
        clients: 1,
        run: Run::Watch { watchers: 1000, writers: 16, rate: 0.0 },
    },
    Workload {
        name: "watch-idle",
        about: "10,000 watches to which nothing happens",
        clients: 1,
        run: Run::Idle { watchers: 10_000 },
    },
    Workload {
        name: "mixed",
        about: "70% Lease updates, 10% status patches, 10% gets, 5% limited lists, 5% creates",
        clients: 64,
        run: Run::Sessions(mixed),
    },
];

/// The namespace that all workloads use; each has a server of its own.
pub const NAMESPACE: &str = "bench";

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn config_maps() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps")
}

/// The collection that pods are created in and listed from.
pub fn pods() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

fn leases() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")
}

/// Creates `options.objects` ConfigMaps `cm-N`.
pub async fn fill_config_maps(target: &Target, options: &Options, count: usize) -> Result<(), Error> {
    let (size, seed) = (options.size, options.seed);
    let fill = move |index| {
        let body = objects::config_map(&format!("cm-{index}"), size, seed);
        Call::new(Method::POST, config_maps()).body(JSON, body)
    };
    target.fill(count, fill).await
}

/// Creates pods `pod-N`.
pub async fn fill_pods(target: &Target, options: &Options, count: usize) -> Result<(), Error> {
    let seed = options.seed;
    let fill =
        move |index| Call::new(Method::POST, pods()).body(JSON, objects::pod(&format!("pod-{index}"), seed));
    target.fill(count, fill).await
}

fn sessions<S: Session + 'static>(clients: usize, make: impl Fn(usize) -> S) -> Vec<Box<dyn Session>> {
    (0..clients).map(|client| Box::new(make(client)) as Box<dyn Session>).collect()
}

/// The resourceVersion in an object's JSON: its first occurrence, as metadata precedes the rest.
pub fn resource_version(body: &[u8]) -> Option<&str> {
    const KEY: &[u8] = br#""resourceVersion":""#;
    let at = body.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let rest = body.get(at..)?;
    let end = rest.iter().position(|&byte| byte == b'"')?;
    std::str::from_utf8(rest.get(..end)?).ok()
}

struct Create {
    client: usize,
    count: u64,
    size: usize,
    seed: u64,
}

impl Create {
    fn new(client: usize, options: &Options) -> Create {
        Create { client, count: 0, size: options.size, seed: options.seed }
    }
}

impl Session for Create {
    fn next(&mut self) -> Call {
        self.count += 1;
        let name = format!("new-{}-{}", self.client, self.count);
        Call::new(Method::POST, config_maps()).body(JSON, objects::config_map(&name, self.size, self.seed))
    }
}

fn create<'a>(target: &'a Target, options: &'a Options, clients: usize) -> Prepared<'a> {
    Box::pin(async move {
        target.namespace(NAMESPACE).await?;
        Ok(sessions(clients, |client| Create::new(client, options)))
    })
}

struct Get {
    rng: Rng,
    objects: u64,
    query: &'static str,
}

impl Get {
    fn new(client: usize, options: &Options, query: &'static str) -> Get {
        Get { rng: Rng::new(options.seed ^ client as u64), objects: options.objects as u64, query }
    }
}

impl Session for Get {
    fn next(&mut self) -> Call {
        Call::get(format!("{}/cm-{}{}", config_maps(), self.rng.below(self.objects), self.query))
    }
}

fn getting<'a>(
    target: &'a Target,
    options: &'a Options,
    clients: usize,
    query: &'static str,
) -> Prepared<'a> {
    Box::pin(async move {
        target.namespace(NAMESPACE).await?;
        fill_config_maps(target, options, options.objects).await?;
        Ok(sessions(clients, |client| Get::new(client, options, query)))
    })
}

fn get<'a>(target: &'a Target, options: &'a Options, clients: usize) -> Prepared<'a> {
    getting(target, options, clients, "")
}

fn get_any<'a>(target: &'a Target, options: &'a Options, clients: usize) -> Prepared<'a> {
    getting(target, options, clients, "?resourceVersion=0")
}

struct Update {
    name: String,
    path: String,
    resource_version: String,
    renewals: u64,
}

impl Update {
    fn new(client: usize) -> Update {
        let name = format!("lease-{client}");
        Update { path: format!("{}/{name}", leases()), name, resource_version: String::new(), renewals: 0 }
    }
}

impl Session for Update {
    fn next(&mut self) -> Call {
        self.renewals += 1;
        // The first PUT, without a version, creates the Lease; each later one swaps the version before.
        let body = objects::lease(&self.name, &self.resource_version, self.renewals);
        Call::new(Method::PUT, self.path.clone()).body(JSON, body)
    }

    fn wants_body(&self) -> bool {
        true
    }

    fn answered(&mut self, body: &Bytes) {
        self.resource_version = resource_version(body).unwrap_or_default().to_string();
    }
}

fn update<'a>(target: &'a Target, _options: &'a Options, clients: usize) -> Prepared<'a> {
    Box::pin(async move {
        target.namespace(NAMESPACE).await?;
        Ok(sessions(clients, Update::new))
    })
}

struct Apply {
    name: String,
    path: String,
    size: usize,
    seed: u64,
    steps: u64,
}

impl Session for Apply {
    fn next(&mut self) -> Call {
        self.steps += 1;
        let body = objects::applied_config_map(&self.name, self.size, self.seed, self.steps);
        Call::new(Method::PATCH, self.path.clone()).body(APPLY, body)
    }
}

fn apply<'a>(target: &'a Target, options: &'a Options, clients: usize) -> Prepared<'a> {
    Box::pin(async move {
        target.namespace(NAMESPACE).await?;
        Ok(sessions(clients, |client| {
            let name = format!("applied-{client}");
            let path = format!("{}/{name}?fieldManager=bench&force=true", config_maps());
            Apply { name, path, size: options.size, seed: options.seed, steps: 0 }
        }))
    })
}

struct Patch {
    path: String,
    body: fn(u64) -> Bytes,
    steps: u64,
}

impl Patch {
    fn of_status(client: usize, options: &Options) -> Patch {
        let pod = client.checked_rem(options.objects).unwrap_or(0);
        Patch { path: format!("{}/pod-{pod}/status", pods()), body: objects::pod_status_patch, steps: 0 }
    }
}

impl Session for Patch {
    fn next(&mut self) -> Call {
        self.steps += 1;
        Call::new(Method::PATCH, self.path.clone()).body(STRATEGIC, (self.body)(self.steps))
    }
}

fn patch<'a>(target: &'a Target, options: &'a Options, clients: usize) -> Prepared<'a> {
    Box::pin(async move {
        target.namespace(NAMESPACE).await?;
        fill_pods(target, options, clients).await?;
        Ok(sessions(clients, |client| Patch {
            path: format!("{}/pod-{client}", pods()),
            body: objects::pod_patch,
            steps: 0,
        }))
    })
}

struct List {
    call: Call,
}

impl Session for List {
    fn next(&mut self) -> Call {
        self.call.clone()
    }
}

fn listing<'a>(
    target: &'a Target,
    options: &'a Options,
    clients: usize,
    query: &'static str,
    accept: &'static str,
) -> Prepared<'a> {
    Box::pin(async move {
        target.namespace(NAMESPACE).await?;
        fill_pods(target, options, options.objects).await?;
        Ok(sessions(clients, |_| List { call: Call::get(format!("{}{query}", pods())).accept(accept) }))
    })
}

fn list<'a>(target: &'a Target, options: &'a Options, clients: usize) -> Prepared<'a> {
    listing(target, options, clients, "", JSON)
}

fn list_any<'a>(target: &'a Target, options: &'a Options, clients: usize) -> Prepared<'a> {
    listing(target, options, clients, "?resourceVersion=0", JSON)
}

fn list_protobuf<'a>(target: &'a Target, options: &'a Options, clients: usize) -> Prepared<'a> {
    listing(target, options, clients, "", PROTOBUF)
}

fn list_table<'a>(target: &'a Target, options: &'a Options, clients: usize) -> Prepared<'a> {
    listing(target, options, clients, "", TABLE)
}

fn list_page<'a>(target: &'a Target, options: &'a Options, clients: usize) -> Prepared<'a> {
    listing(target, options, clients, "?limit=500", JSON)
}

fn list_selector<'a>(target: &'a Target, options: &'a Options, clients: usize) -> Prepared<'a> {
    Box::pin(async move {
        target.namespace(NAMESPACE).await?;
        fill_pods(target, options, options.objects).await?;
        let chosen = options.objects / 2;
        let label = r#"{"metadata":{"labels":{"chosen":"yes"}}}"#;
        let patch = Call::new(Method::PATCH, format!("{}/pod-{chosen}", pods())).body(MERGE, label);
        target.connection(0).await?.must(&patch).await?;
        let path = format!("{}?labelSelector=chosen%3Dyes", pods());
        Ok(sessions(clients, |_| List { call: Call::get(path.clone()) }))
    })
}

/// Fills in pods, notes the revision, then changes every second one.
async fn changed_pods(target: &Target, options: &Options) -> Result<String, Error> {
    target.namespace(NAMESPACE).await?;
    fill_pods(target, options, options.objects).await?;
    let mut connection = target.connection(0).await?;
    let one = connection.must(&Call::get(format!("{}?limit=1", pods()))).await?;
    // The list's own version comes last where there is a limit.
    let text = one.text();
    let version = text.rsplit(r#""resourceVersion":""#).next().and_then(|rest| rest.split('"').next());
    let version = version.unwrap_or_default().to_string();
    let change = |index: usize| {
        Call::new(Method::PATCH, format!("{}/pod-{}", pods(), 2 * index))
            .body(MERGE, r#"{"metadata":{"annotations":{"changed":"yes"}}}"#)
    };
    target.fill(options.objects / 2, change).await?;
    Ok(version)
}

fn list_exact<'a>(target: &'a Target, options: &'a Options, clients: usize) -> Prepared<'a> {
    Box::pin(async move {
        let version = changed_pods(target, options).await?;
        let path = format!("{}?resourceVersion={version}&resourceVersionMatch=Exact", pods());
        Ok(sessions(clients, |_| List { call: Call::get(path.clone()) }))
    })
}

fn list_latest<'a>(target: &'a Target, options: &'a Options, clients: usize) -> Prepared<'a> {
    Box::pin(async move {
        changed_pods(target, options).await?;
        Ok(sessions(clients, |_| List { call: Call::get(pods()) }))
    })
}

fn list_long<'a>(target: &'a Target, options: &'a Options, clients: usize) -> Prepared<'a> {
    Box::pin(async move {
        target.namespace(NAMESPACE).await?;
        fill_pods(target, options, options.objects * 10).await?;
        Ok(sessions(clients, |_| List { call: Call::get(pods()) }))
    })
}

struct Mixed {
    rng: Rng,
    update: Update,
    patch: Patch,
    get: Get,
    list: List,
    create: Create,
    /// Whether the request under way is the update, whose answer carries the next version.
    updating: bool,
}

impl Session for Mixed {
    fn next(&mut self) -> Call {
        let dice = self.rng.below(100);
        self.updating = dice < 70;
        match dice {
            0..70 => self.update.next(),
            70..80 => self.patch.next(),
            80..90 => self.get.next(),
            90..95 => self.list.next(),
            _ => self.create.next(),
        }
    }

    fn wants_body(&self) -> bool {
        self.updating
    }

    fn answered(&mut self, body: &Bytes) {
        if self.updating {
            self.update.answered(body);
        }
    }
}

fn mixed<'a>(target: &'a Target, options: &'a Options, clients: usize) -> Prepared<'a> {
    Box::pin(async move {
        target.namespace(NAMESPACE).await?;
        fill_config_maps(target, options, options.objects).await?;
        fill_pods(target, options, options.objects).await?;
        Ok(sessions(clients, |client| Mixed {
            rng: Rng::new(options.seed ^ !(client as u64)),
            update: Update::new(client),
            patch: Patch::of_status(client, options),
            get: Get::new(client, options, ""),
            list: List { call: Call::get(format!("{}?limit=500", pods())) },
            create: Create::new(client, options),
            updating: false,
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (index, row) in WORKLOADS.iter().enumerate() {
            assert!(WORKLOADS[..index].iter().all(|w| w.name != row.name), "{}", row.name);
        }
    }

    #[test]
    fn resource_version_is_read_from_the_metadata() {
        assert_eq!(resource_version(br#"{"metadata":{"name":"a","resourceVersion":"42"}}"#), Some("42"));
        assert_eq!(resource_version(br#"{"metadata":{}}"#), None);
    }
}
