//! `/livez`, `/readyz`, `/healthz` with their individual checks.

use std::time::Duration;

use hyper::{Response, StatusCode};

use super::text;
use crate::context::Server;
use plinth_http::body::Body;

/// A named check.
struct Check {
    name: &'static str,
    passes: fn(&Server, Probe) -> bool,
    /// Whether it is part of readiness only.
    readiness: bool,
}

/// The kind of a health request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Probe {
    Readiness,
    Liveness,
}

impl Probe {
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
            Probe::Liveness => Duration::from_secs(10),
        }
    }
}

const CHECKS: &[Check] = &[
    Check { name: "ping", passes: |_, _| true, readiness: false },
    Check { name: "log", passes: |_, _| true, readiness: false },
    // Clients and kubeadm expect upstream's name for the storage.
    Check {
        name: "etcd",
        passes: |server, probe| {
            let engine = server.store.engine();
            let wait = engine.disk_wait().unwrap_or_default();
            server.error_log.note_disk_wait((wait >= Probe::Readiness.longest_disk_wait()).then_some(wait));
            engine.failure().is_none()
                && engine.snapshot(plinth_engine::At::Latest).is_ok()
                && wait < probe.longest_disk_wait()
        },
        readiness: false,
    },
    Check { name: "shutdown", passes: |server, _| !*server.stopping.borrow(), readiness: true },
];

/// Answers `/livez`, `/livez/CHECK` and the like; `?verbose` lists the checks, `?exclude=CHECK` skips one.
pub(super) fn serve(server: &Server, segments: &[&str], query: Option<&str>) -> Response<Body> {
    let [probe, rest @ ..] = segments else { return super::not_found_text() };
    let mut verbose = false;
    let mut excluded = Vec::new();
    for (key, value) in plinth_api::query::parameters(query.unwrap_or_default()) {
        match &*key {
            "verbose" => verbose = true,
            "exclude" => excluded.push(value.into_owned()),
            _ => {}
        }
    }
    let kind = if *probe == "readyz" { Probe::Readiness } else { Probe::Liveness };
    let own = CHECKS.iter().filter(|check| kind == Probe::Readiness || !check.readiness);
    let own = own.map(|check| (check.name.to_owned(), (check.passes)(server, kind)));
    let own = own.chain(journal(server));
    let plugins = server.store.encryption().health();
    let mut checks = own.chain(plugins).filter(|(name, _)| !excluded.contains(name));
    if let [name] = rest {
        return match checks.find(|(known, _)| known == name) {
            Some((_, true)) => plain(StatusCode::OK, "ok"),
            Some((_, false)) => {
                plain(StatusCode::INTERNAL_SERVER_ERROR, "internal server error: check failed")
            }
            None => super::not_found_text(),
        };
    }
    let mut lines = String::new();
    let mut passed = true;
    for (name, ok) in checks {
        passed &= ok || name == JOURNAL;
        let (mark, word) = if ok { ("+", "ok") } else { ("-", "failed: reason withheld") };
        lines.push_str(&format!("[{mark}]{name} {word}\n"));
    }
    match (passed, verbose) {
        (true, false) => answer(StatusCode::OK, "ok"),
        (true, true) => answer(StatusCode::OK, &format!("{lines}{probe} check passed\n")),
        (false, _) => answer(StatusCode::INTERNAL_SERVER_ERROR, &format!("{lines}{probe} check failed\n")),
    }
}

/// The check of a replica's journal. It is listed, and fails no probe: reads and watches go on without the
/// journal, and another replica could not write either.
const JOURNAL: &str = "journal";

fn journal(server: &Server) -> Option<(String, bool)> {
    let engine = server.store.engine();
    engine.is_replica().then(|| (JOURNAL.to_owned(), engine.journal_silence().is_none()))
}

fn plain(code: StatusCode, body: &str) -> Response<Body> {
    text(code, "text/plain; charset=utf-8", body.as_bytes().to_vec())
}

/// An answer of several checks; `nosniff` as upstream.
fn answer(code: StatusCode, body: &str) -> Response<Body> {
    let mut response = plain(code, body);
    let nosniff = hyper::header::HeaderValue::from_static("nosniff");
    response.headers_mut().insert(hyper::header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}
