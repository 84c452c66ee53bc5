//! `plinth history`: the versions of an object that the server still has, with what changed from one to the
//! next.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hyper::{Method, StatusCode};
use percent_encoding::{utf8_percent_encode, NON_ALPHANUMERIC};
use plinth_codec::value::Value;
use plinth_codec::{json, yaml};
use similar::TextDiff;

use crate::client::{ClientError, ServerClient};

/// Seconds after which a watch ends. The server sends a bookmark two seconds earlier, which shows that
/// nothing is missing.
const WATCH_SECONDS: u32 = 3;
/// Watches, one after another, that may end without having come any further.
const FRUITLESS_WATCHES: u32 = 5;
/// Times that the oldest revision is asked for, where history is compacted meanwhile.
const ATTEMPTS: u32 = 5;
/// Maximum length of a watch event, in bytes: well over what a server stores.
const MAX_EVENT: usize = 64 << 20;
/// How long the best difference of two versions is looked for; after it, a longer one is shown.
const DIFF_TIMEOUT: Duration = Duration::from_secs(1);

/// Options of `plinth history`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  plinth history deployment web --kubeconfig ./data/admin.kubeconfig\n  plinth history leases.coordination.k8s.io mine --namespace tour --kubeconfig ./data/admin.kubeconfig\n\nHistory goes back as far as --history-retention of the server."
)]
pub struct HistoryOptions {
    /// Kind or resource, as for kubectl: deployment, deploy, deployments.apps
    #[arg(value_name = "KIND")]
    pub kind: String,
    /// Name of the object, which may be deleted already
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Namespace of the object
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// Kubeconfig for a running server
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
    /// Show metadata.managedFields, too
    #[arg(long)]
    pub show_managed_fields: bool,
}

/// The history was not shown.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each error names its fields")]
pub enum HistoryError {
    /// The server could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The server has no such resource.
    #[error("the server has no resource {0:?}; kubectl api-resources lists them")]
    NoResource(String),
    /// Neither the object nor a version of it.
    #[error("{resource} {name:?} does not exist and has not existed since revision {oldest}, the oldest that is retained")]
    NotFound {
        resource: String,
        /// Name of the object.
        name: String,
        /// The oldest revision that the server has.
        oldest: i64,
    },
    /// A response that cannot be understood.
    #[error("the server's response to {path} cannot be read: {reason}")]
    Response {
        /// What was requested.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// History was compacted while it was read, or the watch did not end.
    #[error("the history was compacted while it was read; try again")]
    Compacted,
    /// Watches end before they have shown everything.
    #[error("the server does not send the changes up to revision {0}; try again")]
    Unfinished(i64),
    /// Standard output.
    #[error("standard output: {0}")]
    Output(#[source] io::Error),
}

/// A resource of the server.
struct Resource {
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    prefix: String,
    name: String,
    is_namespaced: bool,
}

/// Prints the versions of an object, oldest first.
///
/// # Errors
/// See [`HistoryError`].
pub(super) fn history(options: &HistoryOptions) -> Result<(), HistoryError> {
    let server = ServerClient::of_kubeconfig(&options.kubeconfig)?;
    let resource = find(&server, &options.kind)?;
    let path = match resource.is_namespaced {
        true => format!("{}/namespaces/{}/{}", resource.prefix, escaped(&options.namespace), resource.name),
        false => format!("{}/{}", resource.prefix, resource.name),
    };
    let selected = format!("{path}?fieldSelector={}", escaped(&format!("metadata.name={}", options.name)));
    let present = get(&server, &selected)?;
    let end = match first_item(&present) {
        Some(object) => revision(object),
        None => revision(&present),
    };
    let (oldest, base) = oldest(&server, &selected)?;
    let mut printer =
        Printer { previous: None, with_managed_fields: options.show_managed_fields, printed: 0 };
    if let Some(object) = first_item(&base) {
        printer.print("PRESENT", object).map_err(HistoryError::Output)?;
    }
    let mut reached = oldest;
    let mut fruitless = 0;
    let is_unchanged = first_item(&base).is_some_and(|object| revision(object) == end);
    while reached < end && !is_unchanged {
        let before = reached;
        watch(&server, &selected, &mut reached, end, &mut printer)?;
        fruitless = if reached > before { 0 } else { fruitless + 1 };
        if fruitless == FRUITLESS_WATCHES {
            return Err(HistoryError::Unfinished(end));
        }
    }
    match printer.printed {
        0 => Err(HistoryError::NotFound { resource: resource.name, name: options.name.clone(), oldest }),
        _ => Ok(()),
    }
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Longest response that is read: a list of one object, or of resources.
const MAX_RESPONSE: u64 = 64 << 20;

fn get(server: &ServerClient, path: &str) -> Result<Value, HistoryError> {
    let body = server.get_whole(path, MAX_RESPONSE)?;
    json::parse(&body).map_err(|error| bad_response(path, error.to_string()))
}

fn bad_response(path: &str, reason: impl Into<String>) -> HistoryError {
    HistoryError::Response { path: path.to_owned(), reason: reason.into() }
}

fn first_item(list: &Value) -> Option<&Value> {
    list.list_at(&["items"]).first()
}

/// The revision of an object or list; 0 for what has none.
fn revision(object: &Value) -> i64 {
    let text = object.str_at(&["metadata", "resourceVersion"]);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The resource of that name, kind or short name: the core API's before others, as kubectl does.
fn find(server: &ServerClient, wanted: &str) -> Result<Resource, HistoryError> {
    let wanted = wanted.to_ascii_lowercase();
    let (name, group) = match wanted.split_once('.') {
        Some((name, group)) => (name, Some(group)),
        None => (wanted.as_str(), None),
    };
    let mut prefixes = Vec::new();
    if group.is_none() {
        prefixes.push("/api/v1".to_owned());
    }
    for served in get(server, "/apis")?.list_at(&["groups"]) {
        let preferred = served.str_at(&["preferredVersion", "groupVersion"]);
        if group.is_none_or(|group| served.str_at(&["name"]) == Some(group)) {
            prefixes.extend(preferred.map(|version| format!("/apis/{version}")));
        }
    }
    for prefix in prefixes {
        // A remote API that is down must not hide the others.
        let Ok(list) = get(server, &prefix) else { continue };
        let is_named = |resource: &&Value| {
            let is =
                |field: &str| resource.str_at(&[field]).is_some_and(|text| text.eq_ignore_ascii_case(name));
            let short = resource.list_at(&["shortNames"]);
            is("name")
                || is("singularName")
                || is("kind")
                || short.iter().any(|text| text.as_str() == Some(name))
        };
        let resources = list.list_at(&["resources"]).iter();
        // Not a subresource, which has the kind of its parent or another.
        let mut resources =
            resources.filter(|resource| resource.str_at(&["name"]).is_some_and(|n| !n.contains('/')));
        if let Some(found) = resources.find(is_named) {
            return Ok(Resource {
                name: found.str_at(&["name"]).unwrap_or_default().to_owned(),
                is_namespaced: found.get("namespaced").and_then(Value::as_bool).unwrap_or_default(),
                prefix,
            });
        }
    }
    Err(HistoryError::NoResource(wanted))
}

/// The oldest revision that can be read, and the list at it.
fn oldest(server: &ServerClient, selected: &str) -> Result<(i64, Value), HistoryError> {
    let mut at = 1;
    for _ in 0..ATTEMPTS {
        let path = format!("{selected}&resourceVersion={at}&resourceVersionMatch=Exact");
        match get(server, &path) {
            Err(HistoryError::Client(ClientError::Refused(StatusCode::GONE, message))) => {
                at = retained(&message).ok_or_else(|| bad_response(&path, message))?;
            }
            read => return Ok((at, read?)),
        }
    }
    Err(HistoryError::Compacted)
}

/// The revision that the server names as the oldest it has.
fn retained(message: &str) -> Option<i64> {
    let (_, rest) = message.split_once("oldest retained: ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Prints the changes after `reached`, until the one of `end`, or until the watch ends.
fn watch(
    server: &ServerClient,
    selected: &str,
    reached: &mut i64,
    end: i64,
    printer: &mut Printer,
) -> Result<(), HistoryError> {
    let path = format!(
        "{selected}&watch=true&resourceVersion={reached}&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}"
    );
    let mut events = Events { buffer: Vec::new(), reached, end, printer, failure: None };
    let ended = server.call(Method::GET, &path, "", &mut events);
    match (events.failure.take(), ended) {
        (Some(Failure::End), _) => Ok(()),
        (Some(Failure::Expired), _) => Err(HistoryError::Compacted),
        (Some(Failure::Output(error)), _) => Err(HistoryError::Output(error)),
        (Some(Failure::Event(reason)), _) => Err(bad_response(&path, reason)),
        (None, Err(ClientError::Refused(StatusCode::GONE, _))) => Err(HistoryError::Compacted),
        (None, ended) => Ok(ended.map(|_| ())?),
    }
}

/// Why no more of a watch is read.
enum Failure {
    /// Everything was shown.
    End,
    Expired,
    Output(io::Error),
    Event(String),
}

/// Reads a watch as it comes.
struct Events<'a> {
    buffer: Vec<u8>,
    reached: &'a mut i64,
    end: i64,
    printer: &'a mut Printer,
    failure: Option<Failure>,
}

impl Events<'_> {
    fn event(&mut self, line: &[u8]) -> Result<(), Failure> {
        let event = json::parse(line).map_err(|error| Failure::Event(error.to_string()))?;
        let object =
            event.get("object").ok_or_else(|| Failure::Event("an event without object".to_owned()))?;
        match event.str_at(&["type"]) {
            Some("ERROR") if object.get("code").and_then(Value::as_int) == Some(410) => {
                return Err(Failure::Expired)
            }
            Some("ERROR") => {
                let message = object.str_at(&["message"]).unwrap_or("an error event");
                return Err(Failure::Event(message.to_owned()));
            }
            Some("BOOKMARK") => {}
            Some(kind) => self.printer.print(kind, object).map_err(Failure::Output)?,
            None => return Err(Failure::Event("an event without type".to_owned())),
        }
        *self.reached = (*self.reached).max(revision(object));
        match *self.reached >= self.end {
            true => Err(Failure::End),
            false => Ok(()),
        }
    }
}

impl Write for Events<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(length) = memchr::memchr(b'\n', &self.buffer[from..]) {
            let line = self.buffer[from..from + length].to_vec();
            from += length + 1;
            if let Err(failure) = self.event(&line) {
                self.failure = Some(failure);
                return Err(io::Error::other("the rest is not read"));
            }
        }
        self.buffer.drain(..from);
        if self.buffer.len() > MAX_EVENT {
            self.failure = Some(Failure::Event("an event is too large".to_owned()));
            return Err(io::Error::other("the rest is not read"));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints each version as a difference to the one before.
struct Printer {
    /// Revision and text of the version before.
    previous: Option<(i64, String)>,
    with_managed_fields: bool,
    printed: u64,
}

impl Printer {
    fn print(&mut self, event: &str, object: &Value) -> io::Result<()> {
        let revision = revision(object);
        let (by, text) = (changed_by(object), self.text(object));
        let mut out = io::stdout().lock();
        if self.printed > 0 {
            writeln!(out)?;
        }
        self.printed += 1;
        writeln!(out, "revision {revision} {event}{by}")?;
        let before = self.previous.take();
        if event == "DELETED" {
            return out.flush();
        }
        // What was there before history begins is not a change.
        if event != "PRESENT" {
            let (from, old) =
                before.map_or_else(Default::default, |(r, text)| (format!("revision {r}"), text));
            let from = if from.is_empty() { "/dev/null" } else { &from };
            let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_lines(&old, &text);
            let to = format!("revision {revision}");
            write!(out, "{}", diff.unified_diff().header(from, &to))?;
        }
        self.previous = Some((revision, text));
        out.flush()
    }

    /// The object as YAML, without what differs in every version.
    fn text(&self, object: &Value) -> String {
        let mut object = object.clone();
        if let Some(metadata) = object.object_at_mut(&["metadata"]) {
            metadata.remove("resourceVersion");
            if !self.with_managed_fields {
                metadata.remove("managedFields");
            }
        }
        let mut out = Vec::new();
        yaml::write(&object, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }
}

/// When and by which field manager an object was changed last, as far as `managedFields` has it.
fn changed_by(object: &Value) -> String {
    let entries = object.list_at(&["metadata", "managedFields"]).iter();
    let newest =
        entries.filter_map(|entry| Some((entry.str_at(&["time"])?, entry))).max_by_key(|(time, _)| *time);
    let Some((time, entry)) = newest else { return String::new() };
    format!(
        ", fields last changed {time} by {} ({})",
        entry.str_at(&["manager"]).unwrap_or_default(),
        entry.str_at(&["operation"]).unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_revision_is_that_of_the_message() {
        let message = "The resourceVersion for the provided list is too old: 1 (oldest retained: 57).";
        assert_eq!(retained(message), Some(57));
        assert_eq!(retained("gone"), None);
        assert_eq!(retained("oldest retained: x"), None);
    }

    #[test]
    fn a_watch_is_read_in_pieces_up_to_the_end() {
        let mut printer = Printer { previous: None, with_managed_fields: false, printed: 0 };
        let mut reached = 1;
        let mut events = Events {
            buffer: Vec::new(),
            reached: &mut reached,
            end: 9,
            printer: &mut printer,
            failure: None,
        };
        let event = |kind: &str, revision: u32| {
            format!("{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{revision}\"}}}}}}\n")
        };
        let text = event("ADDED", 4) + &event("BOOKMARK", 5);
        let (first, second) = text.as_bytes().split_at(30);
        events.write_all(first).unwrap();
        assert_eq!(*events.reached, 1);
        events.write_all(second).unwrap();
        assert_eq!(*events.reached, 5);
        assert!(events.write_all(event("DELETED", 9).as_bytes()).is_err());
        assert!(matches!(events.failure, Some(Failure::End)));
        events.failure = None;
        events.buffer.clear();
        let expired = b"{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n";
        assert!(events.write_all(expired).is_err());
        assert!(matches!(events.failure, Some(Failure::Expired)));
        assert_eq!(printer.printed, 2);
    }
}
