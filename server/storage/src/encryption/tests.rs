//! The configuration at work: what is encrypted, what is read, and what tampering does.

use super::*;
use crate::stored::HeaderFields;

const KEY_A: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
const KEY_B: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const KEY: &[u8] = b"core/secrets/default/web";

fn value() -> Bytes {
    let body = br#"{"metadata":{"name":"web"},"data":{"password":"c2VjcmV0"}}"#;
    let header =
        HeaderFields { version: "v1", uid: "u", labels: vec![("a", "b")], ..HeaderFields::default() };
    header.encode(14, body)
}

fn local(kind: &str, keys: &[(&str, &str)]) -> String {
    let keys: Vec<String> =
        keys.iter().map(|(name, key)| format!("{{name: {name}, secret: {key}}}")).collect();
    format!("{{{kind}: {{keys: [{}]}}}}", keys.join(", "))
}

async fn encryption(rules: &[(&str, &str)]) -> Encryption {
    let mut text =
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n".to_owned();
    for (resources, providers) in rules {
        text.push_str(&format!("- resources: [{resources}]\n  providers: [{providers}]\n"));
    }
    let rules =
        Rules::new(config::parse_encryption_config(text.as_bytes()).unwrap(), &RemoteWaits::default()).await;
    Encryption {
        rules: Some(RwLock::new(Arc::new(rules))),
        reloads: false,
        remote_waits: RemoteWaits::default(),
    }
}

fn reads(encryption: &Encryption, key: &[u8], sealed: &[u8]) -> Result<Vec<u8>, String> {
    encryption.open(key, sealed).map(Cow::into_owned).map_err(|e| e.to_string())
}

#[tokio::test]
async fn bodies_are_encrypted_headers_stay() {
    for kind in ["aesgcm", "aescbc", "secretbox"] {
        let e = encryption(&[("secrets", &local(kind, &[("k", KEY_A)]))]).await;
        let sealed = e.seal(KEY, value()).unwrap();
        assert!(stored::is_sealed(&sealed), "{kind}");
        for secret in ["c2VjcmV0", "password", "metadata"] {
            assert!(
                memchr::memmem::find(&sealed, secret.as_bytes()).is_none(),
                "{kind}: {secret} is readable"
            );
        }
        let header = stored::Header::parse(&sealed).unwrap();
        assert_eq!((header.uid(), header.label("a")), ("u", Some("b")));
        assert!(stored::Stored::parse(&sealed).is_err());
        assert_eq!(reads(&e, KEY, &sealed).unwrap(), value(), "{kind}");
        assert!(!e.is_stale(KEY, &sealed));
    }
}

/// A value cannot be given another name or header by writing to the disk.
#[tokio::test]
async fn a_value_is_bound_to_its_key_and_header() {
    for kind in ["aesgcm", "aescbc", "secretbox"] {
        let e = encryption(&[("'*.*'", &local(kind, &[("k", KEY_A)]))]).await;
        let sealed = e.seal(KEY, value()).unwrap();
        let elsewhere = reads(&e, b"core/secrets/default/other", &sealed).unwrap_err();
        assert!(
            elsewhere.contains("unable to transform key \"/registry/secrets/default/other\""),
            "{elsewhere}"
        );
        let split = stored::split_stored(&sealed).unwrap();
        for at in 0..split.header.len() {
            let mut header = split.header.to_vec();
            header[at] ^= 1;
            let forged = stored::join_stored(true, &header, split.body);
            assert!(reads(&e, KEY, &forged).is_err(), "{kind}: header byte {at}");
        }
        // Taking the mark of encryption away does not make a value plain.
        let unmarked = stored::join_stored(false, split.header, split.body);
        assert!(reads(&e, KEY, &unmarked).is_err());
    }
}

/// A custom resource may have group, resource and names of a built-in object: then both are bound to one
/// place, and the stamp in the header distinguishes them. A value of the layout in which custom resources had
/// no prefix opens under its present key.
#[tokio::test]
async fn custom_and_built_in_values_cannot_stand_in_for_each_other() {
    let body = br#"{"metadata":{"name":"web"}}"#;
    let custom =
        HeaderFields { version: "v1", uid: "u", schema: "0123456789abcdef", ..HeaderFields::default() }
            .encode(14, body);
    let old = b"networking.k8s.io/networkpolicies/default/web";
    let new = [b"_custom/namespaced/".as_slice(), old].concat();
    for kind in ["aesgcm", "aescbc", "secretbox"] {
        let e = encryption(&[("networkpolicies.networking.k8s.io", &local(kind, &[("k", KEY_A)]))]).await;
        let (sealed_custom, sealed_builtin) =
            (e.seal(&new, custom.clone()).unwrap(), e.seal(old, value()).unwrap());
        assert!(stored::is_sealed(&sealed_custom) && stored::is_sealed(&sealed_builtin));
        assert_eq!(reads(&e, &new, &sealed_custom).unwrap(), custom, "{kind}");
        assert_eq!(reads(&e, old, &sealed_builtin).unwrap(), value(), "{kind}");
        let as_builtin = reads(&e, old, &sealed_custom).unwrap_err();
        assert!(as_builtin.contains("a value of another resource"), "{kind}: {as_builtin}");
        assert!(
            reads(&e, &new, &sealed_builtin).unwrap_err().contains("a value of another resource"),
            "{kind}"
        );
        // Moved as it is from the key that it was sealed for.
        let before = e.seal(old, custom.clone()).unwrap();
        assert_eq!(reads(&e, &new, &before).unwrap(), custom, "{kind}");
        let elsewhere = [b"_custom/cluster/".as_slice(), old, b"2"].concat();
        let error = reads(&e, &elsewhere, &before).unwrap_err();
        assert!(
            error.contains("\"/registry/networking.k8s.io/networkpolicies/default/web2\""),
            "{kind}: {error}"
        );
    }
}

#[tokio::test]
async fn keys_and_providers_rotate() {
    let (a, b) = (("a", KEY_A), ("b", KEY_B));
    let before = encryption(&[("secrets", &local("aesgcm", &[a]))]).await;
    let sealed = before.seal(KEY, value()).unwrap();
    // Providers in order, whether what was written before is read, and whether it is to be written again.
    let rows = [
        (local("aesgcm", &[a, b]), true, false),
        (local("aesgcm", &[b, a]), true, true),
        (local("aesgcm", &[b]), false, true),
        (local("aesgcm", &[("a", KEY_B)]), false, false),
        (format!("{}, {}", local("aesgcm", &[("a", KEY_B)]), local("aesgcm", &[a])), true, false),
        (format!("{}, {}", local("secretbox", &[b]), local("aesgcm", &[a])), true, true),
        (format!("{{identity: {{}}}}, {}", local("aesgcm", &[a])), true, true),
        ("{identity: {}}".to_owned(), false, true),
    ];
    for (providers, readable, stale) in rows {
        let after = encryption(&[("secrets", &providers)]).await;
        assert_eq!(reads(&after, KEY, &sealed).is_ok(), readable, "{providers}");
        assert_eq!(after.is_stale(KEY, &sealed), stale, "{providers}");
        // What is written now is read, and is as it should be.
        let again = after.seal(KEY, value()).unwrap();
        assert_eq!(reads(&after, KEY, &again).unwrap(), value());
        assert!(!after.is_stale(KEY, &again), "{providers}");
    }
    assert!(reads(&Encryption::default(), KEY, &sealed).unwrap_err().contains("no matching prefix found"));
    let gone = encryption(&[("secrets", &local("aesgcm", &[b]))]).await;
    let error = reads(&gone, KEY, &sealed).unwrap_err();
    assert!(error.contains("no matching key was found for the provided aesgcm transformer"), "{error}");
}

#[tokio::test]
async fn plain_values_are_read_only_where_identity_is_listed() {
    let keys = local("aesgcm", &[("a", KEY_A)]);
    let strict = encryption(&[("secrets", &keys)]).await;
    assert!(reads(&strict, KEY, &value()).unwrap_err().contains("no matching prefix found"));
    assert_eq!(reads(&strict, b"core/configmaps/n/x", &value()).unwrap(), value(), "not configured");
    let migrating = encryption(&[("secrets", &format!("{keys}, {{identity: {{}}}}"))]).await;
    assert_eq!(reads(&migrating, KEY, &value()).unwrap(), value());
    assert!(migrating.is_stale(KEY, &value()), "to be encrypted at its next write");
}

#[tokio::test]
async fn the_narrowest_rule_counts() {
    let keys = |name: &str| local("aesgcm", &[(name, KEY_A)]);
    let rules = [
        ("secrets", keys("one")),
        ("'*.apps'", keys("group")),
        ("pods", "{identity: {}}".into()),
        ("'*.*'", keys("all")),
    ];
    let rules: Vec<(&str, &str)> = rules.iter().map(|(r, p)| (*r, p.as_str())).collect();
    let e = encryption(&rules).await;
    for (key, name) in [
        ("core/secrets/n/x", Some("one")),
        ("apps/deployments/n/x", Some("group")),
        ("core/pods/n/x", None),
        ("core/nodes/x", Some("all")),
        ("example.com/things/n/x", Some("all")),
    ] {
        let sealed = e.seal(key.as_bytes(), value()).unwrap();
        let split = stored::split_stored(&sealed).unwrap();
        let used = split.sealed.then(|| wire::SealedValue::read(split.body).unwrap().name);
        assert_eq!(used, name, "{key}");
    }
}

#[tokio::test]
async fn a_changed_file_is_reloaded_and_an_invalid_one_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("encryption.yaml");
    let file = |keys: &[(&str, &str)]| {
        format!(
            "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  providers: [{}]\n",
            local("aesgcm", keys)
        )
    };
    std::fs::write(&path, file(&[("a", KEY_A)])).unwrap();
    let e = Arc::new(encryption(&[("secrets", &local("aesgcm", &[("a", KEY_A)]))]).await);
    let sealed = e.seal(KEY, value()).unwrap();
    let text = std::fs::read(&path).unwrap();
    tokio::spawn(reload(Arc::downgrade(&e), path.clone(), text, Duration::from_millis(5)));
    let until = |stale: bool| {
        let (e, sealed) = (e.clone(), sealed.clone());
        let wait = async move {
            while e.is_stale(KEY, &sealed) != stale {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        async { tokio::time::timeout(Duration::from_secs(60), wait).await.expect("it is reloaded") }
    };
    std::fs::write(&path, file(&[("b", KEY_B), ("a", KEY_A)])).unwrap();
    until(true).await;
    assert!(e.apply(b"resources: [").await.is_err());
    assert!(e.is_stale(KEY, &sealed), "the one before stays");
    assert_eq!(reads(&e, KEY, &sealed).unwrap(), value());
    std::fs::write(&path, file(&[("a", KEY_A)])).unwrap();
    until(false).await;
}

#[tokio::test]
async fn health_reports_unavailable_plugins() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("encryption.yaml");
    let plugin = |name: &str| {
        let socket = dir.path().join(name);
        format!(
            "{{kms: {{apiVersion: v2, name: {name}, endpoint: 'unix://{}', timeout: 1s}}}}",
            socket.display()
        )
    };
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n\
         - resources: [secrets]\n  providers: [{}, {}]\n",
        plugin("a"),
        plugin("b")
    );
    std::fs::write(&config, text).unwrap();
    let rows: [(bool, &[&str]); 2] =
        [(false, &["kms-provider-0", "kms-provider-1"]), (true, &["kms-providers"])];
    for (reload, names) in rows {
        let options = EncryptionOptions {
            encryption_provider_config: Some(config.clone()),
            encryption_provider_config_automatic_reload: reload,
        };
        let encryption = Encryption::start(&options, &RemoteWaits::default()).await.unwrap();
        let expected: Vec<(String, bool)> = names.iter().map(|name| ((*name).to_owned(), false)).collect();
        assert_eq!(encryption.health(), expected);
    }
    assert!(Encryption::default().health().is_empty());
}

/// Bytes that OpenSSL (AES-CBC) and Python's `cryptography` (AES-GCM) made with this key.
#[tokio::test]
async fn values_of_kube_apiserver_are_read() {
    const PATH: &[u8] = b"/registry/secrets/default/web";
    let vectors = [
        ("aescbc", [vec![1; 16], hex("3593c51fa979b1c1b6f10f62d73e5a51")].concat()),
        ("aesgcm", [vec![2; 12], hex("2fc07fed1812e253e590af1ada13a8a216001a7eeacc7bd6f139b9ca")].concat()),
    ];
    for (kind, bytes) in vectors {
        let e = encryption(&[("secrets", &local(kind, &[("b", KEY_B), ("a", KEY_A)]))]).await;
        let value = [format!("k8s:enc:{kind}:v1:a:").as_bytes(), &bytes].concat();
        let path: &[u8] = if kind == "aesgcm" { b"/registry/secrets/ns/a" } else { PATH };
        assert_eq!(&*e.open_upstream(KEY, path, &value).unwrap(), b"k8s\0 a value", "{kind}");
        // AES-GCM alone binds a value to its key in etcd.
        assert_eq!(e.open_upstream(KEY, b"/elsewhere", &value).is_err(), kind == "aesgcm");
        for cut in 0..value.len() {
            assert!(e.open_upstream(KEY, path, &value[..cut]).is_err(), "{kind}: cut at {cut}");
        }
    }
}

#[tokio::test]
async fn values_for_kube_apiserver_have_its_form() {
    const PATH: &[u8] = b"/registry/secrets/default/web";
    for kind in ["aescbc", "aesgcm", "secretbox"] {
        let e = encryption(&[("secrets", &local(kind, &[("b", KEY_B), ("a", KEY_A)]))]).await;
        let sealed = e.seal_upstream(KEY, PATH, b"plain".to_vec()).unwrap();
        assert!(sealed.starts_with(format!("k8s:enc:{kind}:v1:b:").as_bytes()));
        assert_eq!(&*e.open_upstream(KEY, PATH, &sealed).unwrap(), b"plain");
        let other = b"core/configmaps/default/web";
        assert_eq!(e.seal_upstream(other, PATH, b"plain".to_vec()).unwrap(), b"plain");
        assert_eq!(&*e.open_upstream(other, PATH, b"plain").unwrap(), b"plain");
        // A plain value of a covered resource may have been put there by somebody else.
        assert!(e.open_upstream(KEY, PATH, b"plain").is_err());
        assert!(e.open_upstream(other, PATH, &sealed).is_err(), "no rule covers it");
        let rotated = encryption(&[("secrets", &local(kind, &[("b", KEY_A)]))]).await;
        assert!(rotated.open_upstream(KEY, PATH, &sealed).is_err(), "{kind}: another key of this name");
        let plain =
            encryption(&[("secrets", &format!("{{identity: {{}}}}, {}", local(kind, &[("b", KEY_B)])))])
                .await;
        assert_eq!(plain.seal_upstream(KEY, PATH, b"plain".to_vec()).unwrap(), b"plain");
        assert_eq!(&*plain.open_upstream(KEY, PATH, b"plain").unwrap(), b"plain");
        assert_eq!(&*plain.open_upstream(KEY, PATH, &sealed).unwrap(), b"plain");
    }
    let none = Encryption::default();
    assert!(!none.is_configured() && none.open_upstream(KEY, PATH, b"k8s:enc:aescbc:v1:a:x").is_err());
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}
