//! Files that the program creates are private to its user, whatever the umask, and wider modes of existing
//! files are narrowed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plinth_tests::outcome::Outcome;
use plinth_tests::server::{launch, start_ready};
use serde_json::json;
use tempfile::TempDir;

/// Everything below a directory and the directory itself, links not followed.
fn tree(root: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let mut found = Vec::new();
    let mut rest = vec![root.to_owned()];
    while let Some(path) = rest.pop() {
        // RocksDB removes files while it is looked at.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).expect("directory");
            rest.extend(entries.map(|entry| entry.expect("entry").path()));
        }
        found.push((path, metadata));
    }
    found
}

fn assert_private(what: &str, root: &Path) {
    let found = tree(root);
    assert!(!found.is_empty(), "{what}: {}", root.display());
    for (path, metadata) in found {
        let mode = metadata.permissions().mode() & 0o7777;
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{what}: {} has mode {mode:o}", path.display());
    }
}

/// A command of the program under the umask that most systems have.
fn plinth(arguments: &[&str]) -> Command {
    let program = launch().command(arguments);
    let mut command = Command::new("sh");
    command.args(["-c", "umask 022; exec \"$@\"", "sh"]).arg(program.get_program()).args(program.get_args());
    command
}

fn run(arguments: &[&str]) -> Output {
    let output = plinth(arguments).outcome();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// The binary under the umask 022, as a program that the harness can start.
fn with_wide_umask(dir: &Path) -> PathBuf {
    let script = dir.join("plinth-under-022");
    let program = launch().command([""; 0]);
    fs::write(
        &script,
        format!("#!/bin/sh\numask 022\nexec '{}' \"$@\"\n", program.get_program().to_string_lossy()),
    )
    .expect("script");
    fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("an executable");
    script
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[tokio::test]
async fn whatever_is_made_is_private() {
    let dir = TempDir::new().expect("directory");
    let root = dir.path().join("server");
    fs::create_dir(&root).expect("directory");
    let wide =
        plinth_benches::api::server::Launch::new(Some(with_wide_umask(dir.path())), None).expect("launch");
    let (audit, policy) = (dir.path().join("audit/of/audit.log"), dir.path().join("policy.yaml"));
    fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n")
        .expect("policy");
    let arguments = [
        "--audit-log-path",
        text(&audit),
        "--audit-policy-file",
        text(&policy),
        "--audit-log-maxsize=1",
        "--audit-log-compress",
    ];
    let mut server = start_ready(&wide, &root, &arguments).await;
    let data = server.data();
    assert_private("first start", &data);

    // More than one audit log, and more than one of RocksDB's files.
    let endpoint = plinth_benches::api::kubeconfig::endpoint(&server.kubeconfig()).expect("endpoint");
    let mut connection =
        endpoint.connect(plinth_benches::api::client::Protocol::Http2).await.expect("connection");
    for n in 0..24 {
        let object =
            json!({"metadata": {"name": format!("large-{n}")}, "data": {"text": "x".repeat(100_000)}});
        let path = "/api/v1/namespaces/default/configmaps";
        let request = http::Request::post(path).header("content-type", "application/json");
        let request =
            request.body(http_body_util::Full::new(bytes::Bytes::from(object.to_string()))).expect("request");
        let response = connection.send(request, path).await.expect("answer");
        assert_eq!(response.status(), 201);
    }
    let audit_dir = dir.path().join("audit");
    let logs = || tree(&audit_dir).into_iter().filter(|(_, metadata)| metadata.is_file()).count();
    plinth_tests::eventually("the audit log is rotated", || async { logs() > 1 }).await;
    assert_private("audit logs", &audit_dir);
    assert_private("after writing", &data);

    let online = dir.path().join("online.backup");
    run(&["backup", "--kubeconfig", text(&server.kubeconfig()), "--to", text(&online)]);
    assert_private("online backup", &online);
    let jane = dir.path().join("jane.kubeconfig");
    run(&["kubeconfig", "--data-dir", text(&data), "--user", "jane", "--to", text(&jane)]);
    assert_private("kubeconfig", &jane);

    server.terminate().await.expect("a clean end");
    assert_private("after the end", &data);
    let offline = dir.path().join("offline.backup");
    run(&["backup", "--data-dir", text(&data), "--to", text(&offline)]);
    assert_private("offline backup", &offline);
    run(&["verify", "--data-dir", text(&data)]);
    let restored = dir.path().join("restored/data");
    run(&["restore", "--from", text(&offline), "--data-dir", text(&restored)]);
    assert_private("restored directory", &restored);
    // Into a directory that is there already.
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).expect("directory");
    fs::set_permissions(&empty, Permissions::from_mode(0o755)).expect("mode");
    run(&["restore", "--from", text(&online), "--data-dir", text(&empty)]);
    assert_private("restored into an empty directory", &empty);
    assert_private("after the other commands", &data);
}

#[tokio::test]
async fn wider_modes_are_narrowed_at_start_and_logged() {
    let dir = TempDir::new().expect("directory");
    let root = dir.path().join("server");
    fs::create_dir(&root).expect("directory");
    let wide =
        plinth_benches::api::server::Launch::new(Some(with_wide_umask(dir.path())), None).expect("launch");
    let mut server = start_ready(&wide, &root, &[]).await;
    server.terminate().await.expect("a clean end");
    let data = server.data();
    for (path, metadata) in tree(&data) {
        let mode = if metadata.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("mode");
    }
    // What a link leads to is not in the directory.
    let outside = dir.path().join("outside");
    fs::write(&outside, "").expect("file");
    fs::set_permissions(&outside, Permissions::from_mode(0o644)).expect("mode");
    std::os::unix::fs::symlink(&outside, data.join("link")).expect("link");

    server.restart().await.expect("restarted server");
    for (path, metadata) in tree(&data).into_iter().filter(|(_, metadata)| !metadata.is_symlink()) {
        assert_eq!(metadata.permissions().mode() & 0o077, 0, "{}", path.display());
    }
    let mode = fs::metadata(&outside).expect("file").permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "a link is not followed");
    let log = server.log().tail(2000);
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("its mode was narrowed")).collect();
    for name in ["/data ", "/data/store ", "/data/pki/ca.key "] {
        assert!(
            lines.iter().any(|line| line.contains("path=") && format!("{line} ").contains(name)),
            "{name}:\n{log}"
        );
    }
}

/// A user who created the unfinished archive beforehand cannot read what is written.
#[test]
fn an_archive_is_never_written_into_a_file_of_somebody_else() {
    let dir = TempDir::new().expect("directory");
    let unfinished = dir.path().join("a.backup.unfinished");
    fs::write(&unfinished, "").expect("file");
    fs::set_permissions(&unfinished, Permissions::from_mode(0o666)).expect("mode");
    let held = fs::File::open(&unfinished).expect("file");
    let data = dir.path().join("data");
    let mut command =
        plinth(&["serve", "--data-dir", text(&data), "--bind-address", "127.0.0.1", "--secure-port", "0"]);
    let mut server = command
        .process_group(0)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("a server");
    let mut ready = String::new();
    let mut out = std::io::BufReader::new(server.stdout.take().expect("output"));
    std::io::BufRead::read_line(&mut out, &mut ready).expect("a line");
    server.kill().expect("killed server");
    server.wait().expect("end");
    assert!(ready.contains("is ready"), "{ready}");
    run(&["backup", "--data-dir", text(&data), "--to", text(&dir.path().join("a.backup"))]);
    assert_private("archive", &dir.path().join("a.backup"));
    assert_eq!(held.metadata().expect("file").len(), 0, "nothing was written to the file that was there");
}
