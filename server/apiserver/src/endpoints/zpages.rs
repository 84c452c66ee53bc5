//! `/statusz` and `/flagz`: a page for people, or an object for programs that ask for its version
//! (k8s.io/apiserver `pkg/server/statusz`, `pkg/server/flagz`). The text has no stable format; upstream even
//! changes its delimiters with each request, lest anyone parse it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::{HeaderMap, HeaderValue, ACCEPT, CACHE_CONTROL, CONTENT_TYPE, WARNING};
use hyper::{Response, StatusCode};
use plinth_codec::json::Indenter;
use plinth_codec::negotiate::{self, Accepted, Encoding, NotAcceptable, PageObject};
use plinth_codec::time::Timestamp;
use plinth_codec::{tree, Map, Value};
use time::OffsetDateTime;

use super::text;
use crate::metrics::{PathLabels, COMPONENT};
use crate::representation::wants_pretty;
use plinth_api::{ApiError, Reason};
use plinth_http::Body;
use plinth_registry::VERSION_INFO;

const GROUP: &str = "config.k8s.io";
/// The newest first; older ones are deprecated.
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];
const TEXT: &str = "text/plain; charset=utf-8";
/// Paths that `/statusz` leaves out, as they are not for debugging.
const NOT_FOR_DEBUGGING: [&str; 5] = ["apis", "api", "openid", "openapi", ".well-known"];

struct Page {
    /// `Statusz`.
    kind: &'static str,
    /// Lines below the header.
    lines: String,
    /// Members of the object.
    members: Map,
}

/// `/statusz`: start, versions and the paths that help with debugging. `paths` are those that `/` lists.
///
/// # Errors
/// 406.
pub(super) fn statusz(
    (headers, query): (&HeaderMap, Option<&str>),
    paths: &[String],
) -> Result<Response<Body>, ApiError> {
    let started =
        UNIX_EPOCH + Duration::from_secs_f64(plinth_http::process_start_seconds().unwrap_or_default());
    let up = SystemTime::now().duration_since(started).unwrap_or_default().as_secs();
    let this = &VERSION_INFO;
    let emulated = format!("{}.{}", this.emulation_major, this.emulation_minor);
    let binary = this.git_version.trim_start_matches('v');
    let mut folders: Vec<String> = paths
        .iter()
        .filter_map(|path| path.strip_prefix('/')?.split('/').next())
        .filter(|folder| !folder.is_empty() && !NOT_FOR_DEBUGGING.contains(folder))
        .map(|folder| format!("/{folder}"))
        .collect();
    folders.sort();
    folders.dedup();
    let lines = format!(
        "\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nGo version: {}\nBinary version: {binary}\n\
         Emulation version: {emulated}\nPaths: {}\n",
        unix_date(started),
        up / 3600,
        up / 60 % 60,
        up % 60,
        this.go_version,
        folders.join(" "),
    );
    let mut members = Map::new();
    members.insert("startTime", Timestamp::from(started).to_rfc3339());
    members.insert("uptimeSeconds", i64::try_from(up).unwrap_or(i64::MAX));
    members.insert("goVersion", this.go_version);
    members.insert("binaryVersion", binary);
    members.insert("emulationVersion", emulated);
    members.insert("paths", folders.into_iter().map(Value::from).collect::<Vec<_>>());
    Page { kind: "Statusz", lines, members }.answer(headers, query)
}

/// `/flagz`: the flags with their values.
///
/// # Errors
/// 406.
pub(super) fn flagz(
    (headers, query): (&HeaderMap, Option<&str>),
    flags: &BTreeMap<String, String>,
) -> Result<Response<Body>, ApiError> {
    let lines = flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    let mut values = Map::new();
    for (name, value) in flags {
        values.insert(name.clone(), value.clone());
    }
    let mut members = Map::new();
    members.insert("flags", Value::Object(values));
    Page { kind: "Flagz", lines, members }.answer(headers, query)
}

/// The labels of a page in the metrics of requests: with the version of an object that is asked for.
pub(super) fn metric_labels(page: &'static str, headers: &HeaderMap) -> PathLabels {
    let kind = if page == "statusz" { "Statusz" } else { "Flagz" };
    let mut labels = PathLabels { resource: page, component: COMPONENT, ..PathLabels::default() };
    if let Ok(Some(PageObject { version, .. })) = choose(kind, headers) {
        (labels.group, labels.version) = (GROUP, VERSIONS.get(version).copied().unwrap_or_default());
    }
    labels
}

fn choose(kind: &str, headers: &HeaderMap) -> Result<Option<PageObject>, NotAcceptable> {
    let accept = headers.get(ACCEPT).map(|accept| accept.to_str().unwrap_or("?"));
    negotiate::choose_page(accept, (GROUP, kind), &VERSIONS)
}

impl Page {
    fn answer(self, headers: &HeaderMap, query: Option<&str>) -> Result<Response<Body>, ApiError> {
        let chosen = choose(self.kind, headers)
            .map_err(|error| ApiError::new(406, Reason::NotAcceptable, error.to_string()))?;
        let name = self.kind.to_ascii_lowercase();
        let Some(PageObject { encoding, version, pretty }) = chosen else {
            let page = format!(
                "\n{COMPONENT} {name}\nWarning: This endpoint is not meant to be machine parseable, has no \
                 formatting compatibility guarantees and is for debugging purposes only.\n{}",
                self.lines
            );
            return Ok(text(StatusCode::OK, TEXT, page.into_bytes()));
        };
        let version_name = VERSIONS.get(version).copied().unwrap_or_default();
        let mut object = tree!({
            "kind": self.kind,
            "apiVersion": format!("{GROUP}/{version_name}"),
            "metadata": tree!({ "name": COMPONENT }),
        });
        if let Some(object) = object.as_object_mut() {
            for (key, value) in self.members.iter() {
                object.insert(key.clone(), value.clone());
            }
        }
        let accepted = Accepted { encoding, pretty, ..Accepted::JSON };
        let is_indented = wants_pretty(&accepted, query, headers);
        let mut response = Response::new(Body::from(encode(&object, encoding, is_indented)));
        let media_type = format!("{};g={GROUP};v={version_name};as={}", encoding.media_type(), self.kind);
        let headers = response.headers_mut();
        headers.extend(HeaderValue::try_from(media_type).ok().map(|media_type| (CONTENT_TYPE, media_type)));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if version > 0 {
            let warning = format!(
                "299 - \"This version of the {name} endpoint is deprecated. Please use a newer version.\""
            );
            headers.extend(HeaderValue::try_from(warning).ok().map(|warning| (WARNING, warning)));
        }
        Ok(response)
    }
}

fn encode(object: &Value, encoding: Encoding, is_indented: bool) -> Vec<u8> {
    let mut body = Vec::new();
    if encoding == Encoding::Yaml {
        plinth_codec::yaml::write(object, &mut body);
        return body;
    }
    plinth_codec::json::write_untyped(object, &mut body);
    if !is_indented {
        body.push(b'\n');
        return body;
    }
    let mut indented = Vec::new();
    Indenter::default().push(&body, &mut indented);
    indented
}

/// A time as Go's `time.UnixDate`, in UTC: `Mon Jan  2 15:04:05 UTC 2006`.
fn unix_date(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let (weekday, month) = (time.weekday().to_string(), time.month().to_string());
    format!(
        "{weekday:.3} {month:.3} {:2} {:02}:{:02}:{:02} UTC {}",
        time.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.year()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_gos() {
        let at = |seconds: u64| unix_date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "Thu Jan  1 00:00:00 UTC 1970");
        assert_eq!(at(1_796_025_633), "Mon Nov 30 08:00:33 UTC 2026");
    }
}
