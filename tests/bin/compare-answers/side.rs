//! One of the two servers: its process, its connections and the answers that later requests refer to.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use plinth_benches::api::client::{Connection, Endpoint, Identity, Protocol};
use plinth_benches::api::server::{Launch, Server, READY_WITHIN};
use plinth_benches::api::Error;
use serde_json::Value;
use tempfile::TempDir;

use super::normalize::Normalizer;
use super::script::{merge, Body, Request, Requester};

/// Controllers write whenever they reconcile, which no two servers do at the same moment.
const CONTROLLERS: &str = "--controllers=-namespace-controller,-garbage-collector-controller,\
    -persistentvolumeclaim-protection-controller,-persistentvolume-protection-controller,\
    -volumeattributesclass-protection-controller,-resourcequota-controller,\
    -clusterrole-aggregation-controller,-serviceaccount-controller,-serviceaccount-token-controller,\
    -legacy-serviceaccount-token-cleaner-controller,\
    -root-ca-certificate-publisher-controller,-certificatesigningrequest-approving-controller,\
    -certificatesigningrequest-signing-controller,-certificatesigningrequest-cleaner-controller";
/// Bearer tokens of the corpus: token, user name, user UID, groups.
const TOKENS: &str = "alice-token,alice,1,\"developers\"\nbob-token,bob,2,\"system:masters\"\n";
/// An answer takes longer only when the server hangs.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// An answer as it came.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The status code; 0 where the connection broke.
    pub status: u16,
    /// Names and values, by name; repeated headers in the order sent.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body, or the error of the connection.
    pub body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(existing, _)| existing == name).map(|(_, value)| value.as_slice())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// A running server with what was captured of its answers.
pub(crate) struct Side {
    pub normalizer: Normalizer,
    endpoint: Endpoint,
    connections: HashMap<(Requester, bool), Connection>,
    captured: HashMap<String, (Vec<u8>, Value)>,
    _server: Server,
    _directory: TempDir,
}

impl Side {
    /// Starts a server on a new data directory.
    pub(crate) async fn start(binary: &Path) -> Result<Side, Box<dyn std::error::Error>> {
        let launch = Launch::new(Some(binary.to_owned()), None)?;
        let directory = launch.data_dir()?;
        let tokens = directory.path().join("tokens.csv");
        std::fs::write(&tokens, TOKENS)?;
        let tokens = format!("--token-auth-file={}", tokens.display());
        let mut server = launch.start(directory.path(), &[CONTROLLERS, &tokens]).await?;
        server.ready(READY_WITHIN).await?;
        let mut side = Side {
            normalizer: Normalizer::new(server.port(), "")?,
            endpoint: server.endpoint()?,
            connections: HashMap::new(),
            captured: HashMap::new(),
            _server: server,
            _directory: directory,
        };
        let namespace = side.call(&Request::get("/api/v1/namespaces/default")).await.json();
        let created = namespace["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        side.normalizer = Normalizer::new(side._server.port(), created)?;
        Ok(side)
    }

    /// Sends a request, once more on a new connection where the old one was closed, and captures the answer.
    pub(crate) async fn call(&mut self, request: &Request) -> Answer {
        let mut last = String::new();
        for _ in 0..2 {
            match tokio::time::timeout(ANSWER_WITHIN, self.attempt(request)).await {
                Ok(Ok(answer)) => {
                    if let Some(name) = &request.capture {
                        self.captured.insert(name.clone(), (answer.body.clone(), answer.json()));
                    }
                    return answer;
                }
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => last = "no answer in time".to_owned(),
            }
            self.connections.remove(&(request.requester, request.http2));
        }
        Answer { status: 0, headers: Vec::new(), body: last.into_bytes() }
    }

    async fn attempt(&mut self, request: &Request) -> Result<Answer, Error> {
        let key = (request.requester, request.http2);
        let path = self.expand(&request.path);
        let mut sent = http::Request::new(Full::new(Bytes::from(self.body(&request.body))));
        *sent.method_mut() = request.method.clone();
        for (name, value) in &request.headers {
            if let Ok(value) = http::HeaderValue::from_str(&self.expand(value)) {
                sent.headers_mut().append(*name, value);
            }
        }
        if !self.connections.contains_key(&key) {
            let endpoint = match request.requester {
                Requester::Administrator => self.endpoint.clone(),
                Requester::Unauthenticated => self.endpoint.with_identity(Identity::Anonymous),
            };
            let protocol = if request.http2 { Protocol::Http2 } else { Protocol::Http1 };
            self.connections.insert(key, endpoint.connect(protocol).await?);
        }
        let Some(connection) = self.connections.get_mut(&key) else { return Ok(Answer::default()) };
        let (head, body) = connection.send(sent, &path).await?.into_parts();
        let body = http_body_util::BodyExt::collect(body).await?.to_bytes().to_vec();
        let mut headers: Vec<(String, Vec<u8>)> =
            head.headers.iter().map(|(n, v)| (n.to_string(), v.as_bytes().to_vec())).collect();
        headers.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Answer { status: head.status.as_u16(), headers, body })
    }

    fn body(&self, body: &Body) -> Vec<u8> {
        match body {
            Body::Empty => Vec::new(),
            Body::Template(text) => self.expand(text).into_bytes(),
            Body::Bytes(bytes) => bytes.clone(),
            Body::Changed(name, change) => {
                let mut object = self.captured.get(name).map(|(_, json)| json.clone()).unwrap_or_default();
                merge(&mut object, change);
                self.expand(&object.to_string()).into_bytes()
            }
            Body::Captured(name) => self.captured.get(name).map(|(raw, _)| raw.clone()).unwrap_or_default(),
        }
    }

    /// Replaces `${NAME.PATH}` by what was captured; `absent` where nothing was.
    fn expand(&self, template: &str) -> String {
        let mut expanded = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((reference, remaining)) = after.split_once('}') else { break };
            expanded.push_str(before);
            let (name, path) = reference.split_once('.').unwrap_or((reference, ""));
            let captured = self.captured.get(name).map(|(_, json)| json);
            let value = captured.and_then(|json| json.pointer(&format!("/{}", path.replace('.', "/"))));
            expanded.push_str(&match value {
                Some(Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
                None => "absent".to_owned(),
            });
            rest = remaining;
        }
        expanded + rest
    }

    /// The server's latest revision.
    pub(crate) async fn revision(&mut self) -> u64 {
        let list = self.call(&Request::list("/api/v1/namespaces/default/configmaps?limit=1")).await.json();
        list["metadata"]["resourceVersion"].as_str().and_then(|r| r.parse().ok()).unwrap_or(0)
    }

    /// The length of the certificates that the server publishes.
    pub(crate) async fn certificates_length(&mut self) -> usize {
        let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        self.call(&Request::get(path)).await.json()["data"].to_string().len()
    }

    /// Makes so many revisions and leaves nothing behind.
    pub(crate) async fn advance(&mut self, revisions: u64) {
        let collection = "/api/v1/namespaces/default/configmaps";
        let path = format!("{collection}/revisions");
        let object =
            serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "revisions"}});
        self.call(&Request::create(collection, &object)).await;
        for number in 2..revisions {
            let change = format!(r#"{{"data":{{"number":"{number}"}}}}"#);
            self.call(&Request::patch(&path, super::script::MERGE_PATCH, change)).await;
        }
        self.call(&Request::delete(&path)).await;
    }
}
