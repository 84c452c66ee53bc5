//! Prints an OpenAPI document of the built-in kinds:
//!
//! ```sh
//! cargo run --release -p plinth-codec --example openapi -- v3 apps v1
//! cargo run --release -p plinth-codec --example openapi -- v2 protobuf > openapi.pb
//! ```

use std::io::Write;

use plinth_codec::openapi::{gnostic, v2, v3, NoDescriptions, Published};
use plinth_codec::{resources, schema};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (args, protobuf) = match args.as_slice() {
        [args @ .., "protobuf"] => (args, true),
        args => (args, false),
    };
    let rows = || resources::builtin().resources.iter();
    let builtin = schema::builtin();
    let json = match args {
        ["v2"] => {
            let all: Vec<Published> = rows().map(Published::builtin).collect();
            v2::document(builtin, &all, &NoDescriptions)
        }
        ["v3", group, version] => {
            let group = if *group == "core" { "" } else { *group };
            let some = rows().filter(|r| r.group == group && r.version == *version);
            v3::version(
                builtin,
                group,
                version,
                &some.map(Published::builtin).collect::<Vec<_>>(),
                &NoDescriptions,
            )
        }
        _ => return Err("arguments: v2 [protobuf], or v3 GROUP|core VERSION [protobuf]".into()),
    };
    let bytes = match (protobuf, args[0]) {
        (false, _) => json,
        (true, "v2") => gnostic::v2(&json)?,
        (true, _) => gnostic::v3(&json)?,
    };
    std::io::stdout().write_all(&bytes)?;
    Ok(())
}
