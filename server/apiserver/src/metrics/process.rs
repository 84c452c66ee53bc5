//! Metrics of the process and of the build, written when they are scraped; the latter are those of
//! k8s.io/component-base.

use std::io::Write;

use plinth_http::write_process_metrics;
use plinth_registry::VERSION_INFO;

/// Appends the metrics in the text format.
pub(super) fn write(out: &mut Vec<u8>) {
    write_process_metrics(out);
    // Writing to memory does not fail, here and below.
    let this = &VERSION_INFO;
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
    let version = format!("{}.{}", this.major, this.minor);
    let _ = writeln!(
        out,
        "# HELP version_info Version of the binary and the version that it emulates.\n\
         # TYPE version_info gauge\n\
         version_info{{binary=\"{version}\",component=\"kube\",emulation=\"{version}\",min_compat=\"{version}\"}} 1"
    );
}
