//! Where flags come from, what the ready line reports, and the names in the server's own certificate.

use std::fs;
use std::path::Path;

use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::outcome::Outcome;
use plinth_tests::requests::send;
use plinth_tests::server::{connect_to, launch, start_ready, TestServer};
use plinth_tests::{eventually, package_dir};
use serde_json::{json, Value};

/// The cluster address of the Service `kubernetes`, the first of --service-cluster-ip-range.
async fn service_address(variables: &[(&str, &str)], arguments: &[&str]) -> String {
    let dir = tempfile::tempdir().expect("directory");
    let mut launch = launch();
    for (name, value) in variables {
        launch = launch.env(name, Path::new(value));
    }
    let server = start_ready(&launch, dir.path(), arguments).await;
    let mut admin = connect_to(&server, Protocol::Http1).await;
    let reply =
        admin.must(&Call::get("/api/v1/namespaces/default/services/kubernetes")).await.expect("service");
    let service: Value = serde_json::from_slice(&reply.body).expect("JSON");
    service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn flags_precede_the_environment_and_that_the_file() {
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("config.yaml");
    // The harness's own --secure-port precedes this one.
    fs::write(&file, "secure-port: 1\nservice-cluster-ip-range: [10.1.0.0/16]\nv: 1\n").expect("file");
    let config = format!("--config={}", file.display());
    let variable = [("PLINTH_SERVICE_CLUSTER_IP_RANGE", "10.2.0.0/16")];
    let flag = "--service-cluster-ip-range=10.3.0.0/16";
    assert_eq!(service_address(&[], &[&config]).await, "10.1.0.1");
    assert_eq!(service_address(&variable, &[&config]).await, "10.2.0.1");
    assert_eq!(service_address(&variable, &[&config, flag]).await, "10.3.0.1");
    // The file, too, can be named in the environment.
    let named = [("PLINTH_CONFIG", file.to_str().expect("text"))];
    assert_eq!(service_address(&named, &[]).await, "10.1.0.1");
}

#[test]
fn a_file_with_errors_is_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("config.yaml");
    let refused = |text: &str| {
        fs::write(&file, text).expect("file");
        let mut command = launch().command(["serve", "--config"]);
        let output = command.arg(&file).arg("--data-dir").arg(dir.path().join("data")).outcome();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{message}");
        message
    };
    let message = refused("no-such-flag: 1\n");
    let wanted = format!("error: --config: {}: no-such-flag: not a flag of \"plinth serve\"", file.display());
    assert!(message.starts_with(&wanted), "{message}");
    // What a flag may be is reported as for the command line, with the file.
    let message = refused("secure-port: many\n");
    let wanted =
        format!("error: --config: {}: invalid value 'many' for '--secure-port <PORT>'", file.display());
    assert!(message.starts_with(&wanted), "{message}");
    // What only the server finds wrong, too.
    let message = refused("feature-gates: NoSuchGate=true\n");
    let note = format!("\n--feature-gates is from --config: {}\n", file.display());
    assert!(message.starts_with("error: --feature-gates: ") && message.ends_with(&note), "{message}");
    assert!(!dir.path().join("data").exists());
}

#[test]
fn a_variable_with_an_error_is_named() {
    let refused = |command: &[&str], variable: &str, value: &str| {
        let mut command = launch().command(command.iter().copied());
        let output = command.env(variable, value).outcome();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let message = refused(&["serve"], "PLINTH_SECURE_PORT", "many");
    let wanted = "error: PLINTH_SECURE_PORT: invalid value 'many' for '--secure-port <PORT>'";
    assert!(message.starts_with(wanted), "{message}");
    let message = refused(&["etcd", "--data-dir", "none"], "ETCD_QUOTA_BACKEND_BYTES", "many");
    let wanted = "error: ETCD_QUOTA_BACKEND_BYTES: invalid value 'many' for '--quota-backend-bytes";
    assert!(message.starts_with(wanted), "{message}");
}

#[tokio::test]
async fn the_certificate_has_the_names_that_flags_give() {
    let flags =
        ["--tls-san=api.example.org,*.wild.example.org,192.0.2.9", "--external-hostname=public.example.org"];
    let server = TestServer::start(&flags).await;
    let pem = fs::read(server.data().join("pki/apiserver.crt")).expect("certificate");
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).expect("PEM");
    let certificate = pem.parse_x509().expect("a certificate");
    let names = certificate.subject_alternative_name().expect("extension").expect("names");
    let names = format!("{:?}", names.value.general_names);
    for name in ["api.example.org", "*.wild.example.org", "public.example.org", "kubernetes.default.svc"] {
        assert!(names.contains(&format!("DNSName({name:?})")), "{name} in {names}");
    }
    assert!(names.contains("IPAddress([192, 0, 2, 9])"), "{names}");
    let output = launch().command(["serve", "--tls-san=under_score"]).outcome();
    assert!(String::from_utf8_lossy(&output.stderr).contains("neither a DNS name nor an IP address"));
}

#[test]
fn what_is_no_object_is_not_converted() {
    let dir = tempfile::tempdir().expect("directory");
    let convert_with = |text: &str, flags: &[&str]| {
        let path = dir.path().join("input");
        fs::write(&path, text).expect("file");
        let mut command = launch().command(["convert", "--to", "json"].iter().chain(flags).copied());
        let output = command.stdin(fs::File::open(&path).expect("file")).outcome();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let convert = |text: &str| convert_with(text, &[]);
    for garbage in ["hello", "a: 1", "- kind: Pod\n  apiVersion: v1", "kind: Pod", "\u{1}\u{2}"] {
        let (succeeded, message) = convert(garbage);
        assert!(!succeeded && message.starts_with("error: "), "{garbage:?}: {message}");
    }
    assert_eq!(convert("apiVersion: v1\nkind: Pod"), (true, String::new()));
    // A kind that no built-in group has, and one of a group that may have any.
    for (version, kind) in [("v1", "Nope"), ("apps/v1", "Pod"), ("apps/v9", "Deployment"), ("nope/v1", "A")] {
        let (succeeded, message) = convert(&format!("apiVersion: {version}\nkind: {kind}"));
        let wanted =
            format!("error: cannot convert: no kind \"{kind}\" is registered for version \"{version}\"");
        assert!(!succeeded && message.starts_with(&wanted), "{message}");
    }
    for object in
        ["apiVersion: example.com/v1\nkind: A\nspec: {b: 1}", "apiVersion: v1\nkind: List\nitems: []"]
    {
        assert_eq!(convert(object), (true, String::new()), "{object}");
    }
    let list = |items: &str| convert(&format!("apiVersion: v1\nkind: List\nitems: [{items}]"));
    let custom = "{apiVersion: example.com/v1, kind: A}";
    assert_eq!(list(custom), (true, String::new()));
    for (item, error) in [
        ("{apiVersion: v1, kind: Nope}", "items[1]: no kind \"Nope\" is registered for version \"v1\""),
        ("{apiVersion: v1, kind: List}", "items[1]: a List cannot be an item of a List"),
        ("{kind: Pod}", "items[1] is not a Kubernetes object"),
        (
            "{apiVersion: v1, kind: Pod, spec: {bogus: 1}}",
            "strict decoding error: unknown field \"items[1].spec.bogus\"",
        ),
    ] {
        let (succeeded, message) = list(&format!("{custom}, {item}"));
        assert!(!succeeded && message.starts_with(&format!("error: cannot convert: {error}")), "{message}");
    }
    // Fields that would be lost.
    let unknown = "apiVersion: v1\nkind: Pod\nspec: {bogus: 1}";
    let (succeeded, message) = convert(unknown);
    let wanted = "error: cannot convert: strict decoding error: unknown field \"spec.bogus\"\n";
    assert!(!succeeded && message.starts_with(wanted), "{message}");
    let warned = (true, "Warning: unknown field \"spec.bogus\"\n".to_owned());
    assert_eq!(convert_with(unknown, &["--validate=warn"]), warned);
    assert_eq!(convert_with(unknown, &["--validate=false"]), (true, String::new()));
    let twice = r#"{"apiVersion": "v1", "kind": "Pod", "kind": "Pod"}"#;
    assert!(!convert(twice).0 && convert_with(twice, &["--validate=ignore"]).0);
}

#[tokio::test]
async fn the_ready_line_names_what_clients_can_use() {
    let mut server = TestServer::start(&["--bind-address=0.0.0.0"]).await;
    let port = server.port();
    // It may be ready a moment before it says so.
    plinth_tests::eventually("the line is there", || async { server.log_tail(5).contains("is ready on") })
        .await;
    let ready = server.log_tail(5);
    assert!(ready.contains(&format!("is ready on https://127.0.0.1:{port}")), "{ready}");
    assert!(!ready.contains("--client-ca-file"), "{ready}");
    // Another server's authority: the administrator's own certificate is not accepted then.
    let other = server.data().join("pki/ca.crt").display().to_string();
    let dir = tempfile::tempdir().expect("directory");
    let second = launch().start(dir.path(), &[&format!("--client-ca-file={other}")]).await.expect("start");
    let note = format!("--client-ca-file: clients need a certificate of an authority in {other}");
    eventually("the second is ready", || async { second.log().tail(5).contains(&note) }).await;
    server.terminate().await;
}

#[tokio::test]
async fn the_status_of_a_server_is_shown() {
    let server = TestServer::start(&[]).await;
    let kubeconfig = server.kubeconfig().display().to_string();
    let output = launch().command(["status", "--kubeconfig", &kubeconfig]).outcome();
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for line in ["health      ready", "revision    ", "commit      half within ", "slow        "] {
        assert!(page.lines().any(|found| found.starts_with(line)), "{line:?} in\n{page}");
    }
    let objects = page.lines().find(|line| line.starts_with("objects     ")).expect("objects by kind");
    assert!(
        objects.contains("(") && objects.contains("clusterroles.rbac.authorization.k8s.io "),
        "{objects}"
    );
    // Without the flag, as kubectl finds it.
    let output = launch().command(["status"]).env("KUBECONFIG", &kubeconfig).outcome();
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("health      ready\n"));
}

#[tokio::test]
async fn scheduled_backups_are_written_and_can_be_restored() {
    let dir = tempfile::tempdir().expect("directory");
    let backups = dir.path().join("backups");
    let flag = format!("--backup-dir={}", backups.display());
    let server = TestServer::start(&[&flag, "--backup-interval=1s", "--backup-keep=2"]).await;
    let present = || {
        let entries = fs::read_dir(&backups).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "backup"));
        paths.sort();
        paths
    };
    eventually("there are two", || async { present().len() == 2 }).await;
    let first = present();
    eventually("the oldest is replaced", || async {
        let now = present();
        now.len() == 2 && now[0] != first[0]
    })
    .await;
    drop(server);
    let restored = dir.path().join("restored");
    let mut command = launch().command(["restore", "--from"]);
    let output = command.arg(&present()[1]).arg("--data-dir").arg(&restored).outcome();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The samples of the documents, as they are but for the key.
#[tokio::test]
async fn the_sample_files_are_accepted() {
    let dir = tempfile::tempdir().expect("directory");
    let examples = package_dir().join("../docs/examples");
    let copy = |name: &str| {
        let text = fs::read_to_string(examples.join(name)).expect("sample");
        let path = dir.path().join(name);
        let key = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=";
        fs::write(&path, text.replace("REPLACE-BY-A-KEY", key)).expect("file");
        path.display().to_string()
    };
    let log = dir.path().join("audit.log");
    let server = TestServer::start(&[
        &format!("--audit-policy-file={}", copy("audit-policy.yaml")),
        &format!("--audit-log-path={}", log.display()),
        &format!("--encryption-provider-config={}", copy("encryption.yaml")),
        &format!("--authentication-config={}", copy("authentication.yaml")),
        &format!("--admission-control-config-file={}", copy("admission.yaml")),
    ])
    .await;
    let client = server.client().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]}});
    let refused = send(&client, "POST", "/api/v1/namespaces/default/pods", &pod).await;
    assert_eq!(refused.code, 403, "{}", refused.text);
    assert!(refused.text.contains("violates PodSecurity"), "{}", refused.text);
    eventually("the refusal is logged", || async {
        fs::read_to_string(&log).is_ok_and(|text| text.contains(r#""level":"RequestResponse""#))
    })
    .await;
}

/// The API server itself checks the manifests that run it.
#[tokio::test]
async fn the_manifests_are_valid() {
    // The account that pods run as is made a moment after the start.
    let server = TestServer::start(&["--disable-admission-plugins=ServiceAccount"]).await;
    let mut admin = server.connect(Protocol::Http1).await;
    let packaging = package_dir().join("../packaging");
    for (file, collection) in [
        ("static-pod.yaml", "/api/v1/namespaces/kube-system/pods"),
        ("kustomize/base/service.yaml", "/api/v1/namespaces/default/services"),
        ("kustomize/base/statefulset.yaml", "/apis/apps/v1/namespaces/default/statefulsets"),
    ] {
        let manifest = fs::read_to_string(packaging.join(file)).expect(file);
        let path = format!("{collection}?fieldValidation=Strict&dryRun=All");
        let call = Call::new(http::Method::POST, &path).body("application/yaml", manifest);
        let reply = admin.call(&call).await.expect("an answer");
        assert_eq!(reply.status, 201, "{file}: {}", String::from_utf8_lossy(&reply.body));
    }
}
