//! What a service manager and the server exchange, as systemd defines it and others implement it: readiness
//! and watchdog (`sd_notify(3)`), and a listening socket (`sd_listen_fds(3)`).

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, FromRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::io::FdFlags;

/// The first inherited file descriptor.
const FIRST_FD: RawFd = 3;

/// An environment of the service manager that cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are what is wrong; their texts say it
pub enum ServiceManagerError {
    #[error("NOTIFY_SOCKET={}: {source}", .name.display())]
    Notify { name: OsString, source: io::Error },
    #[error("LISTEN_FDS={0}: one listening TCP socket is expected; a socket unit has one ListenStream")]
    Count(String),
    #[error("the socket of the service manager (file descriptor 3): {0}")]
    Listener(#[source] io::Error),
}

/// Sends the server's state to the service manager; does nothing without one.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// The notifier of an environment: `NOTIFY_SOCKET`, a path or `@` and an abstract name; `WATCHDOG_USEC`
    /// and `WATCHDOG_PID`.
    ///
    /// # Errors
    /// [`ServiceManagerError::Notify`].
    pub(super) fn of(
        environment: impl Fn(&'static str) -> Option<OsString>,
    ) -> Result<Notifier, ServiceManagerError> {
        let Some(name) = environment("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Notifier::default());
        };
        let failed = |source| ServiceManagerError::Notify { name: name.clone(), source };
        let address = match name.as_bytes().split_first() {
            Some((b'@', name)) => SocketAddr::from_abstract_name(name),
            _ => SocketAddr::from_pathname(&name),
        };
        let address = address.map_err(failed)?;
        let socket = UnixDatagram::unbound().map_err(failed)?;
        // A service manager that does not read must not stop the server.
        socket.set_nonblocking(true).map_err(failed)?;
        let number = |name| environment(name)?.to_str()?.parse::<u64>().ok();
        let is_watched = environment("WATCHDOG_PID").is_none()
            || number("WATCHDOG_PID") == Some(u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|micros| is_watched && *micros > 0);
        Ok(Notifier { socket: Some((socket, address)), watchdog: watchdog.map(Duration::from_micros) })
    }

    /// Sends assignments like `READY=1`, separated by newlines. A failure is logged: the service manager
    /// decides what silence means.
    pub(super) fn notify(&self, state: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
            tracing::warn!(%error, state, "the service manager was not notified");
        }
    }

    /// Sends a sign of life at half of the interval that the watchdog waits for one, each time that `probe`
    /// succeeds within as long; never returns. What does not answer is as dead as what fails.
    pub(super) async fn keep_alive<P>(&self, probe: impl Fn() -> P)
    where
        P: Future<Output = Result<(), String>>,
    {
        let Some(interval) = self.watchdog else { return std::future::pending().await };
        let period = interval / 2;
        let mut ticks = tokio::time::interval(period);
        let mut worked = true;
        loop {
            ticks.tick().await;
            let outcome = tokio::time::timeout(period, probe()).await;
            let outcome = outcome.unwrap_or_else(|_| Err("no answer".to_owned()));
            match &outcome {
                Ok(()) => self.notify("WATCHDOG=1"),
                Err(error) if worked => {
                    tracing::error!(%error, "server does not work; the watchdog is sent no sign of life");
                }
                Err(_) => {}
            }
            worked = outcome.is_ok();
        }
    }
}

/// The listening socket that the service manager opened for this process, if any.
///
/// # Errors
/// When there are several, or it is no listening TCP socket.
pub(super) fn inherited_listener(
    environment: impl Fn(&'static str) -> Option<OsString>,
) -> Result<Option<TcpListener>, ServiceManagerError> {
    let is_ours = environment("LISTEN_PID")
        .is_some_and(|pid| pid.as_os_str() == OsStr::new(&std::process::id().to_string()));
    let Some(count) = environment("LISTEN_FDS").filter(|_| is_ours) else { return Ok(None) };
    if count.as_os_str() != OsStr::new("1") {
        return Err(ServiceManagerError::Count(count.to_string_lossy().into_owned()));
    }
    let is_listening = || {
        // SAFETY: the descriptor is only borrowed for these calls, which fail if it is not open.
        let fd = unsafe { BorrowedFd::borrow_raw(FIRST_FD) };
        let is_listening = rustix::net::sockopt::socket_acceptconn(fd)?;
        rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC)?;
        Ok(is_listening)
    };
    let failed = |error: rustix::io::Errno| ServiceManagerError::Listener(error.into());
    if !is_listening().map_err(failed)? {
        let reason = "it is not listening; the socket unit needs ListenStream, and Accept=no";
        return Err(ServiceManagerError::Listener(io::Error::other(reason)));
    }
    // SAFETY: the variables give this descriptor to this process, and it is taken once, by the command.
    let listener = unsafe { TcpListener::from_raw_fd(FIRST_FD) };
    let usable = listener.local_addr().and_then(|_| listener.set_nonblocking(true));
    usable.map_err(ServiceManagerError::Listener)?;
    Ok(Some(listener))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment<'a>(
        variables: &'a [(&'static str, String)],
    ) -> impl Fn(&'static str) -> Option<OsString> + 'a {
        |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
    }

    #[test]
    fn states_arrive_at_sockets_with_paths_and_abstract_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify").display().to_string();
        let abstract_name = format!("@plinth-{}", std::process::id());
        for name in [path, abstract_name] {
            let address = match name.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name).unwrap(),
                None => SocketAddr::from_pathname(&name).unwrap(),
            };
            let manager = UnixDatagram::bind_addr(&address).unwrap();
            let variables = [("NOTIFY_SOCKET", name)];
            Notifier::of(environment(&variables)).unwrap().notify("READY=1");
            let mut received = [0; 64];
            let length = manager.recv(&mut received).unwrap();
            assert_eq!(&received[..length], b"READY=1");
        }
        // Without a service manager.
        Notifier::of(|_| None).unwrap().notify("READY=1");
    }

    #[tokio::test]
    async fn only_a_server_that_works_gives_a_sign_of_life() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let signs = || {
            let mut count = 0;
            while let Ok(length) = manager.recv(&mut [0; 64]) {
                assert_eq!(length, "WATCHDOG=1".len());
                count += 1;
            }
            count
        };
        let variables = [("NOTIFY_SOCKET", path.display().to_string()), ("WATCHDOG_USEC", "2000".to_owned())];
        let notifier = Notifier::of(environment(&variables)).unwrap();
        // Probes that fail, then some without an answer, then one that succeeds, and then it has been seen.
        let probes = std::cell::Cell::new(0);
        let probe = || {
            probes.set(probes.get() + 1);
            let number = probes.get();
            async move {
                match number {
                    ..=3 => Err("broken".to_owned()),
                    4..=6 => std::future::pending().await,
                    _ => Ok(()),
                }
            }
        };
        let is_over = async {
            while probes.get() < 7 {
                assert_eq!(signs(), 0);
                tokio::task::yield_now().await;
            }
            while signs() == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = notifier.keep_alive(probe) => unreachable!("it never ends"),
            () = is_over => {}
        }
    }

    #[test]
    fn the_watchdog_is_that_of_this_process() {
        let pid = std::process::id();
        let watchdog = |pid: String| {
            let variables = [
                ("NOTIFY_SOCKET", "@plinth".to_owned()),
                ("WATCHDOG_USEC", "2000000".to_owned()),
                ("WATCHDOG_PID", pid),
            ];
            Notifier::of(environment(&variables)).unwrap().watchdog
        };
        assert_eq!(watchdog(pid.to_string()), Some(Duration::from_secs(2)));
        assert_eq!(watchdog((pid + 1).to_string()), None);
    }

    #[test]
    fn sockets_of_other_processes_are_left_alone() {
        let pid = std::process::id();
        let listen = |pid: u32, count: &str| {
            inherited_listener(environment(&[
                ("LISTEN_PID", pid.to_string()),
                ("LISTEN_FDS", count.to_owned()),
            ]))
        };
        assert!(listen(pid + 1, "1").unwrap().is_none());
        assert!(matches!(listen(pid, "2"), Err(ServiceManagerError::Count(_))));
        assert!(inherited_listener(|_| None).unwrap().is_none());
    }
}
