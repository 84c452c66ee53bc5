//! Resources that are not stored: reviews and component statuses.
//!
//! The responses come from the actual components: the authorizer, the request's user, the engine.

use hyper::{Response, StatusCode};
use plinth_codec::negotiate::Shape;
use plinth_codec::{tree, Map, Value};
use plinth_engine::At;

use super::{access_reviews, service_account_tokens};
use crate::context::{AdmissionRequest, Context, Operation};
use crate::handlers::body::ObjectBody;
use crate::handlers::respond::respond;
use crate::managed_fields;
use plinth_api::{timestamp_now, ApiError};
use plinth_http::{Body, RequestBody};
use plinth_registry::match_namespace;

/// POST of a review.
pub(super) async fn create(cx: Box<Context>, incoming: RequestBody) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Object)?;
    cx.query.check_write_options("CreateOptions")?;
    let resource = &cx.resource;
    let mut review = ObjectBody::read(&cx, incoming).await?.take()?;
    match_namespace(resource, &cx.info, &mut review)?;
    let call = AdmissionRequest::new(&cx, Operation::Create, None);
    cx.server.admission.mutate(&call, &mut review).await?;
    cx.server.admission.validate(&call, &review).await?;
    let now = timestamp_now();
    if resource.row.kind == "SelfSubjectReview" {
        // The request's metadata is not returned.
        if let Some(object) = review.as_object_mut() {
            object.insert("metadata", tree!({ "creationTimestamp": now.as_str() }));
        }
    } else {
        managed_fields::track(&cx, None, &mut review, &now).await;
    }
    if resource.row.kind == "SelfSubjectRulesReview" {
        review = access_reviews::rules(&cx, &review).await?;
    } else {
        let status = answer(&cx, &review).await?;
        if let Some(object) = review.as_object_mut() {
            object.insert("status", status);
        }
    }
    let mut out = Vec::with_capacity(512);
    representation.unstored(review, &mut out)?;
    Ok(respond(StatusCode::CREATED, representation.content_type(Shape::Object), out))
}

async fn answer(cx: &Context, review: &Value) -> Result<Value, ApiError> {
    Ok(match cx.resource.row.kind.as_str() {
        "SelfSubjectReview" => tree!({ "userInfo": cx.user.to_user_info() }),
        "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            access_reviews::access(cx, review).await?
        }
        "TokenReview" => service_account_tokens::review(cx, review).await?,
        _ => return Err(ApiError::method_not_allowed()),
    })
}

/// GET of component statuses: the storage is the only component of this server, under upstream's name.
pub(super) async fn component_statuses(cx: Box<Context>) -> Result<Response<Body>, ApiError> {
    const STORAGE: &str = "etcd-0";
    let shape = if cx.info.name.is_empty() { Shape::List } else { Shape::Object };
    let representation = cx.representation(shape)?;
    if shape == Shape::Object && cx.info.name != STORAGE {
        // Upstream's message has the singular.
        return Err(ApiError::not_found("", "componentstatus", &cx.info.name));
    }
    let healthy = cx.server.store.read(|engine| engine.snapshot(At::Latest).map(|_| ())).await.is_ok();
    let (status, message) = if healthy { ("True", "ok") } else { ("False", "the storage cannot be read") };
    let condition = tree!({ "type": "Healthy", "status": status, "message": message });
    let mut component = tree!({
        "metadata": tree!({ "name": STORAGE }),
        "conditions": tree!([condition]),
    });
    let tree = match shape {
        Shape::List => tree!({
            "kind": "ComponentStatusList",
            "apiVersion": "v1",
            "metadata": Map::new(),
            "items": tree!([component]),
        }),
        _ => {
            if let Some(object) = component.as_object_mut() {
                object.insert("kind", "ComponentStatus");
                object.insert("apiVersion", "v1");
            }
            component
        }
    };
    let mut out = Vec::with_capacity(512);
    representation.unstored(tree, &mut out)?;
    Ok(respond(StatusCode::OK, representation.content_type(shape), out))
}
