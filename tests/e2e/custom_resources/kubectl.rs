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
