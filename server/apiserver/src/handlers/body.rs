//! Request bodies: read with limits, decoded by content type, checked against the schema.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use hyper::header::CONTENT_TYPE;
use hyper::Version;
use plinth_codec::error::quoted;
use plinth_codec::json::DecodeOptions;
use plinth_codec::negotiate::{self, Accepts, ContentType, Encoding};
use plinth_codec::schema::{self, Schema, TypeId, GVK};
use plinth_codec::yaml;
use plinth_codec::{cbor, hex, json, protobuf, Value};

use super::Context;
use crate::custom_resources::object;
use plinth_api::{ApiError, Reason};
use plinth_http::RequestBody;
use plinth_registry::CustomVersion;

/// Time after which a body counts as late.
const LATE_AFTER: Duration = Duration::from_millis(500);

/// The object in the body of a create or update. The first attempt of a write takes the decoded tree, another
/// one decodes the body again, so that no tree is cloned for an attempt that seldom comes.
pub(crate) struct ObjectBody<'a> {
    cx: &'a Context,
    bytes: Bytes,
    tree: Option<Value>,
}

impl ObjectBody<'_> {
    /// Reads and decodes the body; warnings go to the request's.
    ///
    /// # Errors
    /// Those of [`read`]; 400 when it cannot be decoded or has another kind, 415 for another media type.
    pub(crate) async fn read(cx: &Context, incoming: RequestBody) -> Result<ObjectBody<'_>, ApiError> {
        let bytes = read(cx, incoming).await?;
        let decoded = ObjectBody::decode(cx, &bytes)?;
        // The decoder of custom resources has applied defaults.
        cx.audit.request_object(&decoded.tree, |tree| cx.resource.strategy.default(tree));
        decoded.warnings.into_iter().for_each(|text| cx.warnings.add(text));
        Ok(ObjectBody { cx, bytes, tree: Some(decoded.tree) })
    }

    /// The decoded object, until it is taken.
    pub(crate) fn tree(&self) -> &Value {
        self.tree.as_ref().unwrap_or(&Value::Null)
    }

    /// The object for the next attempt.
    ///
    /// # Errors
    /// None that [`read`](ObjectBody::read) did not answer.
    pub(crate) fn take(&mut self) -> Result<Value, ApiError> {
        match self.tree.take() {
            Some(tree) => Ok(tree),
            None => ObjectBody::decode(self.cx, &self.bytes).map(|decoded| decoded.tree),
        }
    }

    fn decode(cx: &Context, bytes: &[u8]) -> Result<Decoded, ApiError> {
        let resource = &cx.resource;
        decode(cx, bytes, resource.schema, resource.root, (&resource.row.gvk(), None))
    }
}

/// Reads and decodes a body of a built-in kind that is not the resource's own: that of a subresource.
/// Warnings go to the request's.
///
/// # Errors
/// Those of [`ObjectBody::read`].
pub(crate) async fn read_as(
    cx: &Context,
    incoming: RequestBody,
    kind: (&GVK, TypeId),
) -> Result<Value, ApiError> {
    read_as_either(cx, incoming, kind, None).await
}

/// The same, also in another version of the kind that has the same fields.
///
/// # Errors
/// As [`read_as`].
pub(crate) async fn read_as_either(
    cx: &Context,
    incoming: RequestBody,
    (gvk, root): (&GVK, TypeId),
    other: Option<&GVK>,
) -> Result<Value, ApiError> {
    let bytes = read(cx, incoming).await?;
    let decoded = decode(cx, &bytes, schema::builtin(), root, (gvk, other))?;
    cx.audit.request_object(&decoded.tree, |_| {});
    decoded.warnings.into_iter().for_each(|text| cx.warnings.add(text));
    Ok(decoded.tree)
}

/// A built-in kind and its type, for [`read_as`].
///
/// # Errors
/// When there is none; a programming error.
pub(crate) fn builtin_kind(group: &str, version: &str, kind: &str) -> Result<(GVK, TypeId), ApiError> {
    let gvk = GVK::new(group, version, kind);
    let root = schema::builtin().kind(&gvk);
    let root = root.ok_or_else(|| ApiError::internal(format!("the schema has no type for {kind}")))?;
    Ok((gvk, root))
}

/// A decoded object and warnings for the client.
struct Decoded {
    /// The object, checked and normalized, with `apiVersion` and `kind`.
    tree: Value,
    /// Texts for `Warning` headers.
    warnings: Vec<String>,
}

/// Reads the whole body. The request keeps its seat meanwhile, so the number of late bodies is limited.
///
/// # Errors
/// 413 when it is too long, 408 when it takes too long, 429 when too many bodies are late, 400 when the
/// client disconnects.
pub(crate) async fn read(cx: &Context, body: RequestBody) -> Result<Bytes, ApiError> {
    let limit = cx.server.limits.body;
    // A body with an excessive Content-Length is not read; but an HTTP/1 client reads no response before it
    // has sent everything.
    if cx.protocol == Version::HTTP_2 && body.size_hint().lower() > limit as u64 {
        return Err(ApiError::too_large(limit));
    }
    let mut collecting = pin!(Limited::new(body, limit).collect());
    let collected = match tokio::time::timeout(LATE_AFTER, &mut collecting).await {
        Err(_) => {
            let late = cx.seat.wait_for_body().map_err(|refused| {
                let message = "too many requests wait for their bodies, please try again later";
                ApiError::new(429, Reason::TooManyRequests, message).retry_after(refused.retry_after)
            })?;
            let rest = cx.server.limits.body_timeout.saturating_sub(LATE_AFTER);
            let collected = tokio::time::timeout(rest, collecting).await;
            drop(late);
            collected
        }
        prompt => prompt,
    };
    match collected {
        Ok(Ok(body)) => {
            let body = body.to_bytes();
            cx.meter.as_ref().inspect(|meter| meter.received_body(body.len()));
            cx.slot.acquire_for_size(body.len()).await;
            Ok(body)
        }
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(ApiError::too_large(limit)),
        Ok(Err(error)) => Err(ApiError::bad_request(format!("error reading request body: {error}"))),
        Err(_) => Err(ApiError::new(408, Reason::Timeout, "request body took too long to arrive")),
    }
}

/// The content type of the body.
///
/// # Errors
/// 415.
pub(crate) fn content_type(cx: &Context, accepts: Accepts) -> Result<ContentType, ApiError> {
    negotiate::content_type(cx.header(CONTENT_TYPE), accepts).map_err(|e| match accepts {
        // Upstream refuses a patch before it reaches the handler.
        Accepts::Patch => ApiError::new(415, Reason::UnsupportedMediaType, "415: Unsupported Media Type")
            .with_empty_details(),
        _ => ApiError::new(415, Reason::UnsupportedMediaType, e.to_string()),
    })
}

/// The content types that the resource accepts for its objects.
pub(crate) fn accepts_objects(cx: &Context) -> Accepts {
    match cx.resource.is_custom() {
        true => Accepts::CustomObject,
        false => Accepts::Object,
    }
}

/// Decodes the body of a create or update as an object of the resource (or of a subresource's kind). With
/// another version, an object of that is one of the expected kind.
///
/// # Errors
/// 400 when it cannot be decoded or has another kind, 415 for another media type.
fn decode(
    cx: &Context,
    bytes: &[u8],
    schema: &Schema,
    root: TypeId,
    (expected, other): (&GVK, Option<&GVK>),
) -> Result<Decoded, ApiError> {
    let check_kind = |api_version: &str, kind: &str| {
        let is_other = |other: &&GVK| other.api_version() == api_version;
        check_kind(other.filter(is_other).unwrap_or(expected), api_version, kind)
    };
    let encoding = object_encoding(cx, accepts_objects(cx))?;
    if let Some(custom) = cx.resource.custom.as_ref().filter(|_| *expected == cx.resource.row.gvk()) {
        return decode_custom(cx, custom, bytes, encoding, expected);
    }
    let options = DecodeOptions { strict: cx.query.field_validation != "Ignore" };
    let decoded = parse(bytes, encoding, schema, root, &options, |envelope| match envelope {
        Some(envelope) => check_kind(&envelope.api_version, &envelope.kind).map(|()| Some(expected)),
        None => Ok(Some(expected)),
    });
    let json::Decoded { value: mut tree, strict } = decoded.map_err(|error| match error {
        BodyDecodeError::Unrecognized(what) => unrecognized(expected, bytes, &what),
        BodyDecodeError::Invalid(what) => decode_error(expected, &what),
        BodyDecodeError::Refused(error) => error,
    })?;
    let text = |key: &str| tree.str_at(&[key]).unwrap_or_default();
    check_kind(text("apiVersion"), text("kind"))?;
    if let Some(object) = tree.as_object_mut() {
        object.insert("apiVersion", expected.api_version());
        object.insert("kind", expected.kind.clone());
    }
    let errors: Vec<String> = strict.iter().map(ToString::to_string).collect();
    let warnings = apply_field_validation(cx, expected, errors)?;
    Ok(Decoded { tree, warnings })
}

/// The encoding of an object body.
///
/// # Errors
/// 415.
pub(crate) fn object_encoding(cx: &Context, accepts: Accepts) -> Result<Encoding, ApiError> {
    Ok(match content_type(cx, accepts)? {
        ContentType::Object(encoding) => encoding,
        _ => Encoding::Json,
    })
}

/// Why a body could not be decoded.
pub(crate) enum BodyDecodeError {
    /// Its type could not be determined.
    Unrecognized(String),
    /// It does not match the expected type.
    Invalid(String),
    /// Its type is not accepted here.
    Refused(ApiError),
}

impl BodyDecodeError {
    /// 400 with the message alone.
    pub(crate) fn plain(self) -> ApiError {
        match self {
            BodyDecodeError::Unrecognized(what) | BodyDecodeError::Invalid(what) => {
                ApiError::bad_request(what)
            }
            BodyDecodeError::Refused(error) => error,
        }
    }
}

/// Decodes a body as a tree of that type. `type_of` determines the type of a protobuf message from its
/// envelope.
///
/// # Errors
/// [`BodyDecodeError`].
pub(crate) fn parse<'g>(
    bytes: &[u8],
    encoding: Encoding,
    schema: &Schema,
    root: TypeId,
    options: &DecodeOptions,
    type_of: impl Fn(Option<&protobuf::Envelope<'_>>) -> Result<Option<&'g GVK>, ApiError>,
) -> Result<json::Decoded, BodyDecodeError> {
    let error = |what: String| BodyDecodeError::Invalid(what);
    let conform = |tree| json::conform(tree, schema, root, options).map_err(|e| error(e.to_string()));
    match encoding {
        Encoding::Json => {
            json::peek_type(bytes).map_err(|e| {
                BodyDecodeError::Unrecognized(format!("couldn't get version/kind; json parse error: {e}"))
            })?;
            json::decode(bytes, schema, root, options).map_err(|e| error(e.to_string()))
        }
        Encoding::Yaml => {
            let (tree, mut strict) =
                yaml::to_value(bytes).map_err(|e| BodyDecodeError::Unrecognized(e.to_string()))?;
            let checked = conform(tree)?;
            strict.extend(checked.strict);
            Ok(json::Decoded { value: checked.value, strict })
        }
        Encoding::Cbor => {
            conform(cbor::decode(bytes).map_err(|e| BodyDecodeError::Unrecognized(e.to_string()))?)
        }
        Encoding::Protobuf => {
            let envelope =
                protobuf::decode(bytes).map_err(|e| BodyDecodeError::Unrecognized(e.to_string()))?;
            let gvk = type_of(Some(&envelope)).map_err(BodyDecodeError::Refused)?;
            let tree =
                protobuf::decode_object(envelope.raw, gvk, schema, root).map_err(|e| error(e.to_string()))?;
            Ok(json::Decoded { value: tree, strict: Vec::new() })
        }
    }
}

/// Decodes an object of a custom resource by its schema, which does not check types before validation.
fn decode_custom(
    cx: &Context,
    custom: &CustomVersion,
    bytes: &[u8],
    encoding: Encoding,
    expected: &GVK,
) -> Result<Decoded, ApiError> {
    let unrecognized = |what: String| unrecognized(expected, bytes, &what);
    let (mut tree, duplicates) = match encoding {
        Encoding::Json => {
            json::peek_type(bytes)
                .map_err(|e| unrecognized(format!("couldn't get version/kind; json parse error: {e}")))?;
            let decoded = json::parse_reporting(bytes).map_err(|e| unrecognized(e.to_string()))?;
            (decoded.value, decoded.strict)
        }
        Encoding::Yaml => yaml::to_value(bytes).map_err(|e| unrecognized(e.to_string()))?,
        Encoding::Cbor => (cbor::decode(bytes).map_err(|e| unrecognized(e.to_string()))?, Vec::new()),
        Encoding::Protobuf => {
            return Err(ApiError::new(
                415,
                Reason::UnsupportedMediaType,
                "custom resources have no protobuf form",
            ));
        }
    };
    if tree.str_at(&["kind"]).is_none_or(str::is_empty) {
        return Err(unrecognized(format!(
            "Object 'Kind' is missing in '{}'",
            String::from_utf8_lossy(bytes)
        )));
    }
    let strict = cx.query.field_validation != "Ignore";
    let unknown =
        object::conform(custom, &mut tree, strict)?.map_err(|e| decode_error(expected, &e.to_string()))?;
    let api_version = tree.str_at(&["apiVersion"]).unwrap_or_default();
    check_version(expected, api_version)?;
    let errors = duplicates.iter().filter(|_| strict).chain(&unknown).map(ToString::to_string).collect();
    let warnings = apply_field_validation(cx, expected, errors)?;
    Ok(Decoded { tree, warnings })
}

/// Upstream determines the kind first; a body without one is "unrecognized".
fn unrecognized(expected: &GVK, bytes: &[u8], what: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {what} ({})",
        expected.kind,
        summary(bytes)
    ))
}

/// Handles unknown and duplicate fields according to `fieldValidation`: warnings, nothing, or 400.
fn apply_field_validation(
    cx: &Context,
    expected: &GVK,
    errors: Vec<String>,
) -> Result<Vec<String>, ApiError> {
    if errors.is_empty() {
        return Ok(errors);
    }
    match cx.query.field_validation.as_str() {
        "Ignore" => Ok(Vec::new()),
        "Strict" => Err(ApiError::bad_request(format!(
            "{} in version {} cannot be handled as a {}: strict decoding error: {}",
            expected.kind,
            quoted(&expected.version),
            expected.kind,
            errors.join(", ")
        ))),
        _ => Ok(errors),
    }
}

/// The start of a body for an error message: as text if it looks like JSON, otherwise hexadecimal.
fn summary(bytes: &[u8]) -> String {
    const MAX_SHOWN: usize = 30;
    let (start, more) = match bytes.get(..MAX_SHOWN) {
        Some(start) if bytes.len() > MAX_SHOWN => (start, " ..."),
        _ => (bytes, ""),
    };
    match start.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => hex::lower(start) + more,
    }
}

fn decode_error(expected: &GVK, what: &str) -> ApiError {
    ApiError::bad_request(format!(
        "{} in version {} cannot be handled as a {}: {what}",
        expected.kind,
        quoted(&expected.version),
        expected.kind
    ))
}

/// Upstream's message for an unknown kind; clients match on its first words.
pub(super) fn unregistered(kind: &str, api_version: &str) -> String {
    format!(
        "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
        quoted(kind),
        quoted(api_version)
    )
}

/// Upstream's internal package of a group: the first part of its name.
fn internal_package(group: &str) -> &str {
    match group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    }
}

/// A body without kind or apiVersion has those of the path; different ones are refused.
fn check_kind(expected: &GVK, api_version: &str, kind: &str) -> Result<(), ApiError> {
    let expected_version = expected.api_version();
    let kind = if kind.is_empty() { expected.kind.as_str() } else { kind };
    let api_version = if api_version.is_empty() { expected_version.as_str() } else { api_version };
    if kind == expected.kind && api_version == expected_version {
        return Ok(());
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_known = schema::builtin().kind(&GVK::new(group, version, kind)).is_some();
    if kind != expected.kind {
        let why = match is_known {
            true => format!(
                "converting ({version}.{kind}) to ({}.{}): unknown conversion",
                internal_package(&expected.group),
                expected.kind
            ),
            false => unregistered(kind, api_version),
        };
        return Err(ApiError::bad_request(format!(
            "{kind} in version {} cannot be handled as a {}: {why}",
            quoted(version),
            expected.kind
        )));
    }
    if api_version != expected_version && !is_known {
        return Err(ApiError::bad_request(format!(
            "{kind} in version {} cannot be handled as a {}: {}",
            quoted(version),
            expected.kind,
            unregistered(kind, api_version)
        )));
    }
    check_version(expected, api_version)
}

fn check_version(expected: &GVK, api_version: &str) -> Result<(), ApiError> {
    let expected_version = expected.api_version();
    if api_version != expected_version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version \
                ({expected_version})"
        )));
    }
    Ok(())
}
