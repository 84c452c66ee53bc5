//! Pods: readiness, status and restarts, summed up from phase, conditions and container states.

use super::read::{at, bool_at, condition, count, int_at, items, or, str_at};
use super::{Cell, Computation, Now};
use crate::table::RowCondition;
use crate::time::Timestamp;
use crate::Value;
use std::borrow::Cow;

/// The paths that the summary reads.
pub const SUMMARY: &[&str] = &[
    "metadata.deletionTimestamp",
    "spec.containers#",
    "spec.initContainers[].name",
    "spec.initContainers[].restartPolicy",
    "status.phase",
    "status.reason",
    "status.conditions[].type",
    "status.conditions[].status",
    "status.conditions[].reason",
    "status.initContainerStatuses[].name",
    "status.initContainerStatuses[].restartCount",
    "status.initContainerStatuses[].ready",
    "status.initContainerStatuses[].started",
    "status.initContainerStatuses[].state.waiting.reason",
    "status.initContainerStatuses[].state.terminated.reason",
    "status.initContainerStatuses[].state.terminated.signal",
    "status.initContainerStatuses[].state.terminated.exitCode",
    "status.initContainerStatuses[].lastState.terminated.finishedAt",
    "status.containerStatuses[].restartCount",
    "status.containerStatuses[].ready",
    "status.containerStatuses[].state.waiting.reason",
    "status.containerStatuses[].state.running#",
    "status.containerStatuses[].state.terminated.reason",
    "status.containerStatuses[].state.terminated.signal",
    "status.containerStatuses[].state.terminated.exitCode",
    "status.containerStatuses[].lastState.terminated.finishedAt",
];

pub fn ready<'a>(summary: &Summary<'a>, _: Now) -> Cell<'a> {
    format!("{}/{}", summary.ready, summary.containers).into()
}

pub fn status<'a>(summary: &Summary<'a>, _: Now) -> Cell<'a> {
    summary.status.clone().into()
}

pub fn restarts<'a>(summary: &Summary<'a>, now: Now) -> Cell<'a> {
    let Restarts { count, last } = summary.restarts;
    match last {
        Some((_, when)) if count != 0 => format!("{count} ({} ago)", now.age(when)).into(),
        _ => count.to_string().into(),
    }
}

pub const IP: Computation = Computation {
    reads: &["status.podIP", "status.podIPs[].ip"],
    cell: |pod, _| {
        // If both are set, the singular field takes precedence, as in upstream's conversion.
        let first = items(pod, "status.podIPs").first().map_or("", |ip| str_at(ip, "ip"));
        or(or(str_at(pod, "status.podIP"), first), "<none>").into()
    },
};

pub const READINESS_GATES: Computation = Computation {
    reads: &["spec.readinessGates[].conditionType", "status.conditions[].type", "status.conditions[].status"],
    cell: |pod, _| {
        let gates = items(pod, "spec.readinessGates");
        if gates.is_empty() {
            return "<none>".into();
        }
        let conditions = items(pod, "status.conditions");
        let open = gates.iter().filter(|gate| is_true(conditions, str_at(gate, "conditionType"))).count();
        format!("{open}/{}", gates.len()).into()
    },
};

/// The row condition of a finished pod.
pub fn completed(pod: &Value) -> Option<RowCondition> {
    match str_at(pod, "status.phase") {
        "Succeeded" => Some(RowCondition {
            kind: "Completed",
            reason: "Succeeded",
            message: "The pod has completed successfully.",
        }),
        "Failed" => Some(RowCondition { kind: "Completed", reason: "Failed", message: "The pod failed." }),
        _ => None,
    }
}

fn is_true(conditions: &[Value], kind: &str) -> bool {
    condition(conditions, kind).is_some_and(|c| str_at(c, "status") == "True")
}

/// The summary of a pod's containers, conditions and phase.
pub struct Summary<'a> {
    /// Containers that are ready, sidecars included.
    ready: i64,
    /// Containers that count, sidecars included.
    containers: i64,
    status: Cow<'a, str>,
    restarts: Restarts<'a>,
}

/// Restarts of containers, and the end of the last terminated one.
#[derive(Clone, Copy, Default)]
struct Restarts<'a> {
    count: i64,
    /// As a timestamp, and as text.
    last: Option<(Timestamp, &'a str)>,
}

impl<'a> Restarts<'a> {
    fn add(&mut self, container: &'a Value) {
        self.count = self.count.saturating_add(int_at(container, "restartCount"));
        let text = str_at(container, "lastState.terminated.finishedAt");
        if let Ok(when) = Timestamp::parse(text) {
            if self.last.is_none_or(|(last, _)| last < when) {
                self.last = Some((when, text));
            }
        }
    }
}

/// Why a container has ended: its reason, else its signal or exit code.
fn end_of(terminated: &Value) -> Cow<'_, str> {
    match (str_at(terminated, "reason"), int_at(terminated, "signal")) {
        ("", 0) => Cow::Owned(format!("ExitCode:{}", int_at(terminated, "exitCode"))),
        ("", signal) => Cow::Owned(format!("Signal:{signal}")),
        (reason, _) => Cow::Borrowed(reason),
    }
}

/// An init container that keeps running beside the others.
fn is_sidecar(container: &Value) -> bool {
    str_at(container, "restartPolicy") == "Always"
}

impl<'a> Summary<'a> {
    /// Sums a pod up.
    pub fn of(pod: &'a Value) -> Summary<'a> {
        let phase = str_at(pod, "status.phase");
        let conditions = items(pod, "status.conditions");
        let init_specs = items(pod, "spec.initContainers");
        let sidecars = init_specs.iter().filter(|c| is_sidecar(c)).count() as i64;
        let mut status = Cow::Borrowed(or(str_at(pod, "status.reason"), phase));
        if condition(conditions, "PodScheduled").is_some_and(|c| str_at(c, "reason") == "SchedulingGated") {
            status = Cow::Borrowed("SchedulingGated");
        }

        let mut ready = 0;
        let mut restarts = Restarts::default();
        let mut sidecar_restarts = Restarts::default();
        let mut initializing = None;
        for (i, container) in items(pod, "status.initContainerStatuses").iter().enumerate() {
            let name = str_at(container, "name");
            let sidecar = init_specs.iter().any(|c| str_at(c, "name") == name && is_sidecar(c));
            restarts.add(container);
            if sidecar {
                sidecar_restarts.add(container);
            }
            let terminated = at(container, "state.terminated");
            let waiting = str_at(container, "state.waiting.reason");
            match terminated {
                Some(end) if int_at(end, "exitCode") == 0 => continue,
                _ if sidecar && bool_at(container, "started") => {
                    ready += i64::from(bool_at(container, "ready"));
                    continue;
                }
                Some(end) => initializing = Some(format!("Init:{}", end_of(end))),
                None if !waiting.is_empty() && waiting != "PodInitializing" => {
                    initializing = Some(format!("Init:{waiting}"));
                }
                None => initializing = Some(format!("Init:{i}/{}", init_specs.len())),
            }
            break;
        }

        let initialized = initializing.is_none() || is_true(conditions, "Initialized");
        if let Some(text) = initializing {
            status = Cow::Owned(text);
        }
        if initialized {
            restarts = sidecar_restarts;
            let mut running = false;
            let mut error: Option<Cow<'a, str>> = None;
            // From the last to the first, so that the first container takes precedence.
            for container in items(pod, "status.containerStatuses").iter().rev() {
                restarts.add(container);
                let waiting = str_at(container, "state.waiting.reason");
                if !waiting.is_empty() {
                    status = Cow::Borrowed(waiting);
                } else if let Some(end) = at(container, "state.terminated") {
                    status = end_of(end);
                    if int_at(end, "exitCode") != 0 {
                        error = Some(status.clone());
                    }
                } else if bool_at(container, "ready") && at(container, "state.running").is_some() {
                    running = true;
                    ready += 1;
                }
            }
            if status == "Completed" {
                if running && is_true(conditions, "Ready") {
                    status = Cow::Borrowed("Running");
                } else if let Some(error) = error {
                    status = error;
                } else if running {
                    status = Cow::Borrowed("NotReady");
                }
            }
        }

        if at(pod, "metadata.deletionTimestamp").is_some() {
            if str_at(pod, "status.reason") == "NodeLost" {
                status = Cow::Borrowed("Unknown");
            } else if !matches!(phase, "Succeeded" | "Failed") {
                status = Cow::Borrowed("Terminating");
            }
        }
        Summary { ready, containers: count(pod, "spec.containers") + sidecars, status, restarts }
    }
}
