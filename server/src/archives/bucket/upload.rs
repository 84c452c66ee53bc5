//! An upload in parts: a thread sends one while the next is filled.

use std::io::{self, Write};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use object_store::{Error as StoreError, MultipartUpload, ObjectStoreExt};

use super::super::ArchiveError;
use super::http::PART;
use super::{Bucket, BucketError, BucketUrl};

/// Most parts of an object.
const MAX_PARTS: usize = 10_000;
/// Time limit of aborting an upload once the server stops.
const LAST_ABORT: Duration = Duration::from_secs(2);

/// A part of the object, in their order.
enum Part {
    Next(Vec<u8>),
    /// The object is complete with it. An upload without it is aborted.
    Last(Vec<u8>),
}

/// Sends what is written to it.
struct Upload {
    buffer: Vec<u8>,
    parts: Option<SyncSender<Part>>,
    sending: Option<JoinHandle<Result<(), BucketError>>>,
    url: BucketUrl,
}

impl Upload {
    fn start(bucket: &Arc<Bucket>, url: &BucketUrl) -> Upload {
        // Of no capacity: one part is sent while another is filled.
        let (parts, received) = sync_channel(0);
        let (bucket, target) = (bucket.clone(), url.clone());
        let sending = std::thread::spawn(move || send(&bucket, &target, &received));
        Upload { buffer: Vec::new(), parts: Some(parts), sending: Some(sending), url: url.clone() }
    }

    /// Sends the rest and completes the object, or drops what was sent.
    ///
    /// # Errors
    /// What kept any part from being sent.
    fn finish(mut self, is_complete: bool) -> Result<(), BucketError> {
        if let Some(parts) = self.parts.take().filter(|_| is_complete) {
            // Fails where the thread has ended with an error, which follows.
            let _ = parts.send(Part::Last(std::mem::take(&mut self.buffer)));
        }
        match self.sending.take().map(JoinHandle::join) {
            Some(Ok(sent)) => sent,
            _ => Err(BucketError::Interrupted(self.url.to_string())),
        }
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() == PART {
            let part = std::mem::replace(&mut self.buffer, Vec::with_capacity(PART));
            let parts = self.parts.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
            parts.send(Part::Next(part)).map_err(|_| io::ErrorKind::BrokenPipe)?;
        }
        let length = bytes.len().min(PART - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Bucket {
    /// Writes an object, which must not exist, by `fill`. It appears when it is complete.
    pub(in crate::archives) fn write<T, E: From<ArchiveError>>(
        self: &Arc<Self>,
        url: &BucketUrl,
        fill: impl FnOnce(&mut dyn Write) -> Result<T, E>,
    ) -> Result<T, E> {
        match self.wait(url, self.store.head(&url.key)).map_err(ArchiveError::from)? {
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(ArchiveError::from(self.failed(url, &error)).into()),
            Ok(_) => return Err(ArchiveError::Exists(url.to_string()).into()),
        }
        let mut upload = Upload::start(self, url);
        let filled = fill(&mut upload);
        let finished = upload.finish(filled.is_ok());
        // What keeps parts from being sent is reported by the upload; the writer only sees that it ended.
        finished.map_err(ArchiveError::from)?;
        filled
    }
}

/// Sends the parts of an object. One that is a single part is sent at once.
fn send(bucket: &Bucket, url: &BucketUrl, parts: &Receiver<Part>) -> Result<(), BucketError> {
    let failed = |error| bucket.failed(url, &error);
    let store = &bucket.store;
    let first = match parts.recv() {
        Ok(Part::Next(first)) => first,
        Ok(Part::Last(only)) => {
            let put = bucket.wait(url, store.put(&url.key, Bytes::from(only).into()))?;
            return put.map(drop).map_err(failed);
        }
        Err(_) => return Ok(()),
    };
    let mut upload = bucket.wait(url, store.put_multipart(&url.key))?.map_err(failed)?;
    let sent = send_parts(bucket, url, upload.as_mut(), (first, parts));
    if !matches!(sent, Ok(true)) {
        // What cannot be dropped now is for a rule of the bucket to remove.
        if let Err(error) = abort(bucket, url, upload.as_mut()) {
            tracing::warn!(%error, "an unfinished upload could not be aborted, its parts take up space; \
                a lifecycle rule of the bucket removes such parts");
        }
    }
    sent.map(drop)
}

/// Drops the parts that were sent; a server that stops waits for that a moment only.
fn abort(bucket: &Bucket, url: &BucketUrl, upload: &mut dyn MultipartUpload) -> Result<(), BucketError> {
    let given_up = async {
        bucket.stopped().await;
        tokio::time::sleep(LAST_ABORT).await;
    };
    bucket.runtime.block_on(async {
        tokio::select! {
            aborted = upload.abort() => aborted.map_err(|error| bucket.failed(url, &error)),
            () = given_up => Err(BucketError::Stopped(url.to_string())),
        }
    })
}

/// Sends parts until the last; returns whether there was a last one.
fn send_parts(
    bucket: &Bucket,
    url: &BucketUrl,
    upload: &mut dyn MultipartUpload,
    (first, parts): (Vec<u8>, &Receiver<Part>),
) -> Result<bool, BucketError> {
    let failed = |error| bucket.failed(url, &error);
    let mut put = |part: Vec<u8>| {
        let part = upload.put_part(Bytes::from(part).into());
        bucket.wait(url, part)?.map_err(failed)
    };
    put(first)?;
    for _ in 1..MAX_PARTS {
        match parts.recv() {
            Ok(Part::Next(part)) => put(part)?,
            Ok(Part::Last(part)) => {
                put(part)?;
                return bucket.wait(url, upload.complete())?.map(|_| true).map_err(failed);
            }
            Err(_) => return Ok(false),
        }
    }
    Err(BucketError::TooLarge { url: url.to_string(), parts: MAX_PARTS })
}
