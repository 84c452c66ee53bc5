//! `plinth bench etcd` against the server.

use clap::Parser;
use plinth_benches::etcd::{run, Error, Options};

use crate::support::{bytes, server};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    options: Options,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_workload_of_the_benchmark_has_a_figure() {
    let (_dir, server, client) = server(&[]).await;
    let endpoint = format!("http://{}", server.address);
    let flags = ["bench", "--endpoint", &endpoint, "--clients", "1,3", "--duration", "0.2"];
    let small = ["--keys", "250", "--limit", "100", "--watchers", "3", "--connections", "2"];
    let options = Program::parse_from(flags.into_iter().chain(small)).options;
    let measured = tokio::task::spawn_blocking({
        let options = options.clone();
        move || run(&options)
    });
    let report = measured.await.unwrap().unwrap();
    let rows: Vec<_> = report.results.iter().map(|row| (row.workload.as_str(), row.clients)).collect();
    let reads = [("range", 1), ("first-page", 1), ("pages", 1), ("count", 1)];
    assert_eq!(rows, [&[("txn-put", 1), ("txn-put", 3)][..], &reads, &[("watch", 3)]].concat());
    assert!(report.results.iter().all(|row| row.operations > 0 && row.errors == 0), "{report:?}");
    let range = &report.results[2];
    assert_eq!(range.bytes_received, range.operations * 250 * 1024);
    let page = &report.results[3];
    assert_eq!(page.bytes_received, page.operations * 100 * 1024);
    let many = Options { only: vec!["many-keys".to_owned()], many_keys: 333, ..options.clone() };
    let report = tokio::task::spawn_blocking(move || run(&many)).await.unwrap().unwrap();
    assert_eq!(report.results.iter().map(|row| row.operations).collect::<Vec<_>>(), [333]);
    let mut count = plinth_etcd::wire::kv::RangeRequest { count_only: true, ..Default::default() };
    (count.key, count.range_end) = (bytes("many/"), bytes("many0"));
    assert_eq!(client.range(count).await.unwrap().count, 333);
    let unknown = Options { only: vec!["nothing".to_owned()], ..options };
    assert!(matches!(run(&unknown), Err(Error::UnknownWorkload { .. })));
    let ended =
        Options { start: Some("false".to_owned()), endpoint: "http://127.0.0.1:1".to_owned(), ..unknown };
    let ended = Options { only: Vec::new(), ..ended };
    let refused = tokio::task::spawn_blocking(move || run(&ended)).await.unwrap();
    assert!(matches!(refused, Err(Error::Start { .. })), "{refused:?}");
    server.stop().await;
}
