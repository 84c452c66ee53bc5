//! `/plinth/backup`: the engine's archive, written concurrently with reads and writes.

use hyper::Response;

use super::stream;
use crate::context::Server;
use plinth_api::ApiError;
use plinth_http::Body;

/// Streams an archive that is consistent at one revision. When it fails the body ends with an error and the
/// archive lacks its checksum.
///
/// # Errors
/// 429 while too many are being sent.
pub(super) fn serve(server: &Server) -> Result<Response<Body>, ApiError> {
    let (thread, engine) = (stream::reserve(server)?, server.store.engine().clone());
    stream::respond(server, thread, move |out| engine.backup(out, |_| {}).map(|_| ()))
}
