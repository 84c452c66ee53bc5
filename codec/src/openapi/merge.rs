//! Adds what other API servers publish to the OpenAPI 2.0 document (k8s.io/kube-openapi `pkg/aggregator`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// Members of a document that consist of named parts, and whether references lead there.
const SECTIONS: [(&str, bool); 3] = [("paths", false), ("definitions", true), ("parameters", true)];

/// Raw JSON by name.
type Section<'a> = BTreeMap<String, Cow<'a, str>>;

/// The document with the paths of `parts` and what these refer to. A definition under the name of another one
/// gets the name `NAME_v2`; a path that is there is left alone. A part that is no document is left out.
pub fn v2(document: Vec<u8>, parts: &[impl AsRef<[u8]>]) -> Vec<u8> {
    if parts.is_empty() {
        return document;
    }
    merge(&document, parts).unwrap_or(document)
}

fn merge(document: &[u8], parts: &[impl AsRef<[u8]>]) -> Result<Vec<u8>, serde_json::Error> {
    let mut members: BTreeMap<Cow<str>, &RawValue> = serde_json::from_slice(document)?;
    let mut sections = BTreeMap::new();
    for (name, _) in SECTIONS {
        let section: Section = match members.remove(name) {
            Some(raw) => read(raw)?,
            None => Section::new(),
        };
        sections.insert(name, section);
    }
    for part in parts {
        let Ok(part) = serde_json::from_slice::<BTreeMap<Cow<str>, &RawValue>>(part.as_ref()) else {
            continue;
        };
        add(&mut sections, &part);
    }
    let mut out = Vec::with_capacity(document.len() * 2);
    out.push(b'{');
    let rest = members.iter().map(|(name, raw)| (name.to_string(), Cow::Borrowed(raw.get())));
    let sections =
        sections.into_iter().map(|(name, section)| (name.to_owned(), Cow::Owned(written(&section))));
    write_members(&mut out, rest.chain(sections));
    out.push(b'}');
    Ok(out)
}

fn read(raw: &RawValue) -> Result<Section<'_>, serde_json::Error> {
    let values: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get())?;
    Ok(values.into_iter().map(|(name, raw)| (name, Cow::Borrowed(raw.get()))).collect())
}

fn add<'a>(sections: &mut BTreeMap<&str, Section<'a>>, part: &BTreeMap<Cow<'a, str>, &'a RawValue>) {
    let of_part = |name: &str| part.get(name).and_then(|raw| read(raw).ok()).unwrap_or_default();
    // References as they are written, with quotes, by what they become.
    let mut renamed: BTreeMap<String, String> = BTreeMap::new();
    let mut added: Vec<(&str, String, Cow<str>)> = Vec::new();
    for (section, is_referred) in SECTIONS {
        let present = &sections[section];
        for (name, raw) in of_part(section) {
            let is_other = |name: &str| present.get(name).is_some_and(|other| !are_equal(other, &raw));
            if !is_other(&name) {
                added.push((section, name, raw));
            } else if is_referred {
                let mut numbers = 2..;
                let new =
                    numbers.find_map(|n: u32| Some(format!("{name}_v{n}")).filter(|new| !is_other(new)));
                let Some(new) = new else { continue };
                let [from, to] = [&name, &new].map(|name| quoted(&format!("#/{section}/{name}")));
                renamed.insert(from, to);
                added.push((section, new, raw));
            }
        }
    }
    for (section, name, raw) in added {
        let raw = if renamed.is_empty() { raw } else { Cow::Owned(rewrite(&raw, &renamed)) };
        if let Some(section) = sections.get_mut(section) {
            section.entry(name).or_insert(raw);
        }
    }
}

fn are_equal(one: &str, other: &str) -> bool {
    let parse = |text| serde_json::from_str::<serde_json::Value>(text).ok();
    one == other || parse(one) == parse(other)
}

/// The text with references replaced.
fn rewrite(text: &str, renamed: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut rest = text;
    while let Some(at) = rest.find("\"#/") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest[1..].find('"').map_or(rest.len(), |end| end + 2);
        let reference = &rest[..end];
        out.push_str(renamed.get(reference).map_or(reference, String::as_str));
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

fn written(section: &Section) -> String {
    let mut out = vec![b'{'];
    write_members(&mut out, section.iter().map(|(name, raw)| (name.clone(), Cow::Borrowed(&**raw))));
    out.push(b'}');
    String::from_utf8_lossy(&out).into_owned()
}

fn write_members<'a>(out: &mut Vec<u8>, members: impl Iterator<Item = (String, Cow<'a, str>)>) {
    for (n, (name, raw)) in members.enumerate() {
        if n > 0 {
            out.push(b',');
        }
        out.extend_from_slice(quoted(&name).as_bytes());
        out.push(b':');
        out.extend_from_slice(raw.as_bytes());
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Value};

    #[test]
    fn definitions_with_a_taken_name_get_another_one() {
        let local = json!({"swagger": "2.0",
            "paths": {"/version": {"get": 1}},
            "definitions": {"Meta": {"a": 1}, "Same": {"b": [1, 2], "c": 0}}});
        let part = json!({
            "paths": {"/version": {"get": 2}, "/apis/a/v1/x": {"$ref": "#/definitions/Meta", "s": "#/definitions/Same"}},
            "definitions": {"Meta": {"a": 2, "of": "#/definitions/Meta"}, "Same": {"c": 0, "b": [1, 2]}, "New": {}},
            "parameters": {"p": 1}});
        let other =
            json!({"definitions": {"Meta": {"a": 3}}, "paths": {"/apis/b/v1/x": "#/definitions/Meta"}});
        let parts = [part, other].map(|part| part.to_string().into_bytes());
        let parts = [parts[0].clone(), b"no document".to_vec(), parts[1].clone()];
        let merged: Value = serde_json::from_slice(&v2(local.to_string().into_bytes(), &parts)).unwrap();
        let expected = json!({"swagger": "2.0",
            "paths": {"/version": {"get": 1},
                "/apis/a/v1/x": {"$ref": "#/definitions/Meta_v2", "s": "#/definitions/Same"},
                "/apis/b/v1/x": "#/definitions/Meta_v3"},
            "definitions": {"Meta": {"a": 1}, "Meta_v2": {"a": 2, "of": "#/definitions/Meta_v2"}, "Meta_v3": {"a": 3},
                "Same": {"b": [1, 2], "c": 0}, "New": {}},
            "parameters": {"p": 1}});
        assert_eq!(merged, expected);
    }
}
