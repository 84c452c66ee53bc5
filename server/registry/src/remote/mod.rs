//! Versions of groups that other API servers serve: what their APIServices describe, and the documents that
//! those servers publish.
//!
//! They are part of the registry, so that a request, discovery and the controllers see the same ones.
//! Requests for such a version are proxied, whatever else is served under its name.

pub(crate) mod documents;

use std::collections::BTreeMap;
use std::sync::Arc;

use plinth_codec::Value;

/// The group of APIServices: always served locally, because without it no APIService could be repaired.
const OWN_GROUP: &str = "apiregistration.k8s.io";
/// Default port of a service reference.
const DEFAULT_PORT: u16 = 443;

/// The remote versions by group and version.
pub type RemoteVersions = BTreeMap<(String, String), Arc<RemoteVersion>>;

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServicePort {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Number of the port.
    pub port: u16,
}

/// A version of a group that another API server serves. Immutable, shared.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteVersion {
    /// API group; never empty.
    pub group: String,
    /// Version within the group.
    pub version: String,
    /// Rank of the group in discovery (`groupPriorityMinimum`).
    pub group_priority: u32,
    /// Rank within the group (`versionPriority`).
    pub priority: u32,
    /// The server's Service.
    pub service: ServicePort,
    /// Authorities of the server's certificate: base64 of PEM, as written; empty for the system's.
    pub ca_bundle: String,
    /// Whether the server's certificate is not verified.
    pub insecure_skip_tls_verify: bool,
    /// Whether its condition `Available` is true.
    pub is_available: bool,
    /// What the server last published.
    pub documents: RemoteDocuments,
}

/// What the server of a remote version last published about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemoteDocuments {
    /// The resources in the form of aggregated discovery (`APIResourceDiscovery`).
    pub resources: Arc<[Value]>,
    /// Whether the last attempt to read them succeeded.
    pub is_current: bool,
    /// Where the server's OpenAPI v3 document is, as its own index lists it: path and hash.
    pub openapi_v3: Option<String>,
    /// The part of its OpenAPI v2 document that concerns the version: JSON with `paths` and `definitions`.
    pub openapi_v2: Option<Arc<[u8]>>,
    /// The entity tag of the document that it is from.
    pub openapi_v2_tag: Option<String>,
}

/// A resource of a remote version, as far as others work with its objects.
#[derive(Clone, Copy, Debug)]
pub struct RemoteResource<'a> {
    /// Plural name.
    pub name: &'a str,
    /// Kind of its objects; empty where its server has not published it.
    pub kind: &'a str,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
    verbs: &'a [Value],
}

impl RemoteResource<'_> {
    /// Whether it has a verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v.as_str() == Some(verb))
    }
}

impl RemoteVersion {
    /// Reads an APIService; `None` for one that is served locally.
    pub fn of(api_service: &Value) -> Option<RemoteVersion> {
        let spec = api_service.get("spec")?;
        let service = spec.get("service").filter(|service| !service.is_null())?;
        let text = |key: &str| spec.str_at(&[key]).unwrap_or_default().to_owned();
        let number = |key: &str| spec.get(key).and_then(Value::as_int).and_then(|n| u32::try_from(n).ok());
        let (group, version) = (text("group"), text("version"));
        if matches!(group.as_str(), "" | OWN_GROUP) || version.is_empty() {
            return None;
        }
        let port = service.get("port").and_then(Value::as_int).and_then(|n| u16::try_from(n).ok());
        let is_available = |condition: &&Value| {
            condition.str_at(&["type"]) == Some("Available") && condition.str_at(&["status"]) == Some("True")
        };
        Some(RemoteVersion {
            group,
            version,
            group_priority: number("groupPriorityMinimum").unwrap_or_default(),
            priority: number("versionPriority").unwrap_or_default(),
            service: ServicePort {
                namespace: service.str_at(&["namespace"]).unwrap_or_default().to_owned(),
                name: service.str_at(&["name"]).unwrap_or_default().to_owned(),
                port: port.unwrap_or(DEFAULT_PORT),
            },
            ca_bundle: text("caBundle"),
            insecure_skip_tls_verify: spec.get("insecureSkipTLSVerify").and_then(Value::as_bool)
                == Some(true),
            is_available: api_service.list_at(&["status", "conditions"]).iter().any(|c| is_available(&c)),
            documents: RemoteDocuments::default(),
        })
    }

    /// Whether another one is of the same APIService: everything but what its server has published.
    pub fn is_described_like(&self, other: &RemoteVersion) -> bool {
        let described = |of: &RemoteVersion| {
            (of.group_priority, of.priority, of.insecure_skip_tls_verify, of.is_available)
        };
        described(self) == described(other)
            && (&self.group, &self.version) == (&other.group, &other.version)
            && (&self.service, &self.ca_bundle) == (&other.service, &other.ca_bundle)
    }

    /// The key in [`RemoteVersions`].
    pub fn key(&self) -> (String, String) {
        (self.group.clone(), self.version.clone())
    }

    /// Name of its APIService.
    pub fn api_service(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }

    /// The path below which it is served: `/apis/GROUP/VERSION`.
    pub fn path(&self) -> String {
        format!("/apis/{}/{}", self.group, self.version)
    }

    /// The name in the server's certificate.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.service.name, self.service.namespace)
    }

    /// The resources that its server last reported.
    pub fn resources(&self) -> impl Iterator<Item = RemoteResource<'_>> {
        self.documents.resources.iter().filter_map(|resource| {
            Some(RemoteResource {
                name: resource.str_at(&["resource"])?,
                kind: resource.str_at(&["responseKind", "kind"]).unwrap_or_default(),
                is_namespaced: resource.str_at(&["scope"]) == Some("Namespaced"),
                verbs: resource.list_at(&["verbs"]),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn read(spec: &str, status: &str) -> Option<RemoteVersion> {
        let object = format!(r#"{{"metadata":{{"name":"x"}},"spec":{spec},"status":{status}}}"#);
        RemoteVersion::of(&json::parse(object.as_bytes()).unwrap())
    }

    #[test]
    fn an_api_service_with_a_service_is_remote() {
        let spec = r#"{"group":"a.example","version":"v1","groupPriorityMinimum":2000,"versionPriority":15,
            "service":{"namespace":"n","name":"s"},"insecureSkipTLSVerify":true}"#;
        let status = r#"{"conditions":[{"type":"Available","status":"True"}]}"#;
        let remote = read(spec, status).unwrap();
        let service = ServicePort { namespace: "n".into(), name: "s".into(), port: 443 };
        assert_eq!((&remote.service, remote.group_priority, remote.priority), (&service, 2000, 15));
        assert!(remote.is_available && remote.insecure_skip_tls_verify);
        assert_eq!(remote.server_name(), "s.n.svc");
        assert_eq!(
            (remote.path(), remote.api_service()),
            ("/apis/a.example/v1".into(), "v1.a.example".into())
        );
        let down = r#"{"conditions":[{"type":"Available","status":"False"}]}"#;
        assert!(!read(spec, down).unwrap().is_available);
    }

    #[test]
    fn local_ones_and_what_cannot_be_taken_over_are_not() {
        let service = r#""service":{"namespace":"n","name":"s"}"#;
        for spec in [
            r#"{"group":"apps","version":"v1"}"#.to_owned(),
            r#"{"group":"apps","version":"v1","service":null}"#.to_owned(),
            format!(r#"{{"version":"v1",{service}}}"#),
            format!(r#"{{"group":"apiregistration.k8s.io","version":"v1",{service}}}"#),
        ] {
            assert!(read(&spec, "{}").is_none(), "{spec}");
        }
    }
}
