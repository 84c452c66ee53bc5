//! Connects to the first of a host's addresses that answers (RFC 8305, Happy Eyeballs): an address that is
//! silent holds up the others for a moment only.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Time until the next address is tried beside those before (RFC 8305, section 5, and Go's dialer: a quarter
/// of a second).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Time for one address.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Addresses of a host that are tried: a name may have any number.
const MAX_ADDRESSES: usize = 16;

/// Connects to one of some addresses. They are tried in their order, alternating families, each a moment
/// after the one before, or at once when that has failed.
///
/// # Errors
/// That of the first address that failed.
pub(super) async fn connect(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut addresses = interleaved(addresses);
    addresses.truncate(MAX_ADDRESSES);
    let mut waiting = addresses.into_iter();
    let (mut attempts, mut first_error) = (FuturesUnordered::new(), None);
    loop {
        match waiting.next() {
            Some(address) => attempts.push(attempt(address, ATTEMPT_TIMEOUT)),
            None if attempts.is_empty() => {
                return Err(first_error.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()));
            }
            None => {}
        }
        tokio::select! {
            Some(outcome) = attempts.next() => match outcome {
                Ok(stream) => return Ok(stream),
                Err(error) => drop(first_error.get_or_insert(error)),
            },
            () = sleep(ATTEMPT_DELAY), if waiting.len() > 0 => {}
        }
    }
}

async fn attempt(address: SocketAddr, time: Duration) -> io::Result<TcpStream> {
    let connected = timeout(time, TcpStream::connect(address)).await;
    connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The addresses in their order, those of the first one's family and of the other alternating.
fn interleaved(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = addresses.first().map(SocketAddr::is_ipv6) else { return addresses };
    let (own, other): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|a| a.is_ipv6() == first);
    let (mut own, mut other) = (own.into_iter(), other.into_iter());
    let mut all = Vec::new();
    loop {
        let pair = [own.next(), other.next()];
        if pair == [None, None] {
            return all;
        }
        all.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    fn local() -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
    }

    /// A listener that takes no connection any more: its queue is full.
    async fn silent() -> (TcpListener, TcpStream) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(local()).unwrap();
        let listener = socket.listen(0).unwrap();
        let queued = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (listener, queued)
    }

    /// A port that nobody listens on.
    async fn refusing() -> SocketAddr {
        TcpListener::bind(local()).await.unwrap().local_addr().unwrap()
    }

    #[tokio::test]
    async fn silent_addresses_hold_up_the_others_for_a_moment() {
        let (first, second) = (silent().await, silent().await);
        let good = TcpListener::bind(local()).await.unwrap();
        let address = |listener: &TcpListener| listener.local_addr().unwrap();
        let addresses = vec![address(&first.0), refusing().await, address(&second.0), address(&good)];
        // The system would try the first one for minutes.
        let connected = timeout(Duration::from_secs(60), connect(addresses)).await.unwrap().unwrap();
        assert_eq!(connected.peer_addr().unwrap(), address(&good));
    }

    #[tokio::test]
    async fn an_address_has_a_time() {
        let (listener, _queued) = silent().await;
        let attempt = attempt(listener.local_addr().unwrap(), Duration::from_millis(10));
        // The system's time is over two minutes.
        let outcome = timeout(Duration::from_secs(60), attempt).await.unwrap();
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn the_first_error_is_reported() {
        let error = connect(vec![refusing().await, refusing().await]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(connect(Vec::new()).await.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn families_alternate() {
        let addresses = |text: &str| -> Vec<SocketAddr> {
            text.split_whitespace().map(|address| address.parse().unwrap()).collect()
        };
        let given = addresses("[::1]:1 [::2]:1 [::3]:1 10.0.0.1:1 10.0.0.2:1");
        let expected = addresses("[::1]:1 10.0.0.1:1 [::2]:1 10.0.0.2:1 [::3]:1");
        assert_eq!(interleaved(given), expected);
        let given = addresses("10.0.0.1:1 [::1]:1 [::2]:1");
        assert_eq!(interleaved(given.clone()), given);
    }
}
