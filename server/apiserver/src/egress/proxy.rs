//! Proxies from the environment: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, in capitals or not, with the
//! meaning that Go gives them (`golang.org/x/net/http/httpproxy`). A loopback address is never reached
//! through a proxy.

use std::net::IpAddr;

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use hyper::header::HeaderValue;
use hyper::Uri;
use ipnet::IpNet;
use percent_encoding::percent_decode_str;
use plinth_codec::url::join_host_port;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Bytes of a proxy's answer to CONNECT.
const MAX_ANSWER: usize = 8 << 10;

/// An HTTP proxy, from the URL of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Name or address; an IPv6 address without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// User and password of its URL, as a header.
    pub authorization: Option<HeaderValue>,
    /// The scheme of its URL. None but `http` can be used.
    scheme: String,
}

/// Why a proxy did not connect.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum ProxyError {
    #[error("proxyconnect tcp: unsupported proxy scheme {0:?}, only http is supported")]
    Scheme(String),
    #[error("proxyconnect tcp: {0}")]
    Io(#[from] std::io::Error),
    #[error("proxyconnect tcp: the proxy answered {0}")]
    Refused(String),
}

impl Proxy {
    /// The proxy for a server of the environment of this process, if it has one.
    pub fn of_environment(is_tls: bool, host: &str, port: u16) -> Option<Proxy> {
        Proxy::of(|name| std::env::var(name).ok(), is_tls, host, port)
    }

    fn of(
        environment: impl Fn(&str) -> Option<String>,
        is_tls: bool,
        host: &str,
        port: u16,
    ) -> Option<Proxy> {
        let variable = |name: &str| {
            let value = environment(name).filter(|value| !value.is_empty());
            value.or_else(|| environment(&name.to_lowercase())).filter(|value| !value.is_empty())
        };
        let url = variable(if is_tls { "HTTPS_PROXY" } else { "HTTP_PROXY" })?;
        let exceptions = variable("NO_PROXY").unwrap_or_default();
        if is_exempt(&exceptions, host, port) {
            return None;
        }
        Proxy::of_url(&url)
    }

    /// A URL, or host and port alone. One that is neither is ignored, as by Go.
    pub(super) fn of_url(url: &str) -> Option<Proxy> {
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        // The authority of a URI may have a user.
        let uri: Uri = url.parse().ok()?;
        let authority = uri.authority()?.as_str();
        let user = authority.rsplit_once('@').map(|(user, _)| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            let decode = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
            STANDARD.encode(format!("{}:{}", decode(name), decode(password)))
        });
        let authorization = match user {
            Some(user) => {
                let mut value = HeaderValue::try_from(format!("Basic {user}")).ok()?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        let scheme = uri.scheme_str()?.to_owned();
        let port = match scheme.as_str() {
            "https" => 443,
            "socks5" => 1080,
            _ => 80,
        };
        let host = uri.host()?.trim_matches(['[', ']']).to_owned();
        Some(Proxy { host, port: uri.port_u16().unwrap_or(port), authorization, scheme })
    }

    /// Refuses a proxy that is spoken to in another way.
    ///
    /// # Errors
    /// [`ProxyError::Scheme`].
    pub(super) fn check(&self) -> Result<(), ProxyError> {
        match self.scheme == "http" {
            true => Ok(()),
            false => Err(ProxyError::Scheme(self.scheme.clone())),
        }
    }

    /// Has the proxy at the other end of a connection connect to a server.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub(super) async fn tunnel(
        &self,
        stream: &mut TcpStream,
        host: &str,
        port: u16,
    ) -> Result<(), ProxyError> {
        let target = join_host_port(host, port);
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
        if let Some(value) = &self.authorization {
            request.extend_from_slice(b"Proxy-Authorization: ");
            request.extend_from_slice(value.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        stream.write_all(&request).await?;
        let mut answer = Vec::new();
        // No byte more: what follows is the server's.
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() >= MAX_ANSWER {
                return Err(ProxyError::Refused("with a header that is too long".to_owned()));
            }
            answer.push(stream.read_u8().await?);
        }
        let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).into_owned();
        let code = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)).unwrap_or_default();
        match code.as_bytes() {
            [b'2', b'0'..=b'9', b'0'..=b'9'] => Ok(()),
            // Not the text: a proxy may have it from the request, with the credentials.
            [b'0'..=b'9', b'0'..=b'9', b'0'..=b'9'] => {
                Err(ProxyError::Refused(format!("with status {code}")))
            }
            _ => Err(ProxyError::Refused("something else than HTTP/1.1".to_owned())),
        }
    }
}

/// Whether a server is reached without a proxy by `NO_PROXY`, or since it is this machine.
fn is_exempt(exceptions: &str, host: &str, port: u16) -> bool {
    let host = host.to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.to_canonical().is_loopback()) {
        return true;
    }
    let mut exceptions = exceptions.split(',').map(|entry| entry.trim().to_ascii_lowercase());
    exceptions.any(|entry| matches(&entry, &host, address, port))
}

/// Whether an entry of `NO_PROXY` is about a server: `*`, a network, an address, or a domain with all below
/// it; a domain with a dot in front is without itself. Addresses and domains may have a port.
fn matches(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Ok(network) = entry.parse::<IpNet>() {
        return address.is_some_and(|address| network.contains(&address.to_canonical()));
    }
    let (name, wanted_port) = match entry.rsplit_once(':') {
        // An IPv6 address has several, and a port only behind brackets.
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, Some(port)),
        _ => (entry, None),
    };
    if wanted_port.is_some_and(|wanted| wanted.parse() != Ok(port)) {
        return false;
    }
    let name = name.trim_matches(['[', ']']);
    if let Ok(wanted) = name.parse::<IpAddr>() {
        return address.is_some_and(|address| address.to_canonical() == wanted.to_canonical());
    }
    let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
    match name.strip_prefix('.') {
        None if name.is_empty() => false,
        None => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
        Some(_) => host.ends_with(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_those_of_go() {
        for (exceptions, host, port, expected) in [
            ("", "example.com", 443, false),
            ("", "localhost", 443, true),
            ("", "127.3.0.1", 443, true),
            ("", "::1", 443, true),
            ("*", "example.com", 443, true),
            ("a.org, example.com", "example.com", 443, true),
            ("example.com", "EXAMPLE.com", 443, true),
            ("example.com", "sub.example.com", 443, true),
            ("example.com", "notexample.com", 443, false),
            (".example.com", "example.com", 443, false),
            (".example.com", "sub.example.com", 443, true),
            ("*.example.com", "sub.example.com", 443, true),
            ("*.example.com", "example.com", 443, false),
            ("example.com:80", "example.com", 443, false),
            ("example.com:443", "example.com", 443, true),
            ("10.0.0.0/8", "10.1.2.3", 443, true),
            ("10.0.0.0/8", "11.1.2.3", 443, false),
            ("10.0.0.0/8", "example.com", 443, false),
            ("10.1.2.3", "10.1.2.3", 443, true),
            ("10.1.2.3:80", "10.1.2.3", 443, false),
            ("fd00::/8", "fd00::1", 443, true),
            ("fd00::1", "fd00::1", 443, true),
            ("[fd00::1]:443", "fd00::1", 443, true),
            ("[fd00::1]:80", "fd00::1", 443, false),
            (",,", "example.com", 443, false),
            (".svc", "hook.default.svc", 443, true),
        ] {
            assert_eq!(is_exempt(exceptions, host, port), expected, "{exceptions:?} {host}:{port}");
        }
    }

    #[test]
    fn variables_have_urls_of_proxies() {
        let of = |variables: &[(&str, &str)], is_tls| {
            let look_up = |name: &str| {
                variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            };
            Proxy::of(look_up, is_tls, "example.com", 443)
        };
        let shown = |proxy: Option<Proxy>| {
            proxy.map(|proxy| {
                let user = proxy.authorization.map(|value| value.to_str().unwrap().to_owned());
                (proxy.host, proxy.port, user)
            })
        };
        let plain = |host: &str, port| Some((host.to_owned(), port, None));
        assert_eq!(of(&[], true), None);
        assert_eq!(shown(of(&[("HTTPS_PROXY", "http://p:3128")], true)), plain("p", 3128));
        assert_eq!(shown(of(&[("https_proxy", "p:3128")], true)), plain("p", 3128));
        assert_eq!(
            shown(of(&[("HTTPS_PROXY", "[::1]:3128"), ("https_proxy", "q")], true)),
            plain("::1", 3128)
        );
        assert_eq!(of(&[("HTTPS_PROXY", "p")], false), None);
        assert_eq!(shown(of(&[("HTTP_PROXY", "http://p")], false)), plain("p", 80));
        assert_eq!(of(&[("HTTP_PROXY", "p"), ("no_proxy", "example.com")], false), None);
        assert_eq!(of(&[("HTTPS_PROXY", "http://")], true), None);
        let with_user = of(&[("HTTPS_PROXY", "http://u:p%40@p:1")], true);
        assert_eq!(shown(with_user), Some(("p".to_owned(), 1, Some("Basic dTpwQA==".to_owned()))));
        let other = of(&[("HTTPS_PROXY", "socks5://p")], true).unwrap();
        assert!(matches!(other.check(), Err(ProxyError::Scheme(scheme)) if scheme == "socks5"));
    }

    #[tokio::test]
    async fn a_tunnel_is_what_the_proxy_agrees_to() {
        let proxy = Proxy::of_url("u:p@127.0.0.1:1").unwrap();
        for (answer, expected) in [
            ("HTTP/1.1 200 Connection established\r\nA: b\r\n\r\nserver", None),
            ("HTTP/1.0 200 OK\r\n\r\nserver", None),
            ("HTTP/1.1 407 Who are you\r\n\r\n", Some("the proxy answered with status 407")),
            ("HTTP/1.1 2OO fine\r\n\r\n", Some("the proxy answered something else than HTTP/1.1")),
            ("SSH-2.0\r\n\r\n", Some("the proxy answered something else than HTTP/1.1")),
            ("HTTP/1.1 200", Some("unexpected end of file")),
            (&"x".repeat(2 * MAX_ANSWER), Some("the proxy answered with a header that is too long")),
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut served, _) = listener.accept().await.unwrap();
            let answer = answer.to_owned();
            let serving = tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(served.read_u8().await.unwrap());
                }
                // The client may have left.
                let _ = served.write_all(answer.as_bytes()).await;
                String::from_utf8(request).unwrap()
            });
            let outcome = proxy.tunnel(&mut stream, "example.com", 443).await;
            let request = serving.await.unwrap();
            let error = outcome.err().map(|error| error.to_string());
            match expected {
                None => {
                    assert_eq!(error, None);
                    let mut rest = String::new();
                    stream.read_to_string(&mut rest).await.unwrap();
                    assert_eq!(rest, "server", "nothing of it is lost");
                }
                Some(expected) => assert_eq!(error.unwrap(), format!("proxyconnect tcp: {expected}")),
            }
            let head = "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n";
            assert_eq!(request, format!("{head}Proxy-Authorization: Basic dTpw\r\n\r\n"));
        }
    }
}
