//! The commands of `docs/migration.md`, as written, over a real etcd.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use plinth_benches::api::server::free_port;
use plinth_tests::server::launch;

use super::{filled, must, Paths};

/// The indented lines.
fn commands() -> Vec<&'static str> {
    let document = include_str!("../../../docs/migration.md");
    document.lines().filter_map(|line| line.strip_prefix("    ")).collect()
}

#[test]
fn the_commands_are_found() {
    let commands = commands();
    for expected in [
        "etcdctl snapshot save",
        "plinth import snapshot",
        "plinth import etcd",
        "plinth import kine",
        "plinth export etcd-snapshot",
        "etcdutl snapshot restore",
    ] {
        assert!(commands.iter().any(|line| line.starts_with(expected)), "{expected} in {commands:?}");
    }
}

/// What a reader has and does between the commands: an etcd with objects, a new place for each directory,
/// waits.
const READER: &str = r#"set -eu
export ETCDCTL_ENDPOINTS="$PLAIN"
etcd= server=
trap 'for pid in $etcd $server; do kill -9 "$pid" 2>/dev/null || true; done' EXIT
healthy() {
  n=0
  until ETCDCTL_ENDPOINTS="$1" etcdctl endpoint health >/dev/null 2>&1; do
    n=$((n + 1)); [ $n -lt 600 ] || { echo "$1 is not ready"; exit 1; }
    sleep 0.1
  done
}
start_etcd() {
  "$PLINTH_ETCD" --data-dir "$1" --log-level error --listen-peer-urls "$PEER" --initial-advertise-peer-urls "$2" \
    --initial-cluster "default=$2" --listen-client-urls "$PLAIN,$TLS" --advertise-client-urls "$PLAIN" \
    --client-cert-auth --trusted-ca-file ca.crt --cert-file server.crt --key-file server.key &
  etcd=$!
  healthy "$PLAIN"
}
ready() {
  n=0
  until [ -s data/admin.kubeconfig ] && plinth status --kubeconfig data/admin.kubeconfig >/dev/null 2>&1; do
    n=$((n + 1)); [ $n -lt 600 ] || { echo "the server is not ready"; exit 1; }
    sleep 0.1
  done
}
etcdutl snapshot restore start.db --data-dir start --initial-advertise-peer-urls "$PEER" --initial-cluster "default=$PEER"
start_etcd start "$PEER"
"#;

fn script(plain: &str, tls: &str) -> String {
    let port = free_port().expect("a free port");
    let mut script = String::from(READER);
    for line in commands() {
        let line = line.replace("https://127.0.0.1:2379", tls).replace("http://127.0.0.1:2379", plain);
        let line = line.replace("/var/lib/rancher/k3s/server/db/", "");
        script.push_str(&format!("echo '$ {line}'\n"));
        if line.contains("--data-dir data") && line.starts_with("plinth import") {
            script.push_str("rm -rf data\n");
        }
        if line.starts_with("plinth serve") {
            script.push_str(&format!(
                "{line} --bind-address 127.0.0.1 --secure-port {port} &\nserver=$!\nready\n"
            ));
            script.push_str("kill $server; wait $server\n");
        } else if line.contains("--kubeconfig") {
            script.push_str(&format!("plinth serve --data-dir data --bind-address 127.0.0.1 --secure-port {port} &\nserver=$!\nready\n{line}\n"));
            script.push_str("kill $server; wait $server; rm snapshot.db\n");
        } else if line.ends_with('&') {
            let line = line.trim_end_matches('&');
            script.push_str(&format!("{line} > followed 2>&1 &\nfollower=$!\nuntil grep -q following followed; do sleep 0.1; done\n"));
            script.push_str("kill $follower; wait $follower; cat followed; rm -f snapshot.db\n");
        } else if line.starts_with("plinth etcd") {
            // Beside the etcd, so at an address of its own.
            let own = super::etcd::free_url("http");
            script.push_str(&format!("{} &\nserver=$!\n", line.replace(plain, &own)));
            script.push_str(&format!("healthy {own}\nkill $server; wait $server || true\n"));
        } else if line.starts_with("kube-apiserver") {
            script.push_str("# scripts/upstream-e2e runs one on plinth etcd\n");
        } else {
            let made = if line.starts_with("etcdutl") { "rm -rf etcd\n" } else { "" };
            script.push_str(&format!("{made}{line}\n"));
        }
    }
    script.push_str("kill $etcd; wait $etcd || true; start_etcd etcd http://localhost:2380\n");
    script.push_str("etcdctl get /registry/namespaces/moved --keys-only\n");
    script
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_document_works() {
    let named = |name| std::env::var_os(name);
    let (Some(etcd), Some(etcdutl), Some(etcdctl)) =
        (named("PLINTH_ETCD"), named("PLINTH_ETCDUTL"), named("PLINTH_ETCDCTL"))
    else {
        eprintln!(
            "SKIPPED: PLINTH_ETCD, PLINTH_ETCDUTL and PLINTH_ETCDCTL are not set (see scripts/test-etcd)"
        );
        return;
    };
    let (server, _, _) = filled(&[]).await;
    let paths = Paths::new();
    super::etcd::certificates(&paths);
    let data = server.data();
    must(&["export", "etcd-snapshot", "--data-dir", data.to_str().expect("text"), &paths.at("start.db")]);
    drop(super::kine::database(&paths.at("state.db"), &paths.at("start.db")));
    let bin = paths.0.path().join("bin");
    fs::create_dir(&bin).expect("a directory");
    symlink(launch().command(["--version"]).get_program(), bin.join("plinth")).expect("a link");
    symlink(etcdutl, bin.join("etcdutl")).expect("a link");
    symlink(etcdctl, bin.join("etcdctl")).expect("a link");
    let [plain, tls, peer] = ["http", "https", "http"].map(super::etcd::free_url);
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-c", &script(&plain, &tls)])
        .current_dir(paths.0.path())
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("PLINTH_ETCD", etcd)
        .envs([("PLAIN", &plain), ("TLS", &tls), ("PEER", &peer)])
        .stdin(Stdio::null())
        .output()
        .expect("sh runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.trim_end().ends_with("/registry/namespaces/moved"), "{stdout}\n{stderr}");
}
