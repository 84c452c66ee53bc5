//! Conversion by webhook: a ConversionReview over HTTPS, whose answer is checked before it is believed
//! (k8s.io/apiextensions-apiserver, `pkg/apiserver/conversion/webhook_converter.go`).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::prelude::{Engine, BASE64_STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{HeaderValue, ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use plinth_codec::{json, tree, Map, Value};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::server::Server;
use crate::status::ApiError;

/// How long a conversion may take, from connecting to the last byte of the answer; upstream's limit.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest answer: what the largest list of objects in flight may grow to.
const MOST_BYTES: usize = 64 << 20;
/// What the server understands, in the order of preference of the definition.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Where the webhook of a definition is, and how it is asked. Immutable; the TLS settings are made at first use.
#[derive(Debug)]
pub struct Webhook {
    target: Target,
    /// PEM; empty for the authorities of nobody.
    ca_bundle: Vec<u8>,
    /// `v1` or `v1beta1`; `None` when the definition names neither.
    review_version: Option<&'static str>,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
}

#[derive(Debug)]
enum Target {
    Url(String),
    Service { namespace: String, name: String, port: i64, path: String },
    Nothing,
}

/// Where to connect to.
struct Address {
    host: String,
    port: u16,
    /// The name that the certificate must have.
    server_name: String,
    path: String,
}

/// Why a webhook failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are what went wrong; their texts say it
pub enum WebhookError {
    #[error("no supported conversion review versions")]
    NoReviewVersion,
    #[error("Post {url:?}: {source}")]
    Io { url: String, source: std::io::Error },
    #[error("Post {url:?}: {source}")]
    Http { url: String, source: hyper::Error },
    #[error("Post {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    Timeout { url: String },
    #[error("invalid URL {0:?}")]
    Url(String),
    #[error("unable to load root certificates: {0}")]
    Certificates(String),
    #[error("service {0:?} not found")]
    NoService(String),
    #[error("the server answered {0}")]
    Status(u16),
    #[error("the answer is longer than {MOST_BYTES} bytes or broke off")]
    Answer,
    #[error("{0}")]
    Review(String),
}

impl Webhook {
    /// Reads `spec.conversion.webhook`.
    pub fn new(definition: &Value) -> Webhook {
        let null = Value::Null;
        let webhook = definition.at(&["spec", "conversion", "webhook"]).unwrap_or(&null);
        let config = webhook.get("clientConfig").unwrap_or(&null);
        let target = match (config.str_at(&["url"]), config.get("service")) {
            (Some(url), _) => Target::Url(url.to_owned()),
            (None, Some(service)) => {
                let text = |key: &str| service.str_at(&[key]).unwrap_or_default().to_owned();
                let port = service.get("port").and_then(Value::as_int).unwrap_or(443);
                Target::Service { namespace: text("namespace"), name: text("name"), port, path: text("path") }
            }
            (None, None) => Target::Nothing,
        };
        let bundle = config.str_at(&["caBundle"]).unwrap_or_default();
        let ca_bundle = BASE64_STANDARD.decode(bundle).unwrap_or_default();
        let versions = webhook.get("conversionReviewVersions").and_then(Value::as_array).unwrap_or_default();
        let known = |v: &Value| REVIEW_VERSIONS.iter().find(|known| v.as_str() == Some(known)).copied();
        Webhook { target, ca_bundle, review_version: versions.iter().find_map(known), tls: OnceLock::new() }
    }

    /// Converts trees to an `apiVersion`. Those that are in it already are not sent.
    ///
    /// # Errors
    /// 500 with what the webhook says, or what is wrong with its answer.
    pub async fn convert(
        &self,
        server: &Server,
        api_version: &str,
        trees: Vec<Value>,
    ) -> Result<Vec<Value>, ApiError> {
        let first = trees.first();
        let kind = first.and_then(|t| t.str_at(&["kind"])).unwrap_or_default().to_owned();
        let from = first.and_then(|t| t.str_at(&["apiVersion"])).unwrap_or_default().to_owned();
        let failed = |why: &dyn std::fmt::Display| {
            ApiError::new(
                500,
                crate::status::Reason::Unknown,
                format!("conversion webhook for {from}, Kind={kind} failed: {why}"),
            )
        };
        let is_there = |t: &Value| t.str_at(&["apiVersion"]) == Some(api_version);
        let wanted: Vec<Value> = trees.iter().filter(|t| !is_there(t)).cloned().collect();
        if wanted.is_empty() {
            return Ok(trees);
        }
        let uid = uuid::Uuid::new_v4().to_string();
        let count = wanted.len();
        let Some(version) = self.review_version else { return Err(failed(&WebhookError::NoReviewVersion)) };
        let review = tree!({
            "kind": "ConversionReview",
            "apiVersion": format!("apiextensions.k8s.io/{version}"),
            "request": tree!({ "uid": uid.as_str(), "desiredAPIVersion": api_version, "objects": wanted }),
        });
        let answer = match self.resolve(server).await {
            Ok(address) => self.ask(&address, &review).await,
            Err(fault) => Err(fault),
        };
        let answer = answer.map_err(|fault| failed(&fault))?;
        let converted = converted_objects(version, &uid, answer).map_err(|why| failed(&why))?;
        if converted.len() != count {
            let what = format!(
                "conversion webhook for {from}, Kind={kind} returned {} objects, expected {count}",
                converted.len()
            );
            return Err(ApiError::new(500, crate::status::Reason::Unknown, what));
        }
        let mut converted = converted.into_iter().enumerate();
        let mut all = Vec::with_capacity(trees.len());
        for original in trees {
            if is_there(&original) {
                all.push(original);
                continue;
            }
            let Some((index, new)) = converted.next() else { break };
            let new = checked(&original, new, api_version).map_err(|why| {
                let what = format!(
                    "conversion webhook for {from}, Kind={kind} returned invalid converted object at index {index}: {why}"
                );
                ApiError::new(500, crate::status::Reason::Unknown, what)
            })?;
            all.push(new);
        }
        Ok(all)
    }

    /// Where to connect to. A Service is looked up for its address: whoever runs outside of the cluster's network
    /// names a URL.
    async fn resolve(&self, server: &Server) -> Result<Address, WebhookError> {
        let Target::Service { namespace, name, port, path } = &self.target else {
            return self.address_of_url();
        };
        let registry = server.registry();
        let missing = || WebhookError::NoService(name.clone());
        let services = registry.get("", "v1", "services").ok_or_else(missing)?;
        let form = services.storage.as_ref().ok_or_else(missing)?;
        let record = server.store.get(form, namespace, name).await.ok().flatten().ok_or_else(missing)?;
        let service = crate::storage::object::to_tree(services, &record).map_err(|_| missing())?;
        let server_name = format!("{name}.{namespace}.svc");
        let host = match service.str_at(&["spec", "type"]) {
            Some("ExternalName") => service.str_at(&["spec", "externalName"]),
            _ => service.str_at(&["spec", "clusterIP"]).filter(|ip| *ip != "None"),
        };
        let host = host.unwrap_or(&server_name).to_owned();
        let path = if path.is_empty() { "/".to_owned() } else { path.clone() };
        Ok(Address { host, port: u16::try_from(*port).unwrap_or(443), server_name, path })
    }

    fn address_of_url(&self) -> Result<Address, WebhookError> {
        let Target::Url(url) = &self.target else { return Err(WebhookError::Url(String::new())) };
        let bad = || WebhookError::Url(url.clone());
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let host = uri.host().ok_or_else(bad)?.trim_matches(['[', ']']).to_owned();
        let path = uri.path_and_query().map_or("/", |p| p.as_str()).to_owned();
        Ok(Address { port: uri.port_u16().unwrap_or(443), server_name: host.clone(), host, path })
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, WebhookError> {
        let made = self.tls.get_or_init(|| client_config(&self.ca_bundle).map(Arc::new));
        made.clone().map_err(WebhookError::Certificates)
    }

    async fn ask(&self, address: &Address, review: &Value) -> Result<Value, WebhookError> {
        let url = format!(
            "https://{}:{}{}?timeout={}s",
            address.host,
            address.port,
            address.path,
            TIMEOUT.as_secs()
        );
        match tokio::time::timeout(TIMEOUT, self.ask_untimed(address, &url, review)).await {
            Ok(answer) => answer,
            Err(_) => Err(WebhookError::Timeout { url }),
        }
    }

    async fn ask_untimed(&self, address: &Address, url: &str, review: &Value) -> Result<Value, WebhookError> {
        let io = |source| WebhookError::Io { url: url.to_owned(), source };
        let http = |source| WebhookError::Http { url: url.to_owned(), source };
        let config = self.tls()?;
        let name = ServerName::try_from(address.server_name.clone())
            .map_err(|_| WebhookError::Url(url.to_owned()))?;
        let tcp = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(io)?;
        let stream = TlsConnector::from(config).connect(name, tcp).await.map_err(io)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
        // Ends with the exchange: the connection is used once.
        let driving = tokio::spawn(connection);
        let mut body = Vec::with_capacity(4096);
        json::write_untyped(review, &mut body);
        let path = format!(
            "{}{}timeout={}s",
            address.path,
            if address.path.contains('?') { '&' } else { '?' },
            TIMEOUT.as_secs()
        );
        let mut request = Request::post(path)
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| WebhookError::Url(url.to_owned()))?;
        let headers = request.headers_mut();
        let host = format!("{}:{}", address.server_name, address.port);
        headers.insert(HOST, HeaderValue::try_from(host).map_err(|_| WebhookError::Url(url.to_owned()))?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("kube-apiserver-admission"));
        let response = sender.send_request(request).await.map_err(http)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
        driving.abort();
        if !status.is_success() {
            return Err(WebhookError::Status(status.as_u16()));
        }
        let body = body.map_err(|_| WebhookError::Answer)?.to_bytes();
        json::parse(&body).map_err(|e| WebhookError::Review(e.to_string()))
    }
}

/// Why a bundle of certificates is none; `None` when it is one, or is not there.
pub fn ca_bundle_fault(bundle: &[u8]) -> Option<&'static str> {
    const WHY: &str = "unable to load root certificates: unable to parse bytes as PEM block";
    let is_blank = bundle.iter().all(u8::is_ascii_whitespace);
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(bundle).collect();
    let usable = || {
        let mut roots = RootCertStore::empty();
        certificates.iter().flatten().all(|c| roots.add(c.clone()).is_ok())
    };
    let broken = certificates.is_empty() || certificates.iter().any(Result::is_err) || !usable();
    (!is_blank && broken).then_some(WHY)
}

fn client_config(bundle: &[u8]) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        roots.add(certificate.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The objects of an answer that is one, of that request, and a success.
fn converted_objects(version: &str, uid: &str, mut answer: Value) -> Result<Vec<Value>, String> {
    let expected = format!("apiextensions.k8s.io/{version}");
    let (got_version, got_kind) =
        (answer.str_at(&["apiVersion"]).unwrap_or_default(), answer.str_at(&["kind"]).unwrap_or_default());
    if version == "v1" && (got_version != expected || got_kind != "ConversionReview") {
        return Err(format!(
            "expected webhook response of {expected}, Kind=ConversionReview, got {got_version}, Kind={got_kind}"
        ));
    }
    let Some(response) = answer.get_mut("response").filter(|r| r.as_object().is_some()) else {
        return Err("no response provided".into());
    };
    let got = response.str_at(&["uid"]).unwrap_or_default();
    if version == "v1" && got != uid {
        return Err(format!("expected response.uid={uid:?}, got {got:?}"));
    }
    let status = response.str_at(&["result", "status"]).unwrap_or_default();
    if status != "Success" {
        let message = response.str_at(&["result", "message"]).unwrap_or_default();
        return Err(match message.is_empty() {
            true => format!("response.result.status was '{status}', not 'Success'"),
            false => message.to_owned(),
        });
    }
    match response.get_mut("convertedObjects").map(std::mem::take) {
        Some(Value::Array(objects)) => Ok(objects),
        _ => Ok(Vec::new()),
    }
}

/// A converted object with the metadata of the original; of its own only labels and annotations are kept.
fn checked(original: &Value, mut new: Value, api_version: &str) -> Result<Value, String> {
    let text = |v: &Value, path: &[&str]| v.str_at(path).unwrap_or_default().to_owned();
    let got = text(&new, &["apiVersion"]);
    if got != api_version {
        return Err(format!("invalid groupVersion (expected {api_version}, received {got})"));
    }
    let (expected, got) = (text(original, &["kind"]), text(&new, &["kind"]));
    if expected != got {
        return Err(format!("invalid kind (expected {expected}, received {got})"));
    }
    for (key, what) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (expected, got) = (text(original, &["metadata", key]), text(&new, &["metadata", key]));
        if expected != got {
            return Err(format!("must have the same {what}: {expected} != {got}"));
        }
    }
    let Some(answered) = new.get_mut("metadata").map(std::mem::take) else {
        return Err("missing metadata in converted object".into());
    };
    let Value::Object(mut answered) = answered else {
        return Err("invalid metadata in converted object".into());
    };
    let mut metadata = original.get("metadata").and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
    for field in ["labels", "annotations"] {
        match answered.remove(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
            }
            Some(Value::Object(texts)) => {
                if let Some((key, _)) = texts.iter().find(|(_, v)| v.as_str().is_none()) {
                    return Err(format!("metadata.{field}[{key}] must be a string in converted object"));
                }
                let value = Value::Object(texts);
                let faults = match field {
                    "labels" => crate::metadata::label_faults(Some(&value), "metadata.labels"),
                    _ => crate::metadata::annotation_faults(Some(&value), "metadata.annotations"),
                };
                if let Some(fault) = faults.first() {
                    return Err(format!("{}: {}", fault.field, fault.message));
                }
                metadata.insert(field, value);
            }
            Some(_) => return Err(format!("invalid metadata.{field} in converted object")),
        }
    }
    if let Some(object) = new.as_object_mut() {
        object.insert("metadata", metadata);
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn answers_are_believed_only_when_they_fit() {
        let rows = [
            (r#"{}"#, "expected webhook response of"),
            (r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1"}"#, "no response provided"),
            (
                r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"x"}}"#,
                r#"expected response.uid="u", got "x""#,
            ),
            (
                r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"u","result":{"status":"Failed","message":"no way"}}}"#,
                "no way",
            ),
            (
                r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"u","result":{}}}"#,
                "response.result.status was ''",
            ),
        ];
        for (answer, expected) in rows {
            let fault = converted_objects("v1", "u", parse(answer)).unwrap_err();
            assert!(fault.contains(expected), "{answer}: {fault}");
        }
        let good = r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"u","result":{"status":"Success"},"convertedObjects":[{}]}}"#;
        assert_eq!(converted_objects("v1", "u", parse(good)).unwrap().len(), 1);
    }

    #[test]
    fn of_metadata_only_labels_and_annotations_may_change() {
        let original = parse(
            r#"{"apiVersion":"g/v1","kind":"K","metadata":{"name":"n","uid":"u","labels":{"a":"1"},"finalizers":["x/y"]}}"#,
        );
        let convert = |text: &str| checked(&original, parse(text), "g/v2");
        let rows = [
            (r#"{"apiVersion":"g/v1","kind":"K"}"#, "invalid groupVersion"),
            (r#"{"apiVersion":"g/v2","kind":"L"}"#, "invalid kind"),
            (
                r#"{"apiVersion":"g/v2","kind":"K","metadata":{"name":"m","uid":"u"}}"#,
                "must have the same name: n != m",
            ),
            (
                r#"{"apiVersion":"g/v2","kind":"K","metadata":{"name":"n","uid":"v"}}"#,
                "must have the same UID",
            ),
            (
                r#"{"apiVersion":"g/v2","kind":"K","metadata":{"name":"n","uid":"u","labels":{"a":1}}}"#,
                "must be a string",
            ),
            (
                r#"{"apiVersion":"g/v2","kind":"K","metadata":{"name":"n","uid":"u","labels":{"-":"1"}}}"#,
                "metadata.labels",
            ),
        ];
        for (answer, expected) in rows {
            let fault = convert(answer).unwrap_err();
            assert!(fault.contains(expected), "{answer}: {fault}");
        }
        let good = convert(r#"{"apiVersion":"g/v2","kind":"K","metadata":{"name":"n","uid":"u","labels":{"b":"2"},"finalizers":[]},"spec":1}"#).unwrap();
        assert_eq!(good.str_at(&["metadata", "labels", "b"]), Some("2"));
        assert!(good.at(&["metadata", "labels", "a"]).is_none());
        assert_eq!(good.at(&["metadata", "finalizers"]), original.at(&["metadata", "finalizers"]));
    }

    #[test]
    fn bundles_are_certificates_or_nothing() {
        assert!(ca_bundle_fault(b" \n").is_none());
        assert!(ca_bundle_fault(b"bogus").is_some());
    }
}
