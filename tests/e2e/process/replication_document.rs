//! The commands of `docs/replication.md`, block by block as written, over three real members of etcd.

use std::path::Path;
use std::process::{Command, Stdio};

use plinth_benches::api::server::free_port;
use plinth_tests::server::launch;
use tempfile::TempDir;

/// The lines of the indented blocks that begin with a command.
fn commands() -> Vec<&'static str> {
    let document = include_str!("../../../docs/replication.md");
    let lines = document.lines().filter_map(|line| line.strip_prefix("    "));
    lines.filter(|line| line.starts_with("plinth ") || line.starts_with("JOURNAL=")).collect()
}

#[test]
fn the_commands_are_found() {
    let commands = commands();
    for expected in [
        "JOURNAL=",
        "plinth serve",
        "plinth token create",
        "plinth join  --server",
        "plinth replicate --undo",
    ] {
        assert!(commands.iter().any(|line| line.starts_with(expected)), "{expected} in {commands:?}");
    }
}

/// What a reader does between the commands: waits until a server is ready, and stops them all before the way
/// back to a single one.
const READER: &str = r#"set -eu
pids=
stop() { for pid in $pids; do kill "$pid"; done; for pid in $pids; do wait "$pid"; done; pids=; }
trap 'for pid in $pids; do kill -9 "$pid" 2>/dev/null || true; done; scripts/journal etcd stop ./journal || true' EXIT
ready() {
  pids="$pids $!"
  n=0
  until [ -s "$1/admin.kubeconfig" ] && plinth token list --kubeconfig "$1/admin.kubeconfig" >/dev/null 2>&1; do
    n=$((n + 1)); [ $n -lt 600 ] || { echo "$1 is not ready"; exit 1; }
    sleep 0.1
  done
}
"#;

fn script() -> String {
    let ports = ["6443", "6444", "6445"].map(|port| (port, free_port().expect("a free port").to_string()));
    let mut script = String::from(READER);
    for line in commands() {
        let line = ports.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to));
        if line.contains("--undo") {
            script.push_str("stop\n");
        }
        if line.ends_with(" ID") {
            script.push_str(
                "ID=$(plinth token list --kubeconfig ./r1/admin.kubeconfig | tail -n 1 | cut -d ' ' -f 1)\n",
            );
        }
        let line = line.replace(" ID", " \"$ID\"");
        script.push_str(&format!("echo '$ {line}'\n{line}\n"));
        if line.ends_with('&') {
            let data = line.split_whitespace().skip_while(|word| *word != "--data-dir").nth(1);
            script.push_str(&format!("ready {}\n", data.expect("a data directory")));
        }
    }
    script.push_str("stop\n");
    script
}

#[test]
fn every_command_of_the_document_works() {
    if std::env::var_os("PLINTH_ETCD").is_none() {
        eprintln!("skipped: PLINTH_ETCD names no program of etcd");
        return;
    }
    let dir = TempDir::new().expect("directory");
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts").canonicalize().expect("scripts");
    std::os::unix::fs::symlink(scripts, dir.path().join("scripts")).expect("a link");
    let program = launch().command(["--version"]).get_program().to_owned();
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).expect("a directory");
    std::os::unix::fs::symlink(program, bin.join("plinth")).expect("a link");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-c", &script()])
        .current_dir(dir.path())
        .env("PATH", format!("{}:{path}", bin.display()))
        .stdin(Stdio::null())
        .output()
        .expect("sh runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    for expected in
        ["is ready on", "replica ", "plinth join --server https://127.0.0.1:", "deleted", "a single server"]
    {
        assert!(stdout.contains(expected), "{expected} in\n{stdout}\n{stderr}");
    }
}
