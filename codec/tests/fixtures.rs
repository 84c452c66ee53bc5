//! The API serialization fixtures of kubernetes/api: one fully populated object of each kind, as `.json`,
//! `.yaml` and `.pb`. They are not part of the project: `PLINTH_FIXTURES` names the folder that holds
//! `kubernetes-v1.36.0`, by default `../shared/fixtures` beside the project. Without them the tests print a
//! note and pass.

use std::path::PathBuf;

use plinth_codec::json::{self, DecodeOptions};
use plinth_codec::schema::{self, TypeId, GVK};
use plinth_codec::yaml;

/// A kind and the path of its files without the ending.
struct Fixture {
    name: String,
    id: TypeId,
    stem: PathBuf,
}

impl Fixture {
    fn read(&self, ending: &str) -> Vec<u8> {
        let path = self.stem.with_file_name(format!("{}.{ending}", self.name));
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

fn fixtures() -> Vec<Fixture> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/fixtures");
    let root = std::env::var("PLINTH_FIXTURES").unwrap_or_else(|_| beside.to_string());
    let folder = PathBuf::from(root).join("kubernetes-v1.36.0");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("fixtures are ABSENT ({}): nothing is checked", folder.display());
        return Vec::new();
    };
    let schema = schema::builtin();
    let mut found = Vec::new();
    for entry in entries {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = file.strip_suffix(".json").filter(|name| !name.ends_with(".after_roundtrip")) else {
            continue;
        };
        // group.version.Kind, and a group may have dots; the core group is called `core` here.
        let mut parts = name.rsplitn(3, '.');
        let (kind, version, group) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let gvk = GVK::new(if group == "core" { "" } else { group }, version, kind);
        let id = schema.kind(&gvk).unwrap_or_else(|| panic!("{name}: no such kind in the schema"));
        found.push(Fixture { name: name.to_string(), id, stem: folder.join(name) });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

#[test]
fn json_is_written_as_it_was_read() {
    let schema = schema::builtin();
    let fixtures = fixtures();
    for fixture in &fixtures {
        let text = fixture.read("json");
        let decoded = json::decode(&text, schema, fixture.id, &DecodeOptions { strict: true });
        let decoded = decoded.unwrap_or_else(|error| panic!("{}: {error}", fixture.name));
        assert_eq!(decoded.strict, [], "{}", fixture.name);
        let mut out = Vec::new();
        json::write_pretty(&decoded.value, schema, fixture.id, &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            String::from_utf8(text.clone()).unwrap(),
            "{}",
            fixture.name
        );
        let again =
            json::conform(json::parse(&text).unwrap(), schema, fixture.id, &DecodeOptions { strict: true });
        assert_eq!(again.unwrap(), decoded, "{}: a tree conforms as its text does", fixture.name);
    }
    println!("{} kinds: json -> json, byte for byte", fixtures.len());
}

#[test]
fn yaml_is_written_as_it_was_read() {
    let schema = schema::builtin();
    let fixtures = fixtures();
    for fixture in &fixtures {
        let text = fixture.read("yaml");
        let (tree, repeated) =
            yaml::to_value(&text).unwrap_or_else(|error| panic!("{}: {error}", fixture.name));
        assert_eq!(repeated, [], "{}", fixture.name);
        let decoded = json::conform(tree, schema, fixture.id, &DecodeOptions { strict: true }).unwrap();
        assert_eq!(decoded.strict, [], "{}", fixture.name);
        let json =
            json::decode(&fixture.read("json"), schema, fixture.id, &DecodeOptions::default()).unwrap();
        assert_eq!(decoded.value, json.value, "{}: yaml and json are the same object", fixture.name);
        let mut out = Vec::new();
        yaml::write(&decoded.value, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), String::from_utf8(text).unwrap(), "{}", fixture.name);
    }
    println!("{} kinds: yaml -> yaml, byte for byte", fixtures.len());
}
