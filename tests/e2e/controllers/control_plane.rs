//! The real kube-controller-manager and kube-scheduler, where they are installed: on the PATH, or as
//! `PLINTH_KUBE_CONTROLLER_MANAGER` and `PLINTH_KUBE_SCHEDULER` name. They are started as docs/operations.md
//! documents.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use plinth_tests::kubectl::Kubectl;
use plinth_tests::server::{launch, TestServer};
use serde_json::json;
use tempfile::TempDir;

/// The interval at which kubelets reconcile their pods.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

const NODES: [&str; 2] = ["node-1", "node-2"];

/// A component of the control plane; it ends with the test.
struct Component {
    child: Child,
    log: PathBuf,
}

impl Drop for Component {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let from = log.char_indices().rev().nth(4000).map_or(0, |(at, _)| at);
            eprintln!("--- {}\n{}\n---", self.log.display(), &log[from..]);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(name: &str) -> PathBuf {
    let variable = format!("PLINTH_{}", name.to_uppercase().replace('-', "_"));
    std::env::var_os(variable).map(PathBuf::from).unwrap_or_else(|| name.into())
}

fn installed(name: &str) -> bool {
    let version = Command::new(program(name)).arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Starts a component with credentials of its own.
fn component(name: &str, server: &TestServer, dir: &Path, arguments: &[String]) -> Component {
    let kubeconfig = dir.join(format!("{name}.kubeconfig"));
    let issued = launch()
        .command(["kubeconfig", "--user"])
        .arg(format!("system:{name}"))
        .arg("--data-dir")
        .arg(server.data())
        .arg("--to")
        .arg(&kubeconfig)
        .status();
    assert!(issued.expect("plinth runs").success());
    let log = dir.join(format!("{name}.log"));
    let mut command = Command::new(program(name));
    for flag in ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"] {
        command.arg(flag).arg(&kubeconfig);
    }
    let port = plinth_benches::api::server::free_port().expect("a port").to_string();
    // A machine that is busy with other tests must not end their leader election.
    let child = command
        .args(["--bind-address=127.0.0.1", "--secure-port", &port, "--cert-dir"])
        .arg(dir)
        .args(["--leader-elect-lease-duration=120s", "--leader-elect-renew-deadline=100s"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).expect("log"))
        .spawn();
    Component { child: child.expect("it starts"), log }
}

/// Nodes that are ready.
async fn register(client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    for name in NODES {
        let room = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
        let node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {
                "capacity": room, "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        });
        let node = serde_json::from_value(node).expect("a Node");
        nodes.create(&PostParams::default(), &node).await.expect("a node registers");
    }
}

/// What kubelets do: pods bound to a node run, those of Jobs succeed, deleted ones go.
async fn kubelets(client: Client) {
    let all: Api<Pod> = Api::all(client.clone());
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        // The server may be down just now.
        let Ok(pods) = all.list(&ListParams::default()).await else { continue };
        for pod in pods {
            let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
            let name = pod.name_any();
            let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let of_job =
                pod.spec.as_ref().is_some_and(|spec| spec.restart_policy.as_deref() == Some("Never"));
            let next = match phase {
                _ if !bound => continue,
                _ if pod.metadata.deletion_timestamp.is_some() => {
                    let _ = api.delete(&name, &DeleteParams::default().grace_period(0)).await;
                    continue;
                }
                Some("Pending") => "Running",
                Some("Running") if of_job => "Succeeded",
                _ => continue,
            };
            let ready = if next == "Running" { "True" } else { "False" };
            let conditions = ["Initialized", "ContainersReady", "Ready"].map(
                |kind| json!({"type": kind, "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}),
            );
            let status = json!({"status": {
                "phase": next, "podIP": "10.244.0.1", "podIPs": [{"ip": "10.244.0.1"}], "conditions": conditions,
            }});
            let _ = api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await;
        }
    }
}

const WORKLOADS: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: registry.example/db}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c, image: registry.example/agent}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  completionMode: Indexed
  completions: 3
  parallelism: 2
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: registry.example/once}]}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /disk}, storageClassName: s}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {accessModes: [ReadWriteOnce], storageClassName: s, resources: {requests: {storage: 1Gi}}}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_runs_against_it_and_over_a_sigkill() {
    const MANAGER: &str = "kube-controller-manager";
    const SCHEDULER: &str = "kube-scheduler";
    if !installed(MANAGER) || !installed(SCHEDULER) {
        println!("skipped: a control plane: no {MANAGER} or {SCHEDULER} on the PATH");
        return;
    }
    let mut server = TestServer::start(&["--controllers="]).await;
    let Some(kubectl) = Kubectl::find("a control plane", server.kubeconfig()) else { return };
    let dir = TempDir::new().expect("directory");
    let pki = server.data().join("pki");
    let file = |flag: &str, name: &str| format!("{flag}={}", pki.join(name).display());
    let manager = component(
        MANAGER,
        &server,
        dir.path(),
        &[
            "--use-service-account-credentials".to_owned(),
            "--node-monitor-grace-period=1h".to_owned(),
            file("--service-account-private-key-file", "sa.key"),
            file("--root-ca-file", "ca.crt"),
            file("--cluster-signing-cert-file", "ca.crt"),
            file("--cluster-signing-key-file", "ca.key"),
        ],
    );
    let _scheduler = component(SCHEDULER, &server, dir.path(), &[]);
    let client = server.client().await;
    register(&client).await;
    let kubelets = tokio::spawn(kubelets(client));
    let done = |line: &str| {
        kubectl.ok(&format!("{line} --timeout=240s"));
    };

    // The namespace's account is the manager's work here.
    kubectl.ok("create namespace plane");
    kubectl.ok("config set-context --current --namespace=plane");
    done("wait serviceaccount/default --for=create");
    kubectl.ok("create deployment web --image=registry.example/web:1 --replicas=3");
    kubectl.ok_with_input("apply --filename -", WORKLOADS);
    done("rollout status deployment/web");
    done("rollout status statefulset/db");
    done("rollout status daemonset/agent");
    done("wait job/once --for=condition=Complete");
    done("wait persistentvolumeclaim/disk --for=jsonpath={.status.phase}=Bound");
    done("wait poddisruptionbudget/web --for=jsonpath={.status.disruptionsAllowed}=1");
    let labels = "pods --selector=job-name=once --output=jsonpath={.items[*].status.phase}";
    assert_eq!(kubectl.ok(&format!("get {labels}")), "Succeeded Succeeded Succeeded");

    // It is killed while a new version is rolled out; manager and scheduler reconnect and continue.
    kubectl.ok("set image deployment/web web=registry.example/web:2");
    server.kill();
    server.restart().await;
    done("rollout status deployment/web");
    kubectl.ok("rollout undo deployment/web");
    done("rollout status deployment/web");
    let images = "get deployment/web --output=jsonpath={.spec.template.spec.containers[0].image}";
    assert_eq!(kubectl.ok(images), "registry.example/web:1");

    // Drained by evictions, which the budget lets pass one by one.
    done("drain node-2 --ignore-daemonsets --force");
    let on_drained_node = "get pods --selector=app=web --field-selector=spec.nodeName=node-2 --output=name";
    assert_eq!(kubectl.ok(on_drained_node), "");
    done("delete namespace plane");

    let log = std::fs::read_to_string(&manager.log).expect("log");
    for wrong in [
        "configmap \"extension-apiserver-authentication\" not found",
        "is forbidden: User \"system:kube-controller-manager\"",
    ] {
        assert!(!log.contains(wrong), "{wrong}:\n{log}");
    }
    kubelets.abort();
}
