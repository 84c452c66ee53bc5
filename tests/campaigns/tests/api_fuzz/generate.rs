//! Random requests: bodies grown from schemas or from samples and then damaged, parameters with and without
//! sense.

use std::sync::LazyLock;

use bytes::Bytes;
use http::Method;
use plinth_benches::api::client::{Call, JSON};
use plinth_benches::api::objects::Rng;
use serde_json::{json, Map, Value};

use super::document::{Document, Operation};

pub(super) const NAMESPACES: [&str; 3] = ["fuzz-0", "fuzz-1", "fuzz-2"];
const NAMES: [&str; 6] = ["n0", "n1", "n2", "n3", "n0.example.com", "v1.n0.example.com"];

/// Texts that some field takes, and some that none should. Addresses are of this machine alone: what the
/// server connects to because an object says so must not leave it.
const TEXTS: [&str; 48] = [
    "",
    "a",
    "n0",
    "n1",
    "n2",
    "fuzz-0",
    "default",
    "kube-system",
    "example.com/x",
    "n0.example.com",
    "Always",
    "Never",
    "IfNotPresent",
    "ClusterIP",
    "NodePort",
    "None",
    "TCP",
    "UDP",
    "Exists",
    "In",
    "NotIn",
    "Equal",
    "127.0.0.1",
    "::1",
    "127.0.0.0/8",
    "fd00::/64",
    "0",
    "-1",
    "1",
    "100m",
    "1Gi",
    "1e30",
    "50%",
    "-5%",
    "2020-01-01T00:00:00Z",
    "1h",
    "* * * * *",
    "/etc/x",
    "../..",
    "true",
    "object.spec == 1",
    "self.x > 0",
    "{.metadata.name}",
    "\u{0}",
    "\u{feff}\u{202e}é漢",
    "a/b/c/d",
    "$(X)",
    "system:masters",
];
const NUMBERS: [i64; 14] =
    [0, 1, 2, 5, 80, 443, 8080, 30_000, 65_536, -1, i32::MAX as i64, i32::MIN as i64, i64::MAX, i64::MIN];
const SELECTORS: [&str; 12] = [
    "",
    "a=b",
    "a!=b",
    "a",
    "!a",
    "a in (b,c)",
    "a notin ()",
    "metadata.name=n0",
    "metadata.namespace=fuzz-0",
    "status.phase=Running",
    "=,=",
    "a in (b",
];
const ACCEPTS: [&str; 12] = [
    JSON,
    JSON,
    JSON,
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;pretty=1",
    "*/*",
    "text/x;q=2",
];
const CONTENT_TYPES: [&str; 9] = [
    JSON,
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+cbor",
];

/// What one worker makes its requests of.
pub(super) struct Generator<'a> {
    pub rng: Rng,
    document: &'a Document,
    /// Bodies that the server sent, by media type: sent back with a bit changed.
    echoes: Vec<(&'static str, Bytes)>,
    /// resourceVersions and continue tokens that the server sent.
    versions: Vec<String>,
    continues: Vec<String>,
}

impl<'a> Generator<'a> {
    pub(super) fn new(document: &'a Document, seed: u64) -> Generator<'a> {
        let (echoes, versions, continues) = Default::default();
        Generator { rng: Rng::new(seed), document, echoes, versions, continues }
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.rng.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.below(from.len() as u64) as usize]
    }

    /// Keeps parts of an answer for later requests.
    pub(super) fn learn(&mut self, call: &Call, body: &Bytes) {
        if body.len() > 64 << 10 {
            return;
        }
        if let Some(media_type) = CONTENT_TYPES[2..4].iter().find(|t| call.accept == **t) {
            keep(&mut self.rng, &mut self.echoes, (*media_type, body.clone()));
        } else if let Ok(answer) = serde_json::from_slice::<Value>(body) {
            let metadata = &answer["metadata"];
            if let Some(version) = metadata["resourceVersion"].as_str() {
                keep(&mut self.rng, &mut self.versions, version.to_owned());
            }
            if let Some(token) = metadata["continue"].as_str() {
                keep(&mut self.rng, &mut self.continues, token.to_owned());
            }
        }
    }

    /// The next request.
    pub(super) fn call(&mut self) -> Call {
        let document = self.document;
        let operation = &document.operations[self.rng.below(document.operations.len() as u64) as usize];
        let mut namespace = self.pick(&NAMESPACES).to_owned();
        let mut name = self.pick(&NAMES).to_owned();
        if self.one_in(20) {
            name = self.text();
        }
        if self.one_in(40) {
            namespace = self.text();
        }
        let mut path = String::new();
        for part in operation.path.split_inclusive(['{', '}']) {
            match part {
                "namespace}" => path.push_str(&escape(&namespace)),
                "name}" => path.push_str(&escape(&name)),
                _ if part.ends_with('}') => path.push_str(&escape(&self.text())),
                _ => path.push_str(part.trim_end_matches('{')),
            }
        }
        if self.one_in(50) {
            let at = self.rng.below(path.len() as u64) as usize + 1;
            let odd = self.pick(&["%2F", "%2e%2e/", "//", "%ff", "%", "/", "/watch", "%00", "é", "/status"]);
            if path.is_char_boundary(at) {
                path.insert_str(at, odd);
            }
        }
        let mut query = self.query(operation);
        // A watch without an end of its own would be one of this test's time.
        if operation.action == "watch"
            || operation.action == "watchlist"
            || query.contains("watch=")
            || path.contains("/watch")
        {
            // The first of several counts.
            query.insert_str(0, "timeoutSeconds=1&");
        }
        if !query.is_empty() {
            path.push('?');
            path.push_str(&query);
        }
        let method = if self.one_in(100) {
            self.pick(&[&Method::HEAD, &Method::OPTIONS, &Method::TRACE, &Method::PUT]).clone()
        } else {
            operation.method.clone()
        };
        let mut call =
            Call::new(method, path).accept(if self.one_in(3) { self.pick(&ACCEPTS) } else { JSON });
        if let Some((media_types, schema)) = &operation.body {
            let (content_type, body) = self.body(operation, media_types, schema, &namespace, &name);
            call = call.body(content_type, body);
        }
        call
    }

    fn text(&mut self) -> String {
        match self.rng.below(30) {
            0 => "x".repeat(300),
            1 => "é".repeat(70),
            2 => {
                let length = self.rng.below(12);
                (0..length).filter_map(|_| char::from_u32(self.rng.below(0x500) as u32)).collect()
            }
            _ => self.pick(&TEXTS).to_owned(),
        }
    }

    fn query(&mut self, operation: &Operation) -> String {
        let mut query = String::new();
        for (name, of_type) in &operation.query {
            let wanted = match name.as_str() {
                "watch" => self.one_in(60),
                "follow" => self.one_in(30),
                "dryRun" => self.one_in(6),
                "fieldManager" | "force" => self.one_in(2),
                _ => self.one_in(8),
            };
            if !wanted {
                continue;
            }
            let value = match name.as_str() {
                _ if self.one_in(25) => self.text(),
                "resourceVersion" if !self.one_in(4) && !self.versions.is_empty() => {
                    self.versions[self.rng.below(self.versions.len() as u64) as usize].clone()
                }
                "resourceVersion" => self.pick(&["0", "1", "", "9999999999"]).to_owned(),
                "resourceVersionMatch" => self.pick(&["Exact", "NotOlderThan", "exact"]).to_owned(),
                "continue" if !self.one_in(4) && !self.continues.is_empty() => {
                    self.continues[self.rng.below(self.continues.len() as u64) as usize].clone()
                }
                "labelSelector" | "fieldSelector" => self.pick(&SELECTORS).to_owned(),
                "dryRun" => "All".to_owned(),
                "fieldValidation" => self.pick(&["Strict", "Warn", "Ignore"]).to_owned(),
                "propagationPolicy" => self.pick(&["Orphan", "Background", "Foreground"]).to_owned(),
                "timeoutSeconds" => "1".to_owned(),
                _ if of_type == "boolean" => self.pick(&["true", "false", "1", "0"]).to_owned(),
                _ if of_type == "integer" => self.pick(&NUMBERS).to_string(),
                _ => self.text(),
            };
            if !query.is_empty() {
                query.push('&');
            }
            query.push_str(name);
            query.push('=');
            query.push_str(&escape(&value));
        }
        query
    }

    fn body(
        &mut self,
        operation: &Operation,
        media_types: &[String],
        schema: &Value,
        namespace: &str,
        name: &str,
    ) -> (&'static str, Bytes) {
        let any = media_types.iter().any(|m| m == "*/*");
        let declared: Vec<&'static str> = match any {
            true => [JSON, JSON, JSON].into_iter().chain(CONTENT_TYPES.into_iter().take(4)).collect(),
            false => CONTENT_TYPES.into_iter().filter(|t| media_types.iter().any(|m| m == t)).collect(),
        };
        let content_type = match self.one_in(30) || declared.is_empty() {
            true => self.pick(&CONTENT_TYPES),
            false => self.pick(&declared),
        };
        if operation.method == Method::PATCH && content_type == "application/json-patch+json" {
            return (content_type, self.json_patch().to_string().into());
        }
        let mut object = match (&operation.kind, self.one_in(3)) {
            (Some((api_version, kind)), false) => sample(api_version, kind, name, namespace),
            _ => None,
        };
        let changes = self.rng.below(4);
        match &mut object {
            Some(object) => (0..changes).for_each(|_| self.change(schema, object, 0)),
            None => object = Some(self.grow(schema, 0)),
        }
        let mut object = object.unwrap_or_default();
        if let (Some((api_version, kind)), Value::Object(members), false) =
            (&operation.kind, &mut object, self.one_in(20))
        {
            members.entry("apiVersion").or_insert_with(|| json!(api_version));
            members.entry("kind").or_insert_with(|| json!(kind));
            if let Value::Object(metadata) = members.entry("metadata").or_insert_with(|| json!({})) {
                metadata.insert("name".into(), json!(name));
                if !self.versions.is_empty() && self.one_in(20) {
                    let at = self.rng.below(self.versions.len() as u64) as usize;
                    metadata.insert("resourceVersion".into(), json!(self.versions[at]));
                }
            }
        }
        tame(&mut object);
        let mut text = object.to_string().into_bytes();
        if content_type.ends_with("protobuf") || content_type.ends_with("cbor") {
            let known: Vec<Bytes> =
                self.echoes.iter().filter(|(t, _)| *t == content_type).map(|(_, b)| b.clone()).collect();
            if !known.is_empty() {
                text = known[self.rng.below(known.len() as u64) as usize].to_vec();
            }
            for _ in 0..self.rng.below(4) {
                self.damage(&mut text);
            }
        } else if self.one_in(25) {
            self.damage(&mut text);
        }
        (content_type, text.into())
    }

    /// One byte of a body.
    fn damage(&mut self, body: &mut Vec<u8>) {
        let at = self.rng.below(body.len() as u64 + 1) as usize;
        match self.rng.below(4) {
            0 => body.truncate(at),
            1 => body.insert(at, self.rng.next_u64() as u8),
            _ if at < body.len() => body[at] ^= 1 << self.rng.below(8),
            _ => {}
        }
    }

    fn json_patch(&mut self) -> Value {
        let count = self.rng.below(4);
        let operations = (0..count).map(|_| {
            let op = self.pick(&["add", "remove", "replace", "move", "copy", "test", "x"]);
            let mut path = String::new();
            for _ in 0..1 + self.rng.below(3) {
                path.push('/');
                path.push_str(self.pick(&[
                    "metadata",
                    "labels",
                    "spec",
                    "status",
                    "a",
                    "0",
                    "-",
                    "data",
                    "~1",
                    "~",
                    "finalizers",
                    "99",
                ]));
            }
            let value = match self.rng.below(3) {
                0 => json!(self.text()),
                1 => json!({"a": self.text()}),
                _ => json!([self.text(), null, 1.5]),
            };
            json!({"op": op, "path": path, "from": "/metadata/name", "value": value})
        });
        Value::Array(operations.collect())
    }

    /// A value as a schema has it, with what does not fit now and then.
    fn grow(&mut self, schema: &Value, depth: usize) -> Value {
        if self.one_in(60) {
            return self.junk();
        }
        let document = self.document;
        let schema = document.resolve(schema);
        if let Some(choices) = schema["enum"].as_array().filter(|c| !c.is_empty()) {
            return choices[self.rng.below(choices.len() as u64) as usize].clone();
        }
        if depth > 12 {
            return Value::Null;
        }
        match schema["type"].as_str() {
            Some("object") => {
                let mut members = Map::new();
                let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
                for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                    let must = required.iter().any(|r| r == name);
                    // Few members of each object, so that the deep ones are reached.
                    let chance = if depth == 0 { 2 } else { 3 + depth as u64 };
                    let wanted = if must { !self.one_in(30) } else { self.one_in(chance) };
                    if wanted && (name != "managedFields" || self.one_in(10)) {
                        members.insert(name.clone(), self.grow(property, depth + 1));
                    }
                }
                if let Some(of) = schema.get("additionalProperties").filter(|p| p.is_object()) {
                    for _ in 0..self.rng.below(3) {
                        members.insert(self.text(), self.grow(of, depth + 1));
                    }
                }
                Value::Object(members)
            }
            Some("array") => {
                let count = self.rng.below(3);
                Value::Array((0..count).map(|_| self.grow(&schema["items"], depth + 1)).collect())
            }
            Some("string") => match schema["format"].as_str() {
                Some("byte") => json!(self.pick(&["", "YQ==", "!", "LS0tLS1CRUdJTg=="])),
                Some("date-time") => {
                    json!(self.pick(&["2020-01-01T00:00:00Z", "2020-01-01T00:00:00.1Z", "x"]))
                }
                Some("int-or-string") if self.one_in(2) => json!(self.pick(&NUMBERS)),
                _ => json!(self.text()),
            },
            Some("integer") => json!(self.pick(&NUMBERS)),
            Some("number") => json!(self.pick(&[0.0, 1.5, -1e300])),
            Some("boolean") => json!(self.one_in(2)),
            _ => self.junk(),
        }
    }

    /// Something of another type, or too much of one.
    fn junk(&mut self) -> Value {
        match self.rng.below(9) {
            0 => Value::Null,
            1 => json!(self.pick(&NUMBERS)),
            2 => json!(1e100),
            3 => json!([]),
            4 => json!({}),
            5 => json!({"a": {"b": [{"c": self.text()}]}}),
            6 => (0..self.rng.below(200)).fold(json!(1), |inner, _| json!([inner])),
            7 => json!(true),
            _ => json!(self.text()),
        }
    }

    /// Changes one place of a sample: another value of its schema, nothing, or something that does not fit.
    fn change(&mut self, schema: &Value, value: &mut Value, depth: usize) {
        let document = self.document;
        let schema = document.resolve(schema);
        if depth > 0 && self.one_in(4) {
            *value = self.grow(schema, depth.min(6));
            return;
        }
        match value {
            Value::Object(members) => {
                let properties: Vec<&String> =
                    schema["properties"].as_object().into_iter().flat_map(Map::keys).collect();
                if !properties.is_empty() && self.one_in(3) {
                    let name = self.pick(&properties);
                    let grown = self.grow(&schema["properties"][name], (depth + 1).min(6));
                    members.insert(name.clone(), grown);
                } else if !members.is_empty() {
                    let at = self.rng.below(members.len() as u64) as usize;
                    let name = members.keys().nth(at).cloned().unwrap_or_default();
                    if depth > 0 && self.one_in(5) {
                        members.remove(&name);
                        return;
                    }
                    let below =
                        schema["properties"].get(&name).or_else(|| schema.get("additionalProperties"));
                    let below = below.unwrap_or(&Value::Null);
                    if let Some(member) = members.get_mut(&name) {
                        self.change(below, member, depth + 1);
                    }
                }
            }
            Value::Array(items) if !items.is_empty() => {
                let at = self.rng.below(items.len() as u64) as usize;
                match self.rng.below(5) {
                    0 => drop(items.remove(at)),
                    1 => items.push(items[at].clone()),
                    _ => self.change(&schema["items"], &mut items[at], depth + 1),
                }
            }
            _ => *value = self.grow(schema, depth.min(6)),
        }
    }
}

/// Keeps some of what was seen, old and new.
fn keep<T>(rng: &mut Rng, kept: &mut Vec<T>, new: T) {
    if kept.len() < 32 {
        kept.push(new);
    } else {
        let at = rng.below(kept.len() as u64) as usize;
        kept[at] = new;
    }
}

/// The sample of a kind, from the end-to-end tests.
fn sample(api_version: &str, kind: &str, name: &str, namespace: &str) -> Option<Value> {
    static SAMPLES: LazyLock<Vec<Value>> = LazyLock::new(|| {
        serde_json::from_str(include_str!("../../../harness/samples.json")).expect("samples.json")
    });
    let sample = SAMPLES.iter().find(|s| s["apiVersion"] == api_version && s["kind"] == kind)?;
    // NAMESPACE first: it begins with NAME.
    let text = sample.to_string().replace("NAMESPACE", namespace).replace("NAME", name);
    serde_json::from_str(&text).ok()
}

/// Removes what would make the server connect to other machines, or refuse every later request.
fn tame(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(tame),
        Value::Object(members) => {
            for (name, member) in members {
                match (name.as_str(), &*member) {
                    ("url", Value::String(_)) => *member = json!("https://127.0.0.1:1/hook"),
                    ("externalName", Value::String(_)) => *member = json!("localhost"),
                    ("service", Value::Object(_)) => {
                        *member = json!({"namespace": "default", "name": "absent"})
                    }
                    ("failurePolicy", Value::String(_)) => *member = json!("Ignore"),
                    ("webhooks", Value::Array(hooks)) => {
                        let mut hooks = hooks.clone();
                        for hook in hooks.iter_mut().filter_map(Value::as_object_mut) {
                            hook.insert("failurePolicy".into(), json!("Ignore"));
                            hook.insert("timeoutSeconds".into(), json!(1));
                        }
                        *member = Value::Array(hooks);
                        tame(member);
                    }
                    (_, Value::String(text)) if text == "10.1.2.3" => *member = json!("127.0.0.1"),
                    _ => tame(member),
                }
            }
        }
        _ => {}
    }
}

/// Percent-encodes what has a meaning of its own in paths and queries.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b'-'
            | b'.'
            | b'_'
            | b'~'
            | b':'
            | b'*'
            | b'('
            | b')' => {
                out.push(byte as char);
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
