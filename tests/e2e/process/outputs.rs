//! Standard output and standard error that take nothing: the disk is full, or the reader of a pipe has gone.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;

use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::eventually;
use plinth_tests::server::{connect_to, launch, start_ready, TestServer};
use tempfile::TempDir;

/// A device without room.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").expect("a device").into()
}

/// A pipe without a reader.
fn closed() -> Stdio {
    std::io::pipe().expect("a pipe").1.into()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Runs a command with such a standard output; its exit code, and what is on standard error.
fn run(arguments: &[&str], input: &Path, stdout: Stdio) -> (Option<i32>, String) {
    let mut command = launch().command(arguments.iter().copied());
    command.stdin(File::open(input).expect("a file")).stdout(stdout).stderr(Stdio::piped());
    let output = command.output().expect("it runs");
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

/// Commands that were run for what they print fail; others have done what they are for.
#[tokio::test]
async fn commands_whose_output_is_full_or_closed_end_in_order() {
    let mut server = TestServer::start(&[]).await;
    let dir = TempDir::new().expect("directory");
    let at = |name: &str| text(&dir.path().join(name)).to_owned();
    let object = dir.path().join("object");
    fs::write(&object, "apiVersion: v1\nkind: Pod\nspec: {bogus: 1}\n").expect("a file");
    let (data, kubeconfig) = (server.data(), server.kubeconfig().to_owned());
    let (data, kubeconfig) = (text(&data), text(&kubeconfig));
    let no_room = "standard output: No space left on device";
    let no_reader = "standard output: Broken pipe";
    for (stdout, reason) in [(full as fn() -> Stdio, no_room), (closed, no_reader)] {
        let rows: [&[&str]; 6] = [
            &["kubeconfig", "--user", "jane", "--data-dir", data],
            &["completion", "bash"],
            &["convert", "--to", "json", "--validate=ignore"],
            &["history", "namespace", "default", "--kubeconfig", kubeconfig],
            &["token", "list", "--kubeconfig", kubeconfig],
            &["status", "--interval", "1", "--kubeconfig", kubeconfig],
        ];
        for arguments in rows {
            let (code, errors) = run(arguments, &object, stdout());
            assert_eq!(code, Some(1), "{arguments:?}: {errors}");
            assert!(errors.contains(reason) && !errors.contains("panicked"), "{arguments:?}: {errors}");
        }
        let id = run(&["--version"], &object, stdout());
        assert_eq!(id, (Some(0), String::new()));
    }
    server.terminate().await;
    for (stdout, case) in [(full as fn() -> Stdio, "full"), (closed, "closed")] {
        let [archive, restored, snapshot, imported] =
            ["archive", "restored", "snapshot", "imported"].map(|name| at(&format!("{name}-{case}")));
        let rows: [(&[&str], &str); 6] = [
            (&["verify", "--data-dir", data], data),
            (&["repair", "--data-dir", data, "--yes"], data),
            (&["backup", "--data-dir", data, "--to", &archive], &archive),
            (&["restore", "--from", &archive, "--data-dir", &restored], &restored),
            (&["export", "etcd-snapshot", "--data-dir", data, &snapshot], &snapshot),
            (&["import", "snapshot", &snapshot, "--data-dir", &imported], &imported),
        ];
        for (arguments, made) in rows {
            assert_eq!(run(arguments, &object, stdout()), (Some(0), String::new()), "{arguments:?}");
            assert!(Path::new(made).exists(), "{arguments:?}");
        }
    }
}

/// What goes wrong is known from the exit code then.
#[test]
fn commands_whose_standard_error_is_full_end_in_order() {
    let dir = TempDir::new().expect("directory");
    let object = dir.path().join("object");
    fs::write(&object, "apiVersion: v1\nkind: Pod\nspec: {bogus: 1}\n").expect("a file");
    let rows: [(&[&str], i32); 5] = [
        (&["convert", "--to", "json", "--validate=warn"], 0),
        (&["convert", "--to", "json"], 1),
        (&["verify", "--data-dir", "/nonexistent"], 1),
        (&["serve", "--secure-port", "hello"], 2),
        (&["serve", "--data-dir", "/dev/null/data"], 1),
    ];
    for (arguments, wanted) in rows {
        let mut command = launch().command(arguments.iter().copied());
        command.stdin(File::open(&object).expect("a file")).stdout(Stdio::null()).stderr(full());
        assert_eq!(command.status().expect("it runs").code(), Some(wanted), "{arguments:?}");
    }
    // Named by the environment: the program explains the error by itself.
    let mut command = launch().command(["serve"]);
    command.env("PLINTH_SECURE_PORT", "hello").stdout(Stdio::null()).stderr(full());
    assert_eq!(command.status().expect("it runs").code(), Some(2));
}

/// The line that announces it cannot be written.
#[tokio::test]
async fn a_server_whose_output_is_full_serves() {
    let dir = TempDir::new().expect("directory");
    let runner = ["sh", "-c", "exec \"$0\" \"$@\" > /dev/full"];
    let launch = launch().on_host(Ipv4Addr::LOCALHOST.into(), &runner);
    let mut server = start_ready(&launch, dir.path(), &[]).await;
    eventually("it warns", || async { server.log().tail(20).contains("standard output") }).await;
    connect_to(&server, Protocol::Http1).await.must(&Call::get("/api/v1/namespaces")).await.expect("served");
    server.terminate().await.expect("clean end");
}

/// Each request is logged, or would be.
#[tokio::test]
async fn a_server_whose_log_is_full_serves() {
    let dir = TempDir::new().expect("directory");
    let runner = ["sh", "-c", "exec \"$0\" \"$@\" 2> /dev/full"];
    let launch = launch().on_host(Ipv4Addr::LOCALHOST.into(), &runner);
    for format in ["text", "json"] {
        let root = dir.path().join(format);
        fs::create_dir(&root).expect("a directory");
        let logging = format!("--logging-format={format}");
        let mut server = start_ready(&launch, &root, &["-v=4", &logging]).await;
        let mut connection = connect_to(&server, Protocol::Http1).await;
        for _ in 0..3 {
            connection.must(&Call::get("/api/v1/namespaces")).await.expect("served");
        }
        server.terminate().await.expect("clean end");
    }
}
