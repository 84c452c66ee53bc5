//! Which module of a crate imports which: found in its sources, checked for cycles, drawn.
//!
//! A module is a file or folder directly below `src/`, whose files count as one, or each file
//! ([`ModuleGraph::read_files`]). Unit tests do not count. A name that a module has by way of a `use` counts
//! as one of the module that defines it, so no cycle hides behind a re-export.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The sources of the crates in which no file is part of a cycle, from the top of the repository.
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
pub const REQUEST_PATH: [&str; 28] = [
    "flags",
    "private_files",
    "error_log",
    "request_log",
    "catch_panic",
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

    /// Reads the sources below `src`; a module is a file. A folder and the files in it import each other as
    /// they like.
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
            let named = |path: &Vec<String>| {
                let path = names.origin(path);
                let known = (1..=path.len()).rev().map(|end| &path[..end]);
                known.map(<[String]>::to_vec).find(|path| graph.imports.contains_key(&path.join("::")))
            };
            let beside = |other: &Vec<String>| !other.starts_with(module) && !module.starts_with(other);
            let imports: BTreeSet<String> =
                file.imports.iter().filter_map(named).filter(beside).map(|path| path.join("::")).collect();
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

fn sources(dir: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        match path.is_dir() {
            true => sources(&path, found)?,
            false if path.extension().is_some_and(|end| end == "rs") => found.push(path),
            false => {}
        }
    }
    Ok(())
}

/// A source file that is no unit test.
struct SourceFile {
    /// Its path below `src/`, without the ending.
    steps: Vec<String>,
    /// The paths that it imports, from the crate's root.
    imports: BTreeSet<Vec<String>>,
    /// The names that a `use` gives it, and the path of each; of another crate's, below this module.
    names: BTreeMap<String, Vec<String>>,
}

impl SourceFile {
    fn read_all(src: &Path) -> io::Result<Vec<SourceFile>> {
        let mut paths = Vec::new();
        sources(src, &mut paths)?;
        let mut files = Vec::new();
        for path in paths {
            let relative = path.strip_prefix(src).unwrap_or(&path).with_extension("");
            let steps: Vec<String> =
                relative.iter().map(|step| step.to_string_lossy().into_owned()).collect();
            if !steps.iter().any(|step| step.contains("tests")) {
                let mut file = SourceFile { steps, imports: BTreeSet::new(), names: BTreeMap::new() };
                let code = code(&fs::read_to_string(&path)?);
                file.imports = imported(&code, file.module());
                file.names = named(&code, file.module());
                files.push(file);
            }
        }
        Ok(files)
    }

    /// The module that the file is: of a `mod.rs`, the folder; of the crate's root, the file.
    fn module(&self) -> &[String] {
        match self.steps.split_last() {
            Some((last, folder)) if last == "mod" => folder,
            _ => &self.steps,
        }
    }
}

/// The names that modules have by way of a `use`.
struct Names<'f>(BTreeMap<&'f [String], &'f BTreeMap<String, Vec<String>>>);

impl<'f> Names<'f> {
    fn of(files: &'f [SourceFile]) -> Names<'f> {
        let module = |file: &'f SourceFile| match file.module() {
            [root] if root == "lib" => &[],
            module => module,
        };
        Names(files.iter().map(|file| (module(file), &file.names)).collect())
    }

    /// The path that leads to where an item is defined, without the modules that only have it by a `use`.
    fn origin(&self, path: &[String]) -> Vec<String> {
        // Longer than any chain of re-exports; two that name each other would have no end.
        const STEPS: usize = 16;
        let mut path = path.to_vec();
        for _ in 0..STEPS {
            let next = (0..path.len()).rev().find_map(|end| {
                let target = self.0.get(&path[..end])?.get(&path[end])?;
                Some(target.iter().chain(&path[end + 1..]).cloned().collect::<Vec<String>>())
            });
            match next {
                Some(next) if next != path => path = next,
                _ => break,
            }
        }
        path
    }
}

/// A file's text without comments and items of unit tests.
fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    while let Some(line) = lines.next() {
        if line.trim_start() != "#[cfg(test)]" {
            code.push_str(line);
            code.push('\n');
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let first = lines.by_ref().find(|line| !line.trim_start().starts_with('#')).unwrap_or_default();
        if !first.ends_with([';', ',', '}']) {
            let ends = |line: &&str| line.strip_prefix(indent).is_some_and(|rest| rest.starts_with('}'));
            lines.by_ref().find(ends);
        }
    }
    code
}

/// The paths that the code of a module imports: what follows `crate::` and `super::`, also in braces.
fn imported(code: &str, module: &[String]) -> BTreeSet<Vec<String>> {
    let mut found = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        paths(&code[at + prefix.len()..], &mut Vec::new(), &mut found);
    }
    for (at, _) in code.match_indices("super::").filter(|(at, _)| !code[..*at].ends_with("super::")) {
        let (rest, mut base) = above(&code[at..], module);
        paths(rest, &mut base, &mut found);
    }
    found.into_iter().map(|(_, path)| path).collect()
}

/// What follows `super::`, once or several times, and the module that it is below.
fn above<'t>(mut text: &'t str, module: &[String]) -> (&'t str, Vec<String>) {
    let mut length = module.len();
    while let Some(further) = text.strip_prefix("super::") {
        (text, length) = (further, length.saturating_sub(1));
    }
    (text, module[..length].to_vec())
}

/// The names that the code of a module has by way of a `use`, each with its path.
fn named(code: &str, module: &[String]) -> BTreeMap<String, Vec<String>> {
    let module = if module == ["lib"] { &[] } else { module };
    let mut found = Vec::new();
    for (at, keyword) in code.match_indices("use ") {
        let line = code[..at].rsplit('\n').next().unwrap_or_default().trim_start();
        if !(line.is_empty() || line.starts_with("pub ") || line.starts_with("pub(")) {
            continue;
        }
        let tree = &code[at + keyword.len()..];
        let (rest, mut base) = match (tree.strip_prefix("crate::"), tree.strip_prefix("self::")) {
            (Some(rest), _) => (rest, Vec::new()),
            (_, Some(rest)) => (rest, module.to_vec()),
            _ => above(tree, module),
        };
        paths(rest, &mut base, &mut found);
    }
    found.into_iter().collect()
}

/// The path at the start of a text below `base`, or each path in its braces, with the name that it is given;
/// returns what follows.
fn paths<'t>(text: &'t str, base: &mut Vec<String>, found: &mut Vec<(String, Vec<String>)>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = paths(rest, base, found).trim_start();
            match rest.strip_prefix(',') {
                Some(further) => rest = further,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let (word, rest) = word(text);
    if let ("", Some(rest)) = (word, rest.strip_prefix('*')) {
        // What a glob takes has no name here.
        if !base.is_empty() {
            found.push((String::new(), base.clone()));
        }
        return rest;
    }
    let is_own = word.is_empty() || word == "self";
    if !is_own {
        base.push(word.to_owned());
        if let Some(below) = rest.strip_prefix("::") {
            let rest = paths(below, base, found);
            base.pop();
            return rest;
        }
    }
    let (alias, rest) = match rest.strip_prefix(" as ") {
        Some(alias) => self::word(alias),
        None => (base.last().map_or("", String::as_str), rest),
    };
    if !base.is_empty() {
        found.push((alias.to_owned(), base.clone()));
    }
    if !is_own {
        base.pop();
    }
    rest
}

/// The identifier at the start of a text, and what follows.
fn word(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found() {
        let text =
            "use crate::{a::{self, b as z, i::*}, c};\nuse super::super::d;\nuse crate::e;\n// crate::f\n\
                    use super::g;\n#[cfg(test)]\nmod tests { use crate::h; }\n";
        let found = imported(&code(text), &["x".to_owned(), "y".to_owned()]);
        let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
        assert_eq!(found, ["a", "a::b", "a::i", "c", "d", "e", "x::g"]);
    }

    #[test]
    fn only_items_of_tests_are_left_out() {
        let text =
            "a;\n#[cfg(test)]\nmod tests;\nb;\n    #[cfg(test)]\n    fn c() {\n        d;\n    }\ne;\n\
                    #[cfg(test)]\n#[path = \"x.rs\"]\nmod f {\n    g;\n}\nh;\n";
        assert_eq!(code(text), "a;\nb;\ne;\nh;\n");
    }

    /// `folder::a` uses what its neighbor `b` defines, through the name that the folder has for it.
    #[test]
    fn cycles_behind_re_exports_are_found() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        for (file, text) in [
            ("lib.rs", "mod folder;\nmod low;\npub use folder::A;\n"),
            ("low.rs", "use crate::A;\n"),
            (
                "folder/mod.rs",
                "#[cfg(test)]\nmod tests;\nmod a;\nmod b;\npub use a::A;\nuse self::b::{B as D, C};\n",
            ),
            ("folder/a.rs", "use super::D;\nuse crate::low;\n"),
            ("folder/b.rs", "fn b() {\n    super::a::a();\n}\n"),
        ] {
            fs::write(dir.path().join(file), text).unwrap();
        }
        let files = ModuleGraph::read_files(dir.path()).unwrap();
        assert_eq!(files.cycles(), [["folder::a", "folder::b", "low"]]);
        let modules = ModuleGraph::read(dir.path()).unwrap();
        assert_eq!(modules.cycles(), [["folder", "low"]]);
    }

    #[test]
    fn cycles_of_folders_are_found() {
        let mut graph = ModuleGraph::default();
        for (from, to) in [("top::a::x", "top::b::x"), ("top::b::y", "top::a::y"), ("top::a::x", "low")] {
            graph.imports.entry(from.into()).or_default().insert(to.into());
            graph.imports.entry(to.into()).or_default();
        }
        assert!(graph.cycles().is_empty());
        assert_eq!(graph.folders()["top"].cycles(), [["a", "b"]]);
        assert!(graph.folders()["top::a"].cycles().is_empty());
    }

    #[test]
    fn cycles_are_found_and_share_a_floor() {
        let graph = |edges: &[(&str, &str)]| {
            let mut graph = ModuleGraph::default();
            for (from, to) in edges {
                graph.imports.entry((*from).into()).or_default().insert((*to).into());
                graph.imports.entry((*to).into()).or_default();
            }
            graph
        };
        assert!(graph(&[("a", "b"), ("a", "c"), ("b", "c")]).cycles().is_empty());
        let tied = graph(&[("top", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "ground")]);
        assert_eq!(tied.cycles(), [["a", "b", "c"]]);
        let floors: Vec<_> = tied.floors().into_iter().collect();
        assert_eq!(floors, [("a", 1), ("b", 1), ("c", 1), ("ground", 0), ("top", 2)]);
    }

    /// The crates hold the order among each other; this holds it within them.
    #[test]
    fn no_module_imports_in_a_cycle() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for of in ORDERED_CRATES {
            let graph = ModuleGraph::read(&root.join(of)).expect(of);
            assert!(graph.modules() > 2, "{of}: only {} modules", graph.modules());
            assert_eq!(graph.cycles(), Vec::<Vec<&str>>::new(), "{of}");
        }
    }

    #[test]
    fn no_module_of_the_request_path_imports_one_above_it() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let graph = ModuleGraph::read(&root.join("server/apiserver/src")).expect("the request path");
        assert_eq!(graph.disorder(&REQUEST_PATH), Vec::<String>::new());

        let mut graph = ModuleGraph::default();
        for (from, to) in [("low", "high"), ("high", "new"), ("new", "high")] {
            graph.imports.entry(from.into()).or_default().insert(to.into());
        }
        let expected = ["low is below high and imports it", "new is not listed", "gone does not exist"];
        assert_eq!(graph.disorder(&["low", "gone", "high"]), expected);
    }

    #[test]
    fn no_file_imports_in_a_cycle() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for of in ORDERED_CRATES {
            let graph = ModuleGraph::read_files(&root.join(of)).expect(of);
            assert_eq!(graph.cycles(), Vec::<Vec<&str>>::new(), "{of}");
            for (folder, graph) in graph.folders() {
                assert_eq!(graph.cycles(), Vec::<Vec<&str>>::new(), "{of}: {folder}");
            }
        }
    }

    /// The picture that the tour shows is drawn from the sources as they are.
    #[test]
    fn the_picture_of_the_request_path_is_current() {
        const SOURCES: &str = "server/apiserver/src";
        const PICTURE: &str = "docs/pictures/modules-apiserver.svg";
        const TITLE: &str = "plinth-apiserver: which module imports which";
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let drawn = ModuleGraph::read(&root.join(SOURCES)).expect(SOURCES).to_svg(TITLE);
        let shown = fs::read_to_string(root.join(PICTURE)).expect(PICTURE);
        assert!(
            shown == drawn,
            "{PICTURE} is not that of the sources; draw it again, at the top of the repository:\n    \
             cargo run --package plinth-tests --bin module-graph -- {SOURCES} '{TITLE}' > {PICTURE}"
        );
    }
}
