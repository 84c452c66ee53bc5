//! Manifests that projects publish, unchanged. They are not part of this project: `PLINTH_FIXTURES`
//! names the directory, or it lies at `../shared/fixtures` beside the checkout.

use std::path::{Path, PathBuf};

/// The directory, or `None` after saying that `test` is skipped.
pub fn directory(test: &str) -> Option<PathBuf> {
    let beside = || crate::package_dir().join("../../shared/fixtures");
    let dir = std::env::var_os("PLINTH_FIXTURES").map(PathBuf::from).unwrap_or_else(beside);
    if dir.join("manifests").is_dir() {
        return Some(dir);
    }
    println!("skipped: {test}: no fixtures at {} (PLINTH_FIXTURES names another place)", dir.display());
    None
}

/// Every manifest file, sorted by path.
pub fn manifests(fixtures: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![fixtures.join("manifests")];
    while let Some(dir) = dirs.pop() {
        for entry in dir.read_dir().expect("fixtures directory") {
            let path = entry.expect("entry of the fixtures directory").path();
            match path.extension().and_then(|e| e.to_str()) {
                _ if path.is_dir() => dirs.push(path),
                Some("yaml" | "yml" | "json") => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    files
}
