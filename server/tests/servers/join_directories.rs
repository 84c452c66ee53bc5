//! Where a replica joins, and what becomes of its token when that fails.

use hyper::Method;
use plinth_benches::api::client::{Call, JSON};
use plinth_journal::simulated::SimulatedJournal;
use plinth_server::cli::runtime;

use super::joining::{holds, join_with, token_of, url};
use super::replicas::{connect, create, get, serve, try_serve, MAPS};

#[test]
fn a_replica_joins_in_a_directory_that_is_there_and_knows_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(31);
        let first = serve(&at("1"), &journal, 1).await;
        assert_eq!(create(&mut connect(&first).await, "before").await.status, 201);
        // A mount point is a directory that can be neither replaced nor renamed; so is what a link leads to.
        std::fs::create_dir_all(at("volume/lost+found")).unwrap();
        std::os::unix::fs::symlink("volume", at("2")).unwrap();
        let inode = |name: &str| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(at(name)).unwrap());
        let before = inode("volume");
        // One that holds something is refused before the token is sent.
        let token = token_of(&first).await;
        std::fs::create_dir_all(at("full/thesis")).unwrap();
        let refused = join_with(url(&first), &token, at("full")).await.unwrap_err().to_string();
        assert!(refused.contains("is not empty"), "{refused}");
        join_with(url(&first), &token, at("2")).await.unwrap();
        assert_eq!(inode("volume"), before);
        assert!(!at("volume/joining").exists() && !at("volume/source").exists());
        // Whom it asks if it starts so late that the journal is trimmed.
        let peers = std::fs::read_to_string(at("2").join("peers")).unwrap();
        assert_eq!(peers, format!("{}\n", first.address()));
        let second = serve(&at("2"), &journal, 2).await;
        assert_eq!(get(&mut connect(&second).await, &format!("{MAPS}/before")).await.status, 200);
        second.stop().await.unwrap();
        first.stop().await.unwrap();
    });
}

#[test]
fn a_token_is_not_used_up_where_no_checkpoint_can_be_made() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(32);
        let first = serve(&at("1"), &journal, 1).await;
        let token = token_of(&first).await;
        // In the place of the directory in which it is made.
        std::fs::write(at("1/checkpoints"), "").unwrap();
        let refused = join_with(url(&first), &token, at("2")).await.unwrap_err().to_string();
        assert!(refused.contains("the checkpoint cannot be made"), "{refused}");
        assert!(!at("2").exists());
        std::fs::remove_file(at("1/checkpoints")).unwrap();
        join_with(url(&first), &token, at("2")).await.unwrap();
        assert_eq!(
            std::fs::read_dir(at("1/checkpoints")).unwrap().count(),
            0,
            "it is removed when it was sent"
        );
        first.stop().await.unwrap();
    });
}

#[test]
fn a_joined_replica_encrypts_as_the_others_do_without_a_flag() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let encryption = at("at-rest.yaml");
    std::fs::write(
        &encryption,
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [configmaps]\n  providers:\n  - aesgcm:\n      keys:\n      - {name: one, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}\n",
    )
    .unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(33);
        let flags = ["--encryption-provider-config", encryption.to_str().unwrap()];
        let first = try_serve(&at("1"), &journal, 1, &flags).await.unwrap();
        join_with(url(&first), &token_of(&first).await, at("2")).await.unwrap();
        let second = serve(&at("2"), &journal, 2).await;
        let body = serde_json::json!({"metadata": {"name": "sealed"}, "data": {"text": "in-plain-text"}});
        let call = Call::new(Method::POST, MAPS).body(JSON, body.to_string());
        assert_eq!(connect(&second).await.call(&call).await.unwrap().status, 201);
        assert_eq!(get(&mut connect(&first).await, &format!("{MAPS}/sealed")).await.status, 200);
        second.stop().await.unwrap();
        first.stop().await.unwrap();
        for store in ["1/store", "2/store"] {
            assert!(holds(&at(store), b"sealed") && !holds(&at(store), b"in-plain-text"), "{store}");
        }
    });
}
