//! Redirects of proxied servers: what stays on their host stays below the proxy's path.
//!
//! Upstream: k8s.io/apimachinery `pkg/util/proxy/transport.go` (`rewriteURL`).

use hyper::Uri;

/// A `Location` as the client has to be sent it; `None` where it is right as it is. `prefix` is the path of
/// the proxy, `backend` and `asked` are the hosts of the proxied server and of the client's request.
pub(super) fn below_proxy(location: &str, prefix: &str, backend: &str, asked: &str) -> Option<String> {
    let (host, rest) = split(location)?;
    if !(host.is_empty() || host == backend || host == asked) || !rest.starts_with('/') {
        return None;
    }
    // Where the host is the client's own, it stays.
    let kept = if host == asked { &location[..location.len() - rest.len()] } else { "" };
    let (path, more) = rest.find(['?', '#']).map_or((rest, ""), |at| rest.split_at(at));
    if path.starts_with(prefix) {
        return (host == backend && host != asked).then(|| rest.to_owned());
    }
    Some(format!("{kept}{prefix}{path}{more}"))
}

/// The host of a URL, empty for a path, and what follows it.
fn split(location: &str) -> Option<(&str, &str)> {
    let after_scheme = match location.split_once("//") {
        Some(("" | "http:" | "https:", rest)) => rest,
        _ => return location.parse::<Uri>().is_ok().then_some(("", location)),
    };
    let end = after_scheme.find(['/', '?', '#']).unwrap_or(after_scheme.len());
    Some(after_scheme.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_below_the_proxy() {
        const PREFIX: &str = "/api/v1/namespaces/n/services/web/proxy";
        // location, what the client gets
        let rows = [
            ("/login", Some("/api/v1/namespaces/n/services/web/proxy/login")),
            ("/a/?b=/c#d", Some("/api/v1/namespaces/n/services/web/proxy/a/?b=/c#d")),
            ("http://10.0.0.1:80/x", Some("/api/v1/namespaces/n/services/web/proxy/x")),
            ("//10.0.0.1:80/x", Some("/api/v1/namespaces/n/services/web/proxy/x")),
            ("https://me/x", Some("https://me/api/v1/namespaces/n/services/web/proxy/x")),
            (
                "http://10.0.0.1:80/api/v1/namespaces/n/services/web/proxy/x",
                Some("/api/v1/namespaces/n/services/web/proxy/x"),
            ),
            ("/api/v1/namespaces/n/services/web/proxy/x", None),
            ("https://example.com/x", None),
            ("http://10.0.0.1:81/x", None),
            ("login", None),
            ("../login", None),
            ("", None),
            ("http://10.0.0.1:80", None),
        ];
        for (location, expected) in rows {
            let found = below_proxy(location, PREFIX, "10.0.0.1:80", "me");
            assert_eq!(found.as_deref(), expected, "{location}");
        }
    }
}
