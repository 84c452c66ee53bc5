//! A directory that is refused leaves no trace in the journal that is named beside it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use plinth_engine::{Engine, Options, Transaction};
use plinth_journal::simulated::SimulatedJournal;
use plinth_journal::Founding;
use plinth_server::cli::{runtime, start_on, Running};

use super::replicas::{options, replicas};

/// Starts a server that must be refused; returns why, and whether it has connected to the journal.
async fn refused(data_dir: &Path) -> (String, bool) {
    let (journal, has_connected) = (SimulatedJournal::new(50), Arc::new(AtomicBool::new(false)));
    let (client, noted) = (Arc::new(journal.client(1)), has_connected.clone());
    let connect = move |_, _| {
        noted.store(true, Ordering::SeqCst);
        Ok(client as Arc<dyn plinth_journal::Journal>)
    };
    let refused = start_on(options(data_dir, &[]), Some(Box::new(connect))).await.err().unwrap();
    (refused.to_string(), has_connected.load(Ordering::SeqCst))
}

#[test]
fn a_directory_that_is_refused_claims_no_journal() {
    let dir = tempfile::tempdir().unwrap();
    // As "plinth etcd" makes it.
    let etcd = dir.path().join("etcd");
    for n in 0..2 {
        let marker = "This directory holds the data of a plinth server.\nstage: first start\n";
        std::fs::create_dir_all(&etcd).unwrap();
        std::fs::write(etcd.join("plinth"), marker).unwrap();
        let engine = Engine::open(Options::new(etcd.join("store")).mark("etcd")).unwrap();
        if n > 0 {
            engine.transact(Transaction::new().put("key", "value")).wait().unwrap();
        }
        engine.close().unwrap();
        drop(engine);
        let (why, has_connected) = runtime().unwrap().block_on(refused(&etcd));
        assert!(why.contains("etcd") && !has_connected, "{why}");
        assert!(!etcd.join("replica").exists(), "it is no replica's");
    }

    let path = dir.path().join("2");
    runtime().unwrap().block_on(async {
        let [first, second]: [Running; 2] = replicas(dir.path(), &SimulatedJournal::new(51)).await;
        for server in [first, second] {
            server.stop().await.unwrap();
        }
        let other = "cluster: 0123456789abcdef0123456789abcdef\nreplica: 7\n";
        std::fs::write(path.join("replica"), other).unwrap();
        let (why, has_connected) = refused(&path).await;
        assert!(why.contains("another cluster") && !has_connected, "{why}");
    });
}

#[test]
fn only_a_replica_that_has_applied_nothing_founds_a_journal() {
    let dir = tempfile::tempdir().unwrap();
    let journal = SimulatedJournal::new(52);
    for expected in [Founding::Allowed, Founding::Forbidden] {
        let is_allowed = Arc::new(AtomicBool::new(false));
        let (client, noted) = (Arc::new(journal.client(1)), is_allowed.clone());
        let connect = move |_, founding| {
            noted.store(founding == Founding::Allowed, Ordering::SeqCst);
            Ok(client as Arc<dyn plinth_journal::Journal>)
        };
        runtime().unwrap().block_on(async {
            let path = dir.path().join("data");
            let running = start_on(options(&path, &[]), Some(Box::new(connect))).await.unwrap();
            running.stop().await.unwrap();
        });
        assert_eq!(is_allowed.load(Ordering::SeqCst), expected == Founding::Allowed);
    }
}
