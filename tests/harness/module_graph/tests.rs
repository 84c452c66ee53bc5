use super::imports::{code, imported};
use super::*;
use std::fs;

#[test]
fn paths_are_found() {
    let text = "use crate::{a::{self, b as z, i::*}, c};\nuse super::super::d;\nuse crate::e;\n// crate::f\n\
                use super::{\n    g,\n};\n#[cfg(test)]\nmod tests { use crate::h; }\n";
    let found = imported(&code(text), &["x".to_owned(), "y".to_owned()]);
    let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["a", "a::b", "a::i", "c", "d", "e", "x::g"]);
}

#[test]
fn only_items_of_tests_are_left_out() {
    let text = "a;\n#[cfg(test)]\nmod tests;\nb;\n    #[cfg(test)]\n    fn c() {\n        d;\n    }\ne;\n\
                #[cfg(test)]\n#[path = \"x.rs\"]\nmod f {\n    g;\n}\nh;\n\
                #[cfg(all(test, not(loom)))]\nmod i {\n    j;\n}\nk;\n";
    assert_eq!(code(text), "a;\nb;\ne;\nh;\nk;\n");
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
    assert_eq!(files.beside().cycles(), files.cycles());
    let modules = ModuleGraph::read(dir.path()).unwrap();
    assert_eq!(modules.cycles(), [["folder", "low"]]);
}

/// A folder's own file is part of a cycle where it has a use for what is in it, and that for what it defines:
/// not where it only declares and re-exports.
#[test]
fn cycles_with_the_folder_are_found() {
    let read = |own: &str, root: &str| {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        for (file, text) in [
            ("lib.rs", root),
            ("folder/mod.rs", own),
            ("folder/part.rs", "use super::Own;\npub(in crate::folder) struct Part(Own);\n"),
            ("top.rs", "use crate::{Root, folder};\n"),
        ] {
            fs::write(dir.path().join(file), text).unwrap();
        }
        ModuleGraph::read_files(dir.path()).unwrap()
    };
    const ROOT: &str = "mod folder;\nmod top;\npub use top::Top;\npub struct Root;\n";
    for own in [
        "mod part;\nuse part::Part;\npub struct Own(Box<Part>);\n",
        "mod part;\npub(crate) use self::part::{\n    Other, Part,\n};\npub struct Own(Box<Part>);\n",
        "pub mod part;\npub struct Own(Box<part::Part>);\n",
    ] {
        assert_eq!(read(own, ROOT).cycles(), [["folder", "folder::part"]], "{own}");
        assert!(read(own, ROOT).beside().cycles().is_empty(), "{own}");
    }
    for own in [
        "mod part;\npub use part::Part;\npub struct Own;\n",
        "mod part;\npub struct Own(other::part::Part);\n",
    ] {
        assert!(read(own, ROOT).cycles().is_empty(), "{own}");
        let root = format!("{ROOT}fn run(_: Top) {{}}\n");
        assert_eq!(read(own, &root).cycles(), [["lib", "top"]], "{own}");
    }
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
        let graph = ModuleGraph::read_files(&root.join(of)).expect(of).beside();
        assert_eq!(graph.cycles(), Vec::<Vec<&str>>::new(), "{of}");
        for (folder, graph) in graph.folders() {
            assert_eq!(graph.cycles(), Vec::<Vec<&str>>::new(), "{of}: {folder}");
        }
    }
}

/// Crates in which a folder's own file and those in it import each other, and how many files of the crate are
/// in such cycles. A number may only fall, and no crate may be added.
const FILES_IN_CYCLES: [(&str, usize); 1] = [
    // The types of a request, of the server and of what it is given name each other.
    ("server/apiserver/src", 4),
];

#[test]
fn files_in_cycles_with_their_folders_may_only_become_fewer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for of in ORDERED_CRATES {
        let graph = ModuleGraph::read_files(&root.join(of)).expect(of);
        let cycles = graph.cycles();
        let expected = FILES_IN_CYCLES.iter().find(|(listed, _)| *listed == of).map_or(0, |(_, most)| *most);
        assert_eq!(cycles.iter().map(Vec::len).sum::<usize>(), expected, "{of}: {cycles:#?}");
    }
    let graph = ModuleGraph::read_files(&root.join("server/apiserver/src")).expect("the request path");
    assert_eq!(
        graph.cycles(),
        [["context", "context::admission", "context::kind_handler", "context::server"]]
    );
}

/// The graph does not follow what a glob takes: a cycle could hide behind one.
#[test]
fn no_module_takes_all_names_of_another() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for of in ORDERED_CRATES {
        let graph = ModuleGraph::read_files(&root.join(of)).expect(of);
        assert_eq!(graph.globs(), Vec::<(&str, &str)>::new(), "{of}");
    }
}

/// Nor does it follow these.
#[test]
fn no_module_imports_without_a_path() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for of in ORDERED_CRATES {
        let graph = ModuleGraph::read_files(&root.join(of)).expect(of);
        assert_eq!(graph.unseen(), Vec::<(&str, &str)>::new(), "{of}");
    }
}

#[test]
fn imports_without_a_path_are_found() {
    let dir = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("lib.rs", "extern crate self as own;\n#[macro_use]\nmod high;\nmod low;\n"),
        ("low.rs", "use own::high::High;\n#[cfg(test)]\n#[macro_use]\nmod helpers;\n"),
        ("high.rs", "macro_rules! high {\n    () => {};\n}\n#[cfg(test)]\nmod tests;\n"),
        ("textual.rs", "macro_rules! above {\n    () => {};\n}\npub(crate) mod below;\n"),
        ("other.rs", "#[path = \"elsewhere.rs\"]\nmod place;\n"),
    ] {
        fs::write(dir.path().join(file), text).unwrap();
    }
    let graph = ModuleGraph::read_files(dir.path()).unwrap();
    let expected = [
        ("lib", "#[macro_use]"),
        ("lib", "extern crate self"),
        ("other", "#[path]"),
        ("textual", "macro_rules! before a module"),
    ];
    assert_eq!(graph.unseen(), expected);
}

/// An exported macro has its path at the crate's root, and belongs to the module that defines it.
#[test]
fn cycles_by_way_of_exported_macros_are_found() {
    let dir = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("lib.rs", "mod high;\nmod low;\n"),
        ("low.rs", "fn low() {\n    crate::high!();\n}\n"),
        ("high.rs", "use crate::low;\n#[macro_export]\nmacro_rules! high {\n    () => {};\n}\n"),
    ] {
        fs::write(dir.path().join(file), text).unwrap();
    }
    assert_eq!(ModuleGraph::read_files(dir.path()).unwrap().cycles(), [["high", "low"]]);
    assert_eq!(ModuleGraph::read(dir.path()).unwrap().cycles(), [["high", "low"]]);
}

/// Only what is called so as a whole: the names of other modules may have the word in them.
#[test]
fn files_of_tests_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["contests", "tests"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
    }
    for file in ["attests.rs", "contests/mod.rs", "low.rs", "low_tests.rs", "tests.rs", "tests/mod.rs"] {
        fs::write(dir.path().join(file), "").unwrap();
    }
    let graph = ModuleGraph::read_files(dir.path()).unwrap();
    assert_eq!(graph.imports.keys().collect::<Vec<_>>(), ["attests", "contests", "low"]);
}

#[test]
fn globs_of_modules_are_found() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("folder")).unwrap();
    for (file, text) in [
        ("lib.rs", "mod folder;\nmod low;\nmod root;\n"),
        ("low.rs", "pub enum Kind {}\nuse Kind::*;\nmod inline {}\npub use inline::*;\n"),
        ("root.rs", "use super::*;\n"),
        ("folder/mod.rs", "mod a;\nmod b;\nmod c;\npub use a::*;\nuse crate::low::Kind;\n"),
        ("folder/a.rs", "use crate::{folder::Kind::*, low::{self, *}};\n"),
        ("folder/b.rs", "fn b() {\n    use super::*;\n}\n"),
        ("folder/c.rs", "use other::prelude::*;\n#[cfg(test)]\nmod tests {\n    use super::*;\n}\n"),
    ] {
        fs::write(dir.path().join(file), text).unwrap();
    }
    let graph = ModuleGraph::read_files(dir.path()).unwrap();
    let expected = [("folder", "folder::a"), ("folder::a", "low"), ("folder::b", "folder"), ("root", "lib")];
    assert_eq!(graph.globs(), expected);
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
