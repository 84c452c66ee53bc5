//! The flag of traces and its file, as upstream's (k8s.io/component-base `tracing/api/v1`).

use std::path::PathBuf;

use plinth_api::{read_config, ConfigFileError, ConfigKind};
use serde::Deserialize;

/// Where upstream sends spans without an endpoint.
const DEFAULT_ENDPOINT: &str = "localhost:4317";
/// Sampling rates are for so many requests.
pub(super) const MILLION: i64 = 1_000_000;

const KIND: ConfigKind = ConfigKind {
    kind: "TracingConfiguration",
    versions: &[
        "apiserver.config.k8s.io/v1",
        "apiserver.config.k8s.io/v1beta1",
        "apiserver.config.k8s.io/v1alpha1",
    ],
};

/// Flags of traces.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TracesOptions {
    /// File with a TracingConfiguration (apiserver.config.k8s.io/v1): where spans of requests go, by OTLP
    /// over gRPC
    #[arg(long, value_name = "FILE")]
    pub tracing_config_file: Option<PathBuf>,
}

/// Why traces cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum TracesError {
    #[error("--tracing-config-file: {0}")]
    File(#[from] ConfigFileError),
    #[error("--tracing-config-file: samplingRatePerMillion: {0} is not between 0 and 1000000")]
    SamplingRate(i64),
    #[error("--tracing-config-file: endpoint: {0:?} is not HOST:PORT or dns:///HOST:PORT; nothing else is supported")]
    Endpoint(String),
    #[error("--tracing-config-file: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// What the file can say.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TracingConfiguration {
    endpoint: Option<String>,
    sampling_rate_per_million: Option<i64>,
}

/// Its content, checked and complete.
#[derive(Debug, PartialEq)]
pub(super) struct Settings {
    /// URL of the collector.
    pub endpoint: String,
    /// Requests of a [`MILLION`] whose clients do not decide that are traced.
    pub per_million: i64,
}

impl TracesOptions {
    /// Reads the file; `None` without one.
    pub(super) fn read(&self) -> Result<Option<Settings>, TracesError> {
        let Some(path) = &self.tracing_config_file else { return Ok(None) };
        settings(read_config(path, KIND)?).map(Some)
    }
}

fn settings(file: TracingConfiguration) -> Result<Settings, TracesError> {
    let per_million = file.sampling_rate_per_million.unwrap_or(0);
    if !(0..=MILLION).contains(&per_million) {
        return Err(TracesError::SamplingRate(per_million));
    }
    let given = file.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT);
    let wrong = || TracesError::Endpoint(given.to_owned());
    let authority = match given.split_once("//") {
        None => given,
        // The part before the third slash names a resolver of its own.
        Some(("dns:", rest)) => rest.strip_prefix('/').ok_or_else(wrong)?,
        Some(_) => return Err(wrong()),
    };
    let endpoint = format!("http://{authority}");
    let parsed: hyper::Uri = endpoint.parse().map_err(|_| wrong())?;
    let is_plain = parsed.host().is_some_and(|host| !host.is_empty()) && parsed.path() == "/";
    match is_plain && parsed.port_u16().is_some() && !authority.contains('@') {
        true => Ok(Settings { endpoint, per_million }),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read() {
        let rows = [
            ("", Ok(("http://localhost:4317", 0))),
            ("samplingRatePerMillion: 1000000", Ok(("http://localhost:4317", 1_000_000))),
            ("endpoint: collector:4317\nsamplingRatePerMillion: 5", Ok(("http://collector:4317", 5))),
            ("endpoint: dns:///[::1]:4317", Ok(("http://[::1]:4317", 0))),
            ("samplingRatePerMillion: -1", Err("-1 is not between 0 and 1000000")),
            ("samplingRatePerMillion: 1000001", Err("1000001 is not between 0 and 1000000")),
            ("endpoint: collector", Err("is not HOST:PORT")),
            ("endpoint: https://collector:4317", Err("is not HOST:PORT")),
            ("endpoint: unix:///run/otel.sock", Err("nothing else is supported")),
            ("endpoint: dns://resolver/collector:4317", Err("is not HOST:PORT")),
            ("endpoint: user@collector:4317", Err("is not HOST:PORT")),
            ("endpoint: collector:4317/path", Err("is not HOST:PORT")),
            ("endpoint: ''", Err("is not HOST:PORT")),
            ("sampling: 1", Err("unknown field \"sampling\"")),
        ];
        for (fields, expected) in rows {
            let file = tempfile::NamedTempFile::new().unwrap();
            let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";
            std::fs::write(file.path(), format!("{head}{fields}\n")).unwrap();
            let options = TracesOptions { tracing_config_file: Some(file.path().to_owned()) };
            match (options.read(), expected) {
                (Ok(Some(found)), Ok((endpoint, per_million))) => {
                    assert_eq!(found, Settings { endpoint: endpoint.to_owned(), per_million }, "{fields}");
                }
                (Err(error), Err(text)) => {
                    let error = error.to_string();
                    assert!(error.starts_with("--tracing-config-file: ") && error.contains(text), "{error}");
                }
                (found, expected) => panic!("{fields}: {found:?}, expected {expected:?}"),
            }
        }
        assert_eq!(TracesOptions::default().read().unwrap(), None);
    }
}
