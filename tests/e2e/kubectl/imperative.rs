//! kubectl without manifests: its generators (which send protobuf), its reading commands and its errors.

use plinth_tests::kubectl::Kubectl;
use plinth_tests::server::{namespace, shared};

/// `kubectl create …`, and the columns of `kubectl get` for what it made.
const CREATED: &[(&str, &str, &str)] = &[
    ("configmap settings --from-literal=a=1", "configmaps", "NAME DATA AGE"),
    ("secret generic keys --from-literal=a=1", "secrets", "NAME TYPE DATA AGE"),
    ("serviceaccount robot", "serviceaccounts", "NAME AGE"),
    (
        "deployment web --image=registry.example/web:1 --replicas=2",
        "deployments",
        "NAME READY UP-TO-DATE AVAILABLE AGE",
    ),
    ("service clusterip web --tcp=80:8080", "services", "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE"),
    ("job once --image=registry.example/job:1", "jobs", "NAME STATUS COMPLETIONS DURATION AGE"),
    (
        "cronjob often --image=registry.example/job:1 --schedule=*/5****",
        "cronjobs",
        "NAME SCHEDULE TIMEZONE SUSPEND ACTIVE LAST SCHEDULE AGE",
    ),
    ("role reader --verb=get,list --resource=pods", "roles", "NAME CREATED AT"),
    ("rolebinding readers --role=reader --serviceaccount=NS:robot", "rolebindings", "NAME ROLE AGE"),
    ("quota small --hard=pods=10", "resourcequotas", "NAME REQUEST LIMIT AGE"),
    (
        "poddisruptionbudget web --selector=app=web --min-available=1",
        "poddisruptionbudgets",
        "NAME MIN AVAILABLE MAX UNAVAILABLE ALLOWED DISRUPTIONS AGE",
    ),
    ("ingress web --rule=web.example/=web:80", "ingresses", "NAME CLASS HOSTS ADDRESS PORTS AGE"),
];

#[tokio::test]
async fn generators_and_columns() {
    let server = shared().await;
    let Some(kubectl) = Kubectl::find("kubectl create", server.kubeconfig()) else { return };
    let namespace = namespace(&server.client().await, "imperative").await;
    for (create, resource, columns) in CREATED {
        let words = create.replace("NS:", &format!("{namespace}:"));
        // The schedule is one word with spaces.
        let words: Vec<String> =
            words.split_whitespace().map(|word| word.replace("*/5****", "*/5 * * * *")).collect();
        let command = ["-n", &namespace, "create"].into_iter().map(String::from).chain(words);
        let created = kubectl.command(command).output().expect("kubectl runs");
        let created = plinth_tests::kubectl::succeeded(create, created);
        assert!(created.ends_with(" created\n"), "{create}: {created}");
        let listed = kubectl.ok(&format!("get {resource} -n {namespace}"));
        let column_names = listed.lines().next().unwrap_or_default();
        assert_eq!(column_names.split_whitespace().collect::<Vec<_>>().join(" "), *columns, "{resource}");
        assert!(listed.lines().count() >= 2, "{listed}");
    }
    let all = kubectl.ok(&format!("get all,cm,secret -n {namespace} -o name"));
    for name in ["deployment.apps/web", "service/web", "job.batch/once", "cronjob.batch/often", "secret/keys"]
    {
        assert!(all.lines().any(|line| line == name), "{name} in {all}");
    }
    let again = kubectl.fails(&format!("create configmap settings -n {namespace}"));
    assert_eq!(again.trim(), r#"error: failed to create configmap: configmaps "settings" already exists"#);
}

#[tokio::test]
async fn reading_commands() {
    let server = shared().await;
    let Some(kubectl) = Kubectl::find("kubectl reads", server.kubeconfig()) else { return };
    assert!(kubectl.ok("version").contains("Server Version: v1.36."));
    assert_eq!(kubectl.ok("get --raw /readyz"), "ok");
    let resources = kubectl.ok("api-resources --no-headers");
    assert!(resources.lines().count() > 60, "{resources}");
    let deployments = resources.lines().find(|line| line.starts_with("deployments ")).expect("deployments");
    assert_eq!(
        deployments.split_whitespace().collect::<Vec<_>>(),
        ["deployments", "deploy", "apps/v1", "true", "Deployment"]
    );
    assert!(kubectl.ok("api-versions").lines().any(|line| line == "apps/v1"));
    let explained = kubectl.ok("explain deployment.spec.template.spec.containers.image");
    assert!(explained.contains("FIELD: image <string>"), "{explained}");
    let namespaces = kubectl.ok("get namespaces kube-system --no-headers");
    assert_eq!(namespaces.split_whitespace().take(2).collect::<Vec<_>>(), ["kube-system", "Active"]);
    assert!(kubectl
        .ok("get ns -o custom-columns=N:.metadata.name --sort-by=.metadata.name")
        .starts_with("N\n"));
    assert!(kubectl.ok("describe namespace default").contains("Status:"));
    assert_eq!(kubectl.ok("get pods -n kube-public"), "");
}

#[tokio::test]
async fn errors_read_as_users_know_them() {
    let server = shared().await;
    let Some(kubectl) = Kubectl::find("kubectl errors", server.kubeconfig()) else { return };
    let namespace = namespace(&server.client().await, "errors").await;
    let file = kubectl.home().join("bad.yaml");
    let cases = [
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\nextra: 1\n",
            "unknown field \"extra\"",
        ),
        (
            "apiVersion: v1\nkind: Nothing\nmetadata: {name: a}\n",
            "no matches for kind \"Nothing\" in version \"v1\"",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: A_B}\n",
            "The ConfigMap \"A_B\" is invalid: metadata.name: Invalid value",
        ),
        (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: absent}\n",
            "the namespace from the provided object \"absent\" does not match",
        ),
    ];
    for (manifest, expected) in cases {
        std::fs::write(&file, manifest).expect("a manifest");
        let error = kubectl.fails(&format!("apply -n {namespace} -f {}", file.display()));
        assert!(error.contains(expected), "{expected}\n{error}");
    }
    let input = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: piped}\n";
    assert_eq!(
        kubectl.ok_with_input(&format!("apply -n {namespace} -f -"), input),
        "configmap/piped created\n"
    );
    assert!(kubectl.fails("get nothings").contains("the server doesn't have a resource type \"nothings\""));
    assert!(kubectl
        .fails("get pods absent")
        .contains("Error from server (NotFound): pods \"absent\" not found"));
    assert!(kubectl.fails("get pods -l a==b==c").contains("found '==', expected: ',' or 'end of string'"));
}
