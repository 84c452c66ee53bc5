//! What the command line reports about files and directories that it cannot use: which flag named them, and
//! why.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Response, StatusCode};
use plinth_tests::https::HttpsServer;
use plinth_tests::outcome::Outcome;
use plinth_tests::server::{launch, TestServer};

/// What a command prints that fails.
fn failure(arguments: &[&str]) -> String {
    let output = launch().command(arguments.iter().copied()).outcome();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{arguments:?} succeeded: {message}");
    message
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[test]
fn a_file_that_is_unusable_is_named_with_its_flag() {
    let dir = tempfile::tempdir().expect("directory");
    let (data, bad) = (dir.path().join("data"), dir.path().join("bad.pem"));
    fs::write(&bad, "no PEM\n").expect("file");
    let bad = text(&bad);
    let serve = |flags: &[&str]| {
        let given = flags.iter().flat_map(|flag| [*flag, bad]);
        let start = ["serve", "--secure-port", "0", "--data-dir", text(&data)];
        failure(&start.into_iter().chain(given).collect::<Vec<_>>())
    };
    let cases: [(&[&str], String); 5] = [
        (&["--client-ca-file"], format!("error: authentication: --client-ca-file: {bad}: ")),
        (
            &["--requestheader-client-ca-file"],
            format!("error: authentication: --requestheader-client-ca-file: {bad}: "),
        ),
        (
            &["--tls-cert-file", "--tls-private-key-file"],
            format!("error: --tls-cert-file and --tls-private-key-file: cannot read {bad}: "),
        ),
        (
            &["--cluster-signing-cert-file", "--cluster-signing-key-file"],
            format!("error: --cluster-signing-cert-file and --cluster-signing-key-file: cannot read {bad}: "),
        ),
        (&["--kubelet-certificate-authority"], format!("error: --kubelet-certificate-authority: {bad}: ")),
    ];
    for (flags, wanted) in cases {
        let message = serve(flags);
        assert!(message.starts_with(&wanted), "{wanted:?}: {message}");
    }
    let encryption = dir.path().join("encryption.yaml");
    let head = "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\n";
    for (content, reason) in [
        (format!("{head}resources: [{{resources: [secrets]}}]"), "resources[0].providers: Required value: "),
        (format!("{head}resource: []"), "error decoding encryption provider configuration file: "),
    ] {
        fs::write(&encryption, content).expect("file");
        let encryption = text(&encryption);
        let start = ["serve", "--secure-port", "0", "--data-dir", text(&data)];
        let flags = ["--encryption-provider-config", encryption];
        let message = failure(&start.into_iter().chain(flags).collect::<Vec<_>>());
        let wanted =
            format!("error: encryption at rest: --encryption-provider-config: {encryption}: {reason}");
        assert!(message.starts_with(&wanted), "{wanted:?}: {message}");
    }
}

#[tokio::test]
async fn a_key_of_the_authority_that_is_damaged_is_named_with_what_to_do() {
    let mut server = TestServer::start(&[]).await;
    server.terminate().await;
    let key = server.data().join("pki/ca.key");
    fs::write(&key, "no PEM\n").expect("file");
    let data = server.data();
    let message = failure(&["serve", "--secure-port", "0", "--data-dir", text(&data)]);
    let wanted = format!("error: cannot use the server's certificates and keys: {}: ", key.display());
    assert!(message.starts_with(&wanted), "{message}");
    assert!(message.contains("Put it back from a copy"), "{message}");
}

#[tokio::test]
async fn a_restore_reports_why_it_does_not_begin_or_did_not_end() {
    let mut server = TestServer::start(&[]).await;
    let dir = tempfile::tempdir().expect("directory");
    let (archive, part) = (dir.path().join("whole.backup"), dir.path().join("part.backup"));
    let kubeconfig = server.kubeconfig().to_owned();
    let written =
        launch().command(["backup", "--kubeconfig", text(&kubeconfig), "--to", text(&archive)]).output();
    assert!(written.expect("plinth runs").status.success());

    // Into the directory of a running server, and of a stopped one.
    let data = server.data();
    let restore =
        |from: &Path, to: &Path| failure(&["restore", "--from", text(from), "--data-dir", text(to)]);
    let message = restore(&archive, &data);
    assert!(message.contains("is in use by another process; stop the server"), "{message}");
    server.terminate().await;
    let message = restore(&archive, &data);
    assert!(message.contains("holds a store already, and a backup is never restored over one"), "{message}");

    // Of an archive that ends too early; the directory is not served afterwards.
    let bytes = fs::read(&archive).expect("archive");
    fs::write(&part, &bytes[..bytes.len() / 2]).expect("file");
    let unfinished = dir.path().join("unfinished");
    let message = restore(&part, &unfinished);
    assert!(message.starts_with("error: cannot restore: invalid archive: "), "{message}");
    let message = failure(&["serve", "--secure-port", "0", "--data-dir", text(&unfinished)]);
    assert!(
        message.contains("did not finish\nRun plinth restore again with the same --data-dir"),
        "{message}"
    );
}

#[test]
fn commands_report_what_failed_why_and_what_to_do() {
    let dir = tempfile::tempdir().expect("directory");
    let (none, data, file) = (dir.path().join("none"), dir.path().join("data"), dir.path().join("file"));
    fs::write(&file, "{}").expect("file");
    let (none, data, file) = (text(&none), text(&data), text(&file));
    let below_a_file = format!("{file}/x");
    let rows: &[(&[&str], &str, &str, &str)] = &[
        (&["restore", "--from", none, "--data-dir", data], "cannot restore: ", none, "--from"),
        (&["import", "snapshot", none, "--data-dir", data], "cannot import: ", none, "plinth import again"),
        (&["import", "kine", none, "--data-dir", data], "cannot import: ", none, "plinth import again"),
        (&["backup", "--data-dir", none, "--to", data], "cannot write the backup: ", none, "--data-dir"),
        (&["verify", "--data-dir", none], "cannot verify the store: ", none, "--data-dir"),
        (&["repair", "--data-dir", none], "cannot repair the store: ", none, "--data-dir"),
        (&["replicate", "--data-dir", none], "cannot convert the data directory: ", none, "--data-dir"),
        (&["replicas", "--kubeconfig", none], "cannot list or change the replicas: ", none, "--kubeconfig"),
        (
            &["token", "create", "--kubeconfig", none],
            "cannot use the cluster's join tokens: ",
            none,
            "--kubeconfig",
        ),
        (&["man-pages", "--to", &below_a_file], "cannot write: ", file, "Check the path"),
    ];
    for (arguments, what, why, advice) in rows {
        let message = failure(arguments);
        let (first, rest) = message.split_once('\n').expect("lines");
        assert!(first.starts_with(&format!("error: {what}")), "{arguments:?}: {message}");
        assert!(first.contains(why), "{arguments:?}: {message}");
        assert!(rest.contains(advice) && rest.trim_end().lines().count() == 1, "{arguments:?}: {message}");
        assert!(!Path::new(data).exists(), "{arguments:?} made {data}");
    }
}

/// Neither is a page of a login a status, nor is a terminal at the mercy of a server.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_plinth_has_no_status() {
    const ESCAPE: &str = "\u{1b}]0;title\u{7}";
    let page = |status: StatusCode, text: &'static str| {
        HttpsServer::start(move |_| async move {
            let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
            *response.status_mut() = status;
            response
        })
    };
    let dir = tempfile::tempdir().expect("directory");
    let kubeconfig = dir.path().join("kubeconfig");
    let status = async |server: &HttpsServer| {
        fs::write(&kubeconfig, server.kubeconfig("", "token")).expect("file");
        let file = text(&kubeconfig).to_owned();
        let run = move || failure(&["status", "--kubeconfig", &file]);
        tokio::task::spawn_blocking(run).await.expect("it runs")
    };
    let login = page(StatusCode::OK, "<html>Log in</html>").await;
    let message = status(&login).await;
    assert!(message.starts_with("error: cannot show the server's status: https://127.0.0.1:"), "{message}");
    assert!(message.contains("not plinth"), "{message}");
    let failing = page(StatusCode::BAD_REQUEST, ESCAPE).await;
    let message = status(&failing).await;
    assert!(message.contains("]0;title") && !message.contains(['\u{1b}', '\u{7}']), "{message}");
}
