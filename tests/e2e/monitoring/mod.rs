//! What operators look at: metrics with their documents, pages for people, the log of requests.

mod documents;
mod families;
mod log;
mod pages;
mod requests;
mod traces;

use std::collections::{BTreeMap, BTreeSet};

use plinth_benches::api::client::{Call, Connection};

/// A family of a scrape: its type, the names of its labels, and its series with their values.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    labels: BTreeSet<String>,
    series: BTreeMap<String, f64>,
}

/// The families of a page in the Prometheus text format.
pub(crate) struct Scrape(BTreeMap<String, Family>);

impl Scrape {
    pub(crate) async fn of(connection: &mut Connection, path: &str) -> Scrape {
        let reply = connection.must(&Call::get(path)).await.expect(path);
        let content_type = reply.headers.get("content-type").and_then(|value| value.to_str().ok());
        assert_eq!(content_type, Some("text/plain; version=0.0.4; charset=utf-8"));
        Scrape::parse(&reply.text())
    }

    fn parse(text: &str) -> Scrape {
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                let (name, kind) = declared.split_once(' ').expect(line);
                let family = Family { kind: kind.to_owned(), ..Family::default() };
                assert!(families.insert(name.to_owned(), family).is_none(), "{name} is declared twice");
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').expect(line);
                let (name, labels) = series.split_once('{').unwrap_or((series, ""));
                let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
                    let base = name.strip_suffix(end)?;
                    families.get(base).filter(|family| family.kind == "histogram").map(|_| base)
                });
                let family = families.get_mut(of_histogram.unwrap_or(name)).expect(line);
                let names = labels.trim_end_matches('}').split("\",").filter_map(|label| {
                    label.split_once("=\"").map(|(name, _)| name.to_owned()).filter(|name| name != "le")
                });
                family.labels.extend(names);
                family.series.insert(series.to_owned(), value.parse().expect(line));
            }
        }
        Scrape(families)
    }

    /// The value of a series that has these labels, the others may be anything; 0 without one.
    pub(crate) fn value(&self, name: &str, labels: &[&str]) -> f64 {
        let family = name.strip_suffix("_count").unwrap_or(name);
        let Some(family) = self.0.get(family).or(self.0.get(name)) else { return 0.0 };
        let has = |series: &str| {
            series.split('{').next() == Some(name) && labels.iter().all(|label| series.contains(label))
        };
        family.series.iter().filter(|(series, _)| has(series)).map(|(_, value)| value).sum()
    }
}

/// A row of a table in `docs/metrics.md`.
struct Documented {
    name: String,
    kind: String,
    labels: BTreeSet<String>,
    /// `yes`, `yes, …` on a condition, `no: …`.
    served: String,
}

/// The tables of `docs/metrics.md`: upstream's families, then our own.
fn documented() -> (Vec<Documented>, Vec<Documented>) {
    let path = plinth_tests::package_dir().join("../docs/metrics.md");
    let text = std::fs::read_to_string(&path).expect("docs/metrics.md");
    let rows = |columns: usize| {
        let cells = |line: &str| -> Option<Vec<String>> {
            let cells: Vec<&str> = line.strip_prefix("| `")?.trim_end_matches('|').split('|').collect();
            (cells.len() == columns).then(|| cells.iter().map(|c| c.trim().to_owned()).collect())
        };
        let row = |cells: Vec<String>| Documented {
            name: cells[0].trim_end_matches('`').to_owned(),
            kind: cells[1].clone(),
            labels: cells[2].split(", ").filter(|l| !l.is_empty()).map(str::to_owned).collect(),
            served: match cells.len() {
                5 => cells[4].clone(),
                _ if cells[3].starts_with("of a replica") => "yes, of a replica".to_owned(),
                _ => "yes".to_owned(),
            },
        };
        text.lines().filter_map(cells).map(row).collect::<Vec<_>>()
    };
    (rows(5), rows(4))
}
