//! `docs/reference/metrics.md`, made from the families where they are declared. Tests only: the page is in
//! the repository, and a test compares. `PLINTH_WRITE_REFERENCE=1` writes it
//! (`cargo test --release -p plinth-apiserver reference`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use plinth_engine::{Engine, Options, Transaction};
use prometheus::core::Collector;
use prometheus::Registry;

use super::{engine, objects, process, write_room, Metrics};
use crate::audit::Counters;
use crate::flow_control::FlowMetrics;

/// A family, as it is declared.
#[derive(Debug, PartialEq)]
struct Family {
    kind: String,
    labels: BTreeSet<String>,
    help: String,
}

thread_local! {
    /// What `Families` has registered on this thread.
    static DECLARED: RefCell<BTreeMap<String, Family>> = const { RefCell::new(BTreeMap::new()) };
}

/// Remembers a family that is registered. A registry shows one with its first series only.
pub(super) fn note<C: Collector>(family: &C) {
    let labels = family.desc().iter().flat_map(|desc| desc.variable_labels.clone()).collect();
    let Some(collected) = family.collect().pop() else { return };
    let kind = format!("{:?}", collected.get_field_type()).to_lowercase();
    let declared = Family { kind, labels, help: collected.help().to_owned() };
    DECLARED.with_borrow_mut(|all| all.insert(collected.name().to_owned(), declared));
}

/// The families of a page in the text format.
fn of_text(text: &str, families: &mut BTreeMap<String, Family>) {
    let mut help = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').expect("name and help").1;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let family = Family { kind: kind.to_owned(), labels: BTreeSet::new(), help: help.to_owned() };
            families.insert(name.to_owned(), family);
        } else if let Some((name, labels)) = line.split_once('{') {
            let name = name.strip_suffix("_bucket").unwrap_or(name);
            let labels = labels.rsplit_once('}').expect("the end of the labels").0;
            // No value has a comma in it.
            let names = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
            let family = families.get_mut(name).expect("a type before the series");
            family.labels.extend(names.filter(|label| label != "le"));
        }
    }
}

/// Every family of this crate.
fn families() -> BTreeMap<String, Family> {
    Metrics::new().expect("names differ");
    Counters::new(&Registry::new()).expect("names differ");
    FlowMetrics::new(&Registry::new()).expect("names differ");
    let mut families = DECLARED.take();
    let dir = tempfile::tempdir().unwrap();
    let store = Engine::open(Options::new(dir.path())).unwrap();
    store.transact(Transaction::new().put("key", "value")).wait().unwrap();
    let mut stats = store.stats();
    stats.journal = Some(plinth_engine::JournalStats {
        applied: 0,
        is_up: true,
        append_micros: stats.sync_micros.clone(),
        end_micros: stats.sync_micros.clone(),
    });
    let mut out = Vec::new();
    objects::write(&BTreeMap::from([(("apps".to_owned(), "deployments".to_owned()), 1)]), &mut out);
    write_room(0, false, &mut out);
    engine::write(&stats, &mut out);
    process::write(&plinth_registry::VERSION_INFO, &mut out);
    of_text(&String::from_utf8(out).unwrap(), &mut families);
    families
}

#[test]
fn the_reference_of_metrics_is_current() {
    let mut page = "<!-- Made from the program: PLINTH_WRITE_REFERENCE=1 cargo test --release -p plinth-apiserver reference -->\n\
        # Reference of metrics\n\n\
        What `/metrics` and `/metrics/slis` of `plinth serve` have. Which of kube-apiserver's families are served, and \
        which are\nnot: [metrics](../metrics.md). Which to watch: [monitoring](../monitoring.md).\n\n\
        | metric | type | labels | meaning |\n|---|---|---|---|\n"
        .to_owned();
    for (name, Family { kind, labels, help }) in &families() {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let help = help.replace('|', "\\|").replace('<', "\\<");
        let _ = writeln!(page, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
        assert!(help.ends_with(['.', ')']) && !help.is_empty(), "{name}: {help:?} is a sentence");
        for (ending, unit) in [("_seconds", "second"), ("_bytes", "byte")] {
            let base = name.trim_end_matches("_total");
            let has_unit = !base.ends_with(ending) || help.to_lowercase().contains(unit);
            assert!(has_unit, "{name}: {help:?} names the unit");
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    if std::env::var_os("PLINTH_WRITE_REFERENCE").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let stored = fs::read_to_string(&file).unwrap_or_default();
    for (number, (stored, made)) in stored.lines().zip(page.lines()).enumerate() {
        assert_eq!(
            stored,
            made,
            "{}, line {}: run with PLINTH_WRITE_REFERENCE=1",
            file.display(),
            number + 1
        );
    }
    assert_eq!(stored.lines().count(), page.lines().count(), "{}: PLINTH_WRITE_REFERENCE=1", file.display());
}
