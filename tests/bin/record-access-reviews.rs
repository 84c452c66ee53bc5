//! Records what a kube-apiserver asks its authorizers for the requests of `tests/access_reviews/*.txt`, and
//! writes it there.
//!
//! `record-access-reviews KUBE_APISERVER ETCD [FILE...]`: both binaries by path, all files where none is
//! named. Reviews and codes of kube-apiserver are replaced; requests, comments and what Plinth does otherwise
//! stay.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use plinth_tests::access_reviews::recording::{Item, Recording};
use plinth_tests::access_reviews::replay::{files, server_flags};
use plinth_tests::access_reviews::upstream::Upstream;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [kube_apiserver, etcd, named @ ..] = arguments.as_slice() else {
        eprintln!("usage: record-access-reviews KUBE_APISERVER ETCD [FILE...]");
        return ExitCode::from(2);
    };
    let files = if named.is_empty() { files() } else { named.to_vec() };
    let mut failed = false;
    for file in files {
        match record(kube_apiserver, etcd, &file).await {
            Ok(cases) => println!("{}: {cases} requests", file.display()),
            Err(error) => {
                eprintln!("error: recording {}: {error}", file.display());
                failed = true;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}

async fn record(kube_apiserver: &Path, etcd: &Path, file: &Path) -> Result<usize, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let mut recording = Recording::parse(&text)?;
    let (upstream, webhook) = Upstream::start(kube_apiserver, etcd, &server_flags(&recording)).await?;
    let outcomes = upstream.replay(webhook).run(&recording).await?;
    let cases = recording.items.iter_mut().filter_map(|item| match item {
        Item::Case(case) => Some(case),
        _ => None,
    });
    let mut requests = 0;
    for (case, outcome) in cases.zip(outcomes) {
        case.upstream = outcome;
        requests += case.requests();
    }
    std::fs::write(file, recording.to_text()).map_err(|error| error.to_string())?;
    Ok(requests)
}
