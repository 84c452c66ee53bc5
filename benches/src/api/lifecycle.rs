//! Time to start, and memory held: workloads that start servers of their own.

use std::path::Path;
use std::time::{Duration, Instant};

use super::drive::{micros, Target};
use super::process::{self, Usage};
use super::report::Measurement;
use super::server::{Launch, Server, READY_WITHIN};
use super::workloads::{fill_config_maps, fill_pods, Workload, NAMESPACE};
use super::{Error, Options};

/// Starts measured for each case.
pub(super) const STARTS: usize = 5;
/// ConfigMaps that the loaded server holds when it starts.
const LOADED: usize = 100_000;
/// Objects of the full server when its memory is measured.
const FULL_CONFIG_MAPS: usize = 40_000;
const FULL_PODS: usize = 10_000;
/// The pause between the last write and the measurement of memory.
pub(super) const SETTLE: Duration = Duration::from_secs(2);

/// Time from the start of the process until `/readyz` answers 200: on a directory that does not exist (keys
/// and certificates are made), on one that has keys and no objects of ours, and on one with 100,000 objects.
pub async fn start(
    workload: &Workload,
    options: &Options,
    launch: &Launch,
) -> Result<Vec<Measurement>, Error> {
    let mut results = Vec::new();

    let mut times = Vec::new();
    let mut used = Usage::default();
    for _ in 0..STARTS {
        let dir = launch.data_dir()?;
        used = timed_start(launch, dir.path(), &mut times).await?;
    }
    results.push(Measurement::of(format!("{}-first", workload.name), times, used));

    let dir = launch.data_dir()?;
    timed_start(launch, dir.path(), &mut Vec::new()).await?;
    let mut times = Vec::new();
    for _ in 0..STARTS {
        used = timed_start(launch, dir.path(), &mut times).await?;
    }
    results.push(Measurement::of(format!("{}-empty", workload.name), times, used));

    let mut server = launch.start(dir.path(), &[]).await?;
    server.ready(READY_WITHIN).await?;
    let target = target(options, &server).await?;
    fill_config_maps(&target, options, LOADED).await?;
    server.terminate().await?;
    let mut times = Vec::new();
    for _ in 0..STARTS {
        used = timed_start(launch, dir.path(), &mut times).await?;
    }
    results.push(Measurement::of(format!("{}-loaded", workload.name), times, used));
    Ok(results)
}

pub(super) async fn timed_start(launch: &Launch, dir: &Path, times: &mut Vec<u32>) -> Result<Usage, Error> {
    let begin = Instant::now();
    let mut server = launch.start(dir, &[]).await?;
    server.ready(READY_WITHIN).await?;
    times.push(micros(begin.elapsed()));
    let used = process::usage(&[server.pid()]);
    server.terminate().await?;
    Ok(used)
}

/// Memory of a server that nobody has used, and of one that holds 40,000 ConfigMaps and 10,000 pods.
pub async fn memory(
    workload: &Workload,
    options: &Options,
    launch: &Launch,
) -> Result<Vec<Measurement>, Error> {
    let dir = launch.data_dir()?;
    let mut server = launch.start(dir.path(), &[]).await?;
    server.ready(READY_WITHIN).await?;
    tokio::time::sleep(SETTLE).await;
    let idle = process::usage(&[server.pid()]);
    let target = target(options, &server).await?;
    fill_config_maps(&target, options, FULL_CONFIG_MAPS).await?;
    fill_pods(&target, options, FULL_PODS).await?;
    tokio::time::sleep(SETTLE).await;
    let full = process::usage(&[server.pid()]);
    server.terminate().await?;
    Ok(vec![
        Measurement::of(format!("{}-idle", workload.name), Vec::new(), idle),
        Measurement::of(format!("{}-full", workload.name), Vec::new(), full),
    ])
}

async fn target(options: &Options, server: &Server) -> Result<Target, Error> {
    let target = Target::new(server.endpoint()?, options, 64).await?;
    target.namespace(NAMESPACE).await?;
    Ok(target)
}
