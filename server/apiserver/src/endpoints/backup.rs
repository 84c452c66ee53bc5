//! `/plinth/backup`: the engine's archive, written concurrently with reads and writes.

use hyper::Response;

use super::stream;
use crate::context::Server;
use plinth_http::Body;

/// Streams an archive that is consistent at one revision. When it fails the body ends with an error and the
/// archive lacks its checksum.
pub(super) fn serve(server: &Server) -> Response<Body> {
    let engine = server.store.engine().clone();
    stream::respond(server, move |out| engine.backup(out, |_| {}).map(|_| ()))
}
