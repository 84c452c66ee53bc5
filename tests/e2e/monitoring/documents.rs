//! The rules and the dashboard of `docs/monitoring` ask for metrics that are served.

use std::collections::BTreeSet;

use serde_json::Value;

use super::documented;

/// Words of PromQL that look like names of metrics.
const WORDS: [&str; 22] = [
    "sum",
    "rate",
    "by",
    "le",
    "on",
    "and",
    "or",
    "unless",
    "max",
    "min",
    "avg",
    "count",
    "histogram_quantile",
    "increase",
    "clamp_min",
    "absent",
    "time",
    "ignoring",
    "without",
    "group_left",
    "deriv",
    "predict_linear",
];

/// The names of metrics in an expression: identifiers outside of braces, quotes and brackets, other than
/// functions and labels of a grouping.
fn metrics(expression: &str) -> BTreeSet<String> {
    let (mut names, mut word, mut depth, mut quoted) = (BTreeSet::new(), String::new(), 0, false);
    let mut grouping = false;
    for c in expression.chars().chain([' ']) {
        match c {
            '"' => quoted = !quoted,
            '{' | '[' if !quoted => depth += 1,
            '}' | ']' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 && !quoted && (c.is_ascii_alphanumeric() || c == '_' || c == ':') {
            word.push(c);
            continue;
        }
        let done = std::mem::take(&mut word);
        if matches!(done.as_str(), "by" | "on" | "ignoring" | "without" | "group_left") {
            grouping = true;
        } else if done.starts_with(|c: char| c.is_ascii_alphabetic()) && !WORDS.contains(&&*done) && !grouping
        {
            names.insert(done);
        }
        if c == ')' {
            grouping = false;
        }
    }
    names
}

/// Fails for a metric that `docs/metrics.md` does not say is served.
fn assert_served(expression: &str, recorded: &BTreeSet<String>, origin: &str) {
    let (upstreams, own) = documented();
    let is_served = |name: &str| {
        let is = |name: &str| {
            upstreams.iter().any(|row| row.name == name && row.served.starts_with("yes"))
                || own.iter().any(|row| row.name == name)
        };
        // What Prometheus itself adds to each target.
        let ends = ["_bucket", "_sum", "_count"];
        name == "up"
            || recorded.contains(name)
            || is(name)
            || ends.iter().any(|end| name.strip_suffix(end).is_some_and(is))
    };
    let found = metrics(expression);
    assert!(!found.is_empty(), "{origin}: {expression}");
    let absent: Vec<&String> = found.iter().filter(|name| !is_served(name)).collect();
    assert!(absent.is_empty(), "{origin}: {absent:?} in {expression}");
}

fn read(name: &str) -> String {
    let path = plinth_tests::package_dir().join("../docs/monitoring").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn names_of_metrics_are_found_in_expressions() {
    let rows = [
        ("up == 0", vec!["up"]),
        (r#"sum by (verb, le) (rate(a_bucket{code=~"5..",x="y"}[5m])) / b > 0.1"#, vec!["a_bucket", "b"]),
        ("histogram_quantile(0.99, x:y:rate5m)", vec!["x:y:rate5m"]),
    ];
    for (expression, expected) in rows {
        assert_eq!(metrics(expression).into_iter().collect::<Vec<_>>(), expected, "{expression}");
    }
}

#[test]
fn rules_ask_for_what_is_served() {
    let (rules, _) = plinth_codec::yaml::to_value(read("rules.yaml").as_bytes()).expect("YAML");
    let mut text = Vec::new();
    plinth_codec::json::write_untyped(&rules, &mut text);
    let rules: Value = serde_json::from_slice(&text).expect("JSON");
    let groups = rules["groups"].as_array().expect("groups");
    let rules: Vec<&Value> =
        groups.iter().flat_map(|group| group["rules"].as_array().expect("rules")).collect();
    let recorded: BTreeSet<String> =
        rules.iter().filter_map(|rule| rule["record"].as_str()).map(str::to_owned).collect();
    let mut alerts = 0;
    for rule in rules {
        let name = rule["alert"].as_str().or(rule["record"].as_str()).expect("a name");
        assert_served(rule["expr"].as_str().expect("an expression"), &recorded, name);
        if rule["alert"].is_string() {
            alerts += 1;
            assert!(rule["labels"]["severity"].is_string(), "{name}");
            let annotations = &rule["annotations"];
            assert!(annotations["summary"].is_string() && annotations["description"].is_string(), "{name}");
            let page = plinth_tests::package_dir().join("../docs/monitoring.md");
            let page = std::fs::read_to_string(page).expect("docs/monitoring.md");
            assert!(page.contains(&format!("`{name}`")), "docs/monitoring.md says what to do: {name}");
        }
    }
    assert!(alerts >= 8, "{alerts}");
}

#[test]
fn the_dashboard_asks_for_what_is_served() {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut targets = 0;
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().expect("a title");
        for target in panel["targets"].as_array().expect("targets") {
            targets += 1;
            let expression =
                target["expr"].as_str().expect("an expression").replace("$__rate_interval", "5m");
            assert_served(&expression, &BTreeSet::new(), title);
        }
    }
    assert!(targets >= 15, "{targets}");
    let ids: BTreeSet<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
}
