//! `/livez`, `/readyz`, `/healthz` with their individual checks (k8s.io/apiserver
//! `pkg/server/healthz/healthz.go`). Names and order are kube-apiserver's, so that probes and dashboards that
//! name a check find it.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::{Response, StatusCode};
use plinth_codec::error::quoted;

use super::text;
use crate::context::Server;
use plinth_http::Body;

/// The endpoint of the request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Probe {
    Health,
    Liveness,
    Readiness,
}

impl Probe {
    const ALL: [Probe; 3] = [Probe::Health, Probe::Liveness, Probe::Readiness];

    fn of(segment: &str) -> Option<Probe> {
        Probe::ALL.into_iter().find(|probe| probe.name() == segment)
    }

    fn name(self) -> &'static str {
        match self {
            Probe::Health => "healthz",
            Probe::Liveness => "livez",
            Probe::Readiness => "readyz",
        }
    }

    /// A write or sync that has not returned for this long fails the check of the storage.
    ///
    /// Readiness: upstream's timeout of the etcd check (`--etcd-readycheck-timeout`), so that clients soon
    /// use another server. Liveness: upstream's is as short (`--etcd-healthcheck-timeout`), but concerns
    /// another machine. Here the disk is the process's own: one that is only slow (a full device cache, a
    /// snapshot of the volume) recovers, and a restart would have to read the store from that same disk
    /// before serving anything.
    fn longest_disk_wait(self) -> Duration {
        match self {
            Probe::Readiness => Duration::from_secs(2),
            Probe::Health | Probe::Liveness => Duration::from_secs(10),
        }
    }
}

/// A check that was not made yet.
struct Check<'a> {
    name: Cow<'static, str>,
    run: Box<dyn Fn() -> Result<(), String> + 'a>,
}

fn check<'a>(name: impl Into<Cow<'static, str>>, run: impl Fn() -> Result<(), String> + 'a) -> Check<'a> {
    Check { name: name.into(), run: Box::new(run) }
}

/// Where a hook exists.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hook {
    Always,
    /// With priority and fairness.
    WithFairness,
    WithoutFairness,
    /// With `--proxy-client-cert-file`.
    WithProxyCertificate,
}

/// What upstream starts before it is healthy and this server has finished before its port answers: these
/// pass. Hooks of what this server does not have (peers) are left out.
const HOOKS_BEFORE_REGISTRATION: &[(&str, Hook)] = &[
    ("start-apiserver-admission-initializer", Hook::Always),
    ("generic-apiserver-start-informers", Hook::Always),
    ("priority-and-fairness-config-consumer", Hook::WithFairness),
    ("priority-and-fairness-filter", Hook::WithFairness),
    ("max-in-flight-filter", Hook::WithoutFairness),
    ("storage-object-count-tracker-hook", Hook::Always),
    ("start-apiextensions-informers", Hook::Always),
    ("start-apiextensions-controllers", Hook::Always),
    ("crd-informer-synced", Hook::Always),
    ("start-system-namespaces-controller", Hook::Always),
    ("start-cluster-authentication-info-controller", Hook::Always),
    ("start-kube-apiserver-identity-lease-controller", Hook::Always),
    ("start-kube-apiserver-identity-lease-garbage-collector", Hook::Always),
    ("storage-readiness", Hook::Always),
    ("start-legacy-token-tracking-controller", Hook::Always),
    ("start-service-ip-repair-controllers", Hook::Always),
    ("rbac/bootstrap-roles", Hook::Always),
    ("scheduling/bootstrap-system-priority-classes", Hook::Always),
    ("priority-and-fairness-config-producer", Hook::Always),
    ("bootstrap-controller", Hook::Always),
    ("start-kubernetes-service-cidr-controller", Hook::Always),
    ("aggregator-reload-proxy-client-cert", Hook::WithProxyCertificate),
    ("start-kube-aggregator-informers", Hook::Always),
    ("apiservice-status-local-available-controller", Hook::Always),
    ("apiservice-status-remote-available-controller", Hook::Always),
    ("apiservice-registration-controller", Hook::Always),
    ("apiservice-wait-for-first-sync", Hook::Always),
    ("apiservice-discovery-controller", Hook::Always),
    ("kube-apiserver-autoregistration", Hook::Always),
];
const HOOKS_AFTER_REGISTRATION: &[(&str, Hook)] =
    &[("apiservice-openapi-controller", Hook::Always), ("apiservice-openapiv3-controller", Hook::Always)];

/// The checks of an endpoint in their order.
fn checks(server: &Server, probe: Probe) -> Vec<Check<'_>> {
    let is_ready = probe == Probe::Readiness;
    let mut checks = vec![check("ping", || Ok(())), check("log", || Ok(()))];
    // Clients and kubeadm expect upstream's names for the storage.
    checks.push(check("etcd", move || storage(server, probe)));
    if is_ready {
        checks.push(check("etcd-readiness", move || storage(server, probe)));
    }
    // A restart of the server does not help a plugin.
    if probe != Probe::Liveness {
        checks.extend(server.store.encryption().health().into_iter().map(|(name, is_healthy)| {
            check(name, move || is_healthy.then_some(()).ok_or_else(|| "KMS plugin is unhealthy".to_owned()))
        }));
    }
    checks.extend(journal(server));
    checks.push(check(DISK_SPACE, || match server.store.engine().is_out_of_space() {
        true => Err("the disk is full: writes are refused".to_owned()),
        false => Ok(()),
    }));
    if is_ready {
        // A read brings the cache that it uses up to date.
        checks.push(check("informer-sync", || Ok(())));
    }
    let is_fair = server.flow_control.has_priority_and_fairness();
    let is_proxy = server.remote_apis.has_client_certificate();
    let exists = move |hook: Hook| match hook {
        Hook::Always => true,
        Hook::WithFairness => is_fair,
        Hook::WithoutFairness => !is_fair,
        Hook::WithProxyCertificate => is_proxy,
    };
    let hooks = move |hooks: &'static [(&'static str, Hook)]| {
        let hooks = hooks.iter().filter(move |(_, hook)| exists(*hook));
        hooks.map(|(name, _)| check(format!("poststarthook/{name}"), || Ok(())))
    };
    checks.extend(hooks(HOOKS_BEFORE_REGISTRATION));
    checks.push(check("autoregister-completion", || {
        let is_complete = server.has_registered_apis.load(Ordering::Relaxed);
        is_complete.then_some(()).ok_or_else(|| "missing APIService".to_owned())
    }));
    checks.extend(hooks(HOOKS_AFTER_REGISTRATION));
    if is_ready {
        let stops = || server.is_draining.load(Ordering::Relaxed) || *server.stopping.borrow();
        checks.push(check("shutdown", move || match stops() {
            true => Err("process is shutting down".to_owned()),
            false => Ok(()),
        }));
    }
    checks
}

/// Why the storage does not serve.
fn storage(server: &Server, probe: Probe) -> Result<(), String> {
    let engine = server.store.engine();
    let wait = engine.disk_wait().unwrap_or_default();
    server.error_log.note_disk_wait((wait >= Probe::Readiness.longest_disk_wait()).then_some(wait));
    if let Some(failure) = engine.failure() {
        return Err(format!("storage failed: {failure}"));
    }
    engine.snapshot(plinth_engine::At::Latest).map_err(|error| format!("storage failed: {error}"))?;
    match wait < probe.longest_disk_wait() {
        true => Ok(()),
        false => Err(format!("storage failed: the disk has not answered for {} s", wait.as_secs())),
    }
}

/// Why the server does not work, for a supervisor that would restart it: what fails `/livez`, or a committer
/// that answers nothing. A replica's waits for the journal, which a restart does not help.
///
/// # Errors
/// The reason, as the check of the storage has it.
pub async fn check_liveness(server: &Server) -> Result<(), String> {
    storage(server, Probe::Liveness)?;
    let engine = server.store.engine();
    if !engine.is_replica() {
        // Whatever it answers: it works. That it has failed for good was checked.
        let _ = engine.transact(plinth_engine::Transaction::new()).await;
    }
    Ok(())
}

/// The check of a replica's journal. It is listed, and fails no probe: reads and watches go on without the
/// journal, and another replica could not write either.
const JOURNAL: &str = "journal";

/// The check of room on the disk. It is listed, and fails no probe: reads and watches go on, another process
/// on this disk could not write either, and a load balancer would keep away the deletions that make room.
const DISK_SPACE: &str = "disk-space";

fn journal(server: &Server) -> Option<Check<'_>> {
    let engine = server.store.engine();
    engine.is_replica().then(|| {
        check(JOURNAL, || match engine.journal_silence() {
            None => Ok(()),
            Some(silence) => {
                let seconds = silence.as_secs();
                Err(match (engine.journal_refusal(), engine.journal_error()) {
                    (Some(reason), _) => format!("the journal refuses, for {seconds} s: {reason}"),
                    (None, Some(error)) => format!("the journal has not answered for {seconds} s: {error}"),
                    (None, None) => format!("the journal has not answered for {seconds} s"),
                })
            }
        })
    })
}

/// The paths of all checks, which `/` lists.
pub(super) fn paths(server: &Server) -> Vec<String> {
    let of = |probe: Probe| {
        let below = checks(server, probe).into_iter().map(move |c| format!("/{}/{}", probe.name(), c.name));
        std::iter::once(format!("/{}", probe.name())).chain(below)
    };
    Probe::ALL.into_iter().flat_map(of).collect()
}

/// Answers `/livez`, `/livez/CHECK` and the like; `?verbose` lists the checks, `?exclude=CHECK` skips one. Who
/// may ask for a single check gets the reason.
pub(super) fn serve(server: &Server, segments: &[&str], query: Option<&str>) -> Response<Body> {
    let [endpoint, below @ ..] = segments else { return super::not_found_text() };
    let Some(probe) = Probe::of(endpoint) else { return super::not_found_text() };
    let mut checks = checks(server, probe).into_iter();
    if !below.is_empty() {
        let name = below.join("/");
        let outcome = checks.find(|check| check.name == name).map(|check| (check.run)());
        if let Some(outcome) = &outcome {
            server.metrics.health.checked(&name, probe.name(), outcome.is_ok());
        }
        return match outcome {
            Some(Ok(())) => plain(StatusCode::OK, "ok"),
            Some(Err(why)) => {
                let text = format!("internal server error: {why}\n");
                without_sniffing(plain(StatusCode::INTERNAL_SERVER_ERROR, &text))
            }
            None => super::not_found_text(),
        };
    }
    let mut excluded = Vec::new();
    let mut verbose = false;
    for (key, value) in plinth_api::query_parameters(query.unwrap_or_default()) {
        match &*key {
            "verbose" => verbose = true,
            "exclude" => excluded.push(value.into_owned()),
            _ => {}
        }
    }
    excluded.sort();
    excluded.dedup();
    let mut unknown = excluded.clone();
    let (mut lines, mut passed) = (String::new(), true);
    for Check { name, run } in checks {
        if excluded.iter().any(|excluded| *excluded == name) {
            unknown.retain(|excluded| *excluded != name);
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
            continue;
        }
        // The reason is for those who may ask for the single check: these endpoints are public.
        let outcome = run();
        server.metrics.health.checked(&name, probe.name(), outcome.is_ok());
        let (mark, word) = match outcome {
            Ok(()) => ("+", "ok"),
            Err(_) => {
                passed &= name == JOURNAL || name == DISK_SPACE;
                ("-", "failed: reason withheld")
            }
        };
        lines.push_str(&format!("[{mark}]{name} {word}\n"));
    }
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.iter().map(|name| quoted(name).to_string()).collect();
        let names = names.join(",");
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
    }
    without_sniffing(match (passed, verbose) {
        (true, false) => plain(StatusCode::OK, "ok"),
        (true, true) => plain(StatusCode::OK, &format!("{lines}{endpoint} check passed\n")),
        (false, _) => plain(StatusCode::INTERNAL_SERVER_ERROR, &format!("{lines}{endpoint} check failed\n")),
    })
}

fn plain(code: StatusCode, body: &str) -> Response<Body> {
    text(code, "text/plain; charset=utf-8", body.as_bytes().to_vec())
}

/// `nosniff` where upstream sets it.
fn without_sniffing(mut response: Response<Body>) -> Response<Body> {
    let nosniff = hyper::header::HeaderValue::from_static("nosniff");
    response.headers_mut().insert(hyper::header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}
