//! Computes which permissions of some rules are not covered by others.
//!
//! A rule stands for the product of its lists, and a request of a few kilobytes can contain one with billions
//! of elements. So the product is not expanded: the held rules are narrowed list by list to those that allow
//! a value, and values that lead to the same held rules are decided once. The remaining work is counted and
//! bounded by `CoverageLimits`.
//!
//! Upstream: kubernetes `pkg/apis/rbac/v1/evaluation_helpers.go` and `pkg/registry/rbac/validation/rule.go`
//! (`Covers`).

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use smol_str::SmolStr;

use super::rules::{PolicyRule, ALL};

/// Bounds of [`uncovered`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoverageLimits {
    /// Comparisons of a value with a held rule; those of long values cost more.
    pub steps: usize,
    /// Number of uncovered permissions that are returned.
    pub permissions: usize,
    /// Bytes of the uncovered permissions that are returned; one is returned whatever its size.
    pub bytes: usize,
}

impl CoverageLimits {
    /// For trusted rules.
    pub(crate) const NONE: CoverageLimits =
        CoverageLimits { steps: usize::MAX, permissions: usize::MAX, bytes: usize::MAX };

    /// For a request: a tenth of a second at most, and an error message of bearable length.
    pub(crate) const REQUEST: CoverageLimits =
        CoverageLimits { steps: 4 << 20, permissions: 4096, bytes: 256 << 10 };
}

/// Permissions that are not covered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uncovered {
    /// Rules of one verb on one target each, in upstream's order.
    pub rules: Vec<PolicyRule>,
    /// Whether there are more than the limits allow.
    pub has_more: bool,
}

/// The comparison exceeds its step limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooComplex;

/// The permissions in `wanted` that no rule of `held` covers; empty when all are covered.
///
/// # Errors
/// When it takes too many steps.
pub(crate) fn uncovered<'a>(
    held: impl IntoIterator<Item = &'a PolicyRule>,
    wanted: &'a [PolicyRule],
    limits: CoverageLimits,
) -> Result<Uncovered, TooComplex> {
    let mut out = Uncovered::default();
    match find(held, wanted, limits, &mut out) {
        // What was found is sufficient to refuse.
        Err(TooComplex) if !out.rules.is_empty() => out.has_more = true,
        outcome => outcome?,
    }
    Ok(out)
}

fn find<'a>(
    held: impl IntoIterator<Item = &'a PolicyRule>,
    wanted: &'a [PolicyRule],
    limits: CoverageLimits,
    out: &mut Uncovered,
) -> Result<(), TooComplex> {
    let mut steps = StepBudget(limits.steps);
    let held = HeldRules::index(held, &mut steps)?;
    let mut left = limits;
    for rule in wanted {
        for levels in [ListLevel::of_resources(rule, limits), ListLevel::of_paths(rule, limits)] {
            let is_empty = levels.iter().any(|level| level.values.is_empty());
            // Users who may do everything skip the search, however many other rules they hold.
            if is_empty || (held.has_everything && levels.len() == RESOURCE_LEVELS) {
                continue;
            }
            let mut search = Search::new(&held, levels, &mut steps);
            if search.covers(0, None)? {
                continue;
            }
            let permission = Vec::with_capacity(RESOURCE_LEVELS);
            search.collect(0, None, &mut Collector { left: &mut left, permission, out })?;
            if out.has_more {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Bytes of a value that are hashed and compared in the time of one more step.
const BYTES_PER_STEP: usize = 64;

/// The remaining steps.
struct StepBudget(usize);

impl StepBudget {
    fn take(&mut self, steps: usize) -> Result<(), TooComplex> {
        self.0 = self.0.checked_sub(steps).ok_or(TooComplex)?;
        Ok(())
    }
}

/// Indices of held rules, ascending.
type Numbers = Rc<[u32]>;

/// The held rules by the values of one of their lists.
#[derive(Default)]
struct RulesByValue<'a> {
    /// Rules that allow every value.
    all: Vec<u32>,
    by_value: HashMap<&'a str, Vec<u32>>,
}

impl<'a> RulesByValue<'a> {
    fn add(&mut self, values: &'a [SmolStr], number: u32, has_wildcard: bool) {
        for value in values {
            let list = match has_wildcard && value == ALL {
                true => &mut self.all,
                false => self.by_value.entry(value).or_default(),
            };
            if list.last() != Some(&number) {
                list.push(number);
            }
        }
    }

    fn of(&self, value: &str) -> &[u32] {
        self.by_value.get(value).map_or(&[], Vec::as_slice)
    }
}

/// Index of the held rules.
#[derive(Default)]
struct HeldRules<'a> {
    verbs: RulesByValue<'a>,
    groups: RulesByValue<'a>,
    resources: RulesByValue<'a>,
    /// A rule without names allows all; `*` is not a wildcard in names.
    names: RulesByValue<'a>,
    paths: RulesByValue<'a>,
    /// Path prefixes, from paths that end with `*`.
    path_prefixes: Vec<(&'a str, u32)>,
    /// Whether a single rule allows every verb on every resource.
    has_everything: bool,
}

impl<'a> HeldRules<'a> {
    fn index(
        rules: impl IntoIterator<Item = &'a PolicyRule>,
        steps: &mut StepBudget,
    ) -> Result<HeldRules<'a>, TooComplex> {
        let rules: Vec<&PolicyRule> = rules.into_iter().collect();
        let all = |list: &[SmolStr]| list.iter().any(|value| value == ALL);
        let everything = |rule: &&PolicyRule| {
            rule.names.is_empty() && all(&rule.verbs) && all(&rule.groups) && all(&rule.resources)
        };
        let mut held = HeldRules { has_everything: rules.iter().any(everything), ..HeldRules::default() };
        // Rules on paths are few; those on resources are not needed in that case.
        let needed = rules.into_iter().filter(|rule| !held.has_everything || !rule.paths.is_empty());
        for (number, rule) in (0u32..).zip(needed.collect::<Vec<_>>()) {
            steps.take(rule.len() + rule.bytes() / BYTES_PER_STEP)?;
            held.verbs.add(&rule.verbs, number, true);
            held.groups.add(&rule.groups, number, true);
            held.resources.add(&rule.resources, number, true);
            held.names.add(&rule.names, number, false);
            if rule.names.is_empty() {
                held.names.all.push(number);
            }
            held.paths.add(&rule.paths, number, false);
            let prefixes = rule.paths.iter().filter(|path| path.ends_with('*'));
            held.path_prefixes.extend(prefixes.map(|path| (path.trim_end_matches('*'), number)));
        }
        Ok(held)
    }
}

/// Number of lists that make up a permission on a resource.
const RESOURCE_LEVELS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Verbs,
    Groups,
    Resources,
    Names,
    Paths,
}

/// One list of a wanted rule.
struct ListLevel<'a> {
    list: List,
    /// `None` means any name.
    values: Vec<Option<&'a SmolStr>>,
}

impl<'a> ListLevel<'a> {
    fn of_resources(rule: &'a PolicyRule, limits: CoverageLimits) -> Vec<ListLevel<'a>> {
        let mut levels = vec![
            ListLevel::of(List::Groups, &rule.groups),
            ListLevel::of(List::Resources, &rule.resources),
            ListLevel::of(List::Verbs, &rule.verbs),
            ListLevel::of(List::Names, &rule.names),
        ];
        if rule.names.is_empty() {
            levels[3].values.push(None);
        }
        without_repetitions(levels, limits)
    }

    fn of_paths(rule: &'a PolicyRule, limits: CoverageLimits) -> Vec<ListLevel<'a>> {
        let any_name = ListLevel { list: List::Names, values: vec![None] };
        let levels =
            vec![ListLevel::of(List::Paths, &rule.paths), ListLevel::of(List::Verbs, &rule.verbs), any_name];
        without_repetitions(levels, limits)
    }

    fn of(list: List, values: &'a [SmolStr]) -> ListLevel<'a> {
        ListLevel { list, values: values.iter().map(Some).collect() }
    }
}

/// Removes duplicates from the lists of large rules. Others keep them: upstream's messages repeat them.
fn without_repetitions<'a>(mut levels: Vec<ListLevel<'a>>, limits: CoverageLimits) -> Vec<ListLevel<'a>> {
    let size = levels.iter().fold(1usize, |size, level| size.saturating_mul(level.values.len()));
    if size > limits.permissions {
        for level in &mut levels {
            let mut seen = HashSet::with_capacity(level.values.len());
            level.values.retain(|value| seen.insert(*value));
        }
    }
    levels
}

/// The search for one wanted rule.
struct Search<'h, 's, 'a> {
    held: &'h HeldRules<'a>,
    levels: Vec<ListLevel<'a>>,
    /// By level: whether a set of held rules covers all combinations of the lists from there on.
    decided: Vec<HashMap<Numbers, bool>>,
    steps: &'s mut StepBudget,
}

impl<'h, 's, 'a> Search<'h, 's, 'a> {
    fn new(
        held: &'h HeldRules<'a>,
        levels: Vec<ListLevel<'a>>,
        steps: &'s mut StepBudget,
    ) -> Search<'h, 's, 'a> {
        let decided = levels.iter().map(|_| HashMap::new()).collect();
        Search { held, levels, decided, steps }
    }

    /// Whether the held rules of these indices cover all combinations of the lists from `level` on. `None`:
    /// all held rules.
    fn covers(&mut self, level: usize, numbers: Option<&Numbers>) -> Result<bool, TooComplex> {
        if let Some(numbers) = numbers {
            if numbers.is_empty() || level == self.levels.len() {
                return Ok(!numbers.is_empty());
            }
            self.steps.take(numbers.len())?;
            if let Some(decided) = self.decided[level].get(numbers) {
                return Ok(*decided);
            }
        }
        let mut covers = true;
        for at in 0..self.levels[level].values.len() {
            let narrowed = self.narrow(level, at, numbers)?;
            if !self.covers(level + 1, Some(&narrowed))? {
                covers = false;
                break;
            }
        }
        if let Some(numbers) = numbers {
            self.decided[level].insert(numbers.clone(), covers);
        }
        Ok(covers)
    }

    /// The subset of held rules that also allow a value of a list.
    fn narrow(&mut self, level: usize, at: usize, numbers: Option<&Numbers>) -> Result<Numbers, TooComplex> {
        self.steps.take(1)?;
        if numbers.is_some_and(|numbers| numbers.is_empty()) {
            return Ok(Numbers::default());
        }
        let ListLevel { list, values } = &self.levels[level];
        let value = values[at].map(SmolStr::as_str);
        // Values of megabytes take long to hash and compare.
        let cost = value.map_or(0, str::len) / BYTES_PER_STEP;
        self.steps.take(cost)?;
        let held = self.held;
        let by_value = match list {
            List::Verbs => &held.verbs,
            List::Groups => &held.groups,
            List::Resources => &held.resources,
            List::Names => &held.names,
            List::Paths => &held.paths,
        };
        let subresource = value.and_then(|value| value.split_once('/')).map(|(_, subresource)| subresource);
        let of_every_resource = match (list, subresource) {
            (List::Resources, Some(subresource)) => by_value.of(&format!("{ALL}/{subresource}")),
            _ => &[],
        };
        let prefixed: Vec<u32> = match (list, value) {
            (List::Paths, Some(path)) => {
                self.steps.take(held.path_prefixes.len().saturating_mul(1 + cost))?;
                let covering = held.path_prefixes.iter().filter(|(prefix, _)| path.starts_with(prefix));
                covering.map(|(_, number)| *number).collect()
            }
            _ => Vec::new(),
        };
        let of_value = value.map_or(&[][..], |value| by_value.of(value));
        let lists = [&by_value.all, of_value, of_every_resource, &prefixed];
        let size: usize = lists.iter().map(|list| list.len()).sum();
        let mut narrowed: Vec<u32> = match numbers {
            Some(numbers) if numbers.len() <= size => {
                self.steps.take(numbers.len())?;
                let is_in = |number: &u32| lists.iter().any(|list| list.binary_search(number).is_ok());
                return Ok(numbers.iter().copied().filter(is_in).collect());
            }
            Some(numbers) => {
                self.steps.take(size)?;
                let all = lists.iter().copied().flatten().copied();
                all.filter(|number| numbers.binary_search(number).is_ok()).collect()
            }
            None => {
                self.steps.take(size)?;
                lists.iter().copied().flatten().copied().collect()
            }
        };
        narrowed.sort_unstable();
        narrowed.dedup();
        Ok(narrowed.into())
    }

    /// Appends the uncovered permissions.
    fn collect(
        &mut self,
        level: usize,
        numbers: Option<&Numbers>,
        collector: &mut Collector<'_, 'a>,
    ) -> Result<(), TooComplex> {
        if collector.out.has_more || self.covers(level, numbers)? {
            return Ok(());
        }
        if level == self.levels.len() {
            collector.add(&self.levels);
            return Ok(());
        }
        for at in 0..self.levels[level].values.len() {
            let narrowed = self.narrow(level, at, numbers)?;
            collector.permission.push(self.levels[level].values[at]);
            self.collect(level + 1, Some(&narrowed), collector)?;
            collector.permission.pop();
            if collector.out.has_more {
                break;
            }
        }
        Ok(())
    }
}

/// Collects uncovered permissions.
struct Collector<'o, 'a> {
    /// Remaining limits.
    left: &'o mut CoverageLimits,
    /// The values of the current permission, one per list.
    permission: Vec<Option<&'a SmolStr>>,
    out: &'o mut Uncovered,
}

impl Collector<'_, '_> {
    fn add(&mut self, levels: &[ListLevel<'_>]) {
        let size: usize = self.permission.iter().flatten().map(|value| value.len()).sum();
        let is_first = self.out.rules.is_empty();
        if !is_first && (self.left.permissions == 0 || self.left.bytes < size) {
            self.out.has_more = true;
            return;
        }
        self.left.permissions = self.left.permissions.saturating_sub(1);
        self.left.bytes = self.left.bytes.saturating_sub(size);
        let mut rule = PolicyRule::default();
        for (level, value) in levels.iter().zip(&self.permission) {
            let list = match level.list {
                List::Verbs => &mut rule.verbs,
                List::Groups => &mut rule.groups,
                List::Resources => &mut rule.resources,
                List::Names => &mut rule.names,
                List::Paths => &mut rule.paths,
            };
            list.extend(value.cloned());
        }
        self.out.rules.push(rule);
    }
}

#[cfg(test)]
mod tests;
