//! The columns of pods: readiness, status and restarts are summed up from phase, conditions and container
//! states.

use std::borrow::Cow;

use plinth_codec::table::{condition, count, Cell, Column, Now, Parts, RowCondition, RowConditionSource};
use plinth_codec::time::Timestamp;
use plinth_codec::Value;

use crate::columns::or;
use crate::path::{at, flag, int_or_zero, list, text};

pub(crate) const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::part("Ready", &SUMMARY, 0),
    Column::part("Status", &SUMMARY, 1),
    Column::part("Restarts", &SUMMARY, 2),
    Column::AGE,
    Column::computed("IP", &["status.podIP", "status.podIPs[].ip"], ip_cell).wide(),
    Column::text("Node", "spec.nodeName", "<none>").wide(),
    Column::text("Nominated Node", "status.nominatedNodeName", "<none>").wide(),
    Column::computed(
        "Readiness Gates",
        &["spec.readinessGates[].conditionType", "status.conditions[].type", "status.conditions[].status"],
        readiness_gates_cell,
    )
    .wide(),
];

/// Three columns show parts of one summary.
const SUMMARY: Parts = Parts { reads: SUMMARY_PATHS, cells: |pod, now| Summary::of(pod).cells(now) };

const SUMMARY_PATHS: &[&str] = &[
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

fn ip_cell(pod: &Value, _: Now) -> Cell<'_> {
    // If both are set, the singular field takes precedence, as in upstream's conversion.
    let first = list(pod, "status.podIPs").first().map_or("", |ip| text(ip, "ip"));
    or(or(text(pod, "status.podIP"), first), "<none>").into()
}

fn readiness_gates_cell(pod: &Value, _: Now) -> Cell<'_> {
    let gates = list(pod, "spec.readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let conditions = list(pod, "status.conditions");
    let open = gates.iter().filter(|gate| is_true(conditions, text(gate, "conditionType"))).count();
    format!("{open}/{}", gates.len()).into()
}

/// Finished pods are `Completed`.
pub(crate) const ROW_CONDITION: RowConditionSource =
    RowConditionSource { reads: &["status.phase"], condition: completed };

fn completed(pod: &Value) -> Option<RowCondition> {
    match text(pod, "status.phase") {
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
    condition(conditions, kind).is_some_and(|c| text(c, "status") == "True")
}

/// The summary of a pod's containers, conditions and phase.
struct Summary<'a> {
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
        self.count = self.count.saturating_add(int_or_zero(container, "restartCount"));
        let text = text(container, "lastState.terminated.finishedAt");
        if let Ok(when) = Timestamp::parse(text) {
            if self.last.is_none_or(|(last, _)| last < when) {
                self.last = Some((when, text));
            }
        }
    }
}

/// Why a container has ended: its reason, else its signal or exit code.
fn end_of(terminated: &Value) -> Cow<'_, str> {
    match (text(terminated, "reason"), int_or_zero(terminated, "signal")) {
        ("", 0) => Cow::Owned(format!("ExitCode:{}", int_or_zero(terminated, "exitCode"))),
        ("", signal) => Cow::Owned(format!("Signal:{signal}")),
        (reason, _) => Cow::Borrowed(reason),
    }
}

/// An init container that keeps running beside the others.
fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

impl<'a> Summary<'a> {
    /// Sums a pod up.
    fn of(pod: &'a Value) -> Summary<'a> {
        let phase = text(pod, "status.phase");
        let conditions = list(pod, "status.conditions");
        let init_specs = list(pod, "spec.initContainers");
        let sidecars = init_specs.iter().filter(|c| is_sidecar(c)).count() as i64;
        let mut status = Cow::Borrowed(or(text(pod, "status.reason"), phase));
        if condition(conditions, "PodScheduled").is_some_and(|c| text(c, "reason") == "SchedulingGated") {
            status = Cow::Borrowed("SchedulingGated");
        }
        let containers = count(pod, "spec.containers") + sidecars;
        let mut summary = Summary { ready: 0, containers, status, restarts: Restarts::default() };
        let (initializing, sidecar_restarts) = summary.add_init_containers(pod, init_specs);
        let is_initialized = initializing.is_none() || is_true(conditions, "Initialized");
        if let Some(text) = initializing {
            summary.status = Cow::Owned(text);
        }
        if is_initialized {
            summary.restarts = sidecar_restarts;
            summary.add_containers(pod, conditions);
        }
        if at(pod, "metadata.deletionTimestamp").is_some() {
            if text(pod, "status.reason") == "NodeLost" {
                summary.status = Cow::Borrowed("Unknown");
            } else if !matches!(phase, "Succeeded" | "Failed") {
                summary.status = Cow::Borrowed("Terminating");
            }
        }
        summary
    }

    /// Adds the init containers up to the first that has not finished; returns the status that this one gives
    /// the pod, and the restarts of sidecars.
    fn add_init_containers(
        &mut self,
        pod: &'a Value,
        init_specs: &[Value],
    ) -> (Option<String>, Restarts<'a>) {
        let mut of_sidecars = Restarts::default();
        for (i, container) in list(pod, "status.initContainerStatuses").iter().enumerate() {
            let name = text(container, "name");
            let sidecar = init_specs.iter().any(|c| text(c, "name") == name && is_sidecar(c));
            self.restarts.add(container);
            if sidecar {
                of_sidecars.add(container);
            }
            let waiting = text(container, "state.waiting.reason");
            let status = match at(container, "state.terminated") {
                Some(end) if int_or_zero(end, "exitCode") == 0 => continue,
                _ if sidecar && flag(container, "started") => {
                    self.ready += i64::from(flag(container, "ready"));
                    continue;
                }
                Some(end) => format!("Init:{}", end_of(end)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{i}/{}", init_specs.len()),
            };
            return (Some(status), of_sidecars);
        }
        (None, of_sidecars)
    }

    /// Adds the containers of a pod that is initialized.
    fn add_containers(&mut self, pod: &'a Value, conditions: &[Value]) {
        let mut running = false;
        let mut error: Option<Cow<'a, str>> = None;
        // From the last to the first, so that the first container takes precedence.
        for container in list(pod, "status.containerStatuses").iter().rev() {
            self.restarts.add(container);
            let waiting = text(container, "state.waiting.reason");
            if !waiting.is_empty() {
                self.status = Cow::Borrowed(waiting);
            } else if let Some(end) = at(container, "state.terminated") {
                self.status = end_of(end);
                if int_or_zero(end, "exitCode") != 0 {
                    error = Some(self.status.clone());
                }
            } else if flag(container, "ready") && at(container, "state.running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" {
            if running && is_true(conditions, "Ready") {
                self.status = Cow::Borrowed("Running");
            } else if let Some(error) = error {
                self.status = error;
            } else if running {
                self.status = Cow::Borrowed("NotReady");
            }
        }
    }

    /// Ready, status and restarts.
    fn cells(self, now: Now) -> [Cell<'a>; Parts::COUNT] {
        let Restarts { count, last } = self.restarts;
        let restarts = match last {
            Some((_, when)) if count != 0 => format!("{count} ({} ago)", now.age(when)),
            _ => count.to_string(),
        };
        [format!("{}/{}", self.ready, self.containers).into(), self.status.into(), restarts.into()]
    }
}
