//! Manifests that real projects publish, unchanged: applied, applied again, read in every way,
//! changed, deleted, with a restart in the middle.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use plinth_tests::fixtures;
use plinth_tests::kubectl::Kubectl;
use plinth_tests::server::TestServer;

/// apiVersions of objects in the fixtures that no API server has built in.
const NOT_BUILT_IN: &[&str] = &["monitoring.coreos.com/v1", "kustomize.config.k8s.io/v1beta1"];
/// Definitions whose text does not fit the annotation in which a client-side apply remembers what was
/// applied (262,144 bytes); their projects say to apply them on the server's side.
const ON_THE_SERVERS_SIDE: usize = 400_000;

/// Files with an object that another file has too, in another state.
const ALONE: &[&str] = &["web-guestbook-go-redis-master-controller.yaml"];

/// `-f` for each of the files.
fn all(files: &[PathBuf]) -> String {
    files.iter().fold(String::new(), |mut line, file| {
        let _ = write!(line, " -f {}", file.display());
        line
    })
}

/// Whether every object of the manifest is of a built-in kind.
fn is_built_in(manifest: &Path) -> bool {
    let text = fs::read_to_string(manifest).expect("a manifest");
    let versions = text.lines().filter_map(|line| line.strip_prefix("apiVersion:"));
    !versions.map(|v| v.trim().trim_matches('"')).any(|version| NOT_BUILT_IN.contains(&version))
}

/// Lines of kubectl's output that do not end in one of the given words.
fn others<'a>(output: &'a str, words: &[&str]) -> Vec<&'a str> {
    output.lines().filter(|line| !words.iter().any(|word| line.ends_with(word))).collect()
}

/// Objects of which kubectl says `configured` at every apply, whatever the server: it compares the manifest
/// with the live object itself, and these write out a default, a null, or a list that defaults change. Seen
/// with kube-apiserver v1.36.2, where nothing is stored either: the resourceVersion stays.
const CONFIGURED_AGAIN: &[&str] = &[
    "horizontalpodautoscaler.autoscaling/gemma-server-hpa configured",
    "statefulset.apps/cassandra configured",
    "configmap/ingress-nginx-controller configured",
    "deployment.apps/ingress-nginx-controller configured",
    "validatingwebhookconfiguration.admissionregistration.k8s.io/ingress-nginx-admission configured",
    "validatingadmissionpolicy.admissionregistration.k8s.io/safe-upgrades.gateway.networking.k8s.io configured",
    "validatingadmissionpolicybinding.admissionregistration.k8s.io/safe-upgrades.gateway.networking.k8s.io configured",
];

/// The lines of an apply that say more than `unchanged` and should not.
fn changed(output: &str) -> Vec<&str> {
    others(output, &[" unchanged"]).into_iter().filter(|line| !CONFIGURED_AGAIN.contains(line)).collect()
}

#[tokio::test]
async fn published_manifests_live_their_whole_life() {
    let Some(dir) = fixtures::directory("kubectl on published manifests") else { return };
    let mut server = TestServer::start(&[]).await;
    let Some(kubectl) = Kubectl::find("kubectl on published manifests", server.kubeconfig()) else { return };
    let (large, files): (Vec<_>, Vec<_>) = fixtures::manifests(&dir)
        .into_iter()
        .filter(|file| is_built_in(file))
        .partition(|file| fs::metadata(file).expect("a file").len() > ON_THE_SERVERS_SIDE as u64);
    assert!(files.len() > 30 && large.len() > 5, "{} and {} files", files.len(), large.len());
    let (alone, files): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| ALONE.iter().any(|name| file.ends_with(name)));
    let (files, large) = (all(&files), all(&large));

    for file in alone {
        let file = all(&[file]);
        assert_eq!(others(&kubectl.ok(&format!("apply{file}")), &[" created"]), [""; 0]);
        assert_eq!(others(&kubectl.ok(&format!("apply{file}")), &[" unchanged"]), [""; 0]);
        kubectl.ok(&format!("delete{file}"));
    }

    // First the large ones: among the others is the Gateway API's policy, which refuses its definitions from
    // then on.
    let applied = kubectl.ok(&format!("apply --server-side{large}"));
    assert_eq!(others(&applied, &[" serverside-applied"]), [""; 0]);
    let applied = kubectl.ok(&format!("apply{files}"));
    assert_eq!(others(&applied, &[" created"]), [""; 0], "first apply");
    let state = kubectl.ok(&format!("get{files} -o yaml"));
    let again = kubectl.ok(&format!("apply{files}"));
    assert_eq!(changed(&again), [""; 0], "second apply");
    assert_eq!(kubectl.ok(&format!("get{files} -o yaml")), state, "whatever it says, nothing was written");
    assert_eq!(applied.lines().count(), again.lines().count());

    let names = kubectl.ok(&format!("get{files} -o name"));
    assert_eq!(names.lines().count(), again.lines().count());
    let before = kubectl.ok(&format!("get{files} -o yaml"));
    server.terminate().await;
    server.restart().await;
    assert_eq!(kubectl.ok(&format!("get{files} -o yaml")), before, "after a restart");
    let after = kubectl.ok(&format!("apply{files}"));
    assert_eq!(changed(&after), [""; 0], "apply after a restart");
    // No output and success: nothing differs.
    assert_eq!(kubectl.ok(&format!("diff{files}")), "");

    let refused = kubectl.fails("annotate crd httproutes.gateway.networking.k8s.io tried=yes");
    assert!(
        refused.contains("Installing CRDs with version before v1.5.0 is prohibited by default"),
        "{refused}"
    );

    let everything = kubectl.ok("get all -A");
    for name in ["deployment.apps/ingress-nginx-controller", "service/frontend", "statefulset.apps/cassandra"]
    {
        assert!(everything.contains(name), "{name} in\n{everything}");
    }
    let wide = kubectl.ok("get deployments -A -o wide");
    let column_names: Vec<_> = wide.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(
        column_names,
        ["NAMESPACE", "NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]
    );
    let described = kubectl.ok("describe deployment ingress-nginx-controller -n ingress-nginx");
    assert!(described.contains("Replicas:") && described.contains("Pod Template:"), "{described}");
    assert!(kubectl.ok("describe service frontend").contains("Endpoints"));

    // Deleting waits until all are gone. What lies in a namespace of the same files may go before its turn
    // comes.
    kubectl.ok(&format!("delete --ignore-not-found --timeout=60s{files}"));
    assert_eq!(kubectl.ok(&format!("get --ignore-not-found -o name{files}")), "");
    assert_eq!(
        kubectl.fails("get deployment frontend").trim(),
        r#"Error from server (NotFound): deployments.apps "frontend" not found"#
    );
}

#[tokio::test]
async fn one_deployment_is_changed_in_every_way() {
    let Some(dir) = fixtures::directory("kubectl changes") else { return };
    let server = TestServer::start(&[]).await;
    let Some(kubectl) = Kubectl::find("kubectl changes", server.kubeconfig()) else { return };
    let source = dir.join("manifests/examples/AI-model-serving-tensorflow-deployment.yaml");
    let manifest = kubectl.home().join("deployment.yaml");
    fs::copy(&source, &manifest).expect("a copy");
    let file = format!("-f {}", manifest.display());
    kubectl.ok(&format!("apply {file}"));
    let name = kubectl.ok(&format!("get {file} -o name"));
    let name = name.trim();
    let read = |path: &str| kubectl.ok(&format!("get {name} -o jsonpath={{{path}}}"));

    kubectl.ok(&format!("label {name} tier=back"));
    kubectl.ok(&format!("annotate {name} example.com/owner=tests"));
    kubectl.ok(&format!("scale {name} --replicas=4"));
    assert_eq!((read(".metadata.labels.tier"), read(".spec.replicas")), ("back".into(), "4".into()));
    kubectl.fails(&format!("label {name} tier=front"));
    kubectl.ok(&format!("label {name} tier=front --overwrite"));
    kubectl.ok(&format!("label {name} tier-"));
    assert_eq!(read(".metadata.labels.tier"), "");

    // An editor that writes another image into the file that kubectl hands it.
    let editor = kubectl.home().join("editor");
    fs::write(&editor, "#!/bin/sh\nsed -i 's#image: .*#image: registry.example/edited:1#' \"$1\"\n")
        .expect("editor");
    fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).expect("an executable editor");
    let edited = kubectl.command(["edit", name]).env("EDITOR", &editor).env_remove("KUBE_EDITOR").output();
    assert!(plinth_tests::kubectl::succeeded("edit", edited.expect("kubectl runs")).ends_with(" edited\n"));
    assert_eq!(read(".spec.template.spec.containers[0].image"), "registry.example/edited:1");

    // What was edited shows in a diff (exit code 1), and the next apply takes it back.
    let diff = kubectl.run(&format!("diff {file}"));
    assert_eq!(diff.status.code(), Some(1), "{}", String::from_utf8_lossy(&diff.stderr));
    assert!(String::from_utf8_lossy(&diff.stdout).contains("-        image: registry.example/edited:1"));
    assert!(kubectl.ok(&format!("apply {file}")).ends_with(" configured\n"));
    assert_ne!(read(".spec.template.spec.containers[0].image"), "registry.example/edited:1");
    assert_eq!(read(".metadata.annotations.example\\.com/owner"), "tests", "what apply never said stays");

    kubectl.ok(&format!(r#"patch {name} --type=merge -p {{"spec":{{"paused":true}}}}"#));
    kubectl.ok(&format!(
        r#"patch {name} --type=json -p [{{"op":"replace","path":"/spec/replicas","value":7}}]"#
    ));
    kubectl.ok(&format!(r#"patch {name} -p {{"spec":{{"template":{{"spec":{{"nodeName":"n1"}}}}}}}}"#));
    kubectl.ok(&format!("set image {name} *=registry.example/set:2"));
    assert_eq!((read(".spec.paused"), read(".spec.replicas")), ("true".into(), "7".into()));
    assert_eq!(read(".spec.template.spec.nodeName"), "n1");
    assert_eq!(read(".spec.template.spec.containers[*].image"), "registry.example/set:2");
    assert_eq!(
        kubectl.ok(&format!("wait {name} --for=jsonpath={{.spec.replicas}}=7 --timeout=60s")).lines().count(),
        1
    );

    // A watch that sees a change made after it began, then the deletion.
    let mut watch = kubectl.command(["get", name, "-w", "-o", "jsonpath={.metadata.labels.step}{'\\n'}"]);
    let mut watch = watch.stdout(std::process::Stdio::piped()).spawn().expect("kubectl runs");
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(watch.stdout.take().expect("its output")));
    assert_eq!(lines.next().expect("the first line").expect("text"), "");
    kubectl.ok(&format!("label {name} step=one"));
    assert_eq!(lines.next().expect("another line").expect("text"), "one");
    kubectl.ok(&format!("label {name} step=two --overwrite"));
    assert_eq!(lines.next().expect("another line").expect("text"), "two");
    watch.kill().expect("kubectl stops");
    watch.wait().expect("kubectl stops");

    assert!(
        kubectl.ok(&format!("delete {name}")).ends_with(" deleted\n")
            || kubectl.fails(&format!("get {name}")).contains("NotFound")
    );
    kubectl.ok(&format!("wait {name} --for=delete --timeout=60s"));
}
