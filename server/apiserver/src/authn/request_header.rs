//! The authenticating front proxy: it presents a certificate of its own CA and passes the user in headers
//! (k8s.io/apiserver `pkg/authentication/request/headerrequest`). The headers of other clients are ignored.

use std::sync::Arc;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use plinth_pki::Name;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::trust::{ProxyFlags, TrustedProxy};
use super::x509::Authorities;
use super::{AuthenticationOptions, AuthenticationSetupError, AuthnError, Peer};
use crate::egress::forward::dashed;
use plinth_api::User;

/// Authenticates requests of a front proxy.
pub struct RequestHeaders {
    authorities: Authorities,
    flags: ProxyFlags,
    headers: HeaderNames,
}

/// Names of the headers; the first header that is present is used.
#[derive(Debug, Default)]
struct HeaderNames {
    user: Vec<HeaderName>,
    uid: Vec<HeaderName>,
    group: Vec<HeaderName>,
    /// Lower case.
    extra_prefix: Vec<String>,
}

impl RequestHeaders {
    /// The front proxy of the options; `None` without a certificate authority for it.
    ///
    /// # Errors
    /// When the authorities' file or a header name is invalid.
    pub fn new(options: &AuthenticationOptions) -> Result<Option<RequestHeaders>, AuthenticationSetupError> {
        let Some(file) = &options.requestheader_client_ca_file else { return Ok(None) };
        let names = |list: &[String]| {
            list.iter()
                .map(|name| {
                    name.trim()
                        .parse::<HeaderName>()
                        .map_err(|_| AuthenticationSetupError::HeaderName(name.clone()))
                })
                .collect::<Result<Vec<_>, _>>()
        };
        let prefixes = &options.requestheader_extra_headers_prefix;
        let headers = HeaderNames {
            user: names(&options.requestheader_username_headers)?,
            uid: names(&options.requestheader_uid_headers)?,
            group: names(&options.requestheader_group_headers)?,
            extra_prefix: prefixes.iter().map(|p| p.trim().to_ascii_lowercase()).collect(),
        };
        Ok(Some(RequestHeaders {
            authorities: Authorities::read(file).map_err(|source| AuthenticationSetupError::Authorities {
                flag: "--requestheader-client-ca-file",
                source,
            })?,
            flags: options.proxy_flags(),
            headers,
        }))
    }

    /// Whether a header is read from requests of the proxy.
    pub fn is_read(&self, name: &HeaderName) -> bool {
        let HeaderNames { user, uid, group, extra_prefix } = &self.headers;
        let name = dashed(name);
        [user, uid, group].iter().any(|names| names.iter().any(|own| dashed(own) == name))
            || extra_prefix.iter().any(|prefix| name.starts_with(&prefix.replace('_', "-")))
    }

    /// Reloads the authorities.
    ///
    /// # Errors
    /// When the file cannot be used; the previous ones stay in use.
    pub fn reload(&self, file: &std::path::Path) -> Result<(), plinth_http::TlsError> {
        self.authorities.reload(file)
    }

    /// What extension API servers need to trust the same proxy.
    pub fn trusted(&self) -> TrustedProxy {
        TrustedProxy { authorities: self.authorities.pem(), flags: self.flags.clone() }
    }

    /// The user named by the proxy; `None` without a client certificate or a user name.
    ///
    /// # Errors
    /// [`AuthnError::Proxy`] for a certificate that is not the proxy's.
    pub fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Result<Option<Arc<User>>, AuthnError> {
        let Some(leaf) = peer.chain().first() else { return Ok(None) };
        let refused = |error: AuthnError| AuthnError::Proxy(error.to_string());
        self.authorities.verify(peer.chain()).map_err(refused)?;
        let cert = X509Certificate::from_der(leaf).map_err(|error| AuthnError::Proxy(error.to_string()))?.1;
        let subject =
            Name::from_der(cert.subject().as_raw()).map_err(|error| AuthnError::Proxy(error.to_string()))?;
        let name = subject.common_name();
        if !self.flags.allowed_names.is_empty()
            && !self.flags.allowed_names.iter().any(|allowed| allowed == name)
        {
            let why = format!("x509: subject with cn={name} is not in the allowed list");
            return Err(AuthnError::Proxy(why));
        }
        Ok(self.headers.user(headers)?.map(Arc::new))
    }
}

impl HeaderNames {
    /// Values that are not UTF-8 are refused: ignoring them would make the request the proxy's own, or
    /// another user's.
    fn user(&self, headers: &HeaderMap) -> Result<Option<User>, AuthnError> {
        let text = |name: &HeaderName, value: &HeaderValue| {
            let no_text = |_| AuthnError::Proxy(format!("{name}: no UTF-8"));
            std::str::from_utf8(value.as_bytes()).map(str::to_owned).map_err(no_text)
        };
        let first = |names: &[HeaderName]| {
            let found =
                names.iter().find_map(|name| Some((name, headers.get(name).filter(|v| !v.is_empty())?)));
            found.map(|(name, value)| text(name, value)).transpose()
        };
        let Some(name) = first(&self.user)? else { return Ok(None) };
        let mut user = User { name, uid: first(&self.uid)?.unwrap_or_default(), ..User::default() };
        for name in &self.group {
            for value in headers.get_all(name).iter().filter(|v| !v.is_empty()) {
                user.groups.push(text(name, value)?);
            }
        }
        for prefix in &self.extra_prefix {
            for (name, value) in headers {
                if let Some(key) = name.as_str().strip_prefix(prefix.as_str()) {
                    user.extra.entry(extra_key(key)).or_default().push(text(name, value)?);
                }
            }
        }
        Ok(Some(user.authenticated()))
    }
}

/// The key in the name of an extra header: percent escapes encode characters that a header name cannot
/// contain.
pub(super) fn extra_key(key: &str) -> String {
    let key = key.to_ascii_lowercase();
    // Go leaves a key with an invalid escape as it is.
    let well_formed = key
        .split('%')
        .skip(1)
        .all(|rest| rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)));
    match well_formed {
        true => percent_decode_str(&key).decode_utf8_lossy().into_owned(),
        false => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> HeaderNames {
        HeaderNames {
            user: vec!["x-remote-user".parse().unwrap(), "x-other-user".parse().unwrap()],
            uid: vec!["x-remote-uid".parse().unwrap()],
            group: vec!["x-remote-group".parse().unwrap()],
            extra_prefix: vec!["x-remote-extra-".into()],
        }
    }

    #[test]
    fn users_by_table() {
        let rows: &[(&[(&str, &str)], Option<User>)] = &[
            (&[], None),
            (&[("x-remote-group", "a")], None),
            (&[("x-remote-user", "")], None),
            (&[("x-other-user", "joe")], Some(User::new("joe", &["system:authenticated"]))),
            (
                &[
                    ("x-remote-user", "jane"),
                    ("x-other-user", "joe"),
                    ("x-remote-uid", "u"),
                    ("x-remote-group", "a"),
                    ("x-remote-group", "b"),
                    ("x-remote-extra-scopes", "x"),
                    ("x-remote-extra-scopes", "y"),
                    ("x-remote-extra-example.org%2fkey", "z"),
                    ("x-remote-extra-odd%zz", "w"),
                ],
                Some(User {
                    uid: "u".into(),
                    extra: [
                        ("scopes".to_owned(), vec!["x".to_owned(), "y".to_owned()]),
                        ("example.org/key".to_owned(), vec!["z".to_owned()]),
                        ("odd%zz".to_owned(), vec!["w".to_owned()]),
                    ]
                    .into(),
                    ..User::new("jane", &["a", "b", "system:authenticated"])
                }),
            ),
        ];
        for (given, expected) in rows {
            let mut headers = HeaderMap::new();
            for (name, value) in *given {
                headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
            }
            assert_eq!(names().user(&headers).unwrap(), *expected, "{given:?}");
        }
    }

    #[test]
    fn names_are_utf8_or_nobodys() {
        for name in ["x-remote-user", "x-remote-uid", "x-remote-group", "x-remote-extra-scope"] {
            let mut headers = HeaderMap::new();
            headers.insert("x-remote-user", HeaderValue::from_bytes("jörg".as_bytes()).unwrap());
            assert_eq!(names().user(&headers).unwrap().unwrap().name, "jörg");
            headers.insert(name, HeaderValue::from_bytes(b"j\xf6rg").unwrap());
            assert!(names().user(&headers).is_err(), "{name}");
        }
    }
}
