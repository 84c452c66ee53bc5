//! The process: refused starts, the first start, and the stop.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use plinth_tests::eventually;
use plinth_tests::outcome::Outcome;
use plinth_tests::server::{launch, TestServer};
use tempfile::TempDir;

/// Runs `plinth serve` on a directory that it must refuse.
fn refused(data_dir: &Path, arguments: &[&str]) -> String {
    let mut command = launch().command(["serve", "--data-dir"]);
    command.arg(data_dir).args(["--bind-address", "127.0.0.1"]).args(arguments);
    one_clear_line(command.outcome())
}

/// A refusal of a start is one line on standard error and an exit code that is not zero.
#[track_caller]
fn one_clear_line(output: Output) -> String {
    let stderr = clear_lines(output);
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
    stderr
}

/// What failed and why, and perhaps a line that says what to do.
#[track_caller]
fn clear_lines(output: Output) -> String {
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.trim_end().lines().count() <= 2, "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "nothing on standard output");
    stderr
}

/// A port that is free for the moment; these servers never get as far as to use it.
fn some_port() -> String {
    plinth_benches::api::server::free_port().expect("a port").to_string()
}

#[test]
fn a_busy_port_is_named() {
    let dir = TempDir::new().expect("directory");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port().to_string();
    let data = dir.path().join("data");
    let message = refused(&data, &["--secure-port", &port]);
    assert!(message.contains(&port) && message.contains("in use"), "{message}");
    assert!(message.contains("--secure-port"), "{message}");
    assert!(!data.exists(), "nothing was made");
}

#[test]
fn an_address_of_another_machine_is_named() {
    let dir = TempDir::new().expect("directory");
    let mut command = launch().command(["serve", "--secure-port", "0", "--bind-address", "192.0.2.1"]);
    let message = one_clear_line(command.arg("--data-dir").arg(dir.path()).outcome());
    assert!(message.contains("192.0.2.1") && message.contains("--bind-address"), "{message}");
}

/// Runs a command that must fail.
fn failed(arguments: &[&str]) -> String {
    clear_lines(launch().command(arguments).outcome())
}

#[tokio::test]
async fn commands_report_what_to_do_instead() {
    let server = TestServer::start(&[]).await;
    let dir = TempDir::new().expect("directory");
    let at = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let data = server.data().to_str().expect("text").to_owned();
    let message = failed(&["verify", "--data-dir", &data]);
    assert!(message.contains("stop the server"), "{message}");
    let message = failed(&["backup", "--data-dir", &data, "--to", &at("a")]);
    assert!(message.contains("--kubeconfig"), "{message}");
    fs::write(at("b"), "precious").expect("file");
    let admin = server.kubeconfig().to_str().expect("text");
    // The server runs, and has no such object; another one does not run.
    let message = failed(&["history", "pods", "none", "--kubeconfig", admin]);
    assert!(message.contains("does not exist") && !message.contains("that the server runs"), "{message}");
    let text = fs::read_to_string(admin).expect("kubeconfig");
    let address = text.split("https://").nth(1).and_then(|rest| rest.split_whitespace().next());
    let absent = text.replace(address.expect("an address"), &format!("127.0.0.1:{}", some_port()));
    fs::write(at("absent"), absent).expect("kubeconfig");
    let message = failed(&["history", "pods", "none", "--kubeconfig", &at("absent")]);
    assert!(message.contains("that the server runs"), "{message}");
    fs::remove_file(at("absent")).expect("removed");
    let message = failed(&["backup", "--kubeconfig", admin, "--to", &at("b")]);
    assert!(message.contains("exists already"), "{message}");
    assert_eq!(fs::read(at("b")).expect("file"), b"precious");
    let message = failed(&["kubeconfig", "--data-dir", &at("none"), "--user", "jane"]);
    assert!(message.contains(&at("none")), "{message}");
    // A Status of the server is printed as its message, not as JSON.
    let mut command =
        launch().command(["kubeconfig", "--user", "jane", "--data-dir", &data, "--to", &at("jane")]);
    assert!(command.status().expect("plinth runs").success());
    let message = failed(&["backup", "--kubeconfig", &at("jane"), "--to", &at("c")]);
    assert!(
        message.contains(r#"User "jane" cannot get path"#) && !message.contains("apiVersion"),
        "{message}"
    );
    let mut left: Vec<_> =
        dir.path().read_dir().expect("directory").map(|e| e.expect("entry").file_name()).collect();
    left.sort();
    assert_eq!(left, ["b", "jane"], "nothing unfinished is left behind");
}

#[tokio::test]
async fn a_stop_logs_no_error() {
    let mut server = TestServer::start(&[]).await;
    // An idle connection does not delay the stop.
    let client = server.client().await;
    client.apiserver_version().await.expect("it serves");
    // The controllers are at work: each namespace is given an account and a ConfigMap.
    let namespaces: Api<Namespace> = Api::all(server.client().await);
    let writer = namespaces.clone();
    let busy = tokio::spawn(async move {
        for number in 0.. {
            let metadata = ObjectMeta { name: Some(format!("busy-{number}")), ..ObjectMeta::default() };
            let namespace = Namespace { metadata, ..Namespace::default() };
            if writer.create(&PostParams::default(), &namespace).await.is_err() {
                return;
            }
        }
    });
    eventually("some are made", || async {
        namespaces.get_opt("busy-20").await.is_ok_and(|found| found.is_some())
    })
    .await;
    server.terminate().await;
    drop(client);
    busy.await.expect("it ends");
    let log = server.log_tail(50);
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

/// Its journal takes connections and says nothing.
#[tokio::test]
async fn a_start_that_waits_can_be_stopped() {
    let root = TempDir::new().expect("directory");
    let journal = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("etcd://{}/plinth", journal.local_addr().expect("its address"));
    let mut server = launch().start(root.path(), &["--journal", &url]).await.expect("start");
    let connected = tokio::task::spawn_blocking(move || journal.accept());
    let _connection = connected.await.expect("a task").expect("a connection");
    server.terminate().await.expect("clean end");
}

#[test]
fn an_unwritable_directory_is_named() {
    // Nobody, not even root, makes directories in /proc.
    let message = refused(Path::new("/proc/plinth-data"), &["--secure-port", &some_port()]);
    assert!(message.contains("/proc/plinth-data") && message.contains("; give --data-dir"), "{message}");
}

#[test]
fn a_refused_file_is_named_with_its_flag() {
    let dir = TempDir::new().expect("directory");
    let file = dir.path().join("file");
    fs::write(&file, "hi").expect("file");
    for flag in [
        "--audit-policy-file",
        "--admission-control-config-file",
        "--service-account-key-file",
        "--tracing-config-file",
        "--client-ca-file",
        "--requestheader-client-ca-file",
    ] {
        let given = format!("{flag}={}", file.display());
        let message = refused(&dir.path().join("data"), &["--secure-port", &some_port(), &given]);
        assert!(message.contains(flag) && message.contains(&*file.to_string_lossy()), "{message}");
    }
}

#[test]
fn a_file_is_no_directory() {
    let dir = TempDir::new().expect("directory");
    let file = dir.path().join("data");
    fs::write(&file, "precious").expect("file");
    let message = refused(&file, &["--secure-port", &some_port()]);
    assert!(message.contains(&*file.to_string_lossy()), "{message}");
    assert_eq!(fs::read(&file).expect("file"), b"precious");
}

#[test]
fn a_foreign_directory_is_left_alone() {
    let dir = TempDir::new().expect("directory");
    fs::write(dir.path().join("thesis.txt"), "precious").expect("file");
    let message = refused(dir.path(), &["--secure-port", &some_port()]);
    assert!(message.contains(&*dir.path().to_string_lossy()), "{message}");
    let left: Vec<_> =
        dir.path().read_dir().expect("directory").map(|e| e.expect("entry").file_name()).collect();
    assert_eq!(left, ["thesis.txt"]);
}

#[tokio::test]
async fn a_directory_serves_one_process() {
    let server = TestServer::start(&[]).await;
    let message = refused(&server.data(), &["--secure-port", &some_port()]);
    assert!(message.contains(&*server.data().to_string_lossy()), "{message}");
    server.client().await.apiserver_version().await.expect("the first goes on");
}

#[test]
fn unknown_flags_and_bad_values_are_refused() {
    let dir = TempDir::new().expect("directory");
    let data = dir.path().join("data");
    for bad in [&["--no-such-flag"][..], &["--secure-port", "70000"], &["--history-retention", "soon"]] {
        let mut command = launch().command(["serve", "--data-dir"]);
        let output = command.arg(&data).args(bad).outcome();
        assert_ne!(output.status.code(), Some(0), "{bad:?}");
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert!(stderr.contains(bad[0]), "{bad:?}: {stderr}");
    }
    assert!(!data.exists(), "nothing was made");
}

#[tokio::test]
async fn the_first_start_makes_what_is_needed() {
    let server = TestServer::start(&[]).await;
    let mode = fs::metadata(server.kubeconfig()).expect("admin.kubeconfig").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only its owner reads the administrator's key");
    let export = format!("export KUBECONFIG={}", server.kubeconfig().display());
    // It is ready before it logs that it is.
    eventually("the kubeconfig is named, to be copied", || async { server.log_tail(50).contains(&export) })
        .await;
    let log = server.log_tail(50);
    assert!(log.contains(&format!("https://127.0.0.1:{}", server.port())), "{log}");
    // No private key is readable by others.
    let mut dirs = vec![server.data()];
    while let Some(dir) = dirs.pop() {
        for entry in dir.read_dir().expect("directory") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else if fs::read(&path).is_ok_and(|text| text.windows(11).any(|w| w == b"PRIVATE KEY")) {
                let mode = fs::metadata(&path).expect("file").permissions().mode();
                assert_eq!(mode & 0o077, 0, "{}", path.display());
            }
        }
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    let help = |arguments: &[&str]| {
        let output = launch().command(arguments).arg("--help").outcome();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let all = help(&[]);
    let listed =
        all.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<&str> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"serve") && commands.contains(&"bench"), "{commands:?}");
    for command in commands.into_iter().filter(|command| *command != "help") {
        let help = help(&[command]);
        assert!(help.contains("Example"), "plinth {command} --help has an example:\n{help}");
    }
}

#[test]
fn a_machine_without_a_network_is_served() {
    // In the network namespace there is loopback only, in which the client runs, too.
    const OFFLINE: &str = r#"
        ip link set lo up
        "$0" serve --data-dir "$1" --bind-address 127.0.0.1 --secure-port 6443 &
        for _ in $(seq 300); do
            "$0" history service kubernetes -n default --kubeconfig "$1/admin.kubeconfig" && break
            kill -0 $! || break
            sleep 0.2
        done
        "$0" history endpoints kubernetes -n default --kubeconfig "$1/admin.kubeconfig"
        kill $!
        wait $!
    "#;
    let unshare = ["--user", "--map-root-user", "--net"];
    let up = "ip link set lo up";
    let probe = Command::new("unshare").args(unshare).args(["sh", "-c", up]).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("skipped: this user may not make a network");
        return;
    }
    let dir = TempDir::new().expect("directory");
    let program = launch().command(["serve"]).get_program().to_owned();
    let mut command = Command::new("unshare");
    command.args(unshare).args(["sh", "-c", OFFLINE]).arg(program).arg(dir.path().join("data"));
    let output = command.output().expect("unshare runs");
    let (shown, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "a clean stop: {log}");
    assert!(
        shown.contains("ADDED") && shown.contains("targetPort: 6443"),
        "the Service is there: {shown}{log}"
    );
    assert!(!shown.contains("subsets:"), "endpoints may not have addresses of loopback: {shown}");
    assert!(log.contains("others cannot reach the addresses of this machine"), "{log}");
}
