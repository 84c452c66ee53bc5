//! create: POST of an object.

use hyper::{Response, StatusCode};
use plinth_codec::negotiate::Shape;
use plinth_codec::Value;

use super::body::ObjectBody;
use super::write::{self, ManagedFields};
use super::{respond, Context};
use plinth_api::ApiError;
use plinth_http::{Body, RequestBody};

pub(super) async fn create(cx: Box<Context>, incoming: RequestBody) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Object)?;
    cx.query.check_write_options("CreateOptions")?;
    let mut object = ObjectBody::read(&cx, incoming).await?;
    let written =
        write::create_object(&cx, &mut |_: Option<&Value>| object.take(), ManagedFields::Track).await?;
    respond::respond_written(&representation, StatusCode::CREATED, &written)
}
