//! The two documents without a schema: the index at `/` and `/version`. Both are JSON only, indented.

use serde::Serialize;

use super::Catalog;

/// `/`: the sorted list of paths. `endpoints` are the paths outside of the API (`/healthz`, `/metrics`).
pub fn root_paths_document(catalog: &Catalog, endpoints: &[&str]) -> Vec<u8> {
    let mut paths: Vec<String> = endpoints.iter().map(|p| p.to_string()).collect();
    paths.extend(["/api".into(), "/apis".into(), "/apis/".into()]);
    if let Some(core) = catalog.group("") {
        paths.extend(core.versions.iter().map(|v| format!("/api/{}", v.name)));
    }
    for group in catalog.named_groups() {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|v| format!("/apis/{}/{}", group.name, v.name)));
    }
    paths.sort();
    paths.dedup();

    #[derive(Serialize)]
    struct RootPaths {
        paths: Vec<String>,
    }
    indented(&RootPaths { paths })
}

/// `/version`: version of the API and of the program.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo<'a> {
    /// Major version of the API, `1`.
    pub major: &'a str,
    /// Minor version of the API.
    pub minor: &'a str,
    /// Version that the API emulates.
    pub emulation_major: &'a str,
    /// Version that the API emulates.
    pub emulation_minor: &'a str,
    /// Oldest version that the server is compatible with.
    pub min_compatibility_major: &'a str,
    /// Oldest version that the server is compatible with.
    pub min_compatibility_minor: &'a str,
    /// Semantic version of the API; clients parse it to check the version skew. The program's own version is
    /// its build metadata.
    pub git_version: &'a str,
    /// Commit that the program was built from; empty when unknown.
    pub git_commit: &'a str,
    /// `clean` or `dirty`; empty when unknown.
    pub git_tree_state: &'a str,
    /// Build date, RFC 3339.
    pub build_date: &'a str,
    /// Go's version in upstream's programs; the Rust version here.
    pub go_version: &'a str,
    /// Name of the compiler; `gc` in upstream's programs.
    pub compiler: &'a str,
    /// Operating system and architecture in Go's names: `linux/amd64`.
    pub platform: &'a str,
}

/// This program's `/version`.
pub const VERSION_INFO: VersionInfo<'static> = VersionInfo {
    major: "1",
    minor: "36",
    emulation_major: "1",
    emulation_minor: "36",
    min_compatibility_major: "1",
    min_compatibility_minor: "35",
    git_version: concat!("v1.36.0+plinth-", env!("CARGO_PKG_VERSION")),
    git_commit: match option_env!("PLINTH_COMMIT") {
        Some(commit) => commit,
        None => "",
    },
    git_tree_state: match option_env!("PLINTH_COMMIT") {
        Some(_) => "clean",
        None => "",
    },
    build_date: match option_env!("PLINTH_BUILD_DATE") {
        Some(date) => date,
        None => "1970-01-01T00:00:00Z",
    },
    go_version: concat!("rust", env!("CARGO_PKG_RUST_VERSION")),
    compiler: "rustc",
    platform: PLATFORM,
};

#[cfg(target_arch = "x86_64")]
const PLATFORM: &str = "linux/amd64";
#[cfg(target_arch = "aarch64")]
const PLATFORM: &str = "linux/arm64";
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const PLATFORM: &str = "unknown";

/// The JSON of `/version`.
pub fn version_document(version: &VersionInfo) -> Vec<u8> {
    indented(version)
}

fn indented(document: &impl Serialize) -> Vec<u8> {
    // Strings and lists of strings always have a JSON form.
    serde_json::to_vec_pretty(document).unwrap_or_default()
}
