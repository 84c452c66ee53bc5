//! Authentication settings for extension API servers (ConfigMap `extension-apiserver-authentication`).

use std::sync::Arc;

use plinth_codec::{json, Map, Value};

/// How this server authenticates requests: what it has loaded, not what its files hold by now.
#[derive(Clone, Debug)]
pub struct ClusterAuthenticationInfo {
    /// Certificate authorities of client certificates, PEM.
    pub client_authorities: Arc<str>,
    /// The front proxy.
    pub proxy: Option<TrustedProxy>,
}

/// A front proxy.
#[derive(Clone, Debug)]
pub struct TrustedProxy {
    /// Certificate authorities of its certificates, PEM.
    pub authorities: Arc<str>,
    /// Its names and headers.
    pub flags: ProxyFlags,
}

/// Names and headers of a front proxy. Lists as in the flags.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // the flags' own words
pub struct ProxyFlags {
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_headers_prefix: Vec<String>,
}

impl ClusterAuthenticationInfo {
    /// The data of the ConfigMap.
    pub fn data(&self) -> Map {
        let list = |texts: &[String]| {
            let list: Vec<Value> = texts.iter().map(|text| Value::from(text.as_str())).collect();
            let mut out = Vec::new();
            json::write_untyped(&Value::from(list), &mut out);
            String::from_utf8_lossy(&out).into_owned()
        };
        let mut data = Map::default();
        data.insert("client-ca-file", &*self.client_authorities);
        let Some(TrustedProxy { authorities, flags }) = &self.proxy else { return data };
        data.insert("requestheader-allowed-names", list(&flags.allowed_names));
        data.insert("requestheader-client-ca-file", &**authorities);
        data.insert("requestheader-extra-headers-prefix", list(&flags.extra_headers_prefix));
        data.insert("requestheader-group-headers", list(&flags.group_headers));
        if !flags.uid_headers.is_empty() {
            data.insert("requestheader-uid-headers", list(&flags.uid_headers));
        }
        data.insert("requestheader-username-headers", list(&flags.username_headers));
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_say_who_is_trusted() {
        let texts = |list: &[&str]| list.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        let mut trust = ClusterAuthenticationInfo { client_authorities: "clients".into(), proxy: None };
        let text = |trust: &ClusterAuthenticationInfo| {
            let mut out = Vec::new();
            json::write_untyped(&Value::from(trust.data()), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(&trust), r#"{"client-ca-file":"clients"}"#);
        let flags = ProxyFlags {
            allowed_names: texts(&["a", "\"b\""]),
            username_headers: texts(&["X-Remote-User"]),
            uid_headers: texts(&[]),
            group_headers: texts(&["X-Remote-Group"]),
            extra_headers_prefix: texts(&["X-Remote-Extra-"]),
        };
        let proxy = TrustedProxy { authorities: "proxies".into(), flags: flags.clone() };
        trust.proxy = Some(proxy.clone());
        let without_uid = text(&trust);
        assert_eq!(
            without_uid,
            r#"{"client-ca-file":"clients","requestheader-allowed-names":"[\"a\",\"\\\"b\\\"\"]","requestheader-client-ca-file":"proxies","requestheader-extra-headers-prefix":"[\"X-Remote-Extra-\"]","requestheader-group-headers":"[\"X-Remote-Group\"]","requestheader-username-headers":"[\"X-Remote-User\"]"}"#
        );
        let flags = ProxyFlags { uid_headers: texts(&["X-Remote-Uid"]), ..flags };
        trust.proxy = Some(TrustedProxy { flags, ..proxy });
        assert!(text(&trust).contains(r#""requestheader-uid-headers":"[\"X-Remote-Uid\"]""#));
    }
}
