use super::super::rules::{compacted, path_covers_path};
use super::*;

/// `verbs groups resources [names]` or `verbs urls paths`, lists with commas; `core` is the core group.
fn rule(text: &str) -> PolicyRule {
    super::super::bootstrap::rule(text.split_ascii_whitespace())
}

#[test]
fn covering_by_table() {
    // held rules, wanted rules, what is missing in its short form
    let rows: &[(&[&str], &[&str], &[&str])] = &[
        (&["get core pods"], &["get core pods"], &[]),
        (&["get,list core pods"], &["get core pods"], &[]),
        (
            &["get core pods"],
            &["get,list,watch core pods"],
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}"#],
        ),
        (&["* * *"], &["* * *", "get core,apps pods,deployments/scale a,b"], &[]),
        (&["get core pods", "list core pods"], &["get,list core pods"], &[]),
        (&["get * pods"], &["get core,apps pods"], &[]),
        (&["get core pods"], &["get * pods"], &[r#"{APIGroups:["*"], Resources:["pods"], Verbs:["get"]}"#]),
        (&["get core *"], &["get core pods/log,pods"], &[]),
        (&["get apps */scale"], &["get apps deployments/scale"], &[]),
        (
            &["get apps */scale"],
            &["get apps deployments"],
            &[r#"{APIGroups:["apps"], Resources:["deployments"], Verbs:["get"]}"#],
        ),
        (&["get core pods"], &["get core pods a"], &[]),
        (
            &["get core pods a"],
            &["get core pods"],
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#],
        ),
        (&["get core pods a,b"], &["get core pods b"], &[]),
        (
            &["get core pods a"],
            &["get,list core pods a,b"],
            &[
                r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["list"]}"#,
                r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get" "list"]}"#,
            ],
        ),
        (&["get urls /api/*"], &["get urls /api/v1,/api/*"], &[]),
        (&["get urls *"], &["get urls /x*"], &[]),
        (
            &["get urls /api/*"],
            &["get,post urls /api/v1,/x"],
            &[
                r#"{NonResourceURLs:["/api/v1"], Verbs:["post"]}"#,
                r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#,
                r#"{NonResourceURLs:["/x"], Verbs:["post"]}"#,
            ],
        ),
        (&["* * *"], &["get urls /"], &[r#"{NonResourceURLs:["/"], Verbs:["get"]}"#]),
        (&["* urls *"], &["get core pods"], &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#]),
        (&[], &[], &[]),
    ];
    for (held, wanted, missing) in rows {
        let rules = |texts: &[&str]| texts.iter().map(|text| rule(text)).collect::<Vec<_>>();
        let (held, wanted) = (rules(held), rules(wanted));
        let found = uncovered(&held, &wanted, CoverageLimits::REQUEST).unwrap();
        assert!(!found.has_more);
        let mut found: Vec<String> = compacted(found.rules).iter().map(PolicyRule::compact).collect();
        found.sort_unstable();
        assert_eq!(found, *missing, "{held:?} {wanted:?}");
    }
}

fn many(prefix: &str, count: usize) -> Vec<SmolStr> {
    (0..count).map(|i| smol_str::format_smolstr!("{prefix}{i}")).collect()
}

/// A rule that stands for `count` to the power of four permissions.
fn product(count: usize) -> PolicyRule {
    PolicyRule {
        verbs: many("v", count),
        groups: many("g", count),
        resources: many("r", count),
        names: many("n", count),
        paths: Vec::new(),
    }
}

#[test]
fn products_are_not_built() {
    const LIMITS: CoverageLimits = CoverageLimits::REQUEST;
    let wanted = [product(3000)];
    // Nothing is held: as many as are reported.
    let missing = uncovered(&[], &wanted, LIMITS).unwrap();
    assert_eq!((missing.rules.len(), missing.has_more), (LIMITS.permissions, true));
    // All is held, by one rule, by one for each value of one list, or by somebody who may do everything.
    for held in [vec![product(3000)], vec![rule("* * *")]] {
        assert_eq!(uncovered(&held, &wanted, LIMITS), Ok(Uncovered::default()));
    }
    let by_group: Vec<PolicyRule> = product(300)
        .groups
        .iter()
        .map(|group| PolicyRule { groups: vec![group.clone()], ..product(300) })
        .collect();
    assert_eq!(uncovered(&by_group, &[product(300)], LIMITS), Ok(Uncovered::default()));
    // All but one of them.
    let last = PolicyRule { verbs: many("v", 299), groups: vec!["g299".into()], ..product(300) };
    let held: Vec<PolicyRule> = by_group[..299].iter().chain([&last]).cloned().collect();
    let wanted_names = PolicyRule { names: vec!["n1".into()], resources: vec!["r1".into()], ..product(300) };
    let missing = uncovered(&held, &[wanted_names], LIMITS).unwrap();
    assert_eq!(
        missing.rules.iter().map(PolicyRule::compact).collect::<Vec<_>>(),
        [r#"{APIGroups:["g299"], Resources:["r1"], ResourceNames:["n1"], Verbs:["v299"]}"#]
    );
    assert!(!missing.has_more);
}

#[test]
fn repeated_values_are_one_beyond_ordinary_sizes() {
    let repeat = |text: &str, count: usize| vec![SmolStr::new(text); count];
    let wanted = |count: usize| PolicyRule {
        groups: repeat("", count),
        resources: repeat("pods", count),
        verbs: repeat("get", 2),
        ..PolicyRule::default()
    };
    let found = |count: usize| {
        let missing = uncovered(&[], &[wanted(count)], CoverageLimits::REQUEST).unwrap();
        assert!(!missing.has_more);
        compacted(missing.rules).iter().map(PolicyRule::compact).collect::<Vec<_>>()
    };
    // As upstream.
    assert_eq!(found(1), [r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "get"]}"#]);
    assert_eq!(found(3000), [r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#]);
}

#[test]
fn steps_and_reported_text_are_bounded() {
    // Held rules that differ in every list: little is decided once for many values.
    let random = |seed: usize, prefix: &str| -> Vec<SmolStr> {
        let keep = |i: &usize| (i * 2_654_435_761 + seed * 40_503) % 1009 < 504;
        (0..60).filter(keep).map(|i| smol_str::format_smolstr!("{prefix}{i}")).collect()
    };
    let held: Vec<PolicyRule> = (0..400)
        .map(|i| PolicyRule {
            verbs: random(i, "v"),
            groups: random(i + 7, "g"),
            resources: random(i * 3, "r"),
            names: random(i * 5, "n"),
            paths: Vec::new(),
        })
        .collect();
    let by_verb = |verb: &SmolStr| PolicyRule { verbs: vec![verb.clone()], ..product(60) };
    let held: Vec<PolicyRule> = product(60).verbs.iter().map(by_verb).chain(held).collect();
    let limits = CoverageLimits { steps: 100_000, ..CoverageLimits::REQUEST };
    assert_eq!(uncovered(&held, &[product(60)], limits), Err(TooComplex));
    // What is found before the limit is reason enough to refuse.
    let missing = uncovered(&held, &[rule("get core pods"), product(60)], limits).unwrap();
    assert_eq!((missing.rules.len(), missing.has_more), (1, true));
    // A text of megabytes costs more: here it is looked up once for each group.
    let long = |prefix: &str| vec![SmolStr::new(prefix.repeat(1 << 20))];
    let by_group =
        |group: &SmolStr| PolicyRule { groups: vec![group.clone()], names: long("n1"), ..product(100) };
    let held: Vec<PolicyRule> = many("g", 100).iter().map(by_group).collect();
    let wanted = [PolicyRule { names: long("n1"), ..product(100) }];
    let steps = |steps: usize| CoverageLimits { steps, ..limits };
    assert_eq!(uncovered(&held, &wanted, steps(4 << 20)), Err(TooComplex));
    assert_eq!(uncovered(&held, &wanted, steps(8 << 20)), Ok(Uncovered::default()));
    // Large texts: one is reported whatever its size.
    let wanted = PolicyRule { verbs: long("v"), ..product(100) };
    let missing = uncovered(&[], &[wanted], CoverageLimits::REQUEST).unwrap();
    assert_eq!((missing.rules.len(), missing.has_more), (1, true));
}

/// What the lists stand for, one by one.
fn broken_down(rule: &PolicyRule) -> Vec<PolicyRule> {
    let names: Vec<Vec<SmolStr>> = match rule.names.is_empty() {
        true => vec![Vec::new()],
        false => rule.names.iter().map(|name| vec![name.clone()]).collect(),
    };
    let mut out = Vec::new();
    for group in &rule.groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                out.extend(names.iter().map(|names| PolicyRule {
                    verbs: vec![verb.clone()],
                    groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    names: names.clone(),
                    paths: Vec::new(),
                }));
            }
        }
    }
    for path in &rule.paths {
        out.extend(rule.verbs.iter().map(|verb| PolicyRule {
            verbs: vec![verb.clone()],
            paths: vec![path.clone()],
            ..PolicyRule::default()
        }));
    }
    out
}

/// Upstream's `ruleCovers`: whether a rule allows what `other`, a rule of one verb on one thing, does.
fn covers(rule: &PolicyRule, other: &PolicyRule) -> bool {
    let holds = |own: &[SmolStr], others: &[SmolStr]| others.iter().all(|text| own.contains(text));
    let holds_or_all =
        |own: &[SmolStr], others: &[SmolStr]| own.iter().any(|t| t == ALL) || holds(own, others);
    let covers_resource = |wanted: &SmolStr| {
        rule.resources.iter().any(|own| match wanted.split_once('/') {
            _ if own == ALL || own == wanted => true,
            Some((_, subresource)) => own.strip_prefix("*/") == Some(subresource),
            None => false,
        })
    };
    holds_or_all(&rule.verbs, &other.verbs)
        && holds_or_all(&rule.groups, &other.groups)
        && other.resources.iter().all(covers_resource)
        && other.paths.iter().all(|path| rule.paths.iter().any(|own| path_covers_path(own, path)))
        && (rule.names.is_empty() || (!other.names.is_empty() && holds(&rule.names, &other.names)))
}

#[test]
fn random_rules_are_compared_as_upstream_compares_them() {
    let mut seed = 11u32;
    let mut random = move |n: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) as usize % n
    };
    let mut pick = |from: &[&str], least: usize| -> Vec<SmolStr> {
        (0..least + random(3)).map(|_| SmolStr::new(from[random(from.len())])).collect()
    };
    let mut rules = |count: usize| -> Vec<PolicyRule> {
        (0..count)
            .map(|i| match i % 4 {
                0 => PolicyRule {
                    verbs: pick(&["get", "list", "*"], 1),
                    paths: pick(&["/a", "/a/*", "/a/b", "*", "/**"], 1),
                    ..PolicyRule::default()
                },
                _ => PolicyRule {
                    verbs: pick(&["get", "list", "watch", "update", "*"], 1),
                    groups: pick(&["", "apps", "batch", "*"], 1),
                    resources: pick(&["a", "b", "a/s", "b/s", "*/s", "*"], 1),
                    names: pick(&["x", "y", "*"], 0),
                    paths: Vec::new(),
                },
            })
            .collect()
    };
    let mut outcomes = HashSet::new();
    for _ in 0..3000 {
        let (held, wanted) = (rules(6), rules(2));
        let expected: Vec<PolicyRule> = wanted
            .iter()
            .flat_map(broken_down)
            .filter(|part| !held.iter().any(|rule| covers(rule, part)))
            .collect();
        let found = uncovered(&held, &wanted, CoverageLimits::NONE).unwrap();
        outcomes.insert(found.rules.is_empty());
        assert_eq!(found.rules, expected, "{held:?} {wanted:?}");
    }
    assert_eq!(outcomes.len(), 2);
}
