//! The authenticating front proxy: it shows a certificate of its own authority and says in headers who asks
//! (k8s.io/apiserver `pkg/authentication/request/headerrequest`). Headers of anybody else mean nothing.

use std::sync::Arc;

use hyper::header::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::x509::{common_name, Authorities};
use super::{AuthenticationOptions, AuthnError, Peer, SetupError, User};

/// Believes a front proxy.
pub struct RequestHeaders {
    authorities: Authorities,
    allowed_names: Vec<String>,
    headers: Names,
}

/// Which headers say what; of names the first that is there counts.
#[derive(Debug, Default)]
struct Names {
    user: Vec<HeaderName>,
    uid: Vec<HeaderName>,
    group: Vec<HeaderName>,
    /// In lower case.
    extra_prefix: Vec<String>,
}

impl RequestHeaders {
    /// The proxy that the options name; `None` when they name no authority for one.
    ///
    /// # Errors
    /// When the authority's file or a header name cannot be used.
    pub fn new(options: &AuthenticationOptions) -> Result<Option<RequestHeaders>, SetupError> {
        let Some(file) = &options.requestheader_client_ca_file else { return Ok(None) };
        let names = |list: &[String]| {
            list.iter()
                .map(|name| {
                    name.trim().parse::<HeaderName>().map_err(|_| SetupError::HeaderName(name.clone()))
                })
                .collect::<Result<Vec<_>, _>>()
        };
        let prefixes = &options.requestheader_extra_headers_prefix;
        let headers = Names {
            user: names(&options.requestheader_username_headers)?,
            uid: names(&options.requestheader_uid_headers)?,
            group: names(&options.requestheader_group_headers)?,
            extra_prefix: prefixes.iter().map(|p| p.trim().to_ascii_lowercase()).collect(),
        };
        Ok(Some(RequestHeaders {
            authorities: Authorities::read(file)?,
            allowed_names: options.requestheader_allowed_names.clone(),
            headers,
        }))
    }

    /// Reads the authorities again.
    ///
    /// # Errors
    /// When the file cannot be used; then nothing changes.
    pub fn reload(&self, file: &std::path::Path) -> Result<(), crate::http::tls::TlsError> {
        self.authorities.reload(file)
    }

    /// Whom the proxy names; `None` when no certificate was shown or no user is named.
    ///
    /// # Errors
    /// [`AuthnError::Proxy`] for a certificate that is not the proxy's.
    pub fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Result<Option<Arc<User>>, AuthnError> {
        let Some(leaf) = peer.chain().first() else { return Ok(None) };
        let refused = |fault: AuthnError| AuthnError::Proxy(fault.to_string());
        self.authorities.verify(peer.chain()).map_err(refused)?;
        let cert = X509Certificate::from_der(leaf).map_err(|fault| AuthnError::Proxy(fault.to_string()))?.1;
        let name = common_name(&cert);
        if !self.allowed_names.is_empty() && !self.allowed_names.iter().any(|allowed| allowed == name) {
            let why = format!("x509: subject with cn={name} is not in the allowed list");
            return Err(AuthnError::Proxy(why));
        }
        Ok(self.headers.user(headers).map(Arc::new))
    }
}

impl Names {
    fn user(&self, headers: &HeaderMap) -> Option<User> {
        let text =
            |name: &HeaderName| headers.get(name).and_then(|v| v.to_str().ok()).filter(|v| !v.is_empty());
        let first = |names: &[HeaderName]| names.iter().find_map(text).map(str::to_owned);
        let mut user = User { name: first(&self.user)?, ..User::default() };
        user.uid = first(&self.uid).unwrap_or_default();
        let groups = self.group.iter().flat_map(|name| headers.get_all(name));
        user.groups =
            groups.filter_map(|v| v.to_str().ok()).filter(|v| !v.is_empty()).map(str::to_owned).collect();
        for prefix in &self.extra_prefix {
            for (name, value) in headers {
                let (Some(key), Ok(value)) = (name.as_str().strip_prefix(prefix.as_str()), value.to_str())
                else {
                    continue;
                };
                user.extra.entry(extra_key(key)).or_default().push(value.to_owned());
            }
        }
        Some(user.authenticated())
    }
}

/// The key behind a prefix of extra headers: percent escapes stand for what a header's name cannot hold.
pub(super) fn extra_key(key: &str) -> String {
    let key = key.to_ascii_lowercase();
    // Go takes a key with a wrong escape as it stands.
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

    fn names() -> Names {
        Names {
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
            assert_eq!(names().user(&headers), *expected, "{given:?}");
        }
    }
}
