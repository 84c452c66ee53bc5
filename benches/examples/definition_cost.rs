//! What CustomResourceDefinitions cost in memory and time: for each version of every definition below a
//! folder of manifests, the bytes of its compiled form (without allocator overhead) and the time to compile
//! it.
//!
//!     cargo run --release -p plinth-benches --example definition_cost -- MANIFESTS

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use plinth_codec::schema::GVK;
use plinth_codec::{json, yaml, Value};
use plinth_structural::{definition, StructuralSchema};

/// Number of compilations per measurement.
const TIMES: u32 = 20;

/// The system's allocator, counting what is in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to `System` unchanged; the counter is beside it and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer was returned by `alloc` above, and so by `System`, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn collect(folder: &std::path::Path, found: &mut Vec<(String, Value)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
            continue;
        }
        for document in std::fs::read_to_string(&path).unwrap_or_default().split("\n---") {
            let Ok((tree, _)) = yaml::to_value(document.as_bytes()) else { continue };
            if tree.str_at(&["kind"]) == Some("CustomResourceDefinition") {
                found.push((tree.str_at(&["metadata", "name"]).unwrap_or_default().to_owned(), tree));
            }
        }
    }
}

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "../shared/fixtures/manifests".to_owned());
    let mut all = Vec::new();
    collect(std::path::Path::new(&folder), &mut all);
    println!(
        "{:58} {:>9} {:>6} {:>8} {:>8} {:>9} {:>9}",
        "definition", "JSON KiB", "nodes", "KiB", "model", "compile", "check"
    );
    let (mut sum, mut models) = (0, 0);
    for (name, tree) in &all {
        let started = Instant::now();
        // A manifest has no status yet.
        let errors = definition::validate(tree).iter().filter(|f| !f.field.starts_with("status")).count();
        let check = started.elapsed();
        for version in tree.list_at(&["spec", "versions"]) {
            let Some(schema) = version.at(&["schema", "openAPIV3Schema"]) else { continue };
            let mut text = Vec::new();
            json::write_untyped(schema, &mut text);
            let mut nodes = 0;
            let (bytes, compile) = grown(|| {
                let compiled = StructuralSchema::compile(schema).expect("a valid definition");
                nodes = compiled.len();
                compiled
            });
            let compiled = StructuralSchema::compile(schema).expect("a valid definition");
            let (model, _) = grown(|| compiled.model(GVK::new("g", "v", "K")));
            sum += bytes;
            models += model;
            let name = format!("{name} {}", version.str_at(&["name"]).unwrap_or_default());
            println!(
                "{name:58} {:>9} {nodes:>6} {:>8.1} {:>8.1} {:>8}µ {:>8}µ{}",
                text.len() >> 10,
                bytes as f64 / 1024.0,
                model as f64 / 1024.0,
                compile.as_micros(),
                check.as_micros(),
                if errors > 0 { format!(" {errors} errors") } else { String::new() }
            );
        }
    }
    println!("together: {} KiB, models {} KiB", sum >> 10, models >> 10);
}

/// Bytes and time of building a value.
fn grown<T>(mut make: impl FnMut() -> T) -> (usize, Duration) {
    drop(make());
    let before = IN_USE.load(Ordering::Relaxed);
    let made = make();
    let bytes = IN_USE.load(Ordering::Relaxed).saturating_sub(before);
    drop(made);
    let started = Instant::now();
    (0..TIMES).for_each(|_| drop(make()));
    (bytes, started.elapsed() / TIMES)
}
