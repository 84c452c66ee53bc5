//! Which module of a crate imports which: found in its sources, checked for cycles, drawn.
//!
//! A module is a file or folder directly below `src/`, whose files count as one, or each file
//! ([`ModuleGraph::read_files`]). Unit tests do not count. A name that a module has by way of a `use` counts
//! as one of the module that defines it, so no cycle hides behind a re-export; nor behind the crate's root,
//! whose own items are those of the module `lib`. What a glob takes from a module is not followed: tests
//! refuse such globs ([`ModuleGraph::globs`]), and whatever else imports without a path
//! ([`ModuleGraph::unseen`]).

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use imports::{Names, SourceFile};

/// The sources of the crates in which no file is part of a cycle with files beside it, from the top of the
/// repository.
pub const ORDERED_CRATES: [&str; 19] = [
    "server/src",
    "server/apiserver/src",
    "server/storage/src",
    "server/registry/src",
    "server/etcd/src",
    "server/migration/src",
    "server/http/src",
    "server/kinds/src",
    "server/pki/src",
    "server/api/src",
    "codec/src",
    "codec/cel/src",
    "codec/structural/src",
    "engine/src",
    "engine/journal/src",
    "engine/journal/kafka/src",
    "engine/journal/etcd/src",
    "codec/bolt/src",
    "codec/etcd/src",
];

/// The modules of the request path (`server/apiserver/src`) from the lowest to the highest.
pub const REQUEST_PATH: [&str; 31] = [
    "flags",
    "feature_gates",
    "private_files",
    "error_log",
    "request_log",
    "catch_panic",
    "token_bucket",
    "websocket",
    "large_requests",
    "metrics",
    "traces",
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

/// The modules of a crate, and what each imports.
#[derive(Debug, Default)]
pub struct ModuleGraph {
    imports: BTreeMap<String, BTreeSet<String>>,
    globs: BTreeSet<(String, String)>,
    unseen: BTreeSet<(String, &'static str)>,
}

impl ModuleGraph {
    /// Reads the sources below `src`; a module is a file or folder directly below it.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn read(src: &Path) -> io::Result<ModuleGraph> {
        let mut graph = ModuleGraph::default();
        let files = SourceFile::read_all(src)?;
        for file in &files {
            graph.imports.entry(file.steps[0].clone()).or_default();
        }
        let names = Names::of(&files);
        for file in &files {
            let first_steps = file.imports.iter().filter_map(|path| names.origin(path).first().cloned());
            let known: BTreeSet<String> = first_steps
                .filter(|name| graph.imports.contains_key(name) && *name != file.steps[0])
                .collect();
            graph.imports.entry(file.steps[0].clone()).or_default().extend(known);
        }
        Ok(graph)
    }

    /// Reads the sources below `src`; a module is a file. A folder's own file that only declares and
    /// re-exports what is in it imports none of that.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn read_files(src: &Path) -> io::Result<ModuleGraph> {
        let mut graph = ModuleGraph::default();
        let files = SourceFile::read_all(src)?;
        for file in &files {
            graph.imports.entry(file.module().join("::")).or_default();
        }
        let names = Names::of(&files);
        for file in &files {
            let module = file.module();
            graph.unseen.extend(file.unseen.iter().map(|what| (module.join("::"), *what)));
            let named = |path: &Vec<String>| {
                let path = names.origin(path);
                let mut known = (1..=path.len()).rev().map(|end| path[..end].join("::"));
                // What no file has is defined in the crate's root.
                known.find(|path| graph.imports.contains_key(path)).unwrap_or_else(|| "lib".to_owned())
            };
            let imports: BTreeSet<String> =
                file.imports.iter().map(named).filter(|other| *other != module.join("::")).collect();
            let is_module = |path: &String| path == "lib" || graph.imports.contains_key(path);
            let globs = file.globs.iter().map(|path| match names.origin(path).join("::") {
                root if root.is_empty() => "lib".to_owned(),
                path => path,
            });
            let globs: Vec<String> = globs.filter(is_module).collect();
            graph.globs.extend(globs.into_iter().map(|other| (module.join("::"), other)));
            graph.imports.entry(module.join("::")).or_default().extend(imports);
        }
        Ok(graph)
    }

    /// Of a graph of files: those of the folders, each with what is directly below it. A folder counts as one
    /// module with the files in it.
    pub fn folders(&self) -> BTreeMap<&str, ModuleGraph> {
        let mut folders: BTreeMap<&str, ModuleGraph> = BTreeMap::new();
        for (module, imports) in &self.imports {
            for (end, _) in module.match_indices("::") {
                let below = |path: &str| {
                    let rest = path.strip_prefix(&module[..end])?.strip_prefix("::")?;
                    rest.split("::").next().map(str::to_owned)
                };
                let Some(own) = below(module) else { continue };
                let beside = imports.iter().filter_map(|other| below(other)).filter(|other| *other != own);
                let folder = folders.entry(&module[..end]).or_default();
                folder.imports.entry(own.clone()).or_default().extend(beside);
            }
        }
        folders
    }

    /// The same without what a folder's own file and the files in it import from each other, and without the
    /// crate's root.
    pub fn beside(&self) -> ModuleGraph {
        let is_apart =
            |one: &str, other: &str| !other.strip_prefix(one).is_some_and(|rest| rest.starts_with("::"));
        let keep =
            |module: &str, other: &str| is_apart(module, other) && is_apart(other, module) && other != "lib";
        let mut graph = ModuleGraph::default();
        for (module, imports) in self.imports.iter().filter(|(module, _)| *module != "lib") {
            let kept = imports.iter().filter(|other| keep(module, other)).cloned().collect();
            graph.imports.insert(module.clone(), kept);
        }
        graph
    }

    /// Of a graph of files: each module that takes all names of another one, and that one.
    pub fn globs(&self) -> Vec<(&str, &str)> {
        self.globs.iter().map(|(module, other)| (module.as_str(), other.as_str())).collect()
    }

    /// Of a graph of files: what imports in a way that the graph does not follow, and the module that has it.
    pub fn unseen(&self) -> Vec<(&str, &'static str)> {
        self.unseen.iter().map(|(module, what)| (module.as_str(), *what)).collect()
    }

    /// How many modules there are.
    pub fn modules(&self) -> usize {
        self.imports.len()
    }

    /// What is not in order where a module imports those listed before it alone: an import of one above, a
    /// module that is not listed, a listed one that does not exist. The crate's root has no place in it.
    pub fn disorder(&self, order: &[&str]) -> Vec<String> {
        let rank = |module: &str| order.iter().position(|listed| *listed == module);
        let mut found: Vec<String> = Vec::new();
        for (module, imports) in self.imports.iter().filter(|(module, _)| *module != "lib") {
            let Some(own) = rank(module) else {
                found.push(format!("{module} is not listed"));
                continue;
            };
            let above = imports.iter().filter(|other| rank(other).is_some_and(|rank| rank > own));
            found.extend(above.map(|other| format!("{module} is below {other} and imports it")));
        }
        let absent = order.iter().filter(|listed| !self.imports.contains_key(**listed));
        found.extend(absent.map(|listed| format!("{listed} does not exist")));
        found
    }

    /// The groups of modules that import each other in a cycle, each in alphabetical order.
    pub fn cycles(&self) -> Vec<Vec<&str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.imports.keys().map(|module| (module.as_str(), self.reached(module))).collect();
        let mut groups: BTreeSet<Vec<&str>> = BTreeSet::new();
        for (module, below) in reached.iter().filter(|(module, below)| below.contains(*module)) {
            let group = below.iter().filter(|other| reached[*other].contains(module)).copied().collect();
            groups.insert(group);
        }
        groups.into_iter().collect()
    }

    /// Everything that a module imports, directly or through others.
    fn reached(&self, module: &str) -> BTreeSet<&str> {
        let (mut reached, mut waiting) = (BTreeSet::new(), vec![module]);
        while let Some(next) = waiting.pop() {
            for other in self.imports.get(next).into_iter().flatten() {
                if reached.insert(other.as_str()) {
                    waiting.push(other);
                }
            }
        }
        reached
    }

    /// The floor of each module: one above the highest that it imports. Modules of a cycle share a floor.
    fn floors(&self) -> BTreeMap<&str, usize> {
        let cycles = self.cycles();
        let group_of = |module: &str| cycles.iter().position(|group| group.contains(&module));
        let mut floors: BTreeMap<&str, usize> = self.imports.keys().map(|name| (name.as_str(), 0)).collect();
        // Each round settles at least one floor.
        for _ in 0..self.imports.len() {
            for (module, imports) in &self.imports {
                let own_group = group_of(module);
                let below =
                    imports.iter().filter(|other| own_group.is_none() || group_of(other) != own_group);
                let floor = below.map(|other| floors[other.as_str()] + 1).max().unwrap_or(0);
                let floor = floor.max(floors[module.as_str()]);
                let shares = own_group.map_or_else(|| vec![module.as_str()], |group| cycles[group].clone());
                for member in shares {
                    let known = floors.entry(member).or_default();
                    *known = floor.max(*known);
                }
            }
        }
        floors
    }

    /// The graph as SVG: a row for each floor, the ground at the bottom; imports within a cycle are red.
    pub fn to_svg(&self, title: &str) -> String {
        let (cycles, floors) = (self.cycles(), self.floors());
        let in_cycle = |a: &str, b: &str| cycles.iter().any(|group| group.contains(&a) && group.contains(&b));
        let mut rows: Vec<Vec<&str>> = Vec::new();
        for floor in (0..=floors.values().copied().max().unwrap_or(0)).rev() {
            let on_floor: Vec<&str> =
                floors.iter().filter(|(_, at)| **at == floor).map(|(name, _)| *name).collect();
            rows.extend(on_floor.chunks(PER_ROW).map(<[&str]>::to_vec));
        }
        let mut places = BTreeMap::new();
        for (row, modules) in rows.iter().enumerate() {
            let indent = (WIDTH - modules.len() * CELL.0) / 2;
            for (column, module) in modules.iter().enumerate() {
                places.insert(*module, (indent + column * CELL.0 + CELL.0 / 2, TOP + row * CELL.1));
            }
        }
        let height = TOP + rows.len() * CELL.1;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n<title>{title}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"{}\" y=\"24\" text-anchor=\"middle\" font-size=\"15\">{title}</text>\n",
            WIDTH / 2
        );
        // Writing to a String never fails.
        for (module, imports) in &self.imports {
            let (x1, y1) = places[module.as_str()];
            for other in imports {
                let (x2, y2) = places[other.as_str()];
                let (color, width) =
                    if in_cycle(module, other) { ("#c62828", 0.7) } else { ("#607d8b", 0.8) };
                let (y1, y2) = (y1 + BOX.1, if y2 > y1 { y2 } else { y2 + BOX.1 });
                let _ = writeln!(
                    svg,
                    "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"{color}\" stroke-width=\"{width}\"/>"
                );
            }
        }
        for (module, (x, y)) in &places {
            let fill = if in_cycle(module, module) { "#fde0dc" } else { "#dce9f7" };
            let _ = writeln!(
                svg,
                "<rect x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"{fill}\" stroke=\"#444\"/>\
                 <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{module}</text>",
                x - BOX.0 / 2,
                BOX.0,
                BOX.1,
                y + 17,
            );
        }
        svg + "</svg>\n"
    }
}

/// Width of a picture.
const WIDTH: usize = 1180;
/// Where its first row begins.
const TOP: usize = 44;
/// Modules in a row.
const PER_ROW: usize = 8;
/// Width and height of a module's place.
const CELL: (usize, usize) = (146, 78);
/// Width and height of a module.
const BOX: (usize, usize) = (134, 26);

#[cfg(test)]
mod tests;
