//! A request to a proxied server: what that and its client know of each other. Links and redirects to pages
//! of the server lead below the proxy's path.
//!
//! Upstream: k8s.io/apimachinery `pkg/util/proxy/transport.go` (`RoundTrip`, `rewriteURL`).

use hyper::header::{HeaderMap, HeaderName, HeaderValue, HOST, LOCATION};
use plinth_codec::url::join_host_port;

use super::location::Destination;
use crate::context::Context;
use plinth_api::ApiError;

/// The path under which a client sees what a proxy answers.
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// The two sides of a proxied request.
pub(super) struct Proxied {
    /// The path of the proxy.
    prefix: String,
    /// Path of the request to the server.
    path: String,
    /// Host and port of the server.
    backend: String,
    /// The host that the client has asked.
    requested: String,
}

impl Proxied {
    pub(super) fn of(cx: &Context, destination: &Destination) -> Proxied {
        let whole = cx.uri.path();
        let requested = cx.uri.authority().map(|authority| authority.as_str()).or_else(|| cx.header(HOST));
        Proxied {
            prefix: whole.strip_suffix(&*cx.info.tail).unwrap_or(whole).to_owned(),
            path: destination.target.split('?').next().unwrap_or_default().to_owned(),
            backend: join_host_port(&destination.host, destination.port),
            requested: requested.unwrap_or_default().to_owned(),
        }
    }

    /// As upstream: the host that the client has asked, and, but for an upgrade, the path under which it sees
    /// the answer.
    pub(super) fn set_headers(&self, headers: &mut HeaderMap, is_upgrade: bool) {
        let uri = format!("{}{}", self.prefix, self.path);
        let uri = Some((FORWARDED_URI, uri.as_str())).filter(|_| !is_upgrade);
        for (name, text) in [Some((HOST, self.requested.as_str())), uri].into_iter().flatten() {
            if let (Ok(value), false) = (HeaderValue::try_from(text), text.is_empty()) {
                headers.insert(name, value);
            }
        }
    }

    /// Changes a redirect to another page of the server, so that the client gets there; whether there is one.
    ///
    /// # Errors
    /// 500 when it is no URL.
    pub(super) fn redirect(&self, headers: &mut HeaderMap) -> Result<bool, ApiError> {
        let Some(location) = headers.get(LOCATION).filter(|location| !location.is_empty()) else {
            return Ok(false);
        };
        let location = String::from_utf8_lossy(location.as_bytes());
        if let Some(escape) = bad_escape(&location) {
            let why = format!("parse {location:?}: invalid URL escape {escape:?}");
            return Err(ApiError::internal(format!("error trying to parse Location header: {why}")));
        }
        let changed = self.below_proxy(&location, &self.prefix);
        if let Some(value) = changed.and_then(|location| HeaderValue::try_from(location).ok()) {
            headers.insert(LOCATION, value);
        }
        Ok(true)
    }

    /// A link of a page, as its attribute is written, as the client has to be sent it; `None` where it is
    /// right as it is.
    pub(super) fn link(&self, attribute: &str) -> Option<String> {
        // A slash may be escaped for no reason. Whatever else is escaped stays so.
        let is_escaped = attribute.contains("&#");
        let link = is_escaped.then(|| SLASHES.iter().fold(attribute.to_owned(), |l, s| l.replace(s, "/")));
        let link = link.as_deref().unwrap_or(attribute);
        match bad_escape(link) {
            Some(_) => None,
            None => self.below_proxy(link, &escape_attribute(&self.prefix)),
        }
    }

    /// A URL of the server's as the client has to be sent it, with the path of the proxy as it is written
    /// there; `None` where it is right as it is.
    fn below_proxy(&self, url: &str, prefix: &str) -> Option<String> {
        let (host, rest) = split(url);
        let is_requested = host == self.requested;
        if !(host.is_empty() || is_requested || self.is_backend(host)) || !rest.starts_with('/') {
            return None;
        }
        // Where the host is the client's own, it stays.
        let kept = if is_requested { &url[..url.len() - rest.len()] } else { "" };
        let path = &rest[..rest.find(['?', '#']).unwrap_or(rest.len())];
        match path.starts_with(prefix) {
            true => (!is_requested && !host.is_empty()).then(|| rest.to_owned()),
            false => Some(format!("{kept}{prefix}{rest}")),
        }
    }

    /// Whether a host is the server's, whose port may be left out where it is the default one.
    fn is_backend(&self, host: &str) -> bool {
        let without_port = || self.backend.strip_suffix(":80").or(self.backend.strip_suffix(":443"));
        host == self.backend || without_port() == Some(host)
    }
}

/// Ways to escape a slash in HTML.
const SLASHES: [&str; 4] = ["&#47;", "&#x2f;", "&#x2F;", "&#X2F;"];

/// A text as part of an attribute, whatever its quotes.
fn escape_attribute(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '\'' => escaped.push_str("&#39;"),
            '"' => escaped.push_str("&#34;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// The host of a URL, empty for a path, and what follows it.
fn split(url: &str) -> (&str, &str) {
    let is_http = |scheme: &str| ["", "http:", "https:"].iter().any(|s| scheme.eq_ignore_ascii_case(s));
    match url.split_once("//") {
        Some((scheme, rest)) if is_http(scheme) => {
            rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()))
        }
        _ => ("", url),
    }
}

/// What Go's parser takes for a broken escape in the path of a URL.
fn bad_escape(url: &str) -> Option<&str> {
    let path = &url[..url.find(['?', '#']).unwrap_or(url.len())];
    let mut percents = path.match_indices('%').map(|(at, _)| &path[at..]);
    let broken = percents.find(|rest| {
        let digits = rest.as_bytes().get(1..3);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    broken.map(|rest| &rest[..rest.char_indices().nth(3).map_or(rest.len(), |(end, _)| end)])
}

#[cfg(test)]
impl Proxied {
    /// That of the service `web`.
    pub(super) fn of_web() -> Proxied {
        Proxied {
            prefix: "/api/v1/namespaces/n/services/web/proxy".into(),
            path: "/x".into(),
            backend: "10.0.0.1:80".into(),
            requested: "me".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_stay_below_the_proxy() {
        // URL, what the client gets
        let rows = [
            ("/login", Some("/api/v1/namespaces/n/services/web/proxy/login")),
            ("/a/?b=/c#d", Some("/api/v1/namespaces/n/services/web/proxy/a/?b=/c#d")),
            ("/a b", Some("/api/v1/namespaces/n/services/web/proxy/a b")),
            ("/x//y", Some("/api/v1/namespaces/n/services/web/proxy/x//y")),
            ("http://10.0.0.1:80/x", Some("/api/v1/namespaces/n/services/web/proxy/x")),
            ("HTTP://10.0.0.1/x", Some("/api/v1/namespaces/n/services/web/proxy/x")),
            ("//10.0.0.1:80/x", Some("/api/v1/namespaces/n/services/web/proxy/x")),
            ("https://me/x", Some("https://me/api/v1/namespaces/n/services/web/proxy/x")),
            (
                "http://10.0.0.1:80/api/v1/namespaces/n/services/web/proxy/x",
                Some("/api/v1/namespaces/n/services/web/proxy/x"),
            ),
            ("/api/v1/namespaces/n/services/web/proxy/x", None),
            ("https://me/api/v1/namespaces/n/services/web/proxy/x", None),
            ("https://example.com/x", None),
            ("http://10.0.0.1:81/x", None),
            ("mailto:a@b", None),
            ("login", None),
            ("../login", None),
            ("", None),
            ("http://10.0.0.1:80", None),
        ];
        let proxied = Proxied::of_web();
        for (url, expected) in rows {
            assert_eq!(proxied.link(url).as_deref(), expected, "{url}");
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, url.parse().unwrap());
            assert_eq!(proxied.redirect(&mut headers).unwrap(), !url.is_empty());
            assert_eq!(headers[LOCATION], expected.unwrap_or(url));
        }
    }

    #[test]
    fn escapes_stay_and_broken_ones_are_refused() {
        let mut proxied = Proxied::of_web();
        proxied.prefix = "/p'&".into();
        assert_eq!(
            proxied.link("&#x2F;caf&eacute;?a&amp;b").as_deref(),
            Some("/p&#39;&amp;/caf&eacute;?a&amp;b")
        );
        assert_eq!(proxied.link("/%zz"), None);
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, "/a%2".parse().unwrap());
        let error = proxied.redirect(&mut headers).unwrap_err();
        let why = r#"error trying to parse Location header: parse "/a%2": invalid URL escape "%2""#;
        assert_eq!((error.code, error.message), (500, format!("Internal error occurred: {why}")));
    }
}
