//! gzip of large get and list responses for clients that accept it; watches are never compressed.

use std::io::Write;

use bytes::Bytes;
use flate2::write::GzEncoder;
use flate2::Compression;
use hyper::header::{HeaderValue, CONTENT_ENCODING, VARY};
use hyper::Response;

use super::body::Body;

/// Minimum size of a compressed response, in bytes; upstream's threshold.
pub(crate) const THRESHOLD: usize = 128 << 10;

/// Compresses a stream of chunks.
pub struct Gzip {
    encoder: GzEncoder<Vec<u8>>,
}

impl Default for Gzip {
    fn default() -> Gzip {
        Gzip { encoder: GzEncoder::new(Vec::new(), Compression::fast()) }
    }
}

impl Gzip {
    /// Compresses a chunk; returns the output so far, which may be empty.
    pub fn push(&mut self, chunk: &[u8]) -> Bytes {
        // Writing to memory does not fail.
        let _ = self.encoder.write_all(chunk);
        Bytes::from(std::mem::take(self.encoder.get_mut()))
    }

    /// Ends the stream; returns the remaining output.
    pub fn finish(self) -> Bytes {
        Bytes::from(self.encoder.finish().unwrap_or_default())
    }
}

/// Sets the headers of a compressed response.
pub fn set_compression_headers(response: &mut Response<Body>) {
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Compresses a response that is complete in memory and large enough, on a thread that may block.
pub async fn compress_response(mut response: Response<Body>) -> Response<Body> {
    let Body::Full(bytes) = response.body() else { return response };
    if bytes.len() <= THRESHOLD {
        return response;
    }
    let bytes = bytes.clone();
    let compressed = tokio::task::spawn_blocking(move || {
        let mut gzip = Gzip::default();
        let mut out = gzip.push(&bytes).to_vec();
        out.extend_from_slice(&gzip.finish());
        out
    });
    if let Ok(compressed) = compressed.await {
        *response.body_mut() = Body::from(compressed);
        set_compression_headers(&mut response);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn chunks_come_back_as_one_stream() {
        let mut gzip = Gzip::default();
        let mut out = Vec::new();
        let chunk = vec![7u8; 100_000];
        for _ in 0..3 {
            out.extend_from_slice(&gzip.push(&chunk));
        }
        out.extend_from_slice(&gzip.finish());
        let mut back = Vec::new();
        flate2::read::GzDecoder::new(out.as_slice()).read_to_end(&mut back).unwrap();
        assert_eq!(back, vec![7u8; 300_000]);
        assert!(out.len() < 3_000);
    }
}
