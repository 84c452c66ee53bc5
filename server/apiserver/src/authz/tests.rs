use super::*;
use plinth_api::User;

/// An authorizer over a store of its own; owns the store's directory.
pub(super) struct Chain {
    authorizer: Authorizer,
    store: Store,
    _dir: tempfile::TempDir,
}

impl std::ops::Deref for Chain {
    type Target = Authorizer;

    fn deref(&self) -> &Authorizer {
        &self.authorizer
    }
}

pub(super) fn chain(modes: &[Mode]) -> Chain {
    gated_chain(modes, &FeatureGates::default())
}

pub(super) fn gated_chain(modes: &[Mode], gates: &FeatureGates) -> Chain {
    let dir = tempfile::tempdir().unwrap();
    let engine = plinth_engine::Engine::open(plinth_engine::Options::new(dir.path())).unwrap();
    let store = Store::new(engine, Default::default());
    let options = AuthorizationOptions { authorization_mode: modes.to_vec(), ..Default::default() };
    Chain { authorizer: Authorizer::new(&options, store.clone(), gates).unwrap(), store, _dir: dir }
}

impl Chain {
    /// Stores an object as the write path would.
    pub(super) fn put(&self, group: &str, plural: &str, object: &str) {
        let object = plinth_codec::json::parse(object.as_bytes()).unwrap();
        let registry = plinth_registry::Registry::builtin();
        let resource =
            registry.resources.iter().find(|r| r.row.group == group && r.row.plural == plural).unwrap();
        let text = |key: &str| object.str_at(&["metadata", key]).unwrap_or_default();
        let key = plinth_registry::object_key(
            &resource.storage.as_ref().unwrap().prefix,
            text("namespace"),
            text("name"),
        );
        let value = plinth_storage::encode_object(resource, object.clone()).unwrap();
        let put = plinth_engine::Transaction::new().put(key, value);
        self.store.engine().transact(put).wait().unwrap();
    }

    pub(super) fn delete(&self, key: &str) {
        let delete = plinth_engine::Transaction::new().delete(key.as_bytes().to_vec());
        self.store.engine().transact(delete).wait().unwrap();
    }
}

#[tokio::test]
async fn anonymous_reads_health_and_nothing_else() {
    let anonymous = User::anonymous();
    for (path, allowed) in [
        ("/livez", true),
        ("/livez/ping", true),
        ("/version", true),
        ("/livezx", false),
        ("/metrics", false),
        ("/api", false),
    ] {
        let decision = chain(&[Mode::AlwaysAllow]).require(&Attributes::path(&anonymous, "get", path)).await;
        assert_eq!(decision.is_ok(), allowed, "{path}");
    }
}

/// The backup contains every Secret, a checkpoint every key: neither a rule nor a mode grants it except to
/// `system:masters`.
#[tokio::test]
async fn the_backup_and_checkpoints_are_for_masters() {
    const ROLE: &str = r#"{"metadata":{"name":"all"},"rules":[{"verbs":["*"],"nonResourceURLs":["*","/plinth/backup","/plinth/checkpoint"]}]}"#;
    const BINDING: &str = r#"{"metadata":{"name":"b"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"all"},"subjects":[{"kind":"User","name":"jane"}]}"#;
    let jane = User::new("jane", &["system:authenticated"]);
    let root = User::new("root", &["system:masters", "system:authenticated"]);
    for modes in [&[Mode::Rbac][..], &[Mode::AlwaysAllow], &[Mode::Node, Mode::Rbac]] {
        let chain = chain(modes);
        chain.put(rbac::GROUP, "clusterroles", ROLE);
        chain.put(rbac::GROUP, "clusterrolebindings", BINDING);
        for (path, verb) in [
            ("/plinth/backup", "get"),
            ("/plinth/backup", "head"),
            ("//plinth//backup/", "get"),
            ("/plinth/checkpoint", "get"),
            ("/plinth/checkpoint/", "post"),
        ] {
            let denied = chain.authorize(&Attributes::path(&jane, verb, path)).await;
            assert_eq!(denied.verdict, Verdict::Deny, "{verb} {path}");
            assert!(chain.authorize(&Attributes::path(&root, verb, path)).await.allowed(), "{verb} {path}");
        }
        for path in ["/plinth", "/plinth/backups", "/plinth/replicas", "/metrics", "/plinth/backup/x"] {
            assert!(chain.authorize(&Attributes::path(&jane, "get", path)).await.allowed(), "{path}");
        }
    }
}

#[tokio::test]
async fn the_denial_is_upstreams() {
    let user = User::new("jane", &["system:authenticated"]);
    let target = ResourceTarget {
        group: "apps",
        version: "v1",
        resource: "deployments",
        subresource: "scale",
        name: "web",
        namespace: "default",
        selectors: None,
    };
    let denied = |modes: &'static [Mode]| {
        let user = user.clone();
        async move { chain(modes).require(&Attributes::resource(&user, "patch", target)).await.unwrap_err() }
    };
    let denial = "deployments.apps \"web\" is forbidden: User \"jane\" cannot patch resource \"deployments/scale\" in API group \"apps\" in the namespace \"default\"";
    assert_eq!(denied(&[Mode::Rbac]).await.message, denial);
    let with_reason = format!("{denial}: Everything is forbidden.");
    assert_eq!(denied(&[Mode::AlwaysDeny]).await.message, with_reason);
    assert!(chain(&[Mode::AlwaysDeny, Mode::AlwaysAllow])
        .authorize(&Attributes::path(&user, "get", "/x"))
        .await
        .allowed());
    let path = chain(&[Mode::Rbac]).require(&Attributes::path(&user, "get", "/a<b>")).await.unwrap_err();
    assert_eq!(path.message, "forbidden: User \"jane\" cannot get path \"/a&lt;b&gt;\"");
}

#[tokio::test]
async fn what_is_written_counts_for_the_next_question() {
    const ROLE: &str = r#"{"metadata":{"name":"reader","namespace":"a"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}"#;
    const BINDING: &str = r#"{"metadata":{"name":"b","namespace":"a"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"reader"},"subjects":[{"kind":"User","name":"jane"}]}"#;
    let chain = chain(&[Mode::Node, Mode::Rbac]);
    let jane = User::new("jane", &["system:authenticated"]);
    let target =
        ResourceTarget { version: "v1", resource: "pods", namespace: "a", ..ResourceTarget::default() };
    let question = Attributes::resource(&jane, "get", target);
    assert!(!chain.authorize(&question).await.allowed());
    chain.put(rbac::GROUP, "rolebindings", BINDING);
    let decision = chain.authorize(&question).await;
    assert_eq!(decision.reason.to_string(), "RBAC: role.rbac.authorization.k8s.io \"reader\" not found");
    chain.put(rbac::GROUP, "roles", ROLE);
    let decision = chain.authorize(&question).await;
    assert!(decision.allowed());
    let reason = "RBAC: allowed by RoleBinding \"b/a\" of Role \"reader\" to User \"jane\"";
    assert_eq!(decision.reason.to_string(), reason);
    // Other writes advance the revision and change nothing.
    for n in 0..300 {
        chain.put("", "configmaps", &format!(r#"{{"metadata":{{"name":"c{n}","namespace":"a"}}}}"#));
    }
    assert!(chain.authorize(&question).await.allowed());
    chain.delete("rbac.authorization.k8s.io/rolebindings/a/b");
    assert!(!chain.authorize(&question).await.allowed());
}

#[test]
fn rules_without_end_are_not_listed() {
    let rule = |values: usize| PolicyRule { names: vec!["x".into(); values], ..PolicyRule::default() };
    let role: Arc<[PolicyRule]> = vec![rule(1), rule(MAX_LISTED_VALUES / 10)].into();
    let mut rules = UserRules::default();
    assert!(rules.extend(&[role.clone(), role.clone()]));
    assert_eq!((rules.rules.len(), rules.incomplete), (4, false));
    // A role of megabytes with a thousand bindings.
    let mut rules = UserRules::default();
    assert!(!rules.extend(&vec![role; 1000]));
    assert_eq!((rules.rules.len(), rules.incomplete), (19, true));
}

#[tokio::test]
async fn a_changed_file_changes_the_chain() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("authorization.yaml");
    let write = |authorizers: &str| {
        let text = format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: {authorizers}\n");
        std::fs::write(&path, text).unwrap();
    };
    let engine = plinth_engine::Engine::open(plinth_engine::Options::new(dir.path().join("store"))).unwrap();
    let store = Store::new(engine, Default::default());
    write("[{type: RBAC, name: rbac}]");
    let options = AuthorizationOptions { authorization_config: Some(path.clone()), ..Default::default() };
    let chain = Authorizer::new(&options, store, &FeatureGates::default()).unwrap();
    let user = User::new("u", &["system:authenticated"]);
    let may = async || chain.authorize(&Attributes::path(&user, "get", "/metrics")).await.verdict;
    assert_eq!(may().await, Verdict::NoOpinion);
    // file, error, verdict afterwards
    let rows = [
        ("[{type: RBAC, name: rbac}, {type: AlwaysAllow, name: alwaysallow}]", "", Verdict::Allow),
        ("[{type: AlwaysDeny, name: alwaysdeny}]", "missing required types: [RBAC]", Verdict::Allow),
        (
            "[{type: RBAC, name: rbac}, {type: Node, name: node}]",
            "authorizer type Node is not allowed if it was not enabled at initial server startup",
            Verdict::Allow,
        ),
        ("[{type: RBAC}]", "authorizers[0].name: Required value", Verdict::Allow),
        ("[{type: AlwaysDeny, name: alwaysdeny}, {type: RBAC, name: rbac}]", "", Verdict::NoOpinion),
    ];
    for (authorizers, error, verdict) in rows {
        write(authorizers);
        let found = chain.reload(&path).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(found.contains(error) && found.is_empty() == error.is_empty(), "{authorizers}: {found}");
        assert_eq!(may().await, verdict, "{authorizers}");
    }
}

/// Queries with parts that parsers could interpret differently.
fn query() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let part = prop::sample::select(vec![
        "labelSelector",
        "fieldSelector",
        "%6cabelSelector",
        "metadata.name",
        "a",
        "b",
        "=",
        "==",
        "%3D",
        "&",
        "&",
        ";",
        "%",
        "%zz",
        "%26",
        "%3B",
        "+",
        "!",
        ",",
        "(",
        ")",
        " in ",
        "%00",
        "#",
        "watch=1",
        "\u{e9}",
        "%c3%a9",
        "%ff",
    ]);
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest::proptest! {
    /// The selectors that are authorized are those that a list or watch uses.
    #[test]
    fn authorization_and_handlers_see_the_same_selectors(raw in query()) {
        use plinth_api::{OptionsOf, Query};
        use plinth_codec::selector::{FieldSelector, LabelSelector};
        let served = Query::parse(Some(&raw), OptionsOf::Other).unwrap();
        let fields = served.field_selector.as_deref().and_then(|text| FieldSelector::parse(text).ok());
        let labels = served.label_selector.as_deref().and_then(|text| LabelSelector::parse(text).ok());
        let asked = Selectors::of_query(&raw).unwrap_or_default();
        proptest::prop_assert_eq!(fields.map(|s| s.requirements().to_vec()).unwrap_or_default(), asked.fields);
        proptest::prop_assert_eq!(labels.map(|s| s.requirements().to_vec()).unwrap_or_default(), asked.labels);
    }
}
