//! Modules of the crate import those below them, never one above.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules from the lowest to the highest.
const ORDER: [&str; 24] = [
    "flags",
    "private_files",
    "error_log",
    "recovery",
    "reload",
    "heavy",
    "metrics",
    "service_ranges",
    "outward",
    "flow_control",
    "audit",
    "authz",
    "authn",
    "custom_resources",
    "representation",
    "published",
    "selection",
    "context",
    "ownership",
    "handlers",
    "kind_handlers",
    "endpoints",
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

/// The modules that a text names behind `crate::`, comments and what is only compiled for tests left out.
fn imported(text: &str) -> BTreeSet<&str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let behind = lines.flat_map(|line| line.split("crate::").skip(1));
    behind
        .map(|rest| rest.split(|c: char| c != '_' && !c.is_alphanumeric()).next().unwrap_or_default())
        .collect()
}

#[test]
fn no_module_imports_one_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut met = BTreeSet::new();
    for file in files {
        let relative = file.strip_prefix(&root).unwrap();
        let first = relative.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if first == "lib" || relative.file_stem().is_some_and(|name| name.to_str().unwrap().contains("tests"))
        {
            continue;
        }
        let place = |module: &str| ORDER.iter().position(|known| *known == module);
        let own = place(first).unwrap_or_else(|| panic!("{first} has no place in the order"));
        met.insert(first.to_owned());
        let text = fs::read_to_string(&file).unwrap();
        for module in imported(&text) {
            // What is no module is an item of the crate's root, of which there are none.
            let other = place(module).unwrap_or_else(|| panic!("{}: crate::{module}", relative.display()));
            assert!(other <= own, "{} is below {module} and imports it", relative.display());
        }
    }
    assert_eq!(met.len(), ORDER.len(), "a module of the order is not there");
}
