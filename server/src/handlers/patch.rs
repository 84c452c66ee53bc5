//! patch: JSON Patch, merge patch, strategic merge patch; retried inside the server on a concurrent change.

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use plinth_codec::json::{self, DecodeOptions};
use plinth_codec::negotiate::{Accepts, ContentType, Shape};
use plinth_codec::schema::{Schema, TypeId, GVK};
use plinth_codec::{patch, Value};
use parking_lot::Mutex;

use super::write::{self, Update, Updated};
use super::{body, Context};
use crate::field;
use crate::http::body::Body;
use crate::status::{ApiError, Reason};

/// A patch as it was sent.
pub(super) struct Patch {
    kind: ContentType,
    document: Value,
    /// The body, for the message of a 422.
    text: Bytes,
}

/// The type of the object that is patched.
pub(super) struct Target<'a> {
    pub schema: &'a Schema,
    pub root: TypeId,
    pub gvk: &'a GVK,
}

pub(super) async fn patch(cx: Context, incoming: Incoming) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Object)?;
    let patch = read(&cx, incoming).await?;
    let resource = cx.resource.clone();
    let gvk = resource.row.gvk();
    let target = Target { schema: &resource.schema, root: resource.root, gvk: &gvk };
    // The transform runs again when another write comes between; the warnings of the last run count.
    let warnings = Mutex::new(Vec::new());
    let transform = |live: &Value| {
        let (tree, found) = apply(&cx, &patch, live.clone(), &target)?;
        *warnings.lock() = found;
        Ok(tree)
    };
    let update = Update { transform: &transform, uid_is_precondition: false, create: None };
    let (Updated::Existing(written) | Updated::Created(written)) = write::update_object(&cx, update).await?;
    write::respond_written(&representation, StatusCode::OK, &written, &warnings.into_inner())
}

/// Reads and parses a patch, and checks the parameters.
pub(super) async fn read(cx: &Context, incoming: Incoming) -> Result<Patch, ApiError> {
    let accepts = if cx.resource.custom { Accepts::CustomPatch } else { Accepts::Patch };
    let kind = body::content_type(cx, accepts)?;
    cx.query.check_write_options("PatchOptions")?;
    if cx.query.force.is_some() && !matches!(kind, ContentType::ApplyYaml | ContentType::ApplyCbor) {
        let cause = field::forbidden("force", "may not be specified for non-apply patch");
        return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]));
    }
    let text = body::read(cx, incoming).await?;
    let document = json::parse(&text).map_err(|e| ApiError::bad_request(e.to_string()))?;
    Ok(Patch { kind, document, text })
}

/// The patched object, decoded again so that it is what a client could have sent, and warnings.
pub(super) fn apply(
    cx: &Context,
    patch: &Patch,
    live: Value,
    target: &Target<'_>,
) -> Result<(Value, Vec<String>), ApiError> {
    let document = patch.document.clone();
    let mut faults: Vec<String> = Vec::new();
    let patched = match patch.kind {
        ContentType::JsonPatch => patch::json_patch(live, document),
        ContentType::StrategicMergePatch => patch::strategic_merge(live, document, target.schema, target.root),
        ContentType::MergePatch => patch::merge_patch(live, document),
        ContentType::ApplyYaml | ContentType::ApplyCbor | ContentType::Object(_) => {
            return Err(ApiError::new(415, Reason::UnsupportedMediaType, "the body of the request was in an unknown format"));
        }
    };
    let patched = patched.map_err(|e| refusal(cx, patch, e))?;
    let invalid = |what: String| invalid_patch(cx, patch, target.gvk, &what);
    let decoded = json::conform(patched, target.schema, target.root, &DecodeOptions::default())
        .map_err(|e| invalid(e.to_string()))?;
    faults.extend(decoded.strict.iter().map(ToString::to_string));
    let warnings = match (faults.is_empty(), cx.query.field_validation.as_str()) {
        (true, _) | (_, "Ignore") => Vec::new(),
        (false, "Strict") => return Err(invalid(format!("strict decoding error: {}", faults.join(", ")))),
        _ => faults,
    };
    Ok((decoded.value, warnings))
}

fn refusal(cx: &Context, patch: &Patch, error: patch::PatchError) -> ApiError {
    let message = error.to_string();
    match error.code() {
        413 => ApiError::new(413, Reason::RequestEntityTooLarge, message),
        422 if patch.kind == ContentType::JsonPatch => {
            ApiError::new(422, Reason::Invalid, format!("the server rejected our request due to an error in our request: {message}"))
        }
        422 => invalid_patch(cx, patch, &cx.resource.row.gvk(), &message),
        _ => ApiError::bad_request(message),
    }
}

/// 422 with the patch itself as the bad value, as upstream.
fn invalid_patch(cx: &Context, patch: &Patch, gvk: &GVK, what: &str) -> ApiError {
    let cause = field::invalid("patch", String::from_utf8_lossy(&patch.text).into_owned(), what);
    ApiError::invalid(&gvk.group, &gvk.kind, &cx.info.name, vec![cause])
}
