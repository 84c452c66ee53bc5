//! Snapshot files, without an etcd.

use std::fs;

use http::Method;
use plinth_tests::requests::call;
use plinth_tests::server::client_of;

use super::{assert_same, filled, hash, must, objects, run, start_with_keys_of, Paths, CUSTOM};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_moves_out_and_in_as_it_was() {
    let (server, before, newest) = filled(&[]).await;
    let (paths, data) = (Paths::new(), server.data());
    let (file, data) = (paths.at("snapshot.db"), data.to_str().expect("text"));
    let out = must(&["export", "etcd-snapshot", "--data-dir", data, &file]);
    assert!(out.contains("Car.moving.example.com") && out.contains("Deployment.apps"), "{out}");
    let into = must(&["import", "snapshot", &file, "--data-dir", &paths.at("data")]);
    assert_eq!(hash(&out), hash(&into));
    must(&["verify", "--data-dir", &paths.at("data")]);
    let (done, text) = run(&["import", "snapshot", &file, "--data-dir", &paths.at("data")]);
    assert!(!done && text.contains("exists already"), "{text}");
    let (done, text) = run(&["export", "etcd-snapshot", "--data-dir", data, &file]);
    assert!(!done && text.contains("exists already"), "{text}");

    let moved = start_with_keys_of(&server, paths.0.path(), &[]).await;
    let client = client_of(&moved.kubeconfig()).await;
    let (after, now) = objects(&client).await;
    assert!(now > newest, "resourceVersions continue above {newest}, not with {now}");
    assert_same(&before, &after);
    // A client of the old cluster is told to list again.
    let path = format!("/api/v1/configmaps?watch=1&resourceVersion={newest}");
    let (code, answer) = call(&client, Method::GET, &path, None).await;
    assert!(code == 410 || answer["object"]["code"] == 410, "{code} {answer}");
    // The schemas of custom resources are in force.
    let path = "/apis/moving.example.com/v1/planets/o-1";
    let (code, answer) = call(&client, Method::GET, path, None).await;
    assert_eq!((code, &answer["spec"]["size"]), (200, &serde_json::json!(3)));

    // A backup is exported in the same way.
    must(&["backup", "--data-dir", data, "--to", &paths.at("archive")]);
    let again = must(&["export", "etcd-snapshot", "--backup", &paths.at("archive"), &paths.at("second.db")]);
    assert_eq!(hash(&out), hash(&again));
    let left: Vec<_> =
        fs::read_dir(paths.0.path()).expect("directory").map(|e| e.expect("entry").file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("plinth-export")), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_values_move_with_their_configuration() {
    const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    for provider in ["aescbc", "aesgcm", "secretbox"] {
        let paths = Paths::new();
        let text = format!(
            "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets, cars.moving.example.com]\n  \
             providers: [{{{provider}: {{keys: [{{name: a, secret: {KEY}}}]}}}}]\n"
        );
        fs::write(paths.at("encryption.yaml"), text).expect("configuration");
        let argument = format!("--encryption-provider-config={}", paths.at("encryption.yaml"));
        let (server, before, _) = filled(&[&argument]).await;
        let (file, data) = (paths.at("snapshot.db"), server.data());
        let data = data.to_str().expect("text");
        let (done, text) = run(&["export", "etcd-snapshot", "--data-dir", data, &file]);
        assert!(!done && text.contains("no matching prefix found") && !paths.exists("snapshot.db"), "{text}");
        let out = must(&["export", "etcd-snapshot", "--data-dir", data, &file, &argument]);
        let bytes = fs::read(&file).expect("the file");
        let start = format!("k8s:enc:{provider}:v1:a:");
        let encrypted = bytes.windows(start.len()).filter(|window| *window == start.as_bytes()).count();
        assert!(encrypted > CUSTOM, "{encrypted} values are encrypted");

        let (done, text) = run(&["import", "snapshot", &file, "--data-dir", &paths.at("data")]);
        assert!(!done && text.contains(&format!("the value is encrypted ({provider})")), "{text}");
        assert!(text.contains("/registry/moving.example.com/cars/moved/o-1:"), "{text}");
        assert!(!paths.exists("data") && !paths.exists("data.importing"));
        let into = must(&["import", "snapshot", &file, "--data-dir", &paths.at("data"), &argument]);
        assert_eq!(hash(&out), hash(&into), "{provider}");
        let moved = start_with_keys_of(&server, paths.0.path(), &[&argument]).await;
        assert_same(&before, &objects(&client_of(&moved.kubeconfig()).await).await.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_snapshot_leaves_no_directory() {
    let (server, _, _) = filled(&[]).await;
    let (paths, data) = (Paths::new(), server.data());
    let (file, broken) = (paths.at("snapshot.db"), paths.at("broken.db"));
    must(&["export", "etcd-snapshot", "--data-dir", data.to_str().expect("text"), &file]);
    let whole = fs::read(&file).expect("the file");
    let data_dir = paths.at("data");
    let import = |arguments: &[&str]| {
        let (done, text) =
            run(&[&["import", "snapshot", &broken, "--data-dir", &data_dir][..], arguments].concat());
        assert!(!paths.exists("data.importing"), "{text}");
        assert_eq!(paths.exists("data"), done, "{text}");
        (done, text)
    };
    for (length, expected) in [
        (0, "it has no hash"),
        (1000, "it has no hash"),
        (whole.len() - 1, "it has no hash"),
        (whole.len() - 512, "does not match"),
        (whole.len() - 32, "it has no hash"),
    ] {
        fs::write(&broken, &whole[..length]).expect("write");
        let (done, text) = import(&[]);
        assert!(!done && text.contains(expected), "{length}: {text}");
        assert!(text.contains(&broken), "{text}");
    }
    // Damage that the hash does not cover, because it is not looked at.
    let length = whole.len() - 32;
    for at in (16..length).step_by(4096 * 9).chain((8..length).step_by(4096 * 7)) {
        let mut bytes = whole[..length].to_vec();
        bytes[at] ^= 0x55;
        fs::write(&broken, &bytes).expect("write");
        let (done, text) = import(&["--skip-hash-check"]);
        let is_named = ["page ", "bucket ", "the record of revision", "/registry/"]
            .iter()
            .any(|named| text.contains(named));
        assert!(done || is_named, "{at}: {text}");
        if done {
            fs::remove_dir_all(paths.at("data")).expect("remove");
        }
    }
    fs::write(&broken, &whole[..length]).expect("write");
    let (done, text) = import(&["--skip-hash-check"]);
    assert!(done, "the file of a member has no hash: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_taken_over_is_listed_before_anything_is_written() {
    let (server, _, _) = filled(&[]).await;
    let (paths, data) = (Paths::new(), server.data());
    let (file, data) = (paths.at("snapshot.db"), data.to_str().expect("text"));
    // Keys below another prefix are not known below the one that is read.
    let prefix = ["--prefix", "/registry/outer.example.com"];
    must(&[&["export", "etcd-snapshot", "--data-dir", data, &file][..], &prefix].concat());
    let data_dir = paths.at("data");
    let import = |arguments: &[&str]| {
        run(&[&["import", "snapshot", &file, "--data-dir", &data_dir][..], arguments].concat())
    };
    let (done, text) = import(&[]);
    assert!(!done && !paths.exists("data"), "{text}");
    assert!(text.contains("/registry/outer.example.com/pods/moved/"), "{text}");
    assert!(text.contains("there is no CustomResourceDefinition pods.outer.example.com"), "{text}");
    assert!(text.contains("keys cannot be imported") && text.contains("--skip-unknown"), "{text}");
    let (done, text) = import(&["--prefix", "/elsewhere"]);
    assert!(!done && text.contains("no keys below /elsewhere/") && !paths.exists("data"), "{text}");
    let (done, text) = import(&["--skip-unknown"]);
    assert!(done && text.contains("0 objects"), "{text}");
    fs::remove_dir_all(paths.at("data")).expect("remove");
    let (done, text) = import(&prefix);
    assert!(done, "{text}");
}
