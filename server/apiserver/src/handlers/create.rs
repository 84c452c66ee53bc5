//! create: POST of an object.

use hyper::{Response, StatusCode};
use plinth_codec::negotiate::Shape;

use super::write::{self, Ownership};
use super::{body, respond, Context};
use plinth_api::api_error::ApiError;
use plinth_http::body::Body;
use plinth_http::request_body::RequestBody;

pub(super) async fn create(cx: Box<Context>, incoming: RequestBody) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Object)?;
    cx.query.check_write_options("CreateOptions")?;
    let bytes = body::read(&cx, incoming).await?;
    let resource = cx.resource.clone();
    let decoded = body::decode(&cx, &bytes, resource.schema, resource.root, &resource.row.gvk())?;
    decoded.warnings.into_iter().for_each(|text| cx.warnings.add(text));
    // Moved into the first attempt; another one decodes the body again.
    let mut tree = Some(decoded.tree);
    let mut source = || match tree.take() {
        Some(tree) => Ok(tree),
        None => {
            body::decode(&cx, &bytes, resource.schema, resource.root, &resource.row.gvk()).map(|d| d.tree)
        }
    };
    let written = write::create_object(&cx, &mut source, Ownership::Track).await?;
    respond::respond_written(&representation, StatusCode::CREATED, &written)
}
