//! Sends the same requests to two plinth binaries and compares status, headers and bodies, byte for byte.
//!
//! `compare-answers [--seed N] [--only TEXT] OLD NEW`: both binaries by path. The corpus is generated from
//! the seed, the samples of the harness and the table of validation rules, so it is the same in every run;
//! `--only` keeps the subjects whose name contains the text. One request is sent at a time, to both servers
//! at once. Times, tokens, certificates, ports and allocated addresses may differ; UIDs must correspond one
//! to one, revisions in order. Exits with 1 where an answer differs.

#![allow(clippy::too_many_lines, reason = "a table of requests")]

mod custom_resources;
mod kinds;
mod mutations;
mod normalize;
mod script;
mod side;
mod subjects;
mod workloads;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use normalize::Correspondence;
use script::{Request, Script, Step};
use side::{Answer, Side};

/// Differences that are printed with both answers; of further ones only the request is.
const SHOWN: usize = 20;
/// Starts after which certificates of equal length are no longer expected: a third of all starts has them.
const STARTS: usize = 30;
/// Headers that no two answers share.
const UNCOMPARED: [&str; 2] = ["audit-id", "date"];
/// Families of metrics that are Plinth's own.
const OWN_METRICS: &str = "plinth_";
/// The end of each second, in which no request is sent: both servers stamp a write with the same second.
const LATE_IN_SECOND: u64 = 930;

type Failure = Box<dyn std::error::Error>;

/// Requests of the whole corpus, at least: it follows the discovery of the first server, which may be broken.
const LEAST: usize = 15_000;

/// The requests about one subject.
struct Subject {
    name: String,
    script: Script,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut seed, mut only, mut binaries) = (1, String::new(), Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seed" => seed = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(seed),
            "--only" => only = arguments.next().unwrap_or_default(),
            _ => binaries.push(PathBuf::from(argument)),
        }
    }
    let [old, new] = binaries.as_slice() else {
        eprintln!("usage: compare-answers [--seed N] [--only TEXT] OLD NEW");
        return ExitCode::from(2);
    };
    match run(old, new, seed, &only).await {
        Ok(differences) => ExitCode::from(u8::from(differences > 0)),
        Err(error) => {
            eprintln!("error: comparing answers: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the corpus; returns how many answers differ.
async fn run(old: &Path, new: &Path, seed: u64, only: &str) -> Result<usize, Failure> {
    let mut pair = Pair::start(old, new).await?;
    pair.settle("/api/v1/namespaces/default").await;
    pair.correspondence.baseline = pair.old.revision().await;
    let mut report = Report::default();
    for subject in subjects(&mut pair.old, seed).await? {
        if subject.name != "setup" && !subject.name.contains(only) {
            continue;
        }
        for step in &subject.script.steps {
            match step {
                Step::Settle(path) => pair.settle(path).await,
                Step::Compare(request) => {
                    let outcome = pair.compare(request).await;
                    report.add(&subject.name, request, outcome);
                }
            }
        }
        eprintln!("{}: {} requests", subject.name, subject.script.requests());
    }
    report.print();
    report.check(if only.is_empty() { LEAST } else { 1 })?;
    Ok(report.differences)
}

/// The corpus, in the order in which it is sent.
async fn subjects(server: &mut Side, seed: u64) -> Result<Vec<Subject>, Failure> {
    let catalog = kinds::Catalog::discover(server).await;
    let mut subjects = vec![Subject { name: "setup".into(), script: subjects::setup() }];
    subjects.extend(kinds::subjects(&catalog, seed));
    subjects.push(mutations::rules(&catalog, seed)?);
    subjects.extend(custom_resources::subjects(seed));
    subjects.extend(subjects::all(&catalog));
    Ok(subjects)
}

/// The two servers.
struct Pair {
    old: Side,
    new: Side,
    correspondence: Correspondence,
}

/// The status codes of a request and how its answers differ.
struct Outcome {
    status: u16,
    difference: Option<String>,
}

impl Pair {
    /// Starts both servers until their certificates have the same length: protobuf contains the lengths.
    async fn start(old: &Path, new: &Path) -> Result<Pair, Failure> {
        for _ in 0..STARTS {
            let (old, new) = tokio::join!(Side::start(old), Side::start(new));
            let mut pair = Pair { old: old?, new: new?, correspondence: Correspondence::default() };
            if pair.old.certificates_length().await == pair.new.certificates_length().await {
                return Ok(pair);
            }
        }
        Err("the servers' certificates differ in length at every start".into())
    }

    async fn compare(&mut self, request: &Request) -> Outcome {
        early_in_second().await;
        let (old, new) = tokio::join!(self.old.call(request), self.new.call(request));
        let difference = self.difference(request, &old, &new).err();
        let difference = difference.map(|what| {
            let excerpt = |answer: &Answer| {
                let body = String::from_utf8_lossy(&answer.body[..answer.body.len().min(600)]).into_owned();
                format!("{} {body}", answer.status)
            };
            format!("{what}\n    old {}\n    new {}", excerpt(&old), excerpt(&new))
        });
        Outcome { status: old.status, difference }
    }

    fn difference(&mut self, request: &Request, old: &Answer, new: &Answer) -> Result<(), String> {
        if old.status != new.status {
            return Err(format!("status {} became {}", old.status, new.status));
        }
        self.compare_headers(old, new)?;
        let (old_body, new_body) = (plain_body(request, old), plain_body(request, new));
        let is_binary = old.header("content-type").is_some_and(|media_type| {
            let media_type = String::from_utf8_lossy(media_type);
            media_type.contains("protobuf") || media_type.contains("cbor")
        });
        let (old, new) = match is_binary {
            true => (self.old.normalizer.binary(&old_body), self.new.normalizer.binary(&new_body)),
            false => (self.old.normalizer.text(&old_body), self.new.normalizer.text(&new_body)),
        };
        self.correspondence.compare(&old, &new).map_err(|what| format!("body {what}"))
    }

    fn compare_headers(&mut self, old: &Answer, new: &Answer) -> Result<(), String> {
        let compared = |answer: &Answer| -> Vec<(String, Vec<u8>)> {
            let headers = answer.headers.iter().filter(|(name, _)| !UNCOMPARED.contains(&name.as_str()));
            // The length follows from the body, whose free parts may be longer on one side.
            let own_length = answer.body.len().to_string().into_bytes();
            headers
                .map(|(name, value)| match name.as_str() {
                    "content-length" if *value == own_length => (name.clone(), b"as the body".to_vec()),
                    _ => (name.clone(), value.clone()),
                })
                .collect()
        };
        let (old, new) = (compared(old), compared(new));
        let names =
            |headers: &[(String, Vec<u8>)]| headers.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>();
        if names(&old) != names(&new) {
            return Err(format!("headers {:?} became {:?}", names(&old), names(&new)));
        }
        for ((name, old), (_, new)) in old.iter().zip(&new) {
            let (old, new) = (self.old.normalizer.text(old), self.new.normalizer.text(new));
            self.correspondence.compare(&old, &new).map_err(|what| format!("header {name} {what}"))?;
        }
        Ok(())
    }

    /// Waits until both servers leave the object alone, then makes their revisions equal.
    async fn settle(&mut self, path: &str) {
        let mut last = (0, 0, Vec::new(), Vec::new());
        let mut quiet = 0;
        for _ in 0..100 {
            let request = Request::get(path);
            let (old, new) = tokio::join!(self.old.call(&request), self.new.call(&request));
            let now = (self.old.revision().await, self.new.revision().await, old.body, new.body);
            quiet = if now == last { quiet + 1 } else { 0 };
            last = now;
            if quiet == 3 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // An object that comes and goes makes two revisions at least.
        let (old, new) = (last.0, last.1);
        if old != new {
            let target = old.max(new) + 2;
            self.old.advance(target - old).await;
            self.new.advance(target - new).await;
        }
    }
}

/// The body that is compared: decompressed, and of metrics the names and types of upstream's families.
fn plain_body(request: &Request, answer: &Answer) -> Vec<u8> {
    let mut body = answer.body.clone();
    if answer.header("content-encoding") == Some(b"gzip") {
        let mut plain = Vec::new();
        if flate2::read::GzDecoder::new(body.as_slice()).read_to_end(&mut plain).is_ok() {
            body = plain;
        }
    }
    if request.verb == "metrics" {
        let text = String::from_utf8_lossy(&body).into_owned();
        let families = text.lines().filter(|line| line.starts_with("# TYPE "));
        let compared = families.filter(|line| !line["# TYPE ".len()..].starts_with(OWN_METRICS));
        body = compared.collect::<Vec<_>>().join("\n").into_bytes();
    }
    body
}

async fn early_in_second() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let in_second = u64::from(now.subsec_millis());
    if in_second > LATE_IN_SECOND {
        tokio::time::sleep(Duration::from_millis(1005 - in_second)).await;
    }
}

/// What the run has found.
#[derive(Default)]
struct Report {
    by_verb: BTreeMap<&'static str, [usize; 6]>,
    differences: usize,
    /// Requests that neither server answered.
    unanswered: usize,
}

impl Report {
    fn add(&mut self, subject: &str, request: &Request, outcome: Outcome) {
        let row = self.by_verb.entry(request.verb).or_default();
        row[0] += 1;
        row[match outcome.status {
            200..600 => usize::from(outcome.status / 100) - 1,
            _ => 5,
        }] += 1;
        self.unanswered += usize::from(outcome.status == 0);
        let Some(difference) = outcome.difference else { return };
        self.differences += 1;
        println!("difference {} in {subject}: {} {}", self.differences, request.method, request.path);
        if self.differences <= SHOWN {
            println!("    headers {:?}\n    body {:?}", request.headers, request.body);
            println!("    {difference}");
        }
    }

    /// Checks that something was compared: answers, not their absence.
    fn check(&self, least: usize) -> Result<(), Failure> {
        let requests: usize = self.by_verb.values().map(|row| row[0]).sum();
        match self.unanswered {
            _ if requests < least => {
                Err(format!("{requests} requests were sent, and {least} are the least").into())
            }
            0 => Ok(()),
            unanswered => Err(format!("{unanswered} requests were not answered").into()),
        }
    }

    fn print(&self) {
        println!("{:<20} {:>8} {:>6} {:>6} {:>6} {:>6}", "verb", "requests", "2xx", "3xx", "4xx", "5xx");
        let mut total = [0; 6];
        for (verb, row) in &self.by_verb {
            let [requests, success, redirected, client, server, _] = *row;
            println!("{verb:<20} {requests:>8} {success:>6} {redirected:>6} {client:>6} {server:>6}");
            total.iter_mut().zip(row).for_each(|(sum, count)| *sum += count);
        }
        let [requests, success, redirected, client, server, _] = total;
        println!("{:<20} {requests:>8} {success:>6} {redirected:>6} {client:>6} {server:>6}", "all");
        println!("differences: {}", self.differences);
    }
}
