//! The codec alone: a Deployment from YAML to protobuf, then server-side apply by two field managers.
//!
//! No server and no storage. Defaults and validation of kinds are another crate's (`plinth-kinds`).
//!
//! ```sh
//! cargo run --release -p plinth-codec --example objects
//! ```

use std::error::Error;

use plinth_codec::apply::{apply, ApplyError, Context, NoOtherVersions, Reset};
use plinth_codec::convert::{self, Format};
use plinth_codec::schema::{self, GVK};
use plinth_codec::{yaml, Value};

const MANIFEST: &str = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: 'registry.example/web:1'}
";
const SCALER: &str = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 5}}";

fn main() -> Result<(), Box<dyn Error>> {
    // The encoding is detected; an object of a built-in kind is brought into canonical form by its schema.
    let deployment = convert::read(MANIFEST.as_bytes())?;
    let mut protobuf = Vec::new();
    convert::write(&deployment, Format::Protobuf, &mut protobuf)?;
    println!("{} bytes of YAML are {} bytes of protobuf", MANIFEST.len(), protobuf.len());
    assert_eq!(convert::detect(&protobuf), Format::Protobuf);
    let decoded = convert::read(&protobuf)?;
    println!("image: {:?}", image(&decoded.tree));

    // Server-side apply: each manager owns the fields that it sets; `managedFields` keeps track of that.
    let kind = GVK::new("apps", "v1", "Deployment");
    let schema = schema::builtin();
    let root = schema.kind(&kind).ok_or("not a built-in kind")?;
    let context = |manager| Context {
        manager,
        time: "2026-01-02T03:04:05Z",
        kind: &kind,
        subresource: "",
        schema,
        root,
        // No field is taken out of what a manager may own; a server takes out the status here.
        reset: &Reset::Nothing,
        versions: &NoOtherVersions,
    };
    // An applied configuration is the tree as sent: only the members in it are set and owned.
    let (config, _) = yaml::to_value(MANIFEST.as_bytes())?;
    let live = apply(None, &config, false, &context("deployer"))?.ok_or("nothing created")?;

    // Another manager sets the replicas to another value: a conflict, which a server answers with 409.
    let (scaler, _) = yaml::to_value(SCALER.as_bytes())?;
    match apply(Some(&live), &scaler, false, &context("scaler")) {
        Err(ApplyError::Conflicts(conflicts)) => println!("conflicts: {conflicts}"),
        other => return Err(format!("expected a conflict, got {other:?}").into()),
    }
    // With `force` it takes the field over; the rest of the object stays the deployer's.
    let scaled = apply(Some(&live), &scaler, true, &context("scaler"))?.ok_or("nothing changed")?;
    println!("replicas: {:?}", scaled.at(&["spec", "replicas"]));
    let managers = scaled.list_at(&["metadata", "managedFields"]);
    managers.iter().for_each(|entry| println!("manager: {:?}", entry.str_at(&["manager"])));
    Ok(())
}

fn image(deployment: &Value) -> Option<&str> {
    let containers = deployment.at(&["spec", "template", "spec", "containers"])?.as_array()?;
    containers.first()?.str_at(&["image"])
}
