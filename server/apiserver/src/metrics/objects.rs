//! The number of stored objects by resource. It is counted when metrics are scraped, at most once a minute,
//! as upstream does (`--etcd-count-metric-poll-period`): counting reads each key.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_engine::At;
use plinth_registry::{prefix_range, Registry};
use plinth_storage::Store;
use tokio::sync::Mutex;

/// How long a count is reported.
const PERIOD: Duration = Duration::from_secs(60);

/// Objects by group and resource.
type Counts = BTreeMap<(String, String), u64>;

/// The last count. The lock is held while one is made, so that several scrapes at once make one.
#[derive(Default)]
pub(super) struct ObjectMetrics(Mutex<Option<(Instant, Arc<Counts>)>>);

impl ObjectMetrics {
    /// The current numbers; the last ones where the store cannot be read.
    pub(super) async fn counts(&self, store: &Store, registry: Arc<Registry>) -> Arc<Counts> {
        let mut last = self.0.lock().await;
        if let Some((at, counts)) = last.as_ref().filter(|(at, _)| at.elapsed() < PERIOD) {
            let _ = at;
            return counts.clone();
        }
        let counted = store.read(move |engine| {
            let snapshot = engine.snapshot(At::Latest)?;
            let mut counts = Counts::new();
            for resource in registry.resources.iter().filter(|r| r.is_storage_version()) {
                let Some(form) = &resource.storage else { continue };
                let count = snapshot.count(&prefix_range(form.prefix.as_bytes()))?;
                counts.insert((resource.group().to_owned(), resource.plural().to_owned()), count);
            }
            Ok(counts)
        });
        match counted.await {
            Ok(counts) => {
                let counts = Arc::new(counts);
                *last = Some((Instant::now(), counts.clone()));
                counts
            }
            Err(_) => last.as_ref().map(|(_, counts)| counts.clone()).unwrap_or_default(),
        }
    }
}

/// Appends the metrics in the text format.
pub(super) fn write(counts: &Counts, out: &mut Vec<u8>) {
    let mut family = |name: &str, help: &str, row: &dyn Fn(&str, &str) -> String| {
        // Writing to memory does not fail, here and below.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        for ((group, resource), count) in counts {
            let _ = writeln!(out, "{name}{{{}}} {count}", row(group, resource));
        }
    };
    family("apiserver_resource_objects", "Stored objects by resource.", &|group, resource| {
        format!("group=\"{group}\",resource=\"{resource}\"")
    });
    let of_older_name = |group: &str, resource: &str| match group {
        "" => format!("resource=\"{resource}\""),
        group => format!("resource=\"{resource}.{group}\""),
    };
    family(
        "apiserver_storage_objects",
        "Stored objects by resource (deprecated: see apiserver_resource_objects).",
        &of_older_name,
    );
}
