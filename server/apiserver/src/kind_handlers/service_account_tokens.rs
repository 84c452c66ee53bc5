//! TokenRequest and TokenReview: issues service account tokens and authenticates tokens of any kind.
//!
//! Upstream: kubernetes `pkg/registry/core/serviceaccount/storage/token.go` and
//! `pkg/registry/authentication/tokenreview`.

use hyper::{Response, StatusCode};
use plinth_codec::negotiate::Shape;
use plinth_codec::{names, tree, Map, Value};

use crate::authn::service_account::claims::{Kubernetes, Reference};
use crate::context::{AdmissionRequest, Context, Operation};
use crate::handlers::body;
use crate::handlers::respond::respond;
use crate::managed_fields;
use plinth_api::{metadata_mut, metadata_text, timestamp_now, ApiError, Cause, Verb};
use plinth_http::{Body, RequestBody};
use plinth_registry::match_namespace;
use plinth_storage::decode_object;

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
/// Audit annotation with the ID of an issued token.
const ISSUED_CREDENTIAL: &str = "authentication.kubernetes.io/issued-credential-id";
/// Default, minimum and maximum expiration, in seconds.
const DEFAULT_EXPIRATION: i64 = 3600;
const MIN_EXPIRATION: i64 = 600;
const MAX_EXPIRATION: i64 = 1 << 32;

/// POST of `serviceaccounts/NAME/token`.
pub(super) async fn request(cx: Box<Context>, incoming: RequestBody) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Object)?;
    cx.query.check_write_options("CreateOptions")?;
    let (gvk, root) = body::builtin_kind(GROUP, "v1", KIND)?;
    let mut request = body::read_as(&cx, incoming, (&gvk, root)).await?;
    match_namespace(&cx.resource, &cx.info, &mut request)?;
    let call = AdmissionRequest::new(&cx, Operation::Create, None);
    cx.server.admission.mutate(&call, &mut request).await?;
    let account = read_account(&cx, &mut request).await?;
    default(&cx, &mut request);
    managed_fields::track_as(&cx, (&gvk, root), &mut request, &timestamp_now());
    if let Some(cause) = expiration_error(&request) {
        return Err(ApiError::invalid(GROUP, KIND, "", vec![cause]));
    }
    cx.server.admission.validate(&call, &request).await?;
    let mut claims =
        Kubernetes { namespace: cx.info.namespace.clone(), serviceaccount: account, ..Kubernetes::default() };
    bind(&cx, &request, &mut claims).await?;
    let accounts = cx.server.authenticator.service_accounts();
    let mut lifetime = expiration(&request);
    if let Some(most) = accounts.settings().max_expiration.filter(|most| lifetime > *most) {
        cx.warnings.add(format!("requested expiration of {lifetime} seconds shortened to {most} seconds"));
        lifetime = most;
        set_spec(&mut request, "expirationSeconds", most.into());
    }
    let issued = accounts.issue(claims, audiences(&request), lifetime)?;
    cx.audit.annotate(ISSUED_CREDENTIAL, issued.credential_id.as_str());
    let expires = time::OffsetDateTime::from_unix_timestamp(issued.expires).map_err(ApiError::internal)?;
    let expires =
        expires.format(&time::format_description::well_known::Rfc3339).map_err(ApiError::internal)?;
    if let Some(object) = request.as_object_mut() {
        object.insert("status", tree!({ "token": issued.token, "expirationTimestamp": expires }));
    }
    let mut out = Vec::with_capacity(2048);
    representation.write_tree(&request, &mut out)?;
    Ok(respond(StatusCode::CREATED, representation.content_type(Shape::Object), out))
}

/// The account that the path names; completes the request's metadata from it.
async fn read_account(cx: &Context, request: &mut Value) -> Result<Reference, ApiError> {
    let (name, namespace) = (cx.info.name.as_str(), cx.info.namespace.as_str());
    let given = metadata_text(request, "name");
    if !given.is_empty() && given != name {
        let why = "must match the service account name if specified";
        return Err(ApiError::invalid(GROUP, KIND, name, vec![Cause::invalid("metadata.name", given, why)]));
    }
    let record = cx.newest(&cx.info.object_key(&cx.resource)?).await?;
    let record = record.ok_or_else(|| cx.not_found())?;
    let account = decode_object(&cx.resource, &record)?;
    let uid = metadata_text(&account, "uid");
    let given = metadata_text(request, "uid").to_owned();
    if !given.is_empty() && given != uid {
        let why = format!(
            "the UID in the token request ({given}) does not match the UID of the service account ({uid})"
        );
        return Err(ApiError::conflict(GROUP, KIND, name, &why));
    }
    let now = timestamp_now();
    let metadata = metadata_mut(request)?;
    for (key, value) in [("name", name), ("namespace", namespace), ("uid", uid), ("creationTimestamp", &now)]
    {
        metadata.insert(key, value);
    }
    Ok(Reference::new(name, uid))
}

fn default(cx: &Context, request: &mut Value) {
    if audiences(request).is_empty() {
        let ours = &cx.server.authenticator.service_accounts().settings().audiences;
        let ours: Vec<Value> = ours.iter().map(|audience| Value::from(audience.as_str())).collect();
        set_spec(request, "audiences", ours.into());
    }
    if request.at(&["spec", "expirationSeconds"]).is_none_or(Value::is_null) {
        set_spec(request, "expirationSeconds", DEFAULT_EXPIRATION.into());
    }
    if let Some(object) = request.as_object_mut() {
        object.remove("status");
    }
}

fn set_spec(request: &mut Value, key: &str, value: Value) {
    if let Some(spec) = request.object_at_mut(&["spec"]) {
        spec.insert(key, value);
    }
}

fn audiences(request: &Value) -> Vec<String> {
    request.texts_at(&["spec", "audiences"])
}

fn expiration(request: &Value) -> i64 {
    request.at(&["spec", "expirationSeconds"]).and_then(Value::as_int).unwrap_or(DEFAULT_EXPIRATION)
}

fn expiration_error(request: &Value) -> Option<Cause> {
    let lifetime = expiration(request);
    let why = match lifetime {
        ..MIN_EXPIRATION => "may not specify a duration less than 10 minutes",
        MIN_EXPIRATION..=MAX_EXPIRATION => return None,
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    Some(Cause::invalid("spec.expirationSeconds", lifetime, why))
}

/// Binds the token to the pod, Secret or node in the request.
async fn bind(cx: &Context, request: &Value, claims: &mut Kubernetes) -> Result<(), ApiError> {
    let Some(reference) = request.at(&["spec", "boundObjectRef"]).filter(|r| !r.is_null()) else {
        return Ok(());
    };
    let text = |key: &str| reference.str_at(&[key]).unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let (kind, name, uid) = (text("kind"), text("name"), text("uid"));
    let plural = match (group, kind) {
        ("", "Pod") => "pods",
        ("", "Secret") => "secrets",
        ("", "Node") => "nodes",
        _ => {
            let gvk = format!("{group}/{version}, Kind={kind}");
            return Err(ApiError::bad_request(format!("cannot bind token to object of type {gvk}")));
        }
    };
    if name.is_empty() {
        return Err(ApiError::bad_request("Name parameter required."));
    }
    if let Some(why) = names::path_segment_errors(name).first() {
        return Err(ApiError::bad_request(format!("Name parameter invalid: {name:?}: {why}")));
    }
    let found = read(cx, plural, name).await?;
    let found = found.ok_or_else(|| ApiError::not_found("", plural, name))?;
    if plural == "pods" {
        let account = cx.info.name.as_str();
        if found.str_at(&["spec", "serviceAccountName"]) != Some(account) {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different \
                    serviceaccount name."
            )));
        }
        if let Some(node) = found.str_at(&["spec", "nodeName"]).filter(|node| !node.is_empty()) {
            // A node that does not exist is included, too.
            let live = read(cx, "nodes", node).await?;
            let uid = live.as_ref().map(|node| metadata_text(node, "uid")).unwrap_or_default();
            claims.node = Some(Reference::new(node, uid));
        }
    }
    let is = metadata_text(&found, "uid");
    if !uid.is_empty() && uid != is {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. \
            The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(group, kind, name, &why));
    }
    let reference = Some(Reference::new(name, is));
    match plural {
        "pods" => claims.pod = reference,
        "secrets" => claims.secret = reference,
        _ => claims.node = reference,
    }
    Ok(())
}

async fn read(cx: &Context, plural: &str, name: &str) -> Result<Option<Value>, ApiError> {
    let read = cx.on_behalf(("", "v1", plural), name, Verb::Get)?;
    let record = cx.newest(&read.info.object_key(&read.resource)?).await?;
    record.map(|record| decode_object(&read.resource, &record)).transpose()
}

/// The status of a TokenReview.
pub(super) async fn review(cx: &Context, review: &Value) -> Result<Value, ApiError> {
    let token = review.str_at(&["spec", "token"]).unwrap_or_default();
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let wanted = audiences(review);
    let mut status = Map::new();
    match cx.server.authenticator.review(token, &wanted).await {
        Ok(found) => {
            let audiences: Vec<Value> = found.audiences.iter().map(|a| Value::from(a.as_str())).collect();
            status.insert("authenticated", true);
            status.insert("audiences", audiences);
            status.insert("user", found.user.to_user_info());
        }
        Err(error) => {
            status.insert("user", Map::new());
            status.insert("error", error.for_review().to_string());
        }
    }
    Ok(Value::Object(status))
}
