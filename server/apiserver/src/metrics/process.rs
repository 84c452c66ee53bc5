//! Metrics of the process and of the build, written when they are scraped; the latter are those of
//! k8s.io/component-base.

use std::io::Write;

use plinth_http::write_process_metrics;
use plinth_registry::VersionInfo;

/// Appends the metrics in the text format.
pub(super) fn write(this: &VersionInfo, out: &mut Vec<u8>) {
    write_process_metrics(out);
    // Writing to memory does not fail, here and below.
    let _ = writeln!(
        out,
        "# HELP kubernetes_build_info Build of the server.\n# TYPE kubernetes_build_info gauge\n\
         kubernetes_build_info{{build_date=\"{}\",compiler=\"{}\",git_commit=\"{}\",git_tree_state=\"{}\",\
         git_version=\"{}\",go_version=\"{}\",major=\"{}\",minor=\"{}\",platform=\"{}\"}} 1",
        this.build_date,
        this.compiler,
        this.git_commit,
        this.git_tree_state,
        this.git_version,
        this.go_version,
        this.major,
        this.minor,
        this.platform,
    );
    let _ = writeln!(
        out,
        "# HELP version_info Version of the binary and the version that it emulates.\n\
         # TYPE version_info gauge\n\
         version_info{{binary=\"{}\",component=\"kube\",emulation=\"{}.{}\",min_compat=\"{}.{}\"}} 1",
        this.git_version.trim_start_matches('v'),
        this.emulation_major,
        this.emulation_minor,
        this.min_compatibility_major,
        this.min_compatibility_minor,
    );
}
