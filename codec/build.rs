//! Collects the descriptions of API fields from the k8s-openapi crate for `openapi::descriptions`.
//!
//! No text of the Kubernetes API is part of this repository. The k8s-openapi crate, which the workspace's
//! tests and benchmarks use anyway, carries the texts of each release in its source, so this script reads
//! them there and compresses them. Where that source is not available the result is empty, and documents have
//! no descriptions.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use flate2::write::DeflateEncoder;
use flate2::Compression;

/// The folder of the crate's source that holds this release.
const RELEASE: &str = "src/v1_36";

/// Texts by type, then by field; the empty field is the type itself.
type Texts = BTreeMap<String, BTreeMap<String, String>>;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../Cargo.lock");
    let mut texts = Texts::new();
    let collected = source_folder().and_then(|folder| collect(&folder.join(RELEASE), &mut texts));
    if let Err(error) = collected {
        println!("cargo::warning=no descriptions in OpenAPI documents: k8s-openapi: {error}");
        texts.clear();
    }
    if let Err(error) = write(&texts) {
        panic!("descriptions: {error}");
    }
}

/// Where Cargo keeps the crate's source.
fn source_folder() -> io::Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let target = env::var("TARGET").unwrap_or_default();
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &target])
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().replace('\n', ": ")));
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    packages
        .iter()
        .find(|package| package["name"] == "k8s-openapi")
        .and_then(|package| Path::new(package["manifest_path"].as_str()?).parent())
        .map(Path::to_path_buf)
        .ok_or_else(|| io::Error::other("not among the workspace's packages"))
}

fn collect(folder: &Path, texts: &mut Texts) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, texts)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            read(&fs::read_to_string(&path)?, texts);
        }
    }
    Ok(())
}

/// Reads the JSON schema from a generated source file. Indentation determines what a line belongs to:
///
/// ```text
/// "io.k8s.api.core.v1.Pod".into()
///             "description": "of the type",
///                 "field": {
///                     "description": "of the field",
///                 "field": ({
///                     schema_obj.ensure_object().insert("description".into(), "of the field".into());
/// ```
fn read(source: &str, texts: &mut Texts) {
    let Some((_, schema)) = source.split_once("fn schema_name()") else {
        return;
    };
    let Some(name) = schema.split('"').nth(1) else {
        return;
    };
    // Only stable versions are published.
    if name.split('.').any(|part| part.starts_with('v') && (part.contains("alpha") || part.contains("beta")))
    {
        return;
    }
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    let mut field: Option<&str> = None;
    for line in schema.lines() {
        let content = line.trim_start();
        let text = content
            .strip_prefix("\"description\": \"")
            .and_then(|rest| rest.strip_suffix("\","))
            .or_else(|| {
                let rest =
                    content.strip_prefix("schema_obj.ensure_object().insert(\"description\".into(), \"")?;
                rest.strip_suffix("\".into());")
            });
        match (line.len() - content.len(), text) {
            (12, Some(text)) => drop(fields.insert(String::new(), unescape(text))),
            (16, None) => {
                let name = content.strip_suffix(": {").or_else(|| content.strip_suffix(": ({"));
                if let Some(name) = name.and_then(|name| name.strip_prefix('"')?.strip_suffix('"')) {
                    field = Some(name);
                }
            }
            (20, Some(text)) => {
                if let Some(field) = field {
                    fields.entry(field.to_owned()).or_insert_with(|| unescape(text));
                }
            }
            _ => {}
        }
    }
    if !fields.is_empty() {
        texts.insert(name.to_owned(), fields);
    }
}

/// The content of a string literal.
fn unescape(literal: &str) -> String {
    let mut text = String::with_capacity(literal.len());
    let mut chars = literal.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('r') => text.push('\r'),
                Some(other) => text.push(other),
                None => {}
            },
            _ => text.push(c),
        }
    }
    text
}

/// Writes the texts in the form that `openapi::descriptions` reads: sorted, a line for each type, then one
/// line for each of its fields that begins with a tab.
fn write(texts: &Texts) -> io::Result<()> {
    let mut plain = String::new();
    for (name, fields) in texts {
        plain.push_str(name);
        plain.push('\n');
        for (field, text) in fields {
            let text = text.replace('\n', "\u{1}");
            plain.push_str(&format!("\t{field}\t{text}\n"));
        }
    }
    let folder = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("OUT_DIR is not set"))?;
    let file = fs::File::create(Path::new(&folder).join("descriptions.deflate"))?;
    let mut encoder = DeflateEncoder::new(file, Compression::best());
    encoder.write_all(plain.as_bytes())?;
    encoder.finish()?;
    Ok(())
}
