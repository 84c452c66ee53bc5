//! Warnings about files of one volume that hide each other: equal paths, or a file in place of the directory
//! of another.

use plinth_codec::error::quoted;
use plinth_codec::Value;

use crate::path::{at, list, text};
use crate::warnings::{Warnings, MAX_WARNINGS};

/// A path in a volume, and its source in a projected volume.
#[derive(Clone, PartialEq)]
struct VolumePath {
    path: String,
    source: String,
}

impl std::fmt::Display for VolumePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.source.is_empty() {
            true => f.write_str(&quoted(&self.path)),
            false => write!(f, "{} ({})", quoted(&self.path), self.source),
        }
    }
}

impl VolumePath {
    fn new(path: &str, source: &str) -> VolumePath {
        VolumePath { path: path.trim_end_matches('/').to_owned(), source: source.to_owned() }
    }

    fn hides(&self, other: &VolumePath) -> bool {
        let is_in = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        !self.path.is_empty()
            && !other.path.is_empty()
            && (is_in(&self.path, &other.path) || is_in(&other.path, &self.path))
    }
}

/// The paths of one volume. Each is compared with the first ones only, since the number of warnings is
/// bounded.
#[derive(Default)]
struct VolumePaths(Vec<VolumePath>);

impl VolumePaths {
    const COMPARED: usize = 16 * MAX_WARNINGS;

    fn add(&mut self, path: VolumePath, report: &mut dyn FnMut(&VolumePath, &VolumePath)) {
        self.0.iter().filter(|other| path.hides(other)).for_each(|other| report(&path, other));
        if self.0.len() < VolumePaths::COMPARED {
            self.0.push(path);
        }
    }
}

fn items<'a>(source: &'a Value, from: &'a str) -> impl Iterator<Item = VolumePath> + 'a {
    list(source, "items").iter().map(move |item| VolumePath::new(text(item, "path"), from))
}

/// Adds warnings about overlapping paths in each volume of a pod.
pub(crate) fn overlaps(volumes: &[Value], found: &mut Warnings) {
    for volume in volumes {
        if found.is_full() {
            return;
        }
        let name = text(volume, "name");
        let rows =
            [("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName"), ("downwardAPI", "", "")];
        for (member, kind, named) in rows {
            let Some(source) = at(volume, member) else { continue };
            let shown = match kind {
                "" => "DownwardAPI".to_owned(),
                kind => format!("{kind} {}", quoted(text(source, named))),
            };
            let mut paths = VolumePaths::default();
            for path in items(source, "") {
                paths.add(path, &mut |new, old| {
                    found.add(format!("volume {name:?} ({shown}): overlapping paths: {new} with {old}"));
                });
            }
        }
        if let Some(projected) = at(volume, "projected") {
            of_projected(name, projected, found);
        }
    }
}

fn of_projected(name: &str, projected: &Value, found: &mut Warnings) {
    let mut paths = VolumePaths::default();
    for source in list(projected, "sources") {
        if found.is_full() {
            return;
        }
        if source.as_object().is_none_or(|source| source.iter().all(|(_, value)| value.is_null())) {
            found.add(format!("volume {name:?} (Projected) has no sources provided"));
            continue;
        }
        for path in of_source(source) {
            paths.add(path, &mut |new, old| {
                found.add(format!("volume {name:?} (Projected): overlapping paths: {new} with {old}"));
            });
        }
    }
}

/// The paths of one source of a projected volume.
fn of_source(source: &Value) -> Vec<VolumePath> {
    let with_items = |member: &str| at(source, member).filter(|part| at(part, "items").is_some());
    if let Some(map) = with_items("configMap") {
        return items(map, &format!("ConfigMap {}", quoted(text(map, "name")))).collect();
    }
    if let Some(secret) = with_items("secret") {
        return items(secret, &format!("Secret {}", quoted(text(secret, "name")))).collect();
    }
    if let Some(downward) = with_items("downwardAPI") {
        return items(downward, "DownwardAPI").collect();
    }
    if let Some(token) = at(source, "serviceAccountToken") {
        return vec![VolumePath::new(text(token, "path"), "ServiceAccountToken")];
    }
    if let Some(bundle) = at(source, "clusterTrustBundle") {
        let name = at(bundle, "name").or_else(|| at(bundle, "signerName")).and_then(Value::as_str);
        let shown = format!("ClusterTrustBundle {}", quoted(name.unwrap_or_default()));
        return vec![VolumePath::new(text(bundle, "path"), &shown)];
    }
    let Some(certificate) = at(source, "podCertificate") else { return Vec::new() };
    let rows = [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ];
    let there = rows.into_iter().filter(|(member, _)| !text(certificate, member).is_empty());
    there.map(|(member, shown)| VolumePath::new(text(certificate, member), shown)).collect()
}
