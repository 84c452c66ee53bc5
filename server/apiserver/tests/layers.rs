//! Modules of the crate import those below them, never one above.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules from the lowest to the highest.
const ORDER: [&str; 27] = [
    "flags",
    "private_files",
    "error_log",
    "request_log",
    "catch_panic",
    "large_requests",
    "metrics",
    "reload",
    "egress",
    "flow_control",
    "audit",
    "authz",
    "authn",
    "custom_resources",
    "stored_objects",
    "representation",
    "documents",
    "selection",
    "context",
    "managed_fields",
    "handlers",
    "kind_handlers",
    "remote_apis",
    "endpoints",
    "served_resource",
    "pipeline",
    "listener",
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|end| end == "rs") => found.push(path),
            false => {}
        }
    }
}

/// The modules that a source file imports as `crate::MODULE`, without comments and unit tests.
fn imported(text: &str) -> BTreeSet<&str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let paths = lines.flat_map(|line| line.split("crate::").skip(1));
    paths
        .map(|rest| rest.split(|c: char| c != '_' && !c.is_alphanumeric()).next().unwrap_or_default())
        .collect()
}

#[test]
fn no_module_imports_one_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut found = BTreeSet::new();
    for file in files {
        let relative = file.strip_prefix(&root).unwrap();
        let first = relative.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if first == "lib" || relative.file_stem().is_some_and(|name| name.to_str().unwrap().contains("tests"))
        {
            continue;
        }
        let rank = |module: &str| ORDER.iter().position(|known| *known == module);
        let own = rank(first).unwrap_or_else(|| panic!("{first} is missing in the order"));
        found.insert(first.to_owned());
        let text = fs::read_to_string(&file).unwrap();
        for module in imported(&text) {
            // The crate root has no items of its own, so every import names a module.
            let other = rank(module).unwrap_or_else(|| panic!("{}: crate::{module}", relative.display()));
            assert!(other <= own, "{} is below {module} and imports it", relative.display());
        }
    }
    assert_eq!(found.len(), ORDER.len(), "a module of the order does not exist");
}
