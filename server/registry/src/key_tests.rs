//! Different objects have different keys, and ranges of collections hold their own keys alone: random
//! definitions, built-in kinds, namespaces and names, valid or not.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::Registry;

/// Prefix and scope of each built-in resource that is stored.
static BUILTIN: LazyLock<Vec<(String, bool)>> = LazyLock::new(|| {
    let registry = Registry::builtin();
    let form = |r: &std::sync::Arc<crate::ResourceType>| {
        Some((r.storage.as_ref()?.prefix.clone(), r.row.namespaced))
    };
    registry.stored().filter_map(form).collect()
});

#[derive(Clone, Debug, PartialEq, Eq)]
enum Resource {
    /// A row of [`BUILTIN`].
    Builtin(usize),
    /// Group, plural name, whether it is namespaced. The version has no place in a key, as upstream.
    Custom(String, String, bool),
}

impl Resource {
    fn prefix(&self) -> String {
        match self {
            Resource::Builtin(row) => BUILTIN[*row].0.clone(),
            Resource::Custom(group, plural, namespaced) => custom_prefix(group, plural, *namespaced),
        }
    }

    fn is_namespaced(&self) -> bool {
        match self {
            Resource::Builtin(row) => BUILTIN[*row].1,
            Resource::Custom(.., namespaced) => *namespaced,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    resource: Resource,
    namespace: String,
    name: String,
}

impl Object {
    fn key(&self) -> Vec<u8> {
        object_key(&self.resource.prefix(), &self.namespace, &self.name)
    }
}

/// Texts that look like each other and like what keys are made of.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(vec!["a", "b", "a-b", "default", "kube-system", "x.y"]).prop_map(str::to_owned),
        1 => prop::sample::select(vec!["namespaced", "cluster", "_custom", "core", "%2F", "%25", "/", "a/b", "%"])
            .prop_map(str::to_owned),
        1 => "[ab/%._-]{1,4}",
        1 => any::<String>().prop_filter("a segment is not empty", |text| !text.is_empty()),
    ]
}

/// Definitions, many of them of the groups and plural names of built-in kinds.
fn resource() -> impl Strategy<Value = Resource> {
    let part = |part: usize| {
        let known: Vec<String> =
            BUILTIN.iter().filter_map(|(prefix, _)| Some(prefix.split('/').nth(part)?.to_owned())).collect();
        prop_oneof![2 => prop::sample::select(known), 1 => text()]
    };
    prop_oneof![
        1 => (0..BUILTIN.len()).prop_map(Resource::Builtin),
        2 => (part(0), part(1), any::<bool>()).prop_map(|(group, plural, n)| Resource::Custom(group, plural, n)),
        // One that has the very names of a built-in kind.
        1 => (0..BUILTIN.len(), any::<bool>()).prop_map(|(row, namespaced)| {
            let mut parts = BUILTIN[row].0.split('/').map(str::to_owned);
            Resource::Custom(parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), namespaced)
        }),
    ]
}

fn an_object() -> impl Strategy<Value = Object> {
    (resource(), text(), text()).prop_map(|(resource, namespace, name)| {
        let namespace = if resource.is_namespaced() { namespace } else { String::new() };
        Object { resource, namespace, name }
    })
}

/// Two objects, often of nearly the same names.
fn pair() -> impl Strategy<Value = (Object, Object)> {
    let of = |resource: Resource, namespace: String, name: String| {
        let namespace = if resource.is_namespaced() { namespace } else { String::new() };
        Object { resource, namespace, name }
    };
    prop_oneof![
        (an_object(), an_object()),
        (an_object(), text(), text()).prop_map(move |(one, namespace, name)| {
            let other = of(one.resource.clone(), namespace, name);
            (one, other)
        }),
        (an_object(), resource()).prop_map(move |(one, resource)| {
            let other = of(resource, "a".to_owned(), one.name.clone());
            (one, other)
        }),
        // A namespaced object, and what a cluster-scoped resource of the same names could have there.
        (resource(), text(), text()).prop_map(move |(resource, namespace, name)| {
            let (group, plural) = match &resource {
                Resource::Custom(group, plural, _) => (group.clone(), plural.clone()),
                Resource::Builtin(row) => {
                    let mut parts = BUILTIN[*row].0.split('/').map(str::to_owned);
                    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
                }
            };
            let joined = format!("{namespace}/{name}");
            let cluster = of(Resource::Custom(group.clone(), plural.clone(), false), String::new(), joined);
            (of(Resource::Custom(group, plural, true), namespace, name), cluster)
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keys_and_ranges_are_apart((one, other) in pair()) {
        prop_assert_eq!(one.key() == other.key(), one == other);
        for (collected, object) in [(&one, &other), (&other, &one), (&one, &one)] {
            let prefix = collected.resource.prefix();
            let is_of_resource = collected.resource == object.resource;
            let all = prefix_range(&collection_prefix(&prefix, ""));
            prop_assert_eq!(all.contains(&object.key()), is_of_resource);
            if collected.resource.is_namespaced() {
                let namespace = prefix_range(&collection_prefix(&prefix, &collected.namespace));
                let is_in_it = is_of_resource && collected.namespace == object.namespace;
                prop_assert_eq!(namespace.contains(&object.key()), is_in_it);
            }
            let key = object.key();
            let prefix = object.resource.prefix();
            prop_assert_eq!(key_prefix(&key), Some(prefix.as_bytes()));
            prop_assert_eq!(is_custom_key(&key), matches!(object.resource, Resource::Custom(..)));
        }
    }

    /// What a key was made of comes back where the parts are valid.
    #[test]
    fn keys_split_into_what_made_them(resource in resource(), namespace in "[a-z0-9.-]{1,9}", name in "[a-zA-Z0-9.:-]{1,9}") {
        let namespace = if resource.is_namespaced() { namespace } else { String::new() };
        let (prefix, namespaced) = (resource.prefix(), resource.is_namespaced());
        let key = object_key(&prefix, &namespace, &name);
        prop_assert_eq!(split_key(&prefix, namespaced, &key), Some((namespace.as_str(), name.as_str())));
    }
}

/// `PLINTH_CASES` is for long runs.
fn cases() -> u32 {
    std::env::var("PLINTH_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(4096)
}

#[test]
fn keys_by_table() {
    let pods = resource_prefix("", "pods");
    assert_eq!(object_key(&pods, "default", "web"), b"core/pods/default/web");
    let cars = custom_prefix("example.com", "cars", true);
    assert_eq!(object_key(&cars, "n", "a"), b"_custom/namespaced/example.com/cars/n/a");
    let planets = custom_prefix("example.com", "planets", false);
    assert_eq!(object_key(&planets, "", "mars"), b"_custom/cluster/example.com/planets/mars");
    assert_eq!(object_key(&planets, "", "a/b%"), b"_custom/cluster/example.com/planets/a%2Fb%25");
    assert_eq!(key_without_start(b"_custom/cluster/example.com/planets/mars"), b"example.com/planets/mars");
    for none in [&b"core"[..], b"core/pods", b"_custom/cluster/example.com/planets", b"_custom/other", b""] {
        assert!(key_prefix(none).is_none_or(|prefix| prefix.starts_with(b"_custom/other")), "{none:?}");
    }
    assert!(BUILTIN.iter().all(|(prefix, _)| !prefix.starts_with('_')));
    assert!(BUILTIN.iter().all(|(prefix, _)| prefix.matches('/').count() == 2));
}
