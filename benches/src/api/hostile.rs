//! Honest clients beside hostile ones: the same sessions twice, first alone, then while others attack.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::client::{Call, Endpoint, Identity, Protocol};
use super::drive::{measure, Target};
use super::report::Measurement;
use super::workloads::Prepare;
use super::{Error, Options};

/// Sockets that send half of a handshake, and TLS connections that send half of a head.
const HALF_OPEN: usize = 300;
/// Connections of strangers that ask for what they may not have, and how often each does so at once.
const FLOODS: usize = 8;
const STREAMS: usize = 50;
/// Connections that open requests and drop them.
const RESETTING: usize = 4;
/// Watches that nobody reads, of a collection without objects: what floods of initial states do is a matter of their own.
const WATCHES: usize = 2000;
const WATCHES_PER_CONNECTION: usize = 200;
/// Pause of an attacker that was shut out.
const PAUSE: Duration = Duration::from_millis(20);

/// Measures the sessions of `prepare` twice; the first row is called `WORKLOAD-calm`.
pub async fn compare(
    workload: &str,
    endpoint: Endpoint,
    options: &Options,
    clients: usize,
    prepare: Prepare,
    pids: &[u32],
) -> Result<Vec<Measurement>, Error> {
    let target = Target::new(endpoint.clone(), options, clients).await?;
    let sessions = prepare(&target, options, clients).await?;
    let calm = measure(&format!("{workload}-calm"), &target, sessions, options, pids).await?;
    // The attackers end with this value.
    let _attack = attack(&endpoint).await?;
    let target = Target::new(endpoint, options, clients).await?;
    let sessions = prepare(&target, options, clients).await?;
    let disturbed = measure(workload, &target, sessions, options, pids).await?;
    Ok(vec![calm, disturbed])
}

async fn attack(endpoint: &Endpoint) -> Result<JoinSet<()>, Error> {
    let mut attackers = JoinSet::new();
    let stranger = endpoint.with_identity(Identity::Anonymous);
    for at in 0..HALF_OPEN {
        let stranger = stranger.clone();
        attackers.spawn(async move {
            loop {
                if at % 2 == 0 {
                    hold_half_open(stranger.authority()).await;
                } else if let Ok(mut stream) = stranger.stream(Protocol::Http1).await {
                    let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ").await;
                    tokio::time::sleep(Duration::from_secs(30)).await;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
    for _ in 0..FLOODS {
        let stranger = stranger.clone();
        attackers.spawn(async move {
            loop {
                if flood(&stranger).await.is_err() {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        });
    }
    for _ in 0..RESETTING {
        let stranger = stranger.clone();
        attackers.spawn(async move {
            loop {
                let _ = open_and_drop(&stranger).await;
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
    for _ in 0..WATCHES / WATCHES_PER_CONNECTION {
        let connection = endpoint.connect(Protocol::Http2).await?;
        let mut watches = Vec::new();
        for _ in 0..WATCHES_PER_CONNECTION {
            let Some(mut connection) = connection.share() else { break };
            watches.push(connection.open(&Call::get("/api/v1/pods?watch=1")).await?);
        }
        attackers.spawn(async move {
            std::future::pending::<()>().await;
            drop(watches);
        });
    }
    Ok(attackers)
}

async fn hold_half_open(authority: &str) {
    let Ok(mut stream) = TcpStream::connect(authority).await else { return };
    let _ = stream.write_all(b"\x16\x03\x01\x02\x00").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
}

/// Asks for secrets on many streams until the connection ends.
async fn flood(stranger: &Endpoint) -> Result<(), Error> {
    let connection = stranger.connect(Protocol::Http2).await?;
    let mut streams = JoinSet::new();
    for _ in 0..STREAMS {
        let Some(mut connection) = connection.share() else { break };
        streams.spawn(async move {
            let call = Call::get("/api/v1/secrets");
            while connection.call(&call).await.is_ok() {}
        });
    }
    while streams.join_next().await.is_some() {}
    Ok(())
}

/// Opens requests and drops them before they are answered, which resets their streams.
async fn open_and_drop(stranger: &Endpoint) -> Result<(), Error> {
    let connection = stranger.connect(Protocol::Http2).await?;
    for _ in 0..200 {
        let Some(mut connection) = connection.share() else { break };
        let call = Call::get("/livez");
        let _ = tokio::time::timeout(Duration::from_micros(50), connection.open(&call)).await;
    }
    Ok(())
}
