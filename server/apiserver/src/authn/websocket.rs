//! Bearer tokens of browsers, which can set no header of a WebSocket handshake but its subprotocols: the
//! token is one of them, in addition to at least one that is negotiated (k8s.io/apiserver
//! `pkg/authentication/request/websocket`).

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine as _;
use hyper::header::{HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL};

use plinth_http::wants_websocket;

/// Prefix of the token, which follows in base64url without padding.
const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Why subprotocols contain no valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum ProtocolError {
    #[error("multiple base64.bearer.authorization tokens specified")]
    Several,
    #[error("invalid base64.bearer.authorization token encoding")]
    Encoding,
    #[error("invalid base64.bearer.authorization token")]
    Text,
    #[error("missing additional subprotocol")]
    Alone,
}

/// The subprotocols that a client offers, in all its headers.
fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    values.flat_map(|value| value.to_str().unwrap_or_default().split(',')).map(str::trim)
}

/// The token of a WebSocket handshake; `None` without one.
///
/// # Errors
/// [`ProtocolError`]: there is a token, but it is invalid.
pub fn token(headers: &HeaderMap) -> Result<Option<String>, ProtocolError> {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) || !wants_websocket(headers) {
        return Ok(None);
    }
    let mut token = None;
    let mut others = false;
    for protocol in offered(headers) {
        match protocol.strip_prefix(PREFIX) {
            None => others = true,
            Some(_) if token.is_some() => return Err(ProtocolError::Several),
            Some(encoded) => {
                let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| ProtocolError::Encoding)?;
                token = Some(String::from_utf8(bytes).map_err(|_| ProtocolError::Text)?);
            }
        }
    }
    match token.filter(|token| !token.is_empty()) {
        Some(_) if !others => Err(ProtocolError::Alone),
        token => Ok(token),
    }
}

/// Removes tokens from the subprotocols, so that nothing after authentication sees or echoes them.
pub fn remove_tokens(headers: &mut HeaderMap) {
    if !offered(headers).any(|protocol| protocol.starts_with(PREFIX)) {
        return;
    }
    let others: Vec<&str> = offered(headers).filter(|protocol| !protocol.starts_with(PREFIX)).collect();
    // Parts of a valid header value are a valid header value.
    match HeaderValue::try_from(others.join(",")) {
        Ok(value) if !value.is_empty() => drop(headers.insert(SEC_WEBSOCKET_PROTOCOL, value)),
        _ => drop(headers.remove(SEC_WEBSOCKET_PROTOCOL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake(protocols: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("upgrade", HeaderValue::from_static("websocket"));
        headers.insert("connection", HeaderValue::from_static("Upgrade"));
        for protocol in protocols {
            headers.append(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_str(protocol).unwrap());
        }
        headers
    }

    #[test]
    fn tokens_by_table() {
        use ProtocolError::*;
        // "abc" is YWJj, "\xff" is _w.
        let mine = "base64url.bearer.authorization.k8s.io.YWJj";
        let with = |rest: &str| format!("base64url.bearer.authorization.k8s.io.{rest}");
        let (odd, no_text, empty) = (with("***"), with("_w"), with(""));
        let rows: [(Vec<&str>, Result<Option<&str>, ProtocolError>, Option<&str>); 9] = [
            (vec![], Ok(None), None),
            (vec!["v4.channel.k8s.io"], Ok(None), Some("v4.channel.k8s.io")),
            (vec![mine, "v4.channel.k8s.io"], Ok(Some("abc")), Some("v4.channel.k8s.io")),
            (
                vec!["v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.YWJj ,b"],
                Ok(Some("abc")),
                Some("v4.channel.k8s.io,b"),
            ),
            (vec![mine], Err(Alone), None),
            (vec![mine, mine, "a"], Err(Several), Some("a")),
            (vec![odd.as_str(), "a"], Err(Encoding), Some("a")),
            (vec![no_text.as_str(), "a"], Err(Text), Some("a")),
            (vec![empty.as_str(), "a"], Ok(None), Some("a")),
        ];
        for (protocols, expected, left) in rows {
            let mut headers = handshake(&protocols);
            assert_eq!(token(&headers), expected.map(|t| t.map(str::to_owned)), "{protocols:?}");
            remove_tokens(&mut headers);
            let shown = headers.get(SEC_WEBSOCKET_PROTOCOL).map(|value| value.to_str().unwrap());
            assert_eq!(shown, left, "{protocols:?}");
        }
        let mut plain = handshake(&[mine, "a"]);
        plain.remove("upgrade");
        assert_eq!(token(&plain), Ok(None), "no WebSocket");
    }
}
