//! A streamed response body that is measured: its request is counted when it has been sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};

use super::RequestMeter;
use plinth_http::body::{Body, BodyError};

pub(super) struct MeteredBody {
    inner: Body,
    meter: Arc<RequestMeter>,
}

impl MeteredBody {
    pub(super) fn new(inner: Body, meter: Arc<RequestMeter>) -> MeteredBody {
        MeteredBody { inner, meter }
    }
}

impl HttpBody for MeteredBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let body = self.get_mut();
        let frame = Pin::new(&mut body.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            body.meter.add_sent(frame.data_ref().map_or(0, Bytes::len));
        }
        frame
    }
}
