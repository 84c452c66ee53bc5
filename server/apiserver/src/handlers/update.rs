//! update: PUT of an object, or of a subresource that has the object's own kind.

use hyper::{Response, StatusCode};
use plinth_codec::negotiate::Shape;
use plinth_codec::Value;

use super::write::{self, Ownership, Update, Updated};
use super::{body, respond, Context};
use plinth_api::api_error::ApiError;
use plinth_http::body::Body;
use plinth_http::request_body::RequestBody;

pub(super) async fn update(cx: Box<Context>, incoming: RequestBody) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Object)?;
    cx.query.check_write_options("UpdateOptions")?;
    let bytes = body::read(&cx, incoming).await?;
    let resource = cx.resource.clone();
    let decoded = body::decode(&cx, &bytes, resource.schema, resource.root, &resource.row.gvk())?;
    let tree = decoded.tree;
    decoded.warnings.into_iter().for_each(|text| cx.warnings.add(text));
    write::check_name(&tree, &cx.info.name)?;
    let creates = resource.strategy.create_on_update && cx.info.subresource.is_empty();
    // Moved into the first attempt; another one decodes the body again.
    let mut tree = Some(tree);
    let mut transform = |_: Option<&Value>| match tree.take() {
        Some(tree) => Ok(tree),
        None => {
            body::decode(&cx, &bytes, resource.schema, resource.root, &resource.row.gvk()).map(|d| d.tree)
        }
    };
    let update =
        Update { transform: &mut transform, uid_is_precondition: true, creates, ownership: Ownership::Track };
    let (code, written) = match write::update_object(&cx, update).await? {
        Updated::Existing(written) => (StatusCode::OK, written),
        Updated::Created(written) => (StatusCode::CREATED, written),
    };
    respond::respond_written(&representation, code, &written)
}
