//! A TCP proxy whose connections can be cut, for clients that must survive that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Passes connections on to a server, byte by byte. Ends with its last handle.
pub struct Proxy {
    port: u16,
    cuts: watch::Sender<u64>,
    accepted: Arc<AtomicU64>,
    listening: AbortHandle,
}

impl Proxy {
    /// A proxy to a port of 127.0.0.1.
    pub async fn to(target: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (cuts, _) = watch::channel(0);
        let accepted = Arc::new(AtomicU64::new(0));
        let (each, count) = (cuts.clone(), accepted.clone());
        let listening = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let mut cut = each.subscribe();
                tokio::spawn(async move { pass_on(near, target, &mut cut).await });
            }
        });
        Proxy { port, cuts, accepted, listening: listening.abort_handle() }
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Breaks every connection off, in the middle of whatever it carries.
    pub fn cut(&self) {
        self.cuts.send_modify(|n| *n += 1);
    }

    /// How many connections there were.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn pass_on(mut near: TcpStream, target: u16, cut: &mut watch::Receiver<u64>) {
    let Ok(mut far) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    tokio::select! {
        // Errors are seen by the two ends.
        _ = copy_bidirectional(&mut near, &mut far) => {}
        _ = cut.changed() => {}
    }
}
