//! The addresses that are listened on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{lookup_host, TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::either::Either;

use crate::cipher_suites;
use crate::options::EtcdOptions;
use crate::serves::Serves;
use crate::start_error::StartError;
use crate::tls::Tls;

/// An address that is listened on.
pub(crate) struct Listener {
    pub socket: Socket,
    /// None for http and unix.
    pub tls: Option<Tls>,
    pub serves: Serves,
}

/// The connection of a client, over TCP or a socket in the file system.
pub(crate) type ClientSocket = Either<TcpStream, UnixStream>;

/// A socket that accepts connections.
pub(crate) enum Socket {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

impl Socket {
    /// A connection, and the address of its client: the unspecified one for those of this machine over a
    /// socket in the file system.
    pub(crate) async fn accept(&self) -> io::Result<(ClientSocket, IpAddr)> {
        match self {
            Socket::Tcp(listener) => {
                listener.accept().await.map(|(stream, peer)| (Either::Left(stream), peer.ip()))
            }
            Socket::Unix(socket) => {
                let (stream, _) = socket.listener.accept().await?;
                Ok((Either::Right(stream), Ipv4Addr::UNSPECIFIED.into()))
            }
        }
    }
}

/// A socket in the file system. Its file is removed when it is dropped, if it is still this one.
pub(crate) struct UnixSocket {
    listener: UnixListener,
    pub path: PathBuf,
    file: Option<FileId>,
}

/// Device and inode.
type FileId = (u64, u64);

fn file_id(path: &Path) -> Option<FileId> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

impl UnixSocket {
    /// Listens in place of a socket that another process has left. Neither one that somebody listens on nor
    /// another file is touched.
    async fn bind(path: &Path) -> io::Result<UnixSocket> {
        match std::fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => match UnixStream::connect(path).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
                _ => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on it")),
            },
            Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        Ok(UnixSocket { listener, path: path.to_owned(), file: file_id(path) })
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if self.file.is_some() && file_id(&self.path) == self.file {
            // It may be gone.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A URL to listen on.
#[derive(Debug, PartialEq, Eq)]
struct ListenUrl<'a> {
    is_tls: bool,
    place: Place<'a>,
}

#[derive(Debug, PartialEq, Eq)]
enum Place<'a> {
    /// `HOST:PORT`.
    Host(&'a str),
    Path(&'a Path),
}

fn parse_url(url: &str) -> Option<ListenUrl<'_>> {
    let (scheme, rest) = url.split_once("://")?;
    let is_tls = match scheme {
        "http" | "unix" => false,
        "https" | "unixs" => true,
        _ => return None,
    };
    if scheme.starts_with("unix") {
        let place = Place::Path(Path::new(rest));
        return (!rest.is_empty()).then_some(ListenUrl { is_tls, place });
    }
    let host = rest.strip_suffix('/').unwrap_or(rest);
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    (has_port && !host.contains('/')).then_some(ListenUrl { is_tls, place: Place::Host(host) })
}

/// The names of the URLs for clients, for a certificate that the server makes itself.
fn hosts(options: &EtcdOptions) -> Vec<String> {
    let urls = options.listen_client_urls.iter().filter_map(|url| parse_url(url));
    let hosts = urls.filter_map(|url| match url.place {
        Place::Host(host) => host.rsplit_once(':').map(|(name, _)| name),
        Place::Path(_) => None,
    });
    hosts.map(|name| name.trim_start_matches('[').trim_end_matches(']').to_owned()).collect()
}

/// Binds the addresses of the options.
pub(crate) async fn bind(options: &EtcdOptions) -> Result<Vec<Listener>, StartError> {
    let clients = options.listen_client_urls.iter().map(|url| (Serves::Clients, url));
    let metrics = options.listen_metrics_urls.iter().map(|url| (Serves::Metrics, url));
    let provider = cipher_suites::provider(options)?;
    let mut listeners = Vec::new();
    for (serves, url) in clients.chain(metrics) {
        let flag = |reason| StartError::Flag { flag: serves.flag(), reason };
        let parsed = parse_url(url)
            .ok_or_else(|| flag(format!("{url:?} is not http(s)://HOST:PORT or unix(s)://PATH")))?;
        let tls = match parsed.is_tls {
            true => {
                let tls = Tls::new(options, provider.clone(), &hosts(options))?;
                let missing = "a URL with TLS needs --cert-file and --key-file, or --auto-tls";
                Some(tls.ok_or_else(|| flag(missing.to_owned()))?)
            }
            false => None,
        };
        let failed = |source| StartError::Bind { url: url.clone(), source };
        let socket = match parsed.place {
            Place::Path(path) => Socket::Unix(UnixSocket::bind(path).await.map_err(failed)?),
            Place::Host(host) => {
                let addresses: Vec<SocketAddr> = lookup_host(host).await.map_err(failed)?.collect();
                // As etcd, which listens on one address of a name.
                let address = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
                let address = address.ok_or_else(|| flag(format!("{url:?} has no address")))?;
                Socket::Tcp(TcpListener::bind(address).await.map_err(failed)?)
            }
        };
        listeners.push(Listener { socket, tls, serves });
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::options;

    #[test]
    fn urls_have_a_port_or_a_path() {
        let host = |is_tls, host| Some(ListenUrl { is_tls, place: Place::Host(host) });
        let path = |is_tls, path| Some(ListenUrl { is_tls, place: Place::Path(Path::new(path)) });
        for (url, expected) in [
            ("http://127.0.0.1:2379", host(false, "127.0.0.1:2379")),
            ("https://[::1]:2379/", host(true, "[::1]:2379")),
            ("unix:///run/etcd.sock", path(false, "/run/etcd.sock")),
            // As in etcd: a file in the working directory.
            ("unixs://localhost:2379", path(true, "localhost:2379")),
            ("http://127.0.0.1", None),
            ("http://127.0.0.1:2379/v3", None),
            ("http://127.0.0.1:65536", None),
            ("unix://", None),
            ("ftp://127.0.0.1:21", None),
            ("127.0.0.1:2379", None),
        ] {
            assert_eq!(parse_url(url), expected, "{url}");
        }
        let urls = "--listen-client-urls=https://[::1]:1,http://localhost:2,unix:///run/etcd.sock";
        assert_eq!(hosts(&options(&[urls])), ["::1", "localhost"]);
    }
}
