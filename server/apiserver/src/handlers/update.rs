//! update: PUT of an object, or of a subresource with the object's own kind.

use hyper::{Response, StatusCode};
use plinth_codec::negotiate::Shape;
use plinth_codec::Value;

use super::body::ObjectBody;
use super::write::{self, ManagedFields, Update, Updated};
use super::{respond, Context};
use plinth_api::ApiError;
use plinth_http::{Body, RequestBody};

pub(super) async fn update(cx: Box<Context>, incoming: RequestBody) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Object)?;
    cx.query.check_write_options("UpdateOptions")?;
    let mut object = ObjectBody::read(&cx, incoming).await?;
    write::check_name(object.tree(), &cx.info.name)?;
    let update = Update {
        transform: &mut |_: Option<&Value>| object.take(),
        uid_is_precondition: true,
        creates: cx.resource.strategy.create_on_update && cx.info.subresource.is_empty(),
        managed_fields: ManagedFields::Track,
        shown_as: None,
    };
    let (code, written) = match write::update_object(&cx, update).await? {
        Updated::Existing(written) => (StatusCode::OK, written),
        Updated::Created(written) => (StatusCode::CREATED, written),
    };
    respond::respond_written(&representation, code, &written)
}
