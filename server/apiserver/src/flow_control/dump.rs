//! `/debug/api_priority_and_fairness/*`: levels, queues and waiting requests as tables, in upstream's columns
//! (k8s.io/apiserver `pkg/util/flowcontrol/apf_controller_debug.go`). Requests that are served are not
//! listed: they are counted, not registered.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use plinth_api::Route;
use plinth_codec::time::Timestamp;

use super::config::{Config, FlowSchema};
use super::level::PriorityLevel;
use super::queues::{QueueDump, Rejected};

/// A table by its name; `None` when there is none of this name.
pub(super) fn table(config: &Config, name: &str, with_details: bool) -> Option<String> {
    match name {
        "dump_priority_levels" => Some(priority_levels(config)),
        "dump_queues" => Some(queues(config)),
        "dump_requests" => Some(requests(config, with_details)),
        _ => None,
    }
}

/// The levels by name, with the schemas of each.
fn levels(config: &Config) -> BTreeMap<&str, (&PriorityLevel, Vec<&Arc<FlowSchema>>)> {
    let mut levels: BTreeMap<&str, (&PriorityLevel, Vec<&Arc<FlowSchema>>)> = BTreeMap::new();
    for schema in config.schemas() {
        let level = &*schema.level;
        levels.entry(level.name()).or_insert((level, Vec::new())).1.push(schema);
    }
    levels
}

fn row(out: &mut String, columns: &[&str]) {
    out.push_str(&columns.join(",\t"));
    out.push('\n');
}

fn priority_levels(config: &Config) -> String {
    let mut out = String::new();
    row(
        &mut out,
        &[
            "PriorityLevelName",
            "ActiveQueues",
            "IsIdle",
            "IsQuiescing",
            "WaitingRequests",
            "ExecutingRequests",
            "DispatchedRequests",
            "RejectedRequests",
            "TimedoutRequests",
            "CancelledRequests",
        ],
    );
    for (name, (level, schemas)) in levels(config) {
        let sum = |count: fn(&FlowSchema) -> u64| schemas.iter().map(|schema| count(schema)).sum::<u64>();
        let waiting = sum(|schema| schema.metrics.waiting.get().unsigned_abs());
        let executing = sum(|schema| schema.metrics.executing.get().unsigned_abs());
        let dispatched = sum(|schema| schema.metrics.dispatched.get());
        let rejected = sum(|schema| {
            [Rejected::QueueFull, Rejected::ConcurrencyLimit].map(|why| schema.rejected(why)).iter().sum()
        });
        let timed_out = sum(|schema| schema.rejected(Rejected::TimeOut));
        let cancelled = sum(|schema| schema.rejected(Rejected::Cancelled));
        let active = level.dump().iter().filter(|queue| queue.waiting > 0).count();
        // A level without an object has no schema either: none that is listed is quiescing.
        let _ = writeln!(
            out,
            "{name},\t{active},\t{},\tfalse,\t{waiting},\t{executing},\t{dispatched},\t{rejected},\t{timed_out},\t{cancelled}",
            level.is_idle()
        );
    }
    out
}

/// As upstream writes seat-seconds.
fn seat_seconds(nanos: i128) -> String {
    format!("{:.8}ss", nanos as f64 / 1e9)
}

fn queues(config: &Config) -> String {
    let mut out = String::new();
    row(
        &mut out,
        &[
            "PriorityLevelName",
            "Index",
            "PendingRequests",
            "ExecutingRequests",
            "SeatsInUse",
            "NextDispatchR",
            "InitialSeatsSum",
            "MaxSeatsSum",
            "TotalWorkSum",
        ],
    );
    for (name, (level, _)) in levels(config) {
        for (index, queue) in level.dump().into_iter().enumerate() {
            let QueueDump { waiting, executing, seats_in_use, seats_waiting, next_start, work } = queue;
            let (next, work) = (seat_seconds(next_start), seat_seconds(work));
            let _ = writeln!(
                out,
                "{name},\t{index},\t{waiting},\t{executing},\t{seats_in_use},\t{next},\t{seats_waiting},\t{seats_waiting},\t{work}"
            );
        }
    }
    out
}

fn requests(config: &Config, with_details: bool) -> String {
    let mut out = String::new();
    let mut header = vec![
        "PriorityLevelName",
        "FlowSchemaName",
        "QueueIndex",
        "RequestIndexInQueue",
        "FlowDistingsher",
        "ArriveTime",
        "InitialSeats",
        "FinalSeats",
        "AdditionalLatency",
        "StartTime",
    ];
    if with_details {
        header.extend([
            "UserName",
            "Verb",
            "APIPath",
            "Namespace",
            "Name",
            "APIVersion",
            "Resource",
            "SubResource",
        ]);
    }
    row(&mut out, &header);
    for (name, (level, _)) in levels(config) {
        for (queue, place, seats, request) in level.dump_waiting() {
            let arrived = Timestamp::from(request.arrived).to_rfc3339_micro();
            // One that waits has not started: Go's zero time.
            let started = Timestamp::ZERO.to_rfc3339();
            let _ = write!(
                out,
                "{name},\t{},\t{queue},\t{place},\t{},\t{arrived},\t{seats},\t0,\t0s,\t{started}",
                request.schema, request.flow
            );
            if with_details {
                let details = match &request.route {
                    Route::NonResource(path) => [path, "", "", "", "", ""].map(str::to_owned),
                    Route::Resource(info) => {
                        let version = match info.group.as_str() {
                            "" => info.version.clone(),
                            group => format!("{group}/{}", info.version),
                        };
                        [
                            String::new(),
                            info.namespace.clone(),
                            info.name.clone(),
                            version,
                            info.resource.clone(),
                            info.subresource.clone(),
                        ]
                    }
                };
                let _ = write!(out, ",\t{},\t{},\t{}", request.user, request.verb, details.join(",\t"));
            }
            out.push('\n');
        }
    }
    out
}
