//! patch: JSON Patch, merge patch, strategic merge patch; retried inside the server on a concurrent change.

use futures_util::future::BoxFuture;
use hyper::{Response, StatusCode};
use plinth_codec::field::MAX_SHOWN;
use plinth_codec::json::{self, DecodeOptions};
use plinth_codec::negotiate::{Accepts, ContentType, Shape};
use plinth_codec::patch::{self, goprint};
use plinth_codec::schema::{Schema, TypeId, GVK};
use plinth_codec::{cbor, yaml, Value};

use super::write::{self, ManagedFields, Transform, Update, Updated};
use super::{body, respond, Context};
use crate::custom_resources::object;
use crate::managed_fields;
use plinth_api::{metadata_mut, metadata_text, timestamp_now, ApiError, Cause, Reason};
use plinth_http::{Body, RequestBody};
use plinth_registry::CustomVersion;

/// A patch as it was sent.
pub(super) struct Patch {
    kind: ContentType,
    document: Value,
    /// Duplicate fields of an applied configuration.
    duplicates: Vec<String>,
}

impl Patch {
    pub(super) fn is_apply(&self) -> bool {
        matches!(self.kind, ContentType::ApplyYaml | ContentType::ApplyCbor)
    }

    /// What was sent, parsed.
    pub(super) fn document(&self) -> &Value {
        &self.document
    }

    /// `live` with the changes of this patch, not decoded yet.
    fn merged(&self, live: &Value, target: &PatchedType<'_>) -> Result<Value, ApiError> {
        let (live, document) = (live.clone(), self.document.clone());
        let patched = match self.kind {
            ContentType::JsonPatch => patch::json_patch(live, document),
            ContentType::StrategicMergePatch => {
                patch::strategic_merge(live, document, target.schema, target.root)
            }
            ContentType::MergePatch => patch::merge_patch(live, document),
            ContentType::ApplyYaml | ContentType::ApplyCbor | ContentType::Object(_) => {
                return Err(ApiError::new(
                    415,
                    Reason::UnsupportedMediaType,
                    "the body of the request was in an unknown format",
                ));
            }
        };
        patched.map_err(|e| refusal(&e))
    }
}

/// The type of the object that is patched.
pub(super) struct PatchedType<'a> {
    pub schema: &'a Schema,
    pub root: TypeId,
    pub gvk: &'a GVK,
}

pub(super) async fn patch(cx: Box<Context>, incoming: RequestBody) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Object)?;
    let patch = read(&cx, incoming).await?;
    let resource = cx.resource.clone();
    let gvk = resource.row.gvk();
    let target = PatchedType { schema: resource.schema, root: resource.root, gvk: &gvk };
    let is_apply = patch.is_apply();
    let update = Update {
        transform: &mut Patching { cx: &cx, patch: &patch, target },
        uid_is_precondition: false,
        creates: is_apply && cx.info.subresource.is_empty(),
        managed_fields: if is_apply { ManagedFields::Applied } else { ManagedFields::Track },
        shown_as: None,
    };
    let (code, written) = match write::update_object(&cx, update).await? {
        Updated::Existing(written) => (StatusCode::OK, written),
        Updated::Created(written) => (StatusCode::CREATED, written),
    };
    respond::respond_written(&representation, code, &written)
}

/// A patch of the live object.
struct Patching<'a> {
    cx: &'a Context,
    patch: &'a Patch,
    target: PatchedType<'a>,
}

impl Transform for Patching<'_> {
    fn make<'b>(&'b mut self, live: Option<&'b Value>) -> BoxFuture<'b, Result<Value, ApiError>> {
        let Patching { cx, patch, target } = self;
        Box::pin(async move {
            let (tree, found) = match patch.is_apply() {
                true => apply_configuration(cx, patch, live, target).await?,
                false => apply(cx, patch, live.unwrap_or(&Value::Null), target)?,
            };
            found.into_iter().for_each(|text| cx.warnings.add(text));
            Ok(tree)
        })
    }
}

/// The live object after an apply, and warnings.
async fn apply_configuration(
    cx: &Context,
    patch: &Patch,
    live: Option<&Value>,
    target: &PatchedType<'_>,
) -> Result<(Value, Vec<String>), ApiError> {
    let (given, name) = (metadata_text(&patch.document, "name"), cx.info.name.as_str());
    let uid = metadata_text(&patch.document, "uid");
    if live.is_none() && !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(ApiError::conflict(cx.resource.group(), cx.resource.plural(), name, &why));
    }
    let now = timestamp_now();
    let force = cx.query.force == Some(true);
    let applied = managed_fields::apply(cx, live, &patch.document, force, &now).await?;
    let warnings = validate_duplicates(cx, patch)?;
    let Some(mut object) = applied else {
        return Ok((live.cloned().unwrap_or_default(), warnings));
    };
    // The live object lends its name to a configuration without one; an absent object has none to lend.
    if given.is_empty() && live.is_some() {
        metadata_mut(&mut object)?.insert("name", name);
    }
    if let Some(custom) = custom(cx, target) {
        object::complete(custom, &mut object)?;
        return Ok((object, warnings));
    }
    let decoded = json::conform(object, target.schema, target.root, &DecodeOptions::default())
        .map_err(|e| ApiError::bad_request(e.to_string()))?;
    Ok((decoded.value, warnings))
}

/// Handles the duplicate keys of an applied configuration according to `fieldValidation`: a warning per key,
/// nothing, or 400 (k8s.io/apiserver `pkg/endpoints/handlers/patch.go`, `applyPatchToCurrentObject`).
fn validate_duplicates(cx: &Context, patch: &Patch) -> Result<Vec<String>, ApiError> {
    let errors = &patch.duplicates;
    match cx.query.field_validation.as_str() {
        "Strict" if !errors.is_empty() => Err(ApiError::bad_request(format!(
            "error strict decoding YAML: error converting YAML to JSON: {}",
            errors.join("\n")
        ))),
        "Ignore" | "Strict" => Ok(Vec::new()),
        _ => {
            let lines = errors.iter().flat_map(|error| error.trim_start_matches(YAML_ERRORS).lines());
            Ok(lines.map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect())
        }
    }
}

/// The line above the duplicate keys of a YAML document.
const YAML_ERRORS: &str = "yaml: unmarshal errors:";

/// Reads and parses a patch, and checks the parameters.
pub(super) async fn read(cx: &Context, incoming: RequestBody) -> Result<Patch, ApiError> {
    let accepts = if cx.resource.is_custom() { Accepts::CustomPatch } else { Accepts::Patch };
    let kind = body::content_type(cx, accepts)?;
    cx.query.check_write_options("PatchOptions")?;
    if cx.query.force.is_some() && !matches!(kind, ContentType::ApplyYaml | ContentType::ApplyCbor) {
        let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
        return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]));
    }
    if matches!(kind, ContentType::ApplyYaml | ContentType::ApplyCbor) && cx.query.field_manager.is_none() {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]));
    }
    let text = body::read(cx, incoming).await?;
    let mut duplicates = Vec::new();
    let document = match kind {
        ContentType::ApplyYaml => {
            let (tree, strict) = yaml::to_value(&text).map_err(|e| {
                ApiError::bad_request(format!("error decoding YAML: error converting YAML to JSON: {e}"))
            })?;
            duplicates.extend(strict.iter().map(ToString::to_string));
            if tree.as_array().is_some() {
                let why = "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}";
                return Err(ApiError::bad_request(why));
            }
            tree
        }
        ContentType::ApplyCbor => cbor::decode(&text).map_err(|e| ApiError::bad_request(e.to_string()))?,
        _ => {
            let decoded = json::parse_reporting(&text).map_err(|e| unreadable(cx, kind, &e))?;
            let prefix = if kind == ContentType::JsonPatch { "json patch " } else { "" };
            duplicates.extend(decoded.strict.iter().map(|error| format!("{prefix}{error}")));
            decoded.value
        }
    };
    cx.audit.request_patch(&document);
    if cx.query.field_validation != "Ignore" {
        let checked = match kind {
            ContentType::JsonPatch => patch::check_json_patch(&document),
            ContentType::MergePatch => patch::check_merge_patch(&document),
            _ => Ok(()),
        };
        checked.map_err(|e| ApiError::bad_request(e.to_string()))?;
    }
    Ok(Patch { kind, document, duplicates })
}

/// A patch that is no JSON. Upstream decodes it by itself first where fields are validated.
fn unreadable(cx: &Context, kind: ContentType, error: &plinth_codec::error::DecodeError) -> ApiError {
    ApiError::bad_request(match (kind, cx.query.field_validation.as_str()) {
        (ContentType::MergePatch, "Ignore") => "Invalid JSON Patch".to_owned(),
        (ContentType::StrategicMergePatch, _) | (_, "Ignore") => error.to_string(),
        _ => format!("error decoding patch: {error}"),
    })
}

/// The patched object, decoded again so that it is what a client could have sent, and warnings.
pub(super) fn apply(
    cx: &Context,
    patch: &Patch,
    live: &Value,
    target: &PatchedType<'_>,
) -> Result<(Value, Vec<String>), ApiError> {
    let is_strategic = patch.kind == ContentType::StrategicMergePatch;
    let mut patched = patch.merged(live, target)?;
    // A refusal shows the patched object as text. Decoding takes the object, and few are refused: it is made
    // again.
    let invalid = |what: String| match patch.merged(live, target) {
        // Of a strategic merge patch upstream shows the patch.
        Ok(_) if is_strategic => {
            invalid_patch(goprint::value_within(&patch.document, MAX_SHOWN).as_bytes(), &what)
        }
        Ok(patched) => {
            let mut text = Vec::new();
            json::write_untyped(&patched, &mut text);
            invalid_patch(&text, &what)
        }
        Err(error) => error,
    };
    let options = DecodeOptions { strict: cx.query.field_validation != "Ignore" };
    let decoded = match custom(cx, target) {
        Some(custom) => {
            let mut value = patched;
            let strict =
                object::conform(custom, &mut value, options.strict)?.map_err(|e| invalid(e.to_string()))?;
            json::Decoded { value, strict }
        }
        None if is_strategic => {
            keep_kind(&mut patched, live);
            match json::conform_changed(patched, live, target.schema, target.root, &options) {
                Ok(decoded) => decoded,
                Err(error) => {
                    let mut patched = patch.merged(live, target)?;
                    patch::restore(&mut patched, target.schema, target.root).map_err(invalid)?;
                    keep_kind(&mut patched, live);
                    json::conform(patched, target.schema, target.root, &options)
                        .map_err(|_| invalid(error.to_string()))?
                }
            }
        }
        None => {
            check_kind(&patched, target.gvk).map_err(invalid)?;
            json::conform_changed(patched, live, target.schema, target.root, &options)
                .map_err(|e| invalid(e.to_string()))?
        }
    };
    let mut errors: Vec<String> = patch.duplicates.clone();
    if patch.kind == ContentType::JsonPatch {
        errors.extend(patch::json_patch_unknown_fields(&patch.document));
    }
    errors.extend(decoded.strict.iter().map(ToString::to_string));
    let warnings = match (errors.is_empty(), cx.query.field_validation.as_str()) {
        (true, _) | (_, "Ignore") => Vec::new(),
        (false, "Strict") => return Err(invalid(format!("strict decoding error: {}", errors.join(", ")))),
        _ => errors,
    };
    Ok((decoded.value, warnings))
}

/// What the definition has, where the target is an object of a custom resource and not its Scale.
fn custom<'c>(cx: &'c Context, target: &PatchedType<'_>) -> Option<&'c CustomVersion> {
    cx.resource.custom.as_deref().filter(|_| *target.gvk == cx.resource.row.gvk())
}

/// Upstream knows what it patches by a strategic merge patch and does not look at what kind the outcome names
/// that it is.
fn keep_kind(patched: &mut Value, live: &Value) {
    let Some(object) = patched.as_object_mut() else { return };
    for key in ["apiVersion", "kind"] {
        let given = object.get(key);
        if given != live.get(key) && given.is_none_or(|given| given.as_str().is_some()) {
            object.insert(key, live.get(key).cloned().unwrap_or_default());
        }
    }
}

/// A patch cannot make another kind of an object.
fn check_kind(patched: &Value, gvk: &GVK) -> Result<(), String> {
    json::check_type(patched).map_err(|e| format!("couldn't get version/kind; json parse error: {e}"))?;
    let text = |key: &str| patched.str_at(&[key]).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    match api_version == gvk.api_version() && kind == gvk.kind {
        true => Ok(()),
        false => Err(body::unregistered(kind, api_version)),
    }
}

fn refusal(error: &patch::PatchError) -> ApiError {
    let message = error.to_string();
    match error.code() {
        413 => {
            ApiError::new(413, Reason::RequestEntityTooLarge, format!("Request entity too large: {message}"))
        }
        // Upstream returns nothing of what the operation ran into; it is in the log for whoever runs the
        // server.
        422 => {
            tracing::debug!(error = %message, "patch refused");
            let text = "the server rejected our request due to an error in our request";
            ApiError::new(422, Reason::Invalid, text).with_causes(Vec::new())
        }
        500 => ApiError::new(500, Reason::Unknown, message),
        _ => ApiError::bad_request(message),
    }
}

/// 422 with the patched object as the bad value; upstream names neither kind nor object here.
fn invalid_patch(bad: &[u8], what: &str) -> ApiError {
    let cause = Cause::invalid("patch", String::from_utf8_lossy(bad).into_owned(), what);
    ApiError::invalid("", "", "", vec![cause])
}
