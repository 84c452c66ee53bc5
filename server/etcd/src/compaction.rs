//! `--auto-compaction-mode` and `--auto-compaction-retention` (etcd's `server/etcdserver/api/v3compactor`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::member::Member;
use crate::options::Retention;

/// How often it is compacted at most, where history is kept for longer.
const LONGEST_PERIOD: Duration = Duration::from_secs(3600);
/// How often it is compacted where revisions are counted.
const REVISION_PERIOD: Duration = Duration::from_secs(300);
/// Samples of the revision in a period.
const SAMPLES: u32 = 10;

/// Compacts until it is stopped.
pub(crate) async fn run(member: Arc<Member>, retention: Retention, stop: CancellationToken) {
    let (pause, samples_between) = match retention {
        Retention::All => return,
        Retention::Time(time) => (time.min(LONGEST_PERIOD) / SAMPLES, SAMPLES),
        Retention::Revisions(_) => (REVISION_PERIOD, 1),
    };
    let mut samples: VecDeque<(Instant, i64)> = VecDeque::new();
    let mut since = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause.max(Duration::from_millis(1))) => {}
            () = stop.cancelled() => return,
        }
        since += 1;
        let target = match retention {
            Retention::All => return,
            Retention::Revisions(revisions) => Some(member.revision() - revisions),
            Retention::Time(time) => {
                samples.push_back((Instant::now(), member.revision()));
                older_than(&mut samples, time)
            }
        };
        let Some(target) = target.filter(|target| since >= samples_between && *target > member.compacted())
        else {
            continue;
        };
        if target <= 0 {
            continue;
        }
        since = 0;
        match member.compact(target, false).await {
            Ok(()) => tracing::info!(revision = target, "compacted automatically"),
            Err(error) => {
                tracing::warn!(revision = target, error = error.message(), "automatic compaction failed");
            }
        }
    }
}

/// The newest revision that was sampled `time` ago or earlier. Forgets older samples.
fn older_than(samples: &mut VecDeque<(Instant, i64)>, time: Duration) -> Option<i64> {
    let mut newest = None;
    while samples.front().is_some_and(|(at, _)| at.elapsed() >= time) {
        newest = samples.pop_front().map(|(_, revision)| revision);
    }
    newest
}
