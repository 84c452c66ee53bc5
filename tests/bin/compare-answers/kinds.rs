//! The same requests for every kind that is stored, with the harness' sample of it.

use plinth_tests::samples;
use serde_json::{json, Value};

use super::mutations;
use super::script::{
    merge, Body, Random, Request, Script, APPLY_PATCH, CBOR, JSON, JSON_PATCH, MERGE_PATCH, METADATA,
    METADATA_LIST, PROTOBUF, STRATEGIC_PATCH, TABLE, YAML,
};
use super::side::Side;
use super::Subject;

/// The namespace of the corpus' objects.
pub(crate) const NAMESPACE: &str = "corpus";
/// Broken objects per kind.
const MUTATIONS: usize = 24;
/// Kinds whose status the server writes by itself, whatever controllers are switched off.
const OBSERVED: [&str; 5] =
    ["CustomResourceDefinition", "APIService", "FlowSchema", "PriorityLevelConfiguration", "ServiceCIDR"];
/// Subresources that are forwarded to kubelets and Pods.
const FORWARDED: [&str; 4] = ["attach", "exec", "portforward", "proxy"];

/// A resource as discovery documents it.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub api_version: String,
    pub kind: String,
    pub plural: String,
    pub namespaced: bool,
    /// Names of subresources with their verbs.
    pub subresources: Vec<(String, Vec<String>)>,
}

impl Resource {
    /// The path of the group and version.
    pub(crate) fn root(&self) -> String {
        match self.api_version.contains('/') {
            true => format!("/apis/{}", self.api_version),
            false => format!("/api/{}", self.api_version),
        }
    }

    /// The path of the collection in the corpus' namespace, or of the cluster's.
    pub(crate) fn collection(&self) -> String {
        match self.namespaced {
            true => format!("{}/namespaces/{NAMESPACE}/{}", self.root(), self.plural),
            false => format!("{}/{}", self.root(), self.plural),
        }
    }

    fn has_status(&self) -> bool {
        self.subresources.iter().any(|(name, _)| name == "status")
    }
}

/// What the server serves.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub resources: Vec<Resource>,
}

impl Catalog {
    pub(crate) async fn discover(server: &mut Side) -> Catalog {
        let groups = server.call(&Request::get("/apis")).await.json();
        let mut roots = vec!["/api/v1".to_owned()];
        for group in list(&groups["groups"]) {
            let versions = list(&group["versions"]);
            roots.extend(versions.iter().map(|v| format!("/apis/{}", text(&v["groupVersion"]))));
        }
        let mut catalog = Catalog::default();
        for root in roots {
            let document = server.call(&Request::get(root)).await.json();
            catalog.add(&document);
        }
        catalog
    }

    fn add(&mut self, document: &Value) {
        let first = self.resources.len();
        for row in list(&document["resources"]) {
            let name = text(&row["name"]);
            if let Some((plural, subresource)) = name.split_once('/') {
                let verbs = list(&row["verbs"]).iter().map(text).collect();
                if let Some(parent) = self.resources[first..].iter_mut().find(|r| r.plural == plural) {
                    parent.subresources.push((subresource.to_owned(), verbs));
                }
                continue;
            }
            self.resources.push(Resource {
                api_version: text(&document["groupVersion"]),
                kind: text(&row["kind"]),
                plural: name,
                namespaced: row["namespaced"] == true,
                subresources: Vec::new(),
            });
        }
    }

    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        self.resources.iter().find(|r| r.api_version == api_version && r.kind == kind)
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A subject per sample.
pub(crate) fn subjects(catalog: &Catalog, seed: u64) -> Vec<Subject> {
    let sample = |name: &str| -> Vec<Value> {
        let samples = samples::all(name, NAMESPACE).into_iter();
        samples.map(|sample| serde_json::to_value(sample).unwrap_or_default()).collect()
    };
    let (first, second) = (sample("first"), sample("second"));
    let mut subjects = Vec::new();
    for (number, (first, second)) in first.into_iter().zip(second).enumerate() {
        let Some(resource) = catalog.of_kind(&text(&first["apiVersion"]), &text(&first["kind"])) else {
            continue;
        };
        let random = Random(seed ^ ((number as u64) << 32));
        let mut scenario = Scenario::new(resource.clone(), first, second, random, number);
        scenario.all();
        let name = format!("{}/{}", resource.api_version, resource.plural);
        subjects.push(Subject { name, script: scenario.finish() });
    }
    subjects
}

/// The requests for one kind.
pub(crate) struct Scenario {
    resource: Resource,
    collection: String,
    first: Value,
    second: Value,
    path: String,
    random: Random,
    number: usize,
    script: Script,
}

impl Scenario {
    pub(crate) fn new(
        resource: Resource,
        first: Value,
        second: Value,
        random: Random,
        number: usize,
    ) -> Scenario {
        let collection = resource.collection();
        let fixed = |mut object: Value| {
            if resource.kind == "Service" {
                // Allocated addresses have no fixed length, which protobuf shows.
                let last = if object["metadata"]["name"] == "first" { 7 } else { 8 };
                object["spec"]["clusterIP"] = json!(format!("10.0.0.{last}"));
            }
            merge(&mut object, &json!({"metadata": {"labels": {"corpus": "yes"}}}));
            object
        };
        let (first, second) = (fixed(first), fixed(second));
        let path = format!("{collection}/{}", text(&first["metadata"]["name"]));
        Scenario { resource, collection, first, second, path, random, number, script: Script::default() }
    }

    pub(crate) fn all(&mut self) {
        self.create();
        self.read();
        self.refused_creates();
        self.update();
        self.patch();
        self.apply();
        self.subresources();
        self.mutations();
        self.delete();
        self.watch();
    }

    /// The script. Every second kind's requests go over HTTP/2.
    pub(crate) fn finish(mut self) -> Script {
        for step in &mut self.script.steps {
            if let super::script::Step::Compare(request) = step {
                request.http2 = self.number % 2 == 1;
            }
        }
        self.script
    }

    fn push(&mut self, request: Request) {
        let settles = OBSERVED.contains(&self.resource.kind.as_str())
            && request.method != http::Method::GET
            && !request.path.contains("dryRun=All");
        self.script.push(request);
        if settles {
            self.script.settle(&self.path.clone());
        }
    }

    /// The first sample with changes.
    fn with(&self, change: &Value) -> Value {
        let mut object = self.first.clone();
        merge(&mut object, change);
        object
    }

    fn create(&mut self) {
        let (collection, first, second) = (self.collection.clone(), self.first.clone(), self.second.clone());
        self.push(Request::list(collection.clone()).capture("begin"));
        self.push(Request::list(format!("{collection}?labelSelector=corpus")).accept(TABLE));
        self.push(Request::create(format!("{collection}?dryRun=All"), &first));
        self.push(Request::create(format!("{collection}?dryRun=Some"), &first));
        self.push(Request::create(format!("{collection}?fieldManager=creator"), &first).capture("first"));
        self.push(Request::create(collection.clone(), &first));
        let second = Request::create(format!("{collection}?fieldValidation=Strict"), &second);
        self.push(second.accept(PROTOBUF).header("user-agent", "corpus/1.0"));
        let mut generated = self.with(&json!({"metadata": {"name": null, "generateName": "random-"}}));
        self.push(Request::create(format!("{collection}?dryRun=All"), &generated));
        if self.resource.kind == "Service" {
            generated["spec"]["clusterIP"] = Value::Null;
        }
        self.push(Request::create(collection.clone(), &generated).capture("generated"));
        self.push(Request::delete(format!("{collection}/${{generated.metadata.name}}")).accept(METADATA));
        let name = json!({"metadata": {"finalizers": null}});
        self.push(Request::patch(format!("{collection}/${{generated.metadata.name}}"), MERGE_PATCH, name));
    }

    fn read(&mut self) {
        let (path, collection) = (self.path.clone(), self.collection.clone());
        for media_type in [JSON, PROTOBUF, YAML, CBOR, TABLE, METADATA, "*/*", "text/html", "image/png"] {
            self.push(Request::get(path.clone()).accept(media_type));
            self.push(Request::list(collection.clone()).accept(media_type));
        }
        let protobuf_metadata = METADATA.replace("application/json", PROTOBUF);
        self.push(Request::get(path.clone()).accept(&protobuf_metadata));
        self.push(Request::list(collection.clone()).accept(METADATA_LIST));
        self.push(Request::get(format!("{path}?pretty=true")));
        self.push(Request::get(format!("{path}?pretty=0")).accept(YAML));
        self.push(Request::get(format!("{path}?includeObject=Object")).accept(TABLE));
        self.push(Request::list(format!("{collection}?includeObject=None&limit=1")).accept(TABLE));
        self.push(Request::get(format!("{collection}/absent")));
        self.push(Request::get(format!("{path}?resourceVersion=0")));
        if self.number.is_multiple_of(15) {
            // Answered after the three seconds in which the revision could have come.
            self.push(Request::get(format!("{path}?resourceVersion=999999999")));
            self.push(Request::list(format!("{collection}?resourceVersion=999999999")));
        }
        self.push(Request::list(format!("{collection}?limit=1")).capture("page"));
        self.push(Request::list(format!("{collection}?limit=1&continue=${{page.metadata.continue}}")));
        for query in [
            "labelSelector=corpus%3Dyes",
            "labelSelector=corpus%21%3Dyes",
            "labelSelector=corpus+in+%28no%2Cyes%29%2C%21other",
            "labelSelector=%3D%3D",
            "fieldSelector=metadata.name%3Dfirst",
            "fieldSelector=spec.nodeName%3Dn",
            "limit=-1",
            "limit=x",
            "continue=abc",
            "resourceVersion=0",
            "resourceVersion=${first.metadata.resourceVersion}&resourceVersionMatch=Exact",
            "resourceVersion=${first.metadata.resourceVersion}&resourceVersionMatch=NotOlderThan",
            "resourceVersion=${first.metadata.resourceVersion}&resourceVersionMatch=Nonsense",
            "resourceVersionMatch=Exact",
            "resourceVersion=x",
            "watch=true&resourceVersion=x",
            "sendInitialEvents=true",
            "timeoutSeconds=x",
        ] {
            let list = Request::list(format!("{collection}?{query}"));
            let media_type = *self.random.choose(&[JSON, JSON, PROTOBUF, TABLE, CBOR, METADATA_LIST]);
            self.push(list.accept(media_type));
        }
        if self.resource.namespaced {
            self.push(Request::list(format!("{}/{}", self.resource.root(), self.resource.plural)));
            self.push(
                Request::list(format!("{}/{}", self.resource.root(), self.resource.plural)).accept(PROTOBUF),
            );
        }
    }

    fn refused_creates(&mut self) {
        let collection = self.collection.clone();
        let unknown =
            self.with(&json!({"metadata": {"name": "third", "unknown": 1}, "alsoUnknown": {"a": []}}));
        let duplicate = unknown.to_string().replacen('{', r#"{"kind":"Other","#, 1);
        for validation in ["Strict", "Warn", "Ignore", "Nonsense"] {
            let path = format!("{collection}?dryRun=All&fieldValidation={validation}");
            self.push(Request::create(path.clone(), &unknown));
            let body = Body::Template(duplicate.clone());
            self.push(Request::create(path.clone(), &unknown).body(JSON, body.clone()));
            self.push(Request::create(path, &unknown).body(YAML, body));
        }
        for change in [
            json!({"metadata": {"name": null}}),
            json!({"metadata": {"name": "Not_A Name"}}),
            json!({"metadata": {"name": "a/b"}}),
            json!({"metadata": {"namespace": "elsewhere"}}),
            json!({"metadata": {"name": "third", "labels": {"a b": "c d"}, "annotations": {"/": "x"}}}),
            json!({"metadata": {"name": "third", "finalizers": ["not qualified", "a/b/c"]}}),
            json!({"metadata": {"name": "third", "ownerReferences": [{"kind": "", "name": ""}]}}),
            json!({"metadata": {"name": "third", "resourceVersion": "5", "uid": "x", "generation": -1}}),
            json!({"metadata": {"name": "third", "managedFields": [{"operation": "Nothing"}]}}),
            json!({"metadata": 5}),
            json!({"apiVersion": "other/v1"}),
            json!({"kind": "Other"}),
            json!({"kind": null, "apiVersion": null, "metadata": {"name": "third"}}),
        ] {
            self.push(Request::create(format!("{collection}?dryRun=All"), &self.with(&change)));
        }
        let good = self.with(&json!({"metadata": {"name": "third"}}));
        for (media_type, body) in [
            (JSON, Body::Empty),
            (JSON, Body::Template("{".into())),
            (JSON, Body::Template("[]".into())),
            (JSON, Body::Template("null".into())),
            (YAML, Body::Template("a: [".into())),
            (PROTOBUF, Body::Bytes(b"k8s\0\x0a\x04garb".to_vec())),
            (PROTOBUF, Body::Bytes(b"none".to_vec())),
            (CBOR, Body::Bytes(vec![0xd9, 0xd9, 0xf7, 0xa1])),
            ("text/plain", Body::Template(good.to_string())),
            ("application/xml", Body::Template(good.to_string())),
        ] {
            let path = format!("{collection}?dryRun=All");
            self.push(Request::create(path, &good).body(media_type, body));
        }
        let yaml = Body::Template(good.to_string());
        self.push(Request::create(format!("{collection}?dryRun=All"), &good).body(YAML, yaml).accept(YAML));
        self.push(Request::create(collection.clone(), &good).verb("method").header("content-type", ""));
        self.push(Request::new("method", http::Method::PUT, collection.clone()));
        self.push(Request::new("method", http::Method::PATCH, collection));
        self.push(Request::new("method", http::Method::POST, self.path.clone()));
        self.push(Request::new("method", http::Method::OPTIONS, self.path.clone()));
        self.push(Request::new("method", http::Method::HEAD, self.path.clone()));
    }

    fn update(&mut self) {
        let path = self.path.clone();
        self.push(Request::get(path.clone()).capture("now"));
        let changed = |change: Value| Body::Changed("now".into(), change);
        self.push(Request::update(path.clone(), changed(json!({}))));
        self.push(Request::update(
            format!("{path}?dryRun=All"),
            changed(json!({"metadata": {"labels": {"dry": "run"}}})),
        ));
        self.push(Request::update(
            format!("{path}?fieldManager=updater"),
            changed(json!({"metadata": {"labels": {"updated": "yes"}}})),
        ));
        for change in [
            json!({"metadata": {"labels": {"stale": "yes"}}}),
            json!({"metadata": {"resourceVersion": "1"}}),
            json!({"metadata": {"resourceVersion": "x"}}),
            json!({"metadata": {"resourceVersion": null, "uid": "00000000-0000-0000-0000-000000000000"}}),
            json!({"metadata": {"resourceVersion": null, "name": "other"}}),
            json!({"metadata": {"resourceVersion": null, "namespace": "other"}}),
            json!({"metadata": {"resourceVersion": null}, "kind": "Other"}),
        ] {
            self.push(Request::update(path.clone(), changed(change)));
        }
        let annotated = json!({"metadata": {"resourceVersion": null, "annotations": {"no": "version"}}});
        self.push(Request::update(path.clone(), changed(annotated)).accept(TABLE));
        let absent = format!("{}/absent", self.collection);
        let renamed = json!({"metadata": {"name": "absent", "resourceVersion": null, "uid": null}});
        self.push(Request::update(format!("{absent}?dryRun=All"), changed(renamed.clone())));
        self.push(Request::update(absent, changed(json!({"metadata": {"name": "absent"}}))));
        for media_type in [PROTOBUF, YAML, CBOR] {
            self.push(Request::get(path.clone()).accept(media_type).capture("encoded"));
            let update = Request::update(path.clone(), Body::Captured("encoded".into()));
            self.push(update.header("content-type", media_type).accept(media_type));
        }
    }

    fn patch(&mut self) {
        let path = self.path.clone();
        for (media_type, patch) in [
            (JSON_PATCH, r#"[{"op":"add","path":"/metadata/labels/json","value":"yes"}]"#),
            (JSON_PATCH, r#"[{"op":"test","path":"/metadata/labels/json","value":"no"}]"#),
            (JSON_PATCH, r#"[{"op":"move","from":"/metadata/labels/json","path":"/metadata/labels/moved"}]"#),
            (JSON_PATCH, r#"[{"op":"copy","from":"/metadata/labels/moved","path":"/metadata/labels/copy"}]"#),
            (JSON_PATCH, r#"[{"op":"remove","path":"/metadata/labels/absent"}]"#),
            (JSON_PATCH, r#"[{"op":"replace","path":"/metadata/absent/x","value":1}]"#),
            (JSON_PATCH, r#"[{"op":"nothing","path":"/metadata"}]"#),
            (JSON_PATCH, r#"[{"op":"replace","path":"/metadata/name","value":"other"}]"#),
            (JSON_PATCH, r#"[{"op":"replace","path":"/kind","value":"Other"}]"#),
            (JSON_PATCH, r#"{"op":"remove"}"#),
            (JSON_PATCH, "[]"),
            (MERGE_PATCH, r#"{"metadata":{"labels":{"merged":"yes","copy":null}}}"#),
            (MERGE_PATCH, "{}"),
            (MERGE_PATCH, r#"{"metadata":{"resourceVersion":"1"}}"#),
            (MERGE_PATCH, r#"{"metadata":{"labels":{"merged":5}}}"#),
            (MERGE_PATCH, r#"{"metadata":{"labels":[]}}"#),
            (MERGE_PATCH, r#"{"metadata":{"uid":"00000000-0000-0000-0000-000000000000"}}"#),
            (MERGE_PATCH, r#"{"metadata":{"finalizers":["example.com/held"]}}"#),
            (MERGE_PATCH, r#"{"unknown":{"a":1}}"#),
            (MERGE_PATCH, "[1]"),
            (MERGE_PATCH, "{"),
            (STRATEGIC_PATCH, r#"{"metadata":{"annotations":{"strategic":"yes"}}}"#),
            (STRATEGIC_PATCH, r#"{"metadata":{"annotations":{"$patch":"replace","only":"this"}}}"#),
            (STRATEGIC_PATCH, r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/held"]}}"#),
            (STRATEGIC_PATCH, r#"{"metadata":{"$patch":"nonsense"}}"#),
            (STRATEGIC_PATCH, r#"{"metadata":{"ownerReferences":[{"name":"x"}]}}"#),
            ("application/json", "{}"),
            ("text/plain", "{}"),
        ] {
            self.push(Request::patch(path.clone(), media_type, patch));
        }
        let held = r#"{"metadata":{"finalizers":null}}"#;
        self.push(Request::patch(path.clone(), MERGE_PATCH, held).accept(PROTOBUF));
        let label = r#"{"metadata":{"labels":{"a":"b"}}}"#;
        self.push(Request::patch(format!("{path}?dryRun=All"), MERGE_PATCH, label));
        self.push(Request::patch(format!("{path}?fieldValidation=Strict"), MERGE_PATCH, r#"{"unknown":1}"#));
        self.push(Request::patch(format!("{path}?force=true"), MERGE_PATCH, label));
        self.push(Request::patch(format!("{}/absent", self.collection), MERGE_PATCH, label));
        self.push(Request::patch(format!("{}/absent", self.collection), JSON_PATCH, "[]"));
    }

    fn apply(&mut self) {
        let path = self.path.clone();
        let third = format!("{}/third", self.collection);
        let object = self.with(&json!({"metadata": {"name": "third", "labels": {"applied": "yes"}}}));
        self.push(Request::patch(third.clone(), APPLY_PATCH, &object));
        self.push(Request::patch(format!("{third}?fieldManager=one&dryRun=All"), APPLY_PATCH, &object));
        self.push(Request::patch(format!("{third}?fieldManager=one"), APPLY_PATCH, &object));
        self.push(Request::patch(format!("{third}?fieldManager=one"), APPLY_PATCH, &object).accept(PROTOBUF));
        let mut other = object.clone();
        merge(&mut other, &json!({"metadata": {"labels": {"applied": "no"}}}));
        self.push(Request::patch(format!("{third}?fieldManager=two"), APPLY_PATCH, &other));
        self.push(Request::patch(format!("{third}?fieldManager=two&force=true"), APPLY_PATCH, &other));
        merge(&mut other, &json!({"metadata": {"labels": {"applied": null}}}));
        self.push(Request::patch(format!("{third}?fieldManager=two"), APPLY_PATCH, &other));
        let unknown = self.with(&json!({"metadata": {"name": "third"}, "unknown": 1}));
        self.push(Request::patch(format!("{third}?fieldManager=one"), APPLY_PATCH, &unknown));
        let minimal = json!({"apiVersion": self.first["apiVersion"], "kind": self.first["kind"],
                             "metadata": {"name": self.first["metadata"]["name"], "labels": {"ssa": "yes"}}});
        self.push(Request::patch(format!("{path}?fieldManager=one"), APPLY_PATCH, &minimal));
        self.push(Request::patch(format!("{path}?fieldManager=one&force=true"), APPLY_PATCH, &self.first));
        self.push(Request::patch(format!("{path}?fieldManager=one"), APPLY_PATCH, &minimal));
        self.push(Request::patch(format!("{path}?fieldManager=one"), APPLY_PATCH, "a: [").verb("apply"));
        self.push(Request::patch(format!("{path}?fieldManager=one"), APPLY_PATCH, r#"{"metadata":{}}"#));
        let managed = json!({"metadata": {"managedFields": [{"manager": "x"}]}});
        let mut object = minimal.clone();
        merge(&mut object, &managed);
        self.push(Request::patch(format!("{path}?fieldManager=one"), APPLY_PATCH, &object));
        self.push(Request::delete(third.clone()));
        self.push(Request::patch(third, MERGE_PATCH, r#"{"metadata":{"finalizers":null}}"#));
    }

    fn subresources(&mut self) {
        let path = self.path.clone();
        for (name, verbs) in self.resource.subresources.clone() {
            if FORWARDED.contains(&name.as_str()) {
                continue;
            }
            let of = format!("{path}/{name}");
            for media_type in [JSON, PROTOBUF, TABLE, YAML] {
                if verbs.iter().any(|verb| verb == "get") {
                    self.push(Request::get(of.clone()).accept(media_type).verb("get (subresource)"));
                }
            }
            self.push(Request::get(of.clone()).capture("sub").verb("get (subresource)"));
            for change in [
                json!({}),
                json!({"metadata": {"labels": {"sub": "yes"}}, "spec": {"replicas": 3}}),
                json!({"spec": {"replicas": -1}, "status": {"replicas": -1}}),
                json!({"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 4}}),
                json!({"spec": {"replicas": "x"}, "status": 5}),
                json!({"metadata": {"name": "other"}}),
            ] {
                let body = Body::Changed("sub".into(), change.clone());
                self.push(Request::update(of.clone(), body).verb("update (subresource)"));
                self.push(Request::patch(of.clone(), MERGE_PATCH, &change).verb("patch (subresource)"));
            }
            self.push(Request::get(format!("{}/absent/{name}", self.collection)).verb("get (subresource)"));
            self.push(Request::new("method", http::Method::DELETE, of));
        }
        if self.resource.has_status() {
            self.status();
        }
        self.push(Request::get(format!("{path}/nonsense")));
    }

    fn status(&mut self) {
        let of = format!("{}/status", self.path);
        let condition = json!({"type": "Tested", "status": "True", "reason": "Test", "message": "m",
                               "lastTransitionTime": "2020-01-01T00:00:00Z"});
        let good = json!({"status": {"conditions": [condition]}});
        self.push(Request::patch(of.clone(), MERGE_PATCH, &good).verb("patch (subresource)"));
        self.push(Request::patch(of.clone(), STRATEGIC_PATCH, &good).verb("patch (subresource)"));
        let bad = json!({"status": {"conditions": [{"type": "a b", "status": "Perhaps"}], "phase": "Nonsense",
                                    "replicas": 1, "readyReplicas": 2, "observedGeneration": -1}});
        self.push(Request::patch(of.clone(), MERGE_PATCH, &bad).verb("patch (subresource)"));
        let mut applied = json!({"apiVersion": self.first["apiVersion"], "kind": self.first["kind"],
                                 "metadata": {"name": self.first["metadata"]["name"]}});
        merge(&mut applied, &good);
        self.push(Request::patch(format!("{of}?fieldManager=status"), APPLY_PATCH, &applied));
        self.push(Request::patch(format!("{of}?fieldManager=other"), APPLY_PATCH, &applied));
        self.push(Request::get(self.path.clone()));
    }

    fn mutations(&mut self) {
        let requests = mutations::of(&self.first, &self.collection, &self.path, MUTATIONS, &mut self.random);
        requests.into_iter().for_each(|request| self.push(request));
    }

    fn delete(&mut self) {
        let (path, collection) = (self.path.clone(), self.collection.clone());
        let options = |change: Value| {
            let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
            merge(&mut options, &change);
            Body::Template(options.to_string())
        };
        for change in [
            json!({"dryRun": ["All"]}),
            json!({"dryRun": ["Some"]}),
            json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}),
            json!({"preconditions": {"resourceVersion": "1"}}),
            json!({"propagationPolicy": "Nonsense"}),
            json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
            json!({"gracePeriodSeconds": "x"}),
            json!({"kind": "Other"}),
        ] {
            self.push(Request::delete(path.clone()).body(JSON, options(change)));
        }
        self.push(Request::delete(format!("{path}?dryRun=All&propagationPolicy=Foreground")));
        self.push(Request::delete(format!("{path}?gracePeriodSeconds=x")));
        self.push(Request::delete(format!("{path}?propagationPolicy=Nonsense")));
        self.push(Request::get(path.clone()).capture("last"));
        let exact = json!({"preconditions": {"uid": "${last.metadata.uid}",
            "resourceVersion": "${last.metadata.resourceVersion}"}, "propagationPolicy": "Foreground"});
        self.push(Request::delete(path.clone()).body(JSON, options(exact)));
        self.push(Request::get(path.clone()));
        self.push(Request::patch(path.clone(), MERGE_PATCH, r#"{"metadata":{"labels":{"deleting":"yes"}}}"#));
        self.push(Request::patch(path.clone(), MERGE_PATCH, r#"{"metadata":{"finalizers":["a.io/b"]}}"#));
        self.push(Request::patch(path.clone(), MERGE_PATCH, r#"{"metadata":{"finalizers":null}}"#));
        self.push(Request::delete(format!("{path}?gracePeriodSeconds=0")));
        self.push(Request::delete(path.clone()));
        self.push(Request::get(path));
        let selected = format!("{collection}?labelSelector=corpus%3Dyes");
        let verb = "deletecollection";
        self.push(Request::delete(format!("{selected}&dryRun=All")).verb(verb));
        self.push(Request::delete(format!("{collection}?labelSelector=%3D%3D")).verb(verb));
        self.push(Request::delete(format!("{selected}&gracePeriodSeconds=0")).verb(verb));
        self.push(Request::delete(selected.clone()).verb(verb));
        self.push(Request::list(selected));
    }

    fn watch(&mut self) {
        let encodings = [JSON, PROTOBUF, TABLE, METADATA, CBOR, YAML, &format!("{PROTOBUF};stream=watch")];
        let media_type = encodings[self.number % encodings.len()].to_owned();
        let query = "watch=true&resourceVersion=${begin.metadata.resourceVersion}&timeoutSeconds=1";
        let filter = ["", "&labelSelector=merged", "&fieldSelector=metadata.name%3Dfirst"][self.number % 3];
        let path = format!("{}?{query}{filter}", self.collection);
        self.push(Request::list(path).verb("watch").accept(&media_type));
    }
}
