//! Authentication settings for extension API servers (ConfigMap `extension-apiserver-authentication`).

use std::path::PathBuf;

use plinth_codec::{json, Map, Value};

/// How this server authenticates requests.
#[derive(Clone, Debug)]
pub struct ClusterAuthenticationInfo {
    /// Certificate authorities of client certificates, PEM.
    pub client_ca: PathBuf,
    /// The front proxy.
    pub proxy: Option<TrustedProxy>,
}

/// Certificates and headers of a front proxy. Lists as in the flags.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the flags' own words
pub struct TrustedProxy {
    /// Certificate authorities of its certificates, PEM.
    pub ca: PathBuf,
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_headers_prefix: Vec<String>,
}

impl ClusterAuthenticationInfo {
    /// The data of the ConfigMap, with the current content of the files.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn data(&self) -> std::io::Result<Map> {
        let list = |texts: &[String]| {
            let list: Vec<Value> = texts.iter().map(|text| Value::from(text.as_str())).collect();
            let mut out = Vec::new();
            json::write_untyped(&Value::from(list), &mut out);
            String::from_utf8_lossy(&out).into_owned()
        };
        let mut data = Map::default();
        data.insert("client-ca-file", std::fs::read_to_string(&self.client_ca)?);
        let Some(proxy) = &self.proxy else { return Ok(data) };
        data.insert("requestheader-allowed-names", list(&proxy.allowed_names));
        data.insert("requestheader-client-ca-file", std::fs::read_to_string(&proxy.ca)?);
        data.insert("requestheader-extra-headers-prefix", list(&proxy.extra_headers_prefix));
        data.insert("requestheader-group-headers", list(&proxy.group_headers));
        if !proxy.uid_headers.is_empty() {
            data.insert("requestheader-uid-headers", list(&proxy.uid_headers));
        }
        data.insert("requestheader-username-headers", list(&proxy.username_headers));
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_say_who_is_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, name).unwrap();
            path
        };
        let texts = |list: &[&str]| list.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        let mut trust = ClusterAuthenticationInfo { client_ca: file("clients"), proxy: None };
        let text = |trust: &ClusterAuthenticationInfo| {
            let mut out = Vec::new();
            json::write_untyped(&Value::from(trust.data().unwrap()), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(&trust), r#"{"client-ca-file":"clients"}"#);
        let proxy = TrustedProxy {
            ca: file("proxies"),
            allowed_names: texts(&["a", "\"b\""]),
            username_headers: texts(&["X-Remote-User"]),
            uid_headers: texts(&[]),
            group_headers: texts(&["X-Remote-Group"]),
            extra_headers_prefix: texts(&["X-Remote-Extra-"]),
        };
        trust.proxy = Some(proxy.clone());
        let without_uid = text(&trust);
        assert_eq!(
            without_uid,
            r#"{"client-ca-file":"clients","requestheader-allowed-names":"[\"a\",\"\\\"b\\\"\"]","requestheader-client-ca-file":"proxies","requestheader-extra-headers-prefix":"[\"X-Remote-Extra-\"]","requestheader-group-headers":"[\"X-Remote-Group\"]","requestheader-username-headers":"[\"X-Remote-User\"]"}"#
        );
        trust.proxy = Some(TrustedProxy { uid_headers: texts(&["X-Remote-Uid"]), ..proxy });
        assert!(text(&trust).contains(r#""requestheader-uid-headers":"[\"X-Remote-Uid\"]""#));
        std::fs::remove_file(dir.path().join("proxies")).unwrap();
        assert!(trust.data().is_err());
    }
}
