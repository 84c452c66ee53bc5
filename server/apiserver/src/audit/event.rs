//! The audit event of a request, and its JSON (`Event` of audit.k8s.io/v1, fields in upstream's order).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::SystemTime;

use plinth_codec::error::quoted;
use plinth_codec::json;
use plinth_codec::Value;
use time::macros::format_description;
use time::OffsetDateTime;

use super::policy::{AuditLevel, AuditStage, RequestAuditConfig};
use plinth_api::User;

/// Largest recorded object, in bytes; larger ones are omitted (upstream's
/// `--audit-log-truncate-max-event-size`).
pub(crate) const MAX_OBJECT_BYTES: usize = 10 << 20;
/// Annotation of an event whose objects were omitted.
pub(crate) const TRUNCATED: &str = "audit.k8s.io/truncated";

/// The format of an event in a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventFormat {
    /// A JSON object on a line.
    Line,
    /// An item of an `EventList`, without type metadata.
    Item,
    /// A line of text, upstream's legacy format.
    Legacy,
}

/// The data of a request's events.
#[derive(Debug)]
pub(super) struct Event {
    /// What is recorded.
    pub config: RequestAuditConfig,
    /// The request's ID.
    pub audit_id: String,
    /// Path and query as sent.
    pub request_uri: String,
    /// The verb, in lower case.
    pub verb: String,
    /// The authenticated user.
    pub user: Option<User>,
    /// The impersonated user, if any.
    pub impersonated: Option<User>,
    /// The constrained impersonation permission; empty for the legacy one.
    pub constraint: String,
    /// Addresses of the client and of proxies, client first.
    pub source_ips: Vec<IpAddr>,
    /// `User-Agent`.
    pub user_agent: String,
    /// The requested object.
    pub object: Option<ObjectRef>,
    /// The response: status code, and the Status of failures and Status responses.
    pub response: Option<(u16, Option<Value>)>,
    /// JSON of the request object.
    pub request_object: Option<Vec<u8>>,
    /// JSON of the response object.
    pub response_object: Option<Vec<u8>>,
    /// When the request was received.
    pub received: SystemTime,
    /// Annotations of the steps of the request.
    pub annotations: BTreeMap<Cow<'static, str>, String>,
}

/// `ObjectReference` of audit.k8s.io/v1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the API's own words
pub(crate) struct ObjectRef {
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub group: String,
    pub version: String,
    pub resource_version: String,
    pub subresource: String,
}

/// Writes members of a JSON object.
struct Members<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> Members<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Members<'a> {
        out.push(b'{');
        Members { out, first: true }
    }

    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !std::mem::replace(&mut self.first, false) {
            self.out.push(b',');
        }
        json::write_string(key, self.out);
        self.out.push(b':');
        self.out
    }

    fn text(&mut self, key: &str, text: &str) {
        json::write_string(text, self.key(key));
    }

    /// Omitted when it is empty.
    fn nonempty(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.text(key, text);
        }
    }

    /// Omitted when there are none.
    fn texts<'t>(&mut self, key: &str, texts: impl ExactSizeIterator<Item = &'t str>) {
        if texts.len() != 0 {
            write_texts(self.key(key), texts);
        }
    }

    fn end(self) {
        self.out.push(b'}');
    }
}

impl Event {
    /// The event of a stage in that format. If it exceeds `largest` its objects are omitted; `None` if it is
    /// still too large.
    pub(super) fn text(
        &self,
        form: EventFormat,
        stage: AuditStage,
        now: SystemTime,
        largest: Option<usize>,
    ) -> Option<Vec<u8>> {
        if form == EventFormat::Legacy {
            return Some(self.legacy(stage));
        }
        let fits = |text: &Vec<u8>| largest.is_none_or(|largest| text.len() <= largest);
        let whole = self.json(form, stage, now, false);
        if fits(&whole) {
            return Some(whole);
        }
        Some(self.json(form, stage, now, true)).filter(fits)
    }

    fn json(&self, form: EventFormat, stage: AuditStage, now: SystemTime, truncated: bool) -> Vec<u8> {
        let objects = [&self.request_object, &self.response_object];
        let size: usize = objects.iter().filter_map(|o| o.as_ref().map(Vec::len)).sum();
        let mut out = Vec::with_capacity(1024 + if truncated { 0 } else { size });
        let mut event = Members::begin(&mut out);
        if form == EventFormat::Line {
            event.text("kind", "Event");
            event.text("apiVersion", "audit.k8s.io/v1");
        }
        event.text("level", self.config.level.as_str());
        event.text("auditID", &self.audit_id);
        event.text("stage", stage.as_str());
        event.text("requestURI", &self.request_uri);
        event.text("verb", &self.verb);
        write_user(event.key("user"), self.user.as_ref());
        if let Some(user) = &self.impersonated {
            write_user(event.key("impersonatedUser"), Some(user));
        }
        if !self.constraint.is_empty() {
            let mut metadata = Members::begin(event.key("authenticationMetadata"));
            metadata.text("impersonationConstraint", &self.constraint);
            metadata.end();
        }
        let ips: Vec<String> = self.source_ips.iter().map(ToString::to_string).collect();
        event.texts("sourceIPs", ips.iter().map(String::as_str));
        event.nonempty("userAgent", &self.user_agent);
        if let Some(object) = &self.object {
            object.write(event.key("objectRef"));
        }
        if stage != AuditStage::RequestReceived {
            if let Some((code, status)) = &self.response {
                write_status(event.key("responseStatus"), *code, status.as_ref());
            }
            let level = if truncated { AuditLevel::Metadata } else { self.config.level };
            if let Some(object) = self.request_object.as_ref().filter(|_| level >= AuditLevel::Request) {
                event.key("requestObject").extend_from_slice(object);
            }
            if let Some(object) =
                self.response_object.as_ref().filter(|_| level >= AuditLevel::RequestResponse)
            {
                event.key("responseObject").extend_from_slice(object);
            }
        }
        event.text("requestReceivedTimestamp", &micro_time(self.received));
        event.text("stageTimestamp", &micro_time(now));
        if truncated || !self.annotations.is_empty() {
            let mut annotations = Members::begin(event.key("annotations"));
            self.annotations.iter().for_each(|(key, value)| annotations.text(key, value));
            if truncated && !self.annotations.contains_key(TRUNCATED) {
                annotations.text(TRUNCATED, "true");
            }
            annotations.end();
        }
        event.end();
        if form == EventFormat::Line {
            out.push(b'\n');
        }
        out
    }

    /// A line of upstream's legacy format (k8s.io/apiserver `pkg/audit/format.go`).
    fn legacy(&self, stage: AuditStage) -> Vec<u8> {
        let list = |texts: &[String]| texts.iter().map(|t| quoted(t)).collect::<Vec<_>>().join(",");
        let groups = |user: &User, none: &str| match user.groups.is_empty() {
            true => none.to_owned(),
            false => list(&user.groups),
        };
        let or =
            |text: &str, none: &'static str| if text.is_empty() { none.to_owned() } else { text.to_owned() };
        let user = self.user.as_ref().filter(|user| !user.name.is_empty());
        let (name, user_groups) =
            user.map_or(("<none>".into(), "<none>".into()), |u| (u.name.clone(), groups(u, "<none>")));
        let (as_user, as_groups) = self
            .impersonated
            .as_ref()
            .map_or(("<self>".into(), "<lookup>".into()), |u| (u.name.clone(), groups(u, "<lookup>")));
        let response = self.response.as_ref().filter(|_| stage != AuditStage::RequestReceived);
        let line = format!(
            "{} AUDIT: id={} stage={} ip={} method={} user={} groups={} as={} asgroups={} \
                user-agent={} namespace={} uri={} response=\"{}\"\n",
            micro_time(self.received),
            quoted(&self.audit_id),
            quoted(stage.as_str()),
            quoted(&self.source_ips.first().map_or_else(|| "<unknown>".to_owned(), ToString::to_string)),
            quoted(&self.verb),
            quoted(&name),
            quoted(&user_groups),
            quoted(&as_user),
            quoted(&as_groups),
            quoted(&self.user_agent),
            quoted(&or(self.object.as_ref().map_or("", |object| object.namespace.as_str()), "<none>")),
            quoted(&self.request_uri),
            response.map_or_else(|| "<deferred>".to_owned(), |(code, _)| code.to_string()),
        );
        line.into_bytes()
    }

    /// Adds an annotation; an existing one is kept.
    pub(super) fn annotate(&mut self, key: Cow<'static, str>, value: String) {
        self.annotations.entry(key).or_insert(value);
    }

    /// Completes the object reference from the request object.
    pub(crate) fn fill_object_ref(&mut self, object: &Value) {
        let Some(reference) = &mut self.object else { return };
        let metadata = object.get("metadata");
        let fill = |field: &mut String, key: &str| {
            if field.is_empty() {
                let text = metadata.and_then(|m| m.str_at(&[key])).unwrap_or_default();
                text.clone_into(field);
            }
        };
        fill(&mut reference.namespace, "namespace");
        fill(&mut reference.name, "name");
        fill(&mut reference.uid, "uid");
        fill(&mut reference.resource_version, "resourceVersion");
    }

    /// Encodes an object to be recorded; `None` when it is too large, which an annotation states.
    pub(super) fn encode_object(&mut self, object: &Value) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(1024);
        match self.config.omit_managed_fields {
            true => {
                let mut object = object.clone();
                without_managed_fields(&mut object);
                json::write_untyped(&object, &mut out);
            }
            false => json::write_untyped(object, &mut out),
        }
        if out.len() > MAX_OBJECT_BYTES {
            self.annotations.insert(TRUNCATED.into(), "true".into());
            return None;
        }
        Some(out)
    }
}

/// Removes `managedFields` from an object, the items of a list, and the objects in a Table's rows.
fn without_managed_fields(object: &mut Value) {
    remove_managed_fields(object);
    for (list, inner) in [("items", None), ("rows", Some("object"))] {
        for item in object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let item = match inner {
                Some(key) => item.get_mut(key),
                None => Some(item),
            };
            item.into_iter().for_each(remove_managed_fields);
        }
    }
}

fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

fn write_texts<'t>(out: &mut Vec<u8>, texts: impl Iterator<Item = &'t str>) {
    out.push(b'[');
    for (i, text) in texts.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        json::write_string(text, out);
    }
    out.push(b']');
}

/// UserInfo in upstream's order; [`User::to_user_info`] is an object, whose members are sorted.
fn write_user(out: &mut Vec<u8>, user: Option<&User>) {
    let mut members = Members::begin(out);
    if let Some(user) = user {
        members.nonempty("username", &user.name);
        members.nonempty("uid", &user.uid);
        members.texts("groups", user.groups.iter().map(String::as_str));
        if !user.extra.is_empty() {
            let mut extra = Members::begin(members.key("extra"));
            for (key, values) in &user.extra {
                write_texts(extra.key(key), values.iter().map(String::as_str));
            }
            extra.end();
        }
    }
    members.end();
}

/// `metav1.Status` with the fields that upstream records.
fn write_status(out: &mut Vec<u8>, code: u16, status: Option<&Value>) {
    let mut members = Members::begin(out);
    members.key("metadata").extend_from_slice(b"{}");
    if let Some(status) = status {
        for key in ["status", "message", "reason"] {
            members.nonempty(key, status.str_at(&[key]).unwrap_or_default());
        }
        if let Some(details) = status.get("details") {
            json::write_untyped(details, members.key("details"));
        }
    }
    members.key("code").extend_from_slice(code.to_string().as_bytes());
    members.end();
}

impl ObjectRef {
    fn write(&self, out: &mut Vec<u8>) {
        let mut members = Members::begin(out);
        members.nonempty("resource", &self.resource);
        members.nonempty("namespace", &self.namespace);
        members.nonempty("name", &self.name);
        members.nonempty("uid", &self.uid);
        members.nonempty("apiGroup", &self.group);
        members.nonempty("apiVersion", &self.version);
        members.nonempty("resourceVersion", &self.resource_version);
        members.nonempty("subresource", &self.subresource);
        members.end();
    }
}

/// `metav1.MicroTime`.
fn micro_time(time: SystemTime) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
    OffsetDateTime::from(time).format(format).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::tree;

    fn event(level: AuditLevel) -> Event {
        let policy = format!(
            "kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{{level: {}, omitManagedFields: true}}]",
            level.as_str()
        );
        let policy = super::super::policy::Policy::parse(policy.as_bytes()).unwrap();
        let route = plinth_api::Route::NonResource("/".into());
        let attributes = super::super::policy::PolicyAttributes { user: None, route: &route, verb: "get" };
        Event {
            config: policy.config(&attributes),
            audit_id: "id".into(),
            request_uri: "/api/v1/namespaces/n/pods?a=\"b\"".into(),
            verb: "create".into(),
            user: Some(User { name: "jane".into(), groups: vec!["g".into()], ..User::default() }),
            impersonated: None,
            constraint: String::new(),
            source_ips: vec![[127, 0, 0, 1].into()],
            user_agent: "test".into(),
            object: Some(ObjectRef {
                resource: "pods".into(),
                namespace: "n".into(),
                version: "v1".into(),
                ..ObjectRef::default()
            }),
            response: Some((201, None)),
            request_object: None,
            response_object: None,
            received: SystemTime::UNIX_EPOCH,
            annotations: BTreeMap::from([("authorization.k8s.io/decision".into(), "allow".to_owned())]),
        }
    }

    fn line(event: &Event, stage: AuditStage) -> Vec<u8> {
        event.text(EventFormat::Line, stage, SystemTime::UNIX_EPOCH, None).unwrap()
    }

    #[test]
    fn the_older_format_is_upstreams() {
        let mut event = event(AuditLevel::Metadata);
        let text = |event: &Event, stage| {
            String::from_utf8(event.text(EventFormat::Legacy, stage, SystemTime::UNIX_EPOCH, None).unwrap())
                .unwrap()
        };
        let head = r#"1970-01-01T00:00:00.000000Z AUDIT: id="id""#;
        let tail = r#"user-agent="test" namespace="n" uri="/api/v1/namespaces/n/pods?a=\"b\"""#;
        assert_eq!(
            text(&event, AuditStage::RequestReceived),
            format!(
                r#"{head} stage="RequestReceived" ip="127.0.0.1" method="create" user="jane" groups="\"g\"" as="<self>" asgroups="<lookup>" {tail} response="<deferred>""#
            ) + "\n"
        );
        event.impersonated = Some(User { name: "joe".into(), ..User::default() });
        event.user = None;
        assert_eq!(
            text(&event, AuditStage::ResponseComplete),
            format!(
                r#"{head} stage="ResponseComplete" ip="127.0.0.1" method="create" user="<none>" groups="<none>" as="joe" asgroups="<lookup>" {tail} response="201""#
            ) + "\n"
        );
    }

    #[test]
    fn large_events_lose_their_objects_and_then_are_lost() {
        let mut event = event(AuditLevel::RequestResponse);
        event.request_object = Some(format!("{:?}", "x".repeat(2000)).into_bytes());
        event.response_object = event.request_object.clone();
        let text = |largest| {
            event.text(EventFormat::Item, AuditStage::ResponseComplete, SystemTime::UNIX_EPOCH, largest)
        };
        assert!(text(None).unwrap().len() > 4000);
        let cut = json::parse(&text(Some(1000)).unwrap()).unwrap();
        assert_eq!((cut.get("requestObject"), cut.get("responseObject")), (None, None));
        assert_eq!(cut.str_at(&["annotations", TRUNCATED]), Some("true"));
        assert_eq!(cut.get("kind"), None, "an item");
        assert_eq!(text(Some(100)), None);
    }

    #[test]
    fn the_line_is_upstreams() {
        let line = line(&event(AuditLevel::Metadata), AuditStage::ResponseComplete);
        let expected = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"id","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/n/pods?a=\"b\"","verb":"create","user":{"username":"jane","groups":["g"]},"sourceIPs":["127.0.0.1"],"userAgent":"test","objectRef":{"resource":"pods","namespace":"n","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":201},"requestReceivedTimestamp":"1970-01-01T00:00:00.000000Z","stageTimestamp":"1970-01-01T00:00:00.000000Z","annotations":{"authorization.k8s.io/decision":"allow"}}"#;
        assert_eq!(String::from_utf8(line).unwrap(), format!("{expected}\n"));
    }

    #[test]
    fn a_user_is_written_in_upstreams_order_and_whole() {
        let extra = [("k".to_owned(), vec!["v".to_owned()]), ("none".to_owned(), Vec::new())].into();
        let user = User { uid: "u".into(), extra, ..User::new("jane", &["a", "b"]) };
        let mut out = Vec::new();
        write_user(&mut out, Some(&user));
        let expected = r#"{"username":"jane","uid":"u","groups":["a","b"],"extra":{"k":["v"],"none":[]}}"#;
        assert_eq!(String::from_utf8(out.clone()).unwrap(), expected);
        assert_eq!(json::parse(&out).unwrap(), user.to_user_info());
        out.clear();
        write_user(&mut out, None);
        assert_eq!(out, b"{}");
    }

    #[test]
    fn objects_are_there_as_deep_as_the_level() {
        let object = tree!({
            "metadata": tree!({ "name": "x", "uid": "u", "managedFields": vec![Value::from("f")] }),
            "spec": tree!({ "secret": "told" }),
        });
        for (level, request, response) in [
            (AuditLevel::Metadata, false, false),
            (AuditLevel::Request, true, false),
            (AuditLevel::RequestResponse, true, true),
        ] {
            let mut event = event(level);
            event.fill_object_ref(&object);
            event.request_object = event.encode_object(&object);
            event.response_object = event.encode_object(&object);
            for stage in [AuditStage::RequestReceived, AuditStage::ResponseComplete] {
                let line = json::parse(&line(&event, stage)).unwrap();
                let complete = stage == AuditStage::ResponseComplete;
                assert_eq!(line.get("requestObject").is_some(), request && complete, "{level:?} {stage:?}");
                assert_eq!(line.get("responseObject").is_some(), response && complete, "{level:?} {stage:?}");
                assert_eq!(line.str_at(&["objectRef", "name"]), Some("x"));
                assert_eq!(line.at(&["requestObject", "metadata", "managedFields"]), None);
            }
        }
    }
}
