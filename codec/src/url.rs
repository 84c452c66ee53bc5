//! URLs as Go's `net/url` reads them, for rules of definitions and for CEL.

use crate::error::quoted;

/// The parts of a URL that rules use.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Url<'a> {
    /// Lowercase, without the colon; empty in a relative URL.
    pub scheme: String,
    /// With brackets and port if present, percent escapes not decoded.
    pub host: &'a str,
    /// The userinfo before `@`, percent escapes not decoded.
    pub user: Option<&'a str>,
    /// Percent escapes not decoded; empty in an opaque URL like `mailto:a@b`.
    pub path: &'a str,
    /// What follows the first `?`.
    pub query: &'a str,
    /// What follows the first `#`; empty in the URL of a request.
    pub fragment: &'a str,
}

/// Host and port as Go's `net.JoinHostPort` writes them: an IPv6 address is in brackets.
pub fn join_host_port(host: &str, port: impl std::fmt::Display) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Reads a URL, or (`request`) only an absolute one or an absolute path, in which `#` is like any other
/// character.
///
/// # Errors
/// In Go's words.
pub fn parse(text: &str, request: bool) -> Result<Url<'_>, String> {
    let (main, fragment) = match text.split_once('#') {
        Some(parts) if !request => parts,
        _ => (text, ""),
    };
    let error = |why: String| format!("parse {}: {why}", quoted(text));
    let mut url = read(main, request).map_err(error)?;
    check_escapes(fragment).map_err(error)?;
    url.fragment = fragment;
    Ok(url)
}

fn read(text: &str, request: bool) -> Result<Url<'_>, String> {
    if text.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text.is_empty() && request {
        return Err("empty url".into());
    }
    let mut url = Url::default();
    if text == "*" {
        url.path = text;
        return Ok(url);
    }
    let (scheme, rest) = scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    url.query = query;
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            return Ok(url);
        }
        if request {
            return Err("invalid URI for request".into());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".into());
        }
    }
    let has_authority = !scheme.is_empty() || (!request && !rest.starts_with("///"));
    let path = match rest.strip_prefix("//").filter(|_| has_authority) {
        Some(after) => {
            let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            let (user, host) = match authority.rsplit_once('@') {
                Some((user, host)) => (Some(user), host),
                None => (None, authority),
            };
            check_host(host)?;
            if let Some(user) = user {
                let is_valid = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
                if !user.bytes().all(is_valid) {
                    return Err("net/url: invalid userinfo".into());
                }
                check_escapes(user)?;
            }
            (url.host, url.user) = (host, user);
            path
        }
        None => rest,
    };
    check_escapes(path)?;
    url.path = path;
    Ok(url)
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (i, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if i > 0 => {}
            b':' if i == 0 => return Err("missing protocol scheme".into()),
            b':' => return Ok((&text[..i], &text[i + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

/// Checks that each percent sign is followed by two hexadecimal digits.
///
/// # Errors
/// In Go's words.
pub fn check_escapes(text: &str) -> Result<(), String> {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|b| *b == b'%') {
        let escape = &rest[at..rest.len().min(at + 3)];
        if escape.len() < 3 || !escape[1..].iter().all(u8::is_ascii_hexdigit) {
            return Err(format!("invalid URL escape {}", quoted(&String::from_utf8_lossy(escape))));
        }
        rest = &rest[at + 3..];
    }
    Ok(())
}

fn check_host(host: &str) -> Result<(), String> {
    let port = match host.starts_with('[') {
        true => match host.rsplit_once(']') {
            Some((_, port)) => port,
            None => return Err("missing ']' in host".into()),
        },
        false => host.rfind(':').map_or("", |at| &host[at..]),
    };
    let is_port =
        port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    if !is_port {
        return Err(format!("invalid port {} after host", quoted(port)));
    }
    check_escapes(host)?;
    let is_valid =
        |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c);
    match host.chars().find(|c| !is_valid(*c)) {
        Some(c) => Err(format!("invalid character {} in host name", quoted(c.encode_utf8(&mut [0; 4])))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found() {
        let url = parse("HTTPS://u:p@example.com:8443/a%20b?q=1#f", false).unwrap();
        let expected = Url {
            scheme: "https".into(),
            host: "example.com:8443",
            user: Some("u:p"),
            path: "/a%20b",
            query: "q=1",
            fragment: "f",
        };
        assert_eq!(url, expected);
        assert_eq!(parse("http://[::1]/", false).unwrap().host, "[::1]");
        assert_eq!(parse("mailto:a@b", true).unwrap().host, "");
    }

    #[test]
    fn errors_are_those_of_go() {
        for (text, error) in [
            ("a\n", r#"parse "a\n": net/url: invalid control character in URL"#),
            (":a", r#"parse ":a": missing protocol scheme"#),
            ("1a:b/c", r#"parse "1a:b/c": first path segment in URL cannot contain colon"#),
            ("http://a:x/", r#"parse "http://a:x/": invalid port ":x" after host"#),
            ("http://a b/", r#"parse "http://a b/": invalid character " " in host name"#),
            ("http://a/%zz", r#"parse "http://a/%zz": invalid URL escape "%zz""#),
            ("http://[::1", r#"parse "http://[::1": missing ']' in host"#),
        ] {
            assert_eq!(parse(text, false).unwrap_err(), error);
        }
    }
}
