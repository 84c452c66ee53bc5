//! Request bodies: read within bounds, decoded by content type, checked against the schema.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use hyper::header::CONTENT_TYPE;
use hyper::Version;
use plinth_codec::json::DecodeOptions;
use plinth_codec::negotiate::{self, Accepts, ContentType, Encoding};
use plinth_codec::schema::{self, Schema, TypeId, GVK};
use plinth_codec::yaml;
use plinth_codec::{cbor, json, protobuf, Value};

use super::Context;
use crate::custom_resources::object;
use plinth_api::api_error::{ApiError, Reason};
use plinth_http::request_body::RequestBody;
use plinth_registry::custom::CustomVersion;

/// How long a body may take to arrive before it is late.
const PROMPT: Duration = Duration::from_millis(500);

/// A decoded object and what the client is to be warned of.
pub struct Decoded {
    /// The object, checked and normalised, with `apiVersion` and `kind`.
    pub tree: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// Reads the whole body. A request keeps its seat meanwhile, so few may be late.
///
/// # Errors
/// 413 when it is too long, 408 when it takes too long, 429 when it is late and so are many, 400 when the client breaks off.
pub async fn read(cx: &Context, body: RequestBody) -> Result<Bytes, ApiError> {
    let limit = cx.server.limits.body;
    // Of what is stated to be too long nothing is read; but a client of HTTP/1 reads no answer before it has sent all.
    if cx.protocol == Version::HTTP_2 && body.size_hint().lower() > limit as u64 {
        return Err(ApiError::too_large(limit));
    }
    let mut collecting = pin!(Limited::new(body, limit).collect());
    let collected = match tokio::time::timeout(PROMPT, &mut collecting).await {
        Err(_) => {
            let late = cx.seat.wait_for_body().map_err(|refused| {
                let message = "too many requests wait for their bodies, please try again later";
                ApiError::new(429, Reason::TooManyRequests, message).retry_after(refused.retry_after)
            })?;
            let rest = cx.server.limits.body_timeout.saturating_sub(PROMPT);
            let collected = tokio::time::timeout(rest, collecting).await;
            drop(late);
            collected
        }
        prompt => prompt,
    };
    match collected {
        Ok(Ok(body)) => {
            let body = body.to_bytes();
            cx.heavy.weigh(body.len(), &cx.server.heavy).await;
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
pub fn content_type(cx: &Context, accepts: Accepts) -> Result<ContentType, ApiError> {
    negotiate::content_type(cx.header(CONTENT_TYPE), accepts).map_err(|e| match accepts {
        // Upstream refuses a patch before its handler is asked.
        Accepts::Patch => ApiError::new(415, Reason::UnsupportedMediaType, "415: Unsupported Media Type")
            .with_empty_details(),
        _ => ApiError::new(415, Reason::UnsupportedMediaType, e.to_string()),
    })
}

/// Which bodies the resource takes for its objects.
pub fn accepts_objects(cx: &Context) -> Accepts {
    match cx.resource.is_custom() {
        true => Accepts::CustomObject,
        false => Accepts::Object,
    }
}

/// Decodes the body of a create or update as an object of the resource (or of a subresource's kind).
///
/// # Errors
/// 400 for what cannot be decoded or is of another kind, 415 for another media type.
pub fn decode(
    cx: &Context,
    bytes: &[u8],
    schema: &Schema,
    root: TypeId,
    expected: &GVK,
) -> Result<Decoded, ApiError> {
    let encoding = object_encoding(cx, accepts_objects(cx))?;
    if let Some(custom) = cx.resource.custom.as_ref().filter(|_| *expected == cx.resource.row.gvk()) {
        return decode_custom(cx, custom, bytes, encoding, expected);
    }
    let options = DecodeOptions { strict: cx.query.field_validation != "Ignore" };
    let decoded = parse(bytes, encoding, schema, root, &options, |envelope| match envelope {
        Some(envelope) => {
            check_kind(expected, &envelope.api_version, &envelope.kind).map(|()| Some(expected))
        }
        None => Ok(Some(expected)),
    });
    let json::Decoded { value: mut tree, strict } = decoded.map_err(|unread| match unread {
        Unread::Unrecognized(what) => unrecognized(expected, bytes, &what),
        Unread::Fault(what) => decode_error(expected, &what),
        Unread::Refused(error) => error,
    })?;
    let text = |key: &str| tree.str_at(&[key]).unwrap_or_default();
    check_kind(expected, text("apiVersion"), text("kind"))?;
    if let Some(object) = tree.as_object_mut() {
        object.insert("apiVersion", expected.api_version());
        object.insert("kind", expected.kind.clone());
    }
    cx.audit.request_object(&tree, |tree| {
        if *expected == cx.resource.row.gvk() {
            cx.resource.strategy.default(tree);
        }
    });
    let errors: Vec<String> = strict.iter().map(ToString::to_string).collect();
    let warnings = judge_strict(cx, expected, errors)?;
    Ok(Decoded { tree, warnings })
}

/// The encoding of a body that is an object.
///
/// # Errors
/// 415.
pub fn object_encoding(cx: &Context, accepts: Accepts) -> Result<Encoding, ApiError> {
    Ok(match content_type(cx, accepts)? {
        ContentType::Object(encoding) => encoding,
        _ => Encoding::Json,
    })
}

/// Why a body could not be read.
pub enum Unread {
    /// It does not even tell what it is.
    Unrecognized(String),
    /// It is not of the type that was expected.
    Fault(String),
    /// Its type is not wanted here.
    Refused(ApiError),
}

impl Unread {
    /// 400 with nothing but what went wrong.
    pub fn plain(self) -> ApiError {
        match self {
            Unread::Unrecognized(what) | Unread::Fault(what) => ApiError::bad_request(what),
            Unread::Refused(error) => error,
        }
    }
}

/// A body as a tree of that type, in whatever encoding it is. `type_of` is asked which type a protobuf message has; it
/// gets the envelope, which alone tells.
///
/// # Errors
/// [`Unread`].
pub fn parse<'g>(
    bytes: &[u8],
    encoding: Encoding,
    schema: &Schema,
    root: TypeId,
    options: &DecodeOptions,
    type_of: impl Fn(Option<&protobuf::Envelope<'_>>) -> Result<Option<&'g GVK>, ApiError>,
) -> Result<json::Decoded, Unread> {
    let error = |what: String| Unread::Fault(what);
    let conform = |tree| json::conform(tree, schema, root, options).map_err(|e| error(e.to_string()));
    match encoding {
        Encoding::Json => {
            json::peek_type(bytes).map_err(|e| {
                Unread::Unrecognized(format!("couldn't get version/kind; json parse error: {e}"))
            })?;
            json::decode(bytes, schema, root, options).map_err(|e| error(e.to_string()))
        }
        Encoding::Yaml => {
            let (tree, mut strict) =
                yaml::to_value(bytes).map_err(|e| Unread::Unrecognized(e.to_string()))?;
            let checked = conform(tree)?;
            strict.extend(checked.strict);
            Ok(json::Decoded { value: checked.value, strict })
        }
        Encoding::Cbor => conform(cbor::decode(bytes).map_err(|e| Unread::Unrecognized(e.to_string()))?),
        Encoding::Protobuf => {
            let envelope = protobuf::decode(bytes).map_err(|e| Unread::Unrecognized(e.to_string()))?;
            let gvk = type_of(Some(&envelope)).map_err(Unread::Refused)?;
            let tree =
                protobuf::decode_object(envelope.raw, gvk, schema, root).map_err(|e| error(e.to_string()))?;
            Ok(json::Decoded { value: tree, strict: Vec::new() })
        }
    }
}

/// Decodes an object of a custom resource: no types but those of its schema, which says nothing of types until the object
/// is validated.
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
    let warnings = judge_strict(cx, expected, errors)?;
    Ok(Decoded { tree, warnings })
}

/// Upstream finds out the kind first; a body that does not even tell that is "unrecognized".
fn unrecognized(expected: &GVK, bytes: &[u8], what: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {what} ({})",
        expected.kind,
        summary(bytes)
    ))
}

/// What `fieldValidation` makes of unknown and duplicate fields: warnings, nothing, or 400.
pub fn judge_strict(cx: &Context, expected: &GVK, errors: Vec<String>) -> Result<Vec<String>, ApiError> {
    if errors.is_empty() {
        return Ok(errors);
    }
    match cx.query.field_validation.as_str() {
        "Ignore" => Ok(Vec::new()),
        "Strict" => Err(ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: strict decoding error: {}",
            expected.kind,
            expected.version,
            expected.kind,
            errors.join(", ")
        ))),
        _ => Ok(errors),
    }
}

/// The start of a body, for an error: as text where it looks like JSON, else in hexadecimal.
fn summary(bytes: &[u8]) -> String {
    use std::fmt::Write;
    const MOST: usize = 30;
    let (start, more) = match bytes.get(..MOST) {
        Some(start) if bytes.len() > MOST => (start, " ..."),
        _ => (bytes, ""),
    };
    match start.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => {
            let mut text = String::with_capacity(2 * MOST + 4);
            for byte in start {
                // Writing to a String never fails.
                let _ = write!(text, "{byte:02x}");
            }
            text + more
        }
    }
}

fn decode_error(expected: &GVK, what: &str) -> ApiError {
    ApiError::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: {what}",
        expected.kind, expected.version, expected.kind
    ))
}

/// What upstream's scheme says of a kind that it does not know; clients match on its first words.
pub(super) fn unregistered(kind: &str, api_version: &str) -> String {
    format!(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )
}

/// Where upstream has the types of a group that it works with: the first part of the group's name.
fn internal_package(group: &str) -> &str {
    match group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    }
}

/// A body without kind or apiVersion is taken for what the path says; another one is refused.
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
            "{kind} in version {version:?} cannot be handled as a {}: {why}",
            expected.kind
        )));
    }
    if api_version != expected_version && !is_known {
        return Err(ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {}: {}",
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
            "the API version in the data ({api_version}) does not match the expected API version ({expected_version})"
        )));
    }
    Ok(())
}
