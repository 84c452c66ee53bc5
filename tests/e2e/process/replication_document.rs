//! The commands of `docs/replication.md`, block by block as written, over three real members of etcd.

use std::path::Path;
use std::process::{Command, Stdio};

use plinth_benches::api::server::free_port;
use plinth_tests::server::launch;
use tempfile::TempDir;

const DOCUMENT: &str = include_str!("../../../docs/replication.md");

/// The lines of the indented blocks that begin with a command.
fn commands() -> Vec<&'static str> {
    let lines = DOCUMENT.lines().filter_map(|line| line.strip_prefix("    "));
    let begins = ["plinth ", "JOURNAL=", "mkdir "];
    lines.filter(|line| begins.iter().any(|begin| line.starts_with(begin))).collect()
}

/// The commands within the text, each as its words, but for those that have measured something.
fn named_commands() -> Vec<Vec<String>> {
    let (text, _) = DOCUMENT.split_once("\n## Measured\n").expect("the section");
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("    ")).collect();
    let spans: Vec<String> = text.join(" ").split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let words = spans.iter().map(|span| span.split_whitespace().map(str::to_owned).collect());
    words.filter(|words: &Vec<String>| words.len() > 1 && words[0] == "plinth").collect()
}

/// What a command is named by: its words up to the first flag, and its flags.
fn names<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut has_flags = false;
    let name = words.into_iter().filter(|word| {
        has_flags |= word.starts_with("--");
        !has_flags || word.starts_with("--")
    });
    name.map(|word| word.split('=').next().unwrap_or(word)).collect()
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
    // Each command that the text names is one of those that are run, with these flags.
    for words in named_commands() {
        let named = names(words.iter().map(String::as_str));
        let is_run = commands.iter().any(|line| {
            let run = names(line.split_whitespace());
            named.iter().all(|word| run.contains(word))
        });
        assert!(is_run, "no block has {words:?}");
    }
}

/// What a reader does between the commands: waits until a server is ready or a checkpoint is written, stops
/// one that is lost, and stops them all before the way back to a single one.
const READER: &str = r#"set -eu
pids=
stop() { for pid in $pids; do kill "$pid"; done; for pid in $pids; do wait "$pid"; done; pids=; }
trap 'for pid in $pids; do kill -9 "$pid" 2>/dev/null || true; done; for journal in ./journal*; do scripts/journal etcd stop $journal || true; done' EXIT
lose() { kill "$last"; wait "$last"; pids=$(echo "$pids" | sed "s/ $last$//"); }
written() {
  n=0
  until ls "$1"/plinth-* >/dev/null 2>&1; do
    n=$((n + 1)); [ $n -lt 600 ] || { echo "$1 has no checkpoint"; exit 1; }
    sleep 0.1
  done
}
ready() {
  last=$!
  pids="$pids $last"
  n=0
  until [ -s "$1/admin.kubeconfig" ] && plinth token list --kubeconfig "$1/admin.kubeconfig" >/dev/null 2>&1; do
    n=$((n + 1)); [ $n -lt 600 ] || { echo "$1 is not ready"; exit 1; }
    sleep 0.1
  done
}
"#;

fn script() -> String {
    let ports = ["6443", "6444", "6445", "6446", "6447", "6448", "6449"];
    let ports = ports.map(|port| (port, free_port().expect("a free port").to_string()));
    let lost = &ports[4].1;
    let mut script = String::from(READER);
    for line in commands() {
        let line = ports.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to));
        if line.contains("--undo") {
            script.push_str("stop\n");
        }
        if line.contains("--checkpoint-dir") && line.starts_with("plinth join") {
            script.push_str("written ./checkpoints\nstop\n");
        }
        if line.ends_with("--remove ID") {
            script.push_str(&format!(
                "lose\nID=$(plinth replicas --kubeconfig ./n1/admin.kubeconfig | grep ':{lost} ' | cut -d ' ' -f 1)\n"
            ));
        } else if line.ends_with(" ID") {
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
    for expected in [
        "is ready on",
        "replica ",
        "plinth join --server https://127.0.0.1:",
        "deleted",
        "a single server",
        "2 replicas have the same state at position",
        "removed",
    ] {
        assert!(stdout.contains(expected), "{expected} in\n{stdout}\n{stderr}");
    }
}
