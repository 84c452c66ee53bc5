//! The connections of a client of one service: a request at a time over HTTP/1.1, several over HTTP/2.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use parking_lot::Mutex;

use super::connection::Connection;
use super::http2::{self, Http2Connection, SendError};
use super::pool::{Pool, Reusable};

/// A connection of the protocol that the service chose.
pub(super) enum ClientConnection {
    Http1(Connection<Full<Bytes>>),
    Http2(Http2Connection),
}

impl Reusable for ClientConnection {
    fn is_closed(&self) -> bool {
        match self {
            ClientConnection::Http1(connection) => Reusable::is_closed(connection),
            // One that allows no streams at present is replaced, as by Go's client.
            ClientConnection::Http2(connection) => connection.is_closed() || connection.capacity() == 0,
        }
    }

    fn is_reusable(&self) -> bool {
        match self {
            ClientConnection::Http1(connection) => connection.is_reusable(),
            ClientConnection::Http2(_) => !self.is_closed(),
        }
    }
}

/// The connections of a client. Those without a request are in the pool, in a bound with those of others.
#[derive(Default)]
pub(super) struct Connections {
    idle: Pool<ClientConnection>,
    /// Those of HTTP/2 with requests under way.
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    next_id: u64,
    connections: Vec<SharedConnection>,
}

struct SharedConnection {
    id: u64,
    connection: Http2Connection,
    /// Requests under way.
    streams: usize,
    /// One of them was given up: the server may be gone. It gets no others, and is closed after the last.
    is_retired: bool,
}

/// A connection for one request.
pub(super) struct HeldConnection<'a> {
    connections: &'a Connections,
    protocol: Protocol<'a>,
    /// Whether nothing was sent on it before.
    pub is_new: bool,
}

enum Protocol<'a> {
    Http1(Connection<Full<Bytes>>),
    Http2(Stream<'a>),
}

/// A request's part of a connection of HTTP/2.
struct Stream<'a> {
    connections: &'a Connections,
    /// Of the connection.
    id: u64,
    sender: http2::Sender,
    /// Whether the response was read to its end.
    is_read: bool,
}

impl Connections {
    /// With a pool of its own among those of others.
    pub(super) fn with_pool(idle: Pool<ClientConnection>) -> Connections {
        Connections { idle, shared: Mutex::default() }
    }

    /// A connection that is open as far as is known, and takes another request.
    pub(super) fn take(&self) -> Option<HeldConnection<'_>> {
        let mut shared = self.shared.lock();
        let free = shared.connections.iter_mut().find(|shared| {
            !shared.is_retired
                && !shared.connection.is_closed()
                && shared.streams < shared.connection.capacity()
        });
        if let Some(free) = free {
            free.streams += 1;
            let protocol = self.stream(free.id, free.connection.sender());
            return Some(HeldConnection { connections: self, protocol, is_new: false });
        }
        drop(shared);
        self.idle.take().map(|connection| self.hold(connection, false))
    }

    /// Uses a new connection.
    pub(super) fn add(&self, connection: ClientConnection) -> HeldConnection<'_> {
        self.hold(connection, true)
    }

    fn hold(&self, connection: ClientConnection, is_new: bool) -> HeldConnection<'_> {
        let protocol = match connection {
            ClientConnection::Http1(connection) => Protocol::Http1(connection),
            ClientConnection::Http2(connection) => {
                let sender = connection.sender();
                let mut shared = self.shared.lock();
                let id = shared.next_id;
                shared.next_id += 1;
                shared.connections.push(SharedConnection { id, connection, streams: 1, is_retired: false });
                self.stream(id, sender)
            }
        };
        HeldConnection { connections: self, protocol, is_new }
    }

    fn stream(&self, id: u64, sender: http2::Sender) -> Protocol<'_> {
        Protocol::Http2(Stream { connections: self, id, sender, is_read: false })
    }

    /// Closes those without a request: one was found closed, so the others probably are.
    pub(super) fn close_idle(&self) {
        self.idle.clear();
    }

    /// Ends a request on a connection of HTTP/2, and keeps that connection if it is the last and all is well.
    fn release(&self, id: u64, is_read: bool) {
        let mut shared = self.shared.lock();
        let Some(place) = shared.connections.iter().position(|shared| shared.id == id) else { return };
        let released = &mut shared.connections[place];
        released.streams -= 1;
        released.is_retired |= !is_read;
        if released.streams > 0 {
            return;
        }
        let released = shared.connections.swap_remove(place);
        drop(shared);
        if !released.is_retired {
            self.idle.put_back(ClientConnection::Http2(released.connection));
        }
    }
}

impl HeldConnection<'_> {
    /// Sends a request with a path for its URI.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, SendError> {
        match &mut self.protocol {
            Protocol::Http2(stream) => stream.sender.send(request).await,
            Protocol::Http1(connection) => {
                let sent = connection.try_send(request).await;
                sent.map_err(|(error, unsent)| SendError { error, is_unsent: unsent.is_some() })
            }
        }
    }

    /// Keeps the connection: the response was read to its end.
    pub(super) fn finish(self) {
        match self.protocol {
            Protocol::Http2(mut stream) => stream.is_read = true,
            Protocol::Http1(connection) => {
                self.connections.idle.put_back(ClientConnection::Http1(connection))
            }
        }
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        self.connections.release(self.id, self.is_read);
    }
}

#[cfg(test)]
mod tests;
