//! A real kubectl on custom resources.

use plinth_tests::kubectl::Kubectl;
use plinth_tests::server::TestServer;

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.home.example.com}
spec:
  group: home.example.com
  scope: Namespaced
  names: {plural: lamps, singular: lamp, kind: Lamp, shortNames: [lp], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.bulbs, statusReplicasPath: .status.bulbs}
    additionalPrinterColumns:
    - {name: Bulbs, type: integer, jsonPath: .spec.bulbs}
    schema:
      openAPIV3Schema:
        type: object
        description: A lamp somewhere in the house.
        properties:
          spec:
            type: object
            properties:
              bulbs: {type: integer, minimum: 0, default: 1, description: How many bulbs it has.}
              room: {type: string}
          status: {type: object, properties: {bulbs: {type: integer}}}
"#;
const LAMP: &str = "
apiVersion: home.example.com/v1
kind: Lamp
metadata: {name: desk}
spec: {room: study}
";

#[tokio::test]
async fn kubectl_works_on_custom_resources_as_on_built_in_ones() {
    let server = TestServer::start(&[]).await;
    let Some(kubectl) = Kubectl::find("kubectl on custom resources", server.kubeconfig()) else { return };
    assert!(kubectl.ok_with_input("apply -f -", DEFINITION).ends_with(" created\n"));
    kubectl.ok("wait --for=condition=Established --timeout=60s crd/lamps.home.example.com");
    assert_eq!(kubectl.ok_with_input("apply -f -", LAMP), "lamp.home.example.com/desk created\n");
    assert_eq!(kubectl.ok_with_input("apply -f -", LAMP), "lamp.home.example.com/desk unchanged\n");
    let table = kubectl.ok("get lp");
    assert!(table.starts_with("NAME   BULBS\n") && table.contains("desk   1"), "{table}");
    assert!(kubectl.ok("get all").contains("lamp.home.example.com/desk"));
    assert!(kubectl.ok("describe lamp desk").contains("Room:"), "describe shows fields");
    assert_eq!(kubectl.ok("get lamps desk -o jsonpath={.spec.room}"), "study");
    let patched = kubectl.ok(r#"patch lamp desk --type=merge -p {"spec":{"room":"hall"}}"#);
    assert_eq!(patched, "lamp.home.example.com/desk patched\n");
    kubectl.ok("label lamp desk floor=1");
    kubectl.ok("annotate lamp desk note=x");
    kubectl.ok("scale lamp desk --replicas=3");
    assert_eq!(kubectl.ok("get lamp desk -o jsonpath={.spec.bulbs}"), "3");
    let explained = kubectl.ok("explain lamp.spec.bulbs");
    assert!(explained.contains("How many bulbs it has."), "{explained}");
    assert!(kubectl.ok("api-resources --api-group=home.example.com").contains("lamps"));
    let applied = kubectl.ok_with_input("apply --server-side --force-conflicts -f -", LAMP);
    assert_eq!(applied, "lamp.home.example.com/desk serverside-applied\n");
    let unknown = LAMP.replace("room: study", "rom: study");
    let path = kubectl.home().join("unknown.yaml");
    std::fs::write(&path, unknown.replace("desk", "other")).expect("a file");
    let refused = kubectl.fails(&format!("create -f {}", path.display()));
    assert!(refused.contains(r#"unknown field "spec.rom""#), "{refused}");
    kubectl.ok("delete lamp desk");
    kubectl.ok("delete crd lamps.home.example.com");
    kubectl.ok("wait --for=delete --timeout=60s crd/lamps.home.example.com");
    // kubectl may still know the resource from its cache of discovery; the server does not.
    let gone = kubectl.fails("get lamps");
    let forgotten = gone.contains("the server doesn't have a resource type");
    assert!(forgotten || gone.contains("the server could not find the requested resource"), "{gone}");
}

/// A definition with everything that kubectl looks at.
const WIDE: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pumps.water.example.com}
spec:
  group: water.example.com
  scope: Namespaced
  names: {plural: pumps, singular: pump, kind: Pump, shortNames: [pu], categories: [waterworks]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.speed, statusReplicasPath: .status.speed, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Speed, type: integer, jsonPath: .spec.speed}
    - {name: Site, type: string, jsonPath: .spec.site.name, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        description: Pump moves water.
        properties:
          spec:
            description: What the pump should do.
            type: object
            required: [speed]
            properties:
              speed: {type: integer, minimum: 0, maximum: 9, description: How fast it turns.}
              site:
                type: object
                description: Where it stands.
                properties:
                  name: {type: string, description: What people call the place.}
                  at: {type: array, description: Coordinates., items: {type: number}}
              valves:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, open: {type: boolean}}}
          status:
            type: object
            properties:
              speed: {type: integer}
              selector: {type: string}
              conditions:
                type: array
                items: {type: object, properties: {type: {type: string}, status: {type: string}}}
"#;

fn pump(name: &str, valves: &str) -> String {
    format!("apiVersion: water.example.com/v1\nkind: Pump\nmetadata: {{name: {name}}}\nspec: {{speed: 2, site: {{name: hill}}, valves: [{valves}]}}\n")
}

/// A server with that definition.
async fn waterworks(test: &str) -> Option<(TestServer, Kubectl)> {
    let server = TestServer::start(&[]).await;
    let kubectl = Kubectl::find(test, server.kubeconfig())?;
    kubectl.ok_with_input("apply -f -", WIDE);
    kubectl.ok("wait --for=condition=Established --timeout=60s crd/pumps.water.example.com");
    Some((server, kubectl))
}

#[tokio::test]
async fn kubectl_reads_custom_resources_in_every_form() {
    let Some((_server, kubectl)) = waterworks("kubectl reads custom resources").await else { return };
    kubectl.ok_with_input("apply -f -", &pump("north", "{name: a, open: true}"));
    kubectl.ok_with_input("apply -f -", &pump("south", ""));
    // Columns: plain, wide, one's own, by short name, singular, kind and group, category.
    assert_eq!(kubectl.ok("get pu"), "NAME    SPEED\nnorth   2\nsouth   2\n");
    assert_eq!(
        kubectl.ok("get pumps -o wide"),
        "NAME    SPEED   SITE\nnorth   2       hill\nsouth   2       hill\n"
    );
    let columns = "get pump -o custom-columns=N:.metadata.name,V:.spec.valves[*].name";
    assert_eq!(kubectl.ok(columns), "N       V\nnorth   a\nsouth   <none>\n");
    assert_eq!(
        kubectl.ok("get waterworks -o name"),
        "pump.water.example.com/north\npump.water.example.com/south\n"
    );
    assert_eq!(kubectl.ok("get Pump.v1.water.example.com north -o name"), "pump.water.example.com/north\n");
    assert_eq!(kubectl.ok("get pu --no-headers --sort-by=.metadata.name -o name").lines().count(), 2);
    assert_eq!(
        kubectl.ok("get pu --field-selector metadata.name=south -o name"),
        "pump.water.example.com/south\n"
    );
    // Discovery and documents.
    let resources = kubectl.ok("api-resources --api-group=water.example.com -o wide");
    for part in [
        "pumps",
        "pu ",
        "water.example.com/v1",
        "true",
        "Pump",
        "delete,deletecollection,get,list,patch,create,update,watch",
        "waterworks",
    ] {
        assert!(resources.contains(part), "{part}: {resources}");
    }
    let explained = kubectl.ok("explain pump");
    assert!(
        explained.contains("GROUP:      water.example.com") && explained.contains("Pump moves water."),
        "{explained}"
    );
    let explained = kubectl.ok("explain pump.spec.site");
    for part in [
        "FIELD: site <Object>",
        "Where it stands.",
        "name\t<string>",
        "What people call the place.",
        "at\t<[]number>",
    ] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    let all = kubectl.ok("explain pump.spec --recursive");
    assert!(
        all.contains("valves\t<[]Object>")
            && all.contains("open\t<boolean>")
            && all.contains("speed\t<integer> -required-"),
        "{all}"
    );
    assert!(kubectl.fails("explain pump.spec.nope").contains("field \"nope\" does not exist"));
    // Who may do what.
    assert_eq!(kubectl.ok("auth can-i create pumps.water.example.com"), "yes\n");
    assert_eq!(kubectl.ok("auth can-i update pumps --subresource=scale"), "yes\n");
    let other = kubectl.run("auth can-i get pumps.water.example.com --as=nobody");
    assert_eq!((other.status.code(), other.stdout.as_slice()), (Some(1), b"no\n".as_slice()));
    kubectl.ok("create clusterrole reader --verb=get,list --resource=pumps.water.example.com");
    kubectl.ok("create clusterrolebinding reader --clusterrole=reader --user=nobody");
    assert_eq!(kubectl.ok("auth can-i list pumps.water.example.com --as=nobody"), "yes\n");
    assert_eq!(kubectl.ok("get pu -o name --as=nobody").lines().count(), 2);
    let refused = kubectl.fails("delete pump north --as=nobody");
    assert!(refused.contains("pumps.water.example.com \"north\" is forbidden: User \"nobody\" cannot delete resource \"pumps\""), "{refused}");
}

#[tokio::test]
async fn kubectl_changes_custom_resources_in_every_way() {
    let Some((server, kubectl)) = waterworks("kubectl changes custom resources").await else { return };
    let valves = |name: &str| kubectl.ok(&format!("get pump {name} -o jsonpath={{.spec.valves[*].name}}"));
    let managers = || {
        kubectl.ok("get pump north --show-managed-fields -o jsonpath={.metadata.managedFields[*].manager}")
    };
    // From apply on the side of the client to apply on the server: what is left out afterwards goes.
    kubectl.ok_with_input("apply -f -", &pump("north", "{name: a}, {name: b}"));
    assert_eq!(managers(), "kubectl-client-side-apply");
    kubectl.ok_with_input("apply --server-side -f -", &pump("north", "{name: b}, {name: c}"));
    // What kubectl took its annotation away with is an owner of its own.
    assert_eq!(managers(), "kubectl-last-applied kubectl");
    assert_eq!(valves("north"), "b c");
    assert_eq!(kubectl.ok_with_input("diff --server-side -f -", &pump("north", "{name: b}, {name: c}")), "");
    // Patches: a strategic one needs types that nobody has.
    kubectl.ok(r#"patch pump north --type=merge -p {"spec":{"site":{"name":"dale"}}}"#);
    kubectl
        .ok(r#"patch pump north --type=json -p [{"op":"add","path":"/spec/valves/-","value":{"name":"d"}}]"#);
    assert_eq!(valves("north"), "b c d");
    let refused = kubectl.fails(r#"patch pump north --type=strategic -p {"spec":{"speed":5}}"#);
    assert!(
        refused.contains(
            "application/strategic-merge-patch+json is not supported by water.example.com/v1, Kind=Pump"
        ),
        "{refused}"
    );
    let client = server.client().await;
    let request = http::Request::patch("/apis/water.example.com/v1/namespaces/default/pumps/north")
        .header("content-type", "application/strategic-merge-patch+json")
        .body(br#"{"spec":{"speed":5}}"#.to_vec())
        .expect("a request");
    let refused = client.request::<serde_json::Value>(request).await.expect_err("refused");
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 415), "{refused}");
    // Status by itself; waiting for what it says.
    kubectl.ok(r#"patch pump north --subresource=status --type=merge -p {"status":{"speed":2,"selector":"app=x","conditions":[{"type":"Primed","status":"True"}]}}"#);
    kubectl.ok("wait --for=condition=Primed --timeout=30s pump/north");
    kubectl.ok("wait --for=jsonpath={.status.speed}=2 --timeout=30s pump/north");
    assert!(kubectl.fails("wait --for=condition=Dry --timeout=1s pump/north").contains("timed out waiting"));
    // Scale; nothing is rolled out.
    kubectl.ok("scale pump/north --current-replicas=2 --replicas=4");
    assert!(kubectl
        .fails("scale pump/north --current-replicas=2 --replicas=5")
        .contains("Expected replicas to be 2, was 4"));
    assert_eq!(
        kubectl.ok("get pump north --subresource=scale -o jsonpath={.spec.replicas}{.status.selector}"),
        "4app=x"
    );
    let refused = kubectl.fails("scale pump/north --replicas=10");
    assert!(refused.contains("spec.speed in body should be less than or equal to 9"), "{refused}");
    assert!(kubectl.fails("rollout status pump/north").contains("no kind \"Pump\" is registered"));
    assert!(kubectl.fails("rollout restart pump/north").contains("no kind \"Pump\" is registered"));
    // Labels and annotations.
    kubectl.ok("label pump north floor=1");
    assert!(kubectl
        .fails("label pump north floor=2")
        .contains("'floor' already has a value (1), and --overwrite is false"));
    kubectl.ok("label pump north floor=2 --overwrite");
    assert_eq!(kubectl.ok("get pu -l floor=2 -o name"), "pump.water.example.com/north\n");
    kubectl.ok("annotate pump north note=x");
    kubectl.ok("annotate pump north note-");
    assert_eq!(kubectl.ok("get pump north -o jsonpath={.metadata.annotations.note}"), "");
    // An editor that changes a line, and one that makes nonsense: kubectl shows what is wrong and gives up.
    let edit = |script: &str| {
        let editor = kubectl.home().join("editor.sh");
        std::fs::write(&editor, format!("#!/bin/sh\n{script}\n")).expect("a script");
        let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        std::fs::set_permissions(&editor, mode).expect("a mode");
        kubectl.command(["edit", "pump", "north"]).env("KUBE_EDITOR", &editor).output().expect("kubectl runs")
    };
    let edited = edit("sed -i s/speed:.4/speed:\\ 3/ \"$1\"");
    assert_eq!(
        String::from_utf8_lossy(&edited.stdout),
        "pump.water.example.com/north edited\n",
        "{edited:?}"
    );
    assert_eq!(kubectl.ok("get pump north -o jsonpath={.spec.speed}"), "3");
    let refused = edit("grep -q '# pumps' \"$1\" || sed -i 's/speed: 3/speed: 99/' \"$1\"");
    assert!(!refused.status.success(), "{refused:?}");
    let output = String::from_utf8_lossy(&refused.stderr);
    assert!(
        output.contains("spec.speed in body should be less than or equal to 9")
            || output.contains("Edit cancelled"),
        "{output}"
    );
    assert_eq!(kubectl.ok("get pump north -o jsonpath={.spec.speed}"), "3");
    // Replacing, and deleting with dependents.
    let exported = kubectl.ok("get pump north -o json").replace("\"speed\": 3", "\"speed\": 6");
    kubectl.ok_with_input("replace -f -", &exported);
    let uid = kubectl.ok("get pump north -o jsonpath={.metadata.uid}");
    kubectl.ok("create configmap part");
    let owner = format!(
        r#"patch configmap part --type=merge -p {{"metadata":{{"ownerReferences":[{{"apiVersion":"water.example.com/v1","kind":"Pump","name":"north","uid":"{uid}","blockOwnerDeletion":true}}]}}}}"#
    );
    kubectl.ok(&owner);
    kubectl.ok("delete pump north --cascade=foreground --timeout=60s");
    assert!(kubectl.fails("get configmap part").contains("not found"), "the owner waited for its dependents");
    kubectl.ok_with_input("create -f -", &pump("south", ""));
    kubectl.ok("delete pumps --all");
    assert_eq!(kubectl.ok("get pu -o name"), "");
}
