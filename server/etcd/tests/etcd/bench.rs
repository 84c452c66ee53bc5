//! `plinth bench etcd` against the server.

use clap::Parser;
use plinth_benches::etcd::{run, Error, Options};

use crate::support::server;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    options: Options,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_workload_of_the_benchmark_has_a_figure() {
    let (_dir, server, _client) = server(&[]).await;
    let endpoint = format!("http://{}", server.address);
    let flags = ["bench", "--endpoint", &endpoint, "--clients", "1,3", "--duration", "0.2"];
    let small = ["--keys", "250", "--watchers", "3", "--connections", "2"];
    let options = Program::parse_from(flags.into_iter().chain(small)).options;
    let measured = tokio::task::spawn_blocking({
        let options = options.clone();
        move || run(&options)
    });
    let report = measured.await.unwrap().unwrap();
    let rows: Vec<_> = report.results.iter().map(|row| (row.workload.as_str(), row.clients)).collect();
    assert_eq!(rows, [("txn-put", 1), ("txn-put", 3), ("range", 1), ("watch", 3)]);
    assert!(report.results.iter().all(|row| row.operations > 0 && row.errors == 0), "{report:?}");
    let range = &report.results[2];
    assert_eq!(range.bytes_received, range.operations * 250 * 1024);
    let unknown = Options { only: vec!["nothing".to_owned()], ..options };
    assert!(matches!(run(&unknown), Err(Error::UnknownWorkload { .. })));
    server.stop().await;
}
