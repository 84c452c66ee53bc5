//! The ConfigMap with which extension API servers, kube-controller-manager and kube-scheduler learn the
//! trusted authorities of client certificates and of the front proxy, and the proxy's headers (kubernetes
//! `pkg/controlplane/controller/clusterauthenticationtrust`).
//!
//! Replicas may be started with different files and flags, while an authority is rotated. As upstream, each
//! adds what it trusts to what is there: otherwise they would overwrite each other. A server without replicas
//! is the only writer and replaces the data, so an authority that its files lack is removed.

use std::sync::Arc;

use plinth_codec::{json, pem, tree, Map, Value};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::reconcile_object::reconcile;
use plinth_api::ApiError;
use plinth_apiserver::context::Server;
use plinth_pki::parse_certificates;

const RESOURCE: (&str, &str, &str) = ("", "v1", "configmaps");
const NAME: &str = "extension-apiserver-authentication";
const NAMESPACE: &str = "kube-system";

/// The entry with the authorities of client certificates, and that with those of front proxies.
const CLIENT_CA: &str = "client-ca-file";
const PROXY_CA: &str = "requestheader-client-ca-file";
/// Entries that are lists, as JSON. All but [`UID_HEADERS`] are there whenever [`PROXY_CA`] is.
const LISTS: [&str; 5] = [
    "requestheader-allowed-names",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    UID_HEADERS,
    "requestheader-username-headers",
];
const UID_HEADERS: &str = "requestheader-uid-headers";

/// How long after its end a certificate stays in the ConfigMap: clocks differ.
const SLACK: Duration = Duration::minutes(5);

/// Creates or repairs the ConfigMap.
///
/// # Errors
/// When the ConfigMap cannot be written.
pub async fn ensure_trust(server: &Arc<Server>) -> Result<(), ApiError> {
    let own = server.authenticator.cluster_authentication_info().data();
    let object = tree!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": tree!({ "name": NAME, "namespace": NAMESPACE }),
        "data": Value::from(own.clone()),
    });
    let replaced = |_: &Value, new: &mut Map| drop(new.insert("data", Value::from(own.clone())));
    if !server.store.engine().is_replica() {
        return reconcile(server, RESOURCE, NAMESPACE, object, &replaced).await;
    }
    let now = OffsetDateTime::now_utc();
    let united = |live: &Value, new: &mut Map| drop(new.insert("data", Value::from(unite(live, &own, now))));
    match reconcile(server, RESOURCE, NAMESPACE, object.clone(), &united).await {
        // Too large for an object: replicas whose own data it then lacks add them again.
        Err(error) if matches!(error.code, 413 | 422) => {
            reconcile(server, RESOURCE, NAMESPACE, object, &replaced).await
        }
        outcome => outcome,
    }
}

/// What a ConfigMap holds that can be read, and the own data behind it.
fn unite(live: &Value, own: &Map, now: OffsetDateTime) -> Map {
    let texts = |entry: &str| {
        let own = own.get(entry).and_then(Value::as_str);
        [live.str_at(&["data", entry]), own].map(Option::unwrap_or_default)
    };
    let mut data = Map::default();
    for entry in [CLIENT_CA, PROXY_CA] {
        let bundle = unite_certificates(texts(entry), now);
        if !bundle.is_empty() {
            data.insert(entry, bundle);
        }
    }
    if !data.contains(PROXY_CA) {
        return data;
    }
    for entry in LISTS {
        let list = unite_lists(texts(entry));
        if entry != UID_HEADERS || !list.is_empty() {
            let mut text = Vec::new();
            json::write_untyped(&Value::from(list), &mut text);
            data.insert(entry, String::from_utf8_lossy(&text).into_owned());
        }
    }
    data
}

/// The certificates of bundles that have not ended, each once.
fn unite_certificates(bundles: [&str; 2], now: OffsetDateTime) -> String {
    let mut united = Vec::new();
    for certificate in bundles.iter().filter_map(|text| parse_certificates(text.as_bytes()).ok()).flatten() {
        let holds = X509Certificate::from_der(&certificate)
            .is_ok_and(|(_, parsed)| parsed.validity().not_after.to_datetime() > now - SLACK);
        if holds && !united.contains(&certificate) {
            united.push(certificate);
        }
    }
    united.iter().map(|certificate| pem::encode("CERTIFICATE", certificate)).collect()
}

/// The texts of lists in JSON, each once.
fn unite_lists(lists: [&str; 2]) -> Vec<Value> {
    let mut united = Vec::new();
    for list in lists.iter().filter_map(|text| json::parse(text.as_bytes()).ok()) {
        for text in list.as_array().unwrap_or_default().iter().filter(|text| text.as_str().is_some()) {
            if !united.contains(text) {
                united.push(text.clone());
            }
        }
    }
    united
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(days: i64) -> String {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.not_after = OffsetDateTime::now_utc() + Duration::days(days);
        let key = rcgen::KeyPair::generate().unwrap();
        pem::encode("CERTIFICATE", params.self_signed(&key).unwrap().der())
    }

    fn data(entries: &[(&str, &str)]) -> Map {
        entries.iter().map(|(entry, text)| ((*entry).into(), Value::from(*text))).collect()
    }

    #[test]
    fn what_replicas_trust_is_united() {
        let now = OffsetDateTime::now_utc();
        let (old, new, ended) = (authority(1), authority(2), authority(-1));
        let live = |data: Map| tree!({ "data": Value::from(data) });

        let own = data(&[(CLIENT_CA, &new)]);
        let both = unite(&live(data(&[(CLIENT_CA, &format!("{ended}{old}")), ("other", "x")])), &own, now);
        assert_eq!(both, data(&[(CLIENT_CA, &format!("{old}{new}"))]));
        // No replica changes what has all that it trusts.
        assert_eq!(unite(&live(both.clone()), &data(&[(CLIENT_CA, &old)]), now), both);
        assert_eq!(unite(&live(data(&[(CLIENT_CA, "no certificate")])), &own, now), own);

        let (names, headers) = ("requestheader-allowed-names", "requestheader-username-headers");
        let own = data(&[(CLIENT_CA, &new), (PROXY_CA, &old), (names, r#"["a","b"]"#), (headers, "[")]);
        let shown = data(&[(PROXY_CA, &new), (names, r#"["c","a",1]"#), (headers, r#"["X-Remote-User"]"#)]);
        let united = unite(&live(shown), &own, now);
        let text = |entry: &str| united.get(entry).and_then(Value::as_str);
        assert_eq!(text(PROXY_CA), Some(&*format!("{new}{old}")));
        assert_eq!(text(names), Some(r#"["c","a","b"]"#));
        assert_eq!(text(headers), Some(r#"["X-Remote-User"]"#));
        assert_eq!((text("requestheader-group-headers"), text(UID_HEADERS)), (Some("[]"), None));
    }
}
