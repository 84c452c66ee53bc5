//! Owners that other API servers have. Each is asked for by its name; only a Status of its server that
//! reports that it does not exist makes an owner absent. Whatever else comes back leaves it unknown.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderValue, ACCEPT};
use hyper::{Request, StatusCode};
use percent_encoding::{utf8_percent_encode, AsciiSet, NON_ALPHANUMERIC};
use plinth_codec::{json, Value};

use super::super::accounts;
use super::references::OwnerReference;
use super::verdict::{RemoteOwners, Standing};
use plinth_api::{is_deleting, metadata_text, ApiError, FINALIZER_FOREGROUND};
use plinth_apiserver::context::Server;
use plinth_apiserver::egress::client::Bounds;

/// Bounds of a request.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(10), answer: 8 << 20 };
const METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");

/// Owners of one object that are asked for, and the time for all of them.
const MAX_OWNERS: usize = 64;
const TIME_OF_ALL: Duration = Duration::from_secs(120);

/// What a name in a path cannot have as it is.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// Asks for the owners of an object in a namespace, which is empty for a cluster-scoped one.
///
/// # Errors
/// When one of them remains unknown.
pub(super) async fn look_up(
    server: &Server,
    namespace: &str,
    owners: Vec<OwnerReference>,
) -> Result<RemoteOwners, ApiError> {
    let Some(last) = owners.get(MAX_OWNERS - 1).or(owners.last()).cloned() else { return Ok(Vec::new()) };
    if owners.len() > MAX_OWNERS {
        return Err(unknown(
            &last,
            &format!("the object has more than {MAX_OWNERS} owners of other API servers"),
        ));
    }
    let all = async {
        let mut found = Vec::with_capacity(owners.len());
        for owner in owners {
            let standing = ask(server, namespace, &owner).await.map_err(|why| unknown(&owner, &why))?;
            found.push((owner, standing));
        }
        Ok(found)
    };
    let timeout = |_| unknown(&last, "the owners before it were not answered for in time");
    tokio::time::timeout(TIME_OF_ALL, all).await.map_err(timeout)?
}

/// A conflict: no failure, and tried again.
pub(super) fn unknown(owner: &OwnerReference, why: &str) -> ApiError {
    ApiError::conflict("", "owners", &format!("{} {}", owner.api_version, owner.kind), why)
}

async fn ask(server: &Server, namespace: &str, owner: &OwnerReference) -> Result<Standing, String> {
    let registry = server.registry();
    let (group, version) = owner.group_version();
    let Some(remote) = registry.remote(group, version) else {
        return Err("no resource of this kind is served".to_owned());
    };
    if !remote.is_available || !remote.documents.is_current {
        return Err("its API is not available".to_owned());
    }
    let mut resources = remote.resources();
    let resource = resources.find(|resource| resource.kind == owner.kind && resource.has_verb("get"));
    let resource = resource.ok_or("no resource of this kind is served")?;
    let collection = match (resource.is_namespaced, namespace) {
        (true, "") => return Ok(Standing::Invalid),
        (true, namespace) => format!("{}/namespaces/{namespace}/{}", remote.path(), resource.name),
        (false, _) => format!("{}/{}", remote.path(), resource.name),
    };
    // Its server might take another path for it.
    if matches!(owner.name.as_str(), "" | "." | "..") || owner.name.contains(['/', '%']) {
        return Err("no object can have its name".to_owned());
    }
    let path = format!("{collection}/{}", utf8_percent_encode(&owner.name, ESCAPED));
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.uri_mut() = path.parse().map_err(|_| format!("invalid path {path:?}"))?;
    request.headers_mut().insert(ACCEPT, METADATA);
    let user = accounts::GARBAGE_COLLECTOR.user();
    let answer = server.remote_apis.call(&server.store, remote, &user, request, BOUNDS).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let body = json::parse(&answer.body).unwrap_or_default();
    judge(answer.status, &body, owner).ok_or_else(|| format!("its server answered {}", answer.status))
}

/// What an answer shows of an owner.
fn judge(status: StatusCode, body: &Value, owner: &OwnerReference) -> Option<Standing> {
    let text = |path: &[&str]| body.str_at(path).unwrap_or_default();
    match status {
        StatusCode::OK if metadata_text(body, "uid").is_empty() => None,
        StatusCode::OK if metadata_text(body, "uid") != owner.uid => Some(Standing::Absent),
        StatusCode::OK => {
            let finalizers = body.list_at(&["metadata", "finalizers"]).iter();
            let waits = finalizers.filter_map(Value::as_str).any(|name| name == FINALIZER_FOREGROUND);
            Some(if waits && is_deleting(body) { Standing::Waits } else { Standing::Solid })
        }
        // A path that is not served has no Status, or none about the object.
        StatusCode::NOT_FOUND => {
            let is_about_it = text(&["kind"]) == "Status"
                && text(&["reason"]) == "NotFound"
                && text(&["details", "name"]) == owner.name;
            is_about_it.then_some(Standing::Absent)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_absent_only_where_its_server_says_so() {
        const GONE: &str = r#"{"kind":"Status","reason":"NotFound","details":{"name":"o","kind":"things"}}"#;
        const OTHER: &str = r#"{"kind":"Status","reason":"NotFound","details":{"name":"p","kind":"things"}}"#;
        const WAITS: &str = r#"{"metadata":{"uid":"u","deletionTimestamp":"2026-01-02T03:04:05Z","finalizers":["foregroundDeletion"]}}"#;
        // status, body, what is known of the owner
        let rows = [
            (200, r#"{"metadata":{"uid":"u"}}"#, Some(Standing::Solid)),
            (200, r#"{"metadata":{"uid":"another"}}"#, Some(Standing::Absent)),
            (200, r#"{"metadata":{"name":"o"}}"#, None),
            (200, "<html>", None),
            (200, WAITS, Some(Standing::Waits)),
            (404, GONE, Some(Standing::Absent)),
            (404, OTHER, None),
            (404, "404 page not found", None),
            (403, GONE, None),
            (503, "", None),
        ];
        let owner = OwnerReference {
            api_version: "a.example/v1".into(),
            kind: "Thing".into(),
            name: "o".into(),
            uid: "u".into(),
            blocks: false,
        };
        for (status, body, expected) in rows {
            let tree = json::parse(body.as_bytes()).unwrap_or_default();
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(judge(status, &tree, &owner), expected, "{status} {body}");
        }
    }
}
