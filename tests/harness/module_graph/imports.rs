//! What the text of a source file imports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
pub(super) struct SourceFile {
    /// Its path below `src/`, without the ending.
    pub(super) steps: Vec<String>,
    /// The paths that it imports, from the crate's root.
    pub(super) imports: BTreeSet<Vec<String>>,
    /// The paths of which a `use` takes all names: of modules, or of the variants of a type.
    pub(super) globs: BTreeSet<Vec<String>>,
    /// What imports without a path that could be followed ([`unseen`]).
    pub(super) unseen: Vec<&'static str>,
    /// The macros that it exports, which have their path at the crate's root.
    exported: Vec<String>,
    /// The names that a `use` gives it, and the path of each; of another crate's, below this module.
    names: BTreeMap<String, Vec<String>>,
}

impl SourceFile {
    pub(super) fn read_all(src: &Path) -> io::Result<Vec<SourceFile>> {
        let mut paths = Vec::new();
        sources(src, &mut paths)?;
        let mut files = Vec::new();
        for path in paths {
            let relative = path.strip_prefix(src).unwrap_or(&path).with_extension("");
            let steps: Vec<String> =
                relative.iter().map(|step| step.to_string_lossy().into_owned()).collect();
            if !steps.iter().any(|step| step == "tests" || step.ends_with("_tests")) {
                let mut file = SourceFile {
                    steps,
                    imports: BTreeSet::new(),
                    globs: BTreeSet::new(),
                    unseen: Vec::new(),
                    exported: Vec::new(),
                    names: BTreeMap::new(),
                };
                let code = code(&fs::read_to_string(&path)?);
                file.unseen = unseen(&code);
                file.exported = exported_macros(&code);
                file.imports = imported(&code, file.module());
                file.imports.extend(imported_from_below(&code, file.module()));
                for (name, path) in used(&code, file.module()) {
                    match name.is_empty() {
                        true => file.globs.insert(path),
                        false => file.names.insert(name, path).is_none(),
                    };
                }
                files.push(file);
            }
        }
        Ok(files)
    }

    /// The module that the file is: of a `mod.rs`, the folder; of the crate's root, the file.
    pub(super) fn module(&self) -> &[String] {
        match self.steps.split_last() {
            Some((last, folder)) if last == "mod" => folder,
            _ => &self.steps,
        }
    }
}

/// The names that modules have by way of a `use`.
pub(super) struct Names<'f> {
    uses: BTreeMap<&'f [String], &'f BTreeMap<String, Vec<String>>>,
    /// The modules that define the macros which the crate exports.
    macros: BTreeMap<&'f str, &'f [String]>,
}

impl<'f> Names<'f> {
    pub(super) fn of(files: &'f [SourceFile]) -> Names<'f> {
        let module = |file: &'f SourceFile| match file.module() {
            [root] if root == "lib" => &[],
            module => module,
        };
        let macros =
            files.iter().flat_map(|file| file.exported.iter().map(move |name| (name.as_str(), module(file))));
        Names {
            uses: files.iter().map(|file| (module(file), &file.names)).collect(),
            macros: macros.collect(),
        }
    }

    /// The path that leads to where an item is defined, without the modules that only have it by a `use`.
    pub(super) fn origin(&self, path: &[String]) -> Vec<String> {
        // Longer than any chain of re-exports; two that name each other would have no end.
        const STEPS: usize = 16;
        let mut path = match path {
            [name] => match self.macros.get(name.as_str()) {
                Some(module) => module.iter().chain([name]).cloned().collect(),
                None => path.to_vec(),
            },
            path => path.to_vec(),
        };
        for _ in 0..STEPS {
            let next = (0..path.len()).rev().find_map(|end| {
                let target = self.uses.get(&path[..end])?.get(&path[end])?;
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
pub(super) fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let is_of_tests = |line: &str| line == "#[cfg(test)]" || line.starts_with("#[cfg(all(test,");
    while let Some(line) = lines.next() {
        if !is_of_tests(line.trim_start()) {
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

/// What in the code of a module gives names to it or to others without a path: the crate under another name,
/// macros that are seen by what is declared after them, and files in other places than their modules.
fn unseen(code: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    let lines: Vec<&str> = code.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let line = line.trim_start();
        if line.starts_with("extern crate self") {
            found.push("extern crate self");
        }
        if line.starts_with("#[macro_use") || line.starts_with("#![macro_use") {
            found.push("#[macro_use]");
        }
        if line.starts_with("#[path") {
            found.push("#[path]");
        }
        let declares = |line: &&str| {
            let item = line.trim_start().trim_start_matches("pub(crate) ").trim_start_matches("pub ");
            item.starts_with("mod ") && item.ends_with(';')
        };
        if line.starts_with("macro_rules!") && lines[at..].iter().any(declares) {
            found.push("macro_rules! before a module");
        }
    }
    found
}

/// The macros under `#[macro_export]`.
fn exported_macros(code: &str) -> Vec<String> {
    let behind = code.split("#[macro_export").skip(1);
    let name = |text: &str| Some(word(text.split_once("macro_rules! ")?.1).0.to_owned());
    behind.filter_map(name).collect()
}

/// The paths that the code of a module imports: what follows `crate::` and `super::`, also in braces.
pub(super) fn imported(code: &str, module: &[String]) -> BTreeSet<Vec<String>> {
    let mut found = Vec::new();
    // Where an item is visible is no import.
    let is_import = |at: usize| !code[..at].ends_with("pub(in ");
    for (at, prefix) in code.match_indices("crate::").filter(|(at, _)| is_import(*at)) {
        paths(&code[at + prefix.len()..], &mut Vec::new(), &mut found);
    }
    let starts = |at: usize| is_import(at) && !code[..at].ends_with("super::");
    for (at, _) in code.match_indices("super::").filter(|(at, _)| starts(*at)) {
        let (rest, mut base) = above(&code[at..], module);
        paths(rest, &mut base, &mut found);
    }
    found.into_iter().map(|(_, path)| path).collect()
}

/// The paths that a module imports from the modules that it declares: those of its own `use`s, of names that
/// it re-exports and has a use for itself, and those that its code writes out.
fn imported_from_below(code: &str, module: &[String]) -> BTreeSet<Vec<String>> {
    let module = if module == ["lib"] { &[] } else { module };
    let mut found = BTreeSet::new();
    let (mut rest, mut uses) = (String::with_capacity(code.len()), Vec::new());
    let mut lines = code.lines();
    let mut children = BTreeSet::new();
    while let Some(line) = lines.next() {
        let (is_public, item) = match line.strip_prefix("pub") {
            // What is in the brackets is where it is visible.
            Some(item) => (true, item.split_once(") ").map_or(item, |(_, item)| item).trim_start()),
            None => (false, line),
        };
        if let Some(child) = item.strip_prefix("mod ").and_then(|item| item.strip_suffix(';')) {
            children.insert(child.to_owned());
        } else if item.starts_with("use ") {
            let mut item = item.to_owned();
            while !item.ends_with(';') {
                let Some(line) = lines.next() else { break };
                item.push_str(line.trim());
            }
            uses.push((is_public, item));
        } else {
            rest.push_str(line);
            rest.push('\n');
        }
    }
    for (is_public, item) in uses {
        for (name, path) in used(&item, module) {
            let is_below = path.get(module.len()).is_some_and(|child| children.contains(child));
            if path.starts_with(module) && is_below && (!is_public || has_word(&rest, &name)) {
                found.insert(path);
            }
        }
    }
    for child in &children {
        let head = format!("{child}::");
        for (at, _) in rest.match_indices(&head).filter(|(at, _)| !ends_in_path(&rest[..*at])) {
            let mut base = module.to_vec();
            let mut written = Vec::new();
            paths(&rest[at..], &mut base, &mut written);
            found.extend(written.into_iter().map(|(_, path)| path));
        }
    }
    found
}

/// Whether a text has that identifier.
fn has_word(text: &str, wanted: &str) -> bool {
    let is_part = |c: char| c == '_' || c.is_alphanumeric();
    text.match_indices(wanted)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + wanted.len()..].starts_with(is_part))
}

/// Whether what follows a text is not the first step of a path.
fn ends_in_path(text: &str) -> bool {
    text.strip_suffix("self::")
        .unwrap_or(text)
        .ends_with(|c: char| c == '_' || c == ':' || c == '.' || c.is_alphanumeric())
}

/// What follows `super::`, once or several times, and the module that it is below.
fn above<'t>(mut text: &'t str, module: &[String]) -> (&'t str, Vec<String>) {
    let mut length = module.len();
    while let Some(further) = text.strip_prefix("super::") {
        (text, length) = (further, length.saturating_sub(1));
    }
    (text, module[..length].to_vec())
}

/// The names that the code of a module has by way of a `use`, each with its path; globs have no name.
fn used(code: &str, module: &[String]) -> Vec<(String, Vec<String>)> {
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
    found
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
        found.push((String::new(), base.clone()));
        return rest;
    }
    if word.is_empty() {
        // Behind the last comma.
        return rest;
    }
    let is_own = word == "self";
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
