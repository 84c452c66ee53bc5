//! `/statusz` and `/flagz`: a page for people, or an object for programs that ask for its version
//! (k8s.io/apiserver `pkg/server/statusz`, `pkg/server/flagz`). The text has no stable format; upstream even
//! changes its delimiters with each request, lest anyone parse it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::{HeaderMap, HeaderValue, ACCEPT, CONTENT_TYPE, WARNING};
use hyper::{Response, StatusCode};
use plinth_codec::negotiate::{self, Encoding};
use plinth_codec::time::Timestamp;
use plinth_codec::{tree, Map, Value};

use super::text;
use plinth_api::{ApiError, Reason};
use plinth_http::Body;
use plinth_registry::VERSION_INFO;

/// What clients take the server for.
const COMPONENT: &str = "kube-apiserver";
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
pub(super) fn statusz(headers: &HeaderMap, paths: &[String]) -> Result<Response<Body>, ApiError> {
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
    let started = Timestamp::from(started).to_rfc3339();
    let lines = format!(
        "\nStarted: {started}\nUp: {} hr {:02} min {:02} sec\nGo version: {}\nBinary version: {binary}\n\
         Emulation version: {emulated}\nPaths: {}\n",
        up / 3600,
        up / 60 % 60,
        up % 60,
        this.go_version,
        folders.join(" "),
    );
    let mut members = Map::new();
    members.insert("startTime", started);
    members.insert("uptimeSeconds", i64::try_from(up).unwrap_or(i64::MAX));
    members.insert("goVersion", this.go_version);
    members.insert("binaryVersion", binary);
    members.insert("emulationVersion", emulated);
    members.insert("paths", folders.into_iter().map(Value::from).collect::<Vec<_>>());
    Page { kind: "Statusz", lines, members }.answer(headers)
}

/// `/flagz`: the flags with their values.
///
/// # Errors
/// 406.
pub(super) fn flagz(
    headers: &HeaderMap,
    flags: &BTreeMap<String, String>,
) -> Result<Response<Body>, ApiError> {
    let lines = flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    let mut values = Map::new();
    for (name, value) in flags {
        values.insert(name.clone(), value.clone());
    }
    let mut members = Map::new();
    members.insert("flags", Value::Object(values));
    Page { kind: "Flagz", lines, members }.answer(headers)
}

impl Page {
    fn answer(self, headers: &HeaderMap) -> Result<Response<Body>, ApiError> {
        let accept = headers.get(ACCEPT).map(|accept| accept.to_str().unwrap_or("?"));
        let chosen = negotiate::choose_page(accept, (GROUP, self.kind), &VERSIONS)
            .map_err(|error| ApiError::new(406, Reason::NotAcceptable, error.to_string()))?;
        let name = self.kind.to_ascii_lowercase();
        let Some((encoding, version)) = chosen else {
            let page = format!(
                "\n{COMPONENT} {name}\nWarning: This endpoint is not meant to be machine parseable, has no \
                 formatting compatibility guarantees and is for debugging purposes only.\n{}",
                self.lines
            );
            return Ok(text(StatusCode::OK, TEXT, page.into_bytes()));
        };
        let api_version = format!("{GROUP}/{}", VERSIONS.get(version).copied().unwrap_or_default());
        let mut object = tree!({
            "kind": self.kind,
            "apiVersion": api_version,
            "metadata": tree!({ "name": COMPONENT }),
        });
        if let Some(object) = object.as_object_mut() {
            for (key, value) in self.members.iter() {
                object.insert(key.clone(), value.clone());
            }
        }
        let mut body = Vec::new();
        match encoding {
            Encoding::Yaml => plinth_codec::yaml::write(&object, &mut body),
            _ => plinth_codec::json::write_untyped(&object, &mut body),
        }
        let mut response = Response::new(Body::from(body));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(encoding.media_type()));
        if version > 0 {
            let warning = format!(
                "299 - \"This version of the {name} endpoint is deprecated. Please use a newer version.\""
            );
            headers.extend(HeaderValue::try_from(warning).ok().map(|warning| (WARNING, warning)));
        }
        Ok(response)
    }
}
