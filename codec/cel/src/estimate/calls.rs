//! The cost of calls, and the sizes of their results.

use super::range::{DataPath, Range, UNKNOWN};
use super::Estimator;
use crate::ast::{Call, Expr, Kind, Literal};
use crate::cost::{selector, Cost, CHECK, LIST_CALL, REGEX_LENGTH, TRAVERSAL};
use crate::library::{Function, Overload};
use crate::types::{OpaqueType, Type};

impl Estimator<'_> {
    pub(super) fn call(&mut self, expr: &Expr, call: &Call) -> Range {
        let checked = self.checked;
        let Some(resolved) = &checked.calls[expr.id] else { return Range::exactly(0) };
        if resolved.function.cost == Cost::Dyn {
            let Some(arg) = call.args.first() else { return Range::exactly(1) };
            let cost = self.cost(arg);
            if let Some(size) = self.size(arg) {
                self.sizes.insert(expr.id, size);
            }
            if let Some(entries) = self.entries_of(arg) {
                self.entries.insert(expr.id, entries);
            }
            return cost.plus(Range::exactly(1));
        }
        let costs: Vec<Range> = call.args.iter().map(|arg| self.cost(arg)).collect();
        let args: Vec<&Expr> = call.args.iter().collect();
        let target = call.target.as_deref().filter(|_| !resolved.namespaced);
        let before = target.map_or(Range::exactly(0), |target| self.cost(target));
        let mut total = Range { min: u64::MAX, max: 0 };
        let mut size: Option<Range> = None;
        for overload in &resolved.overloads {
            let call =
                CallSite { expr, function: resolved.function, overload, target, args: &args, costs: &costs };
            let (cost, result_size) = self.overload(&call);
            total = total.union(cost);
            size = match (size, result_size) {
                (Some(size), Some(result_size)) => Some(size.union(result_size)),
                (size, result_size) => size.or(result_size),
            };
            if let ("index_list" | "index_map", Some(container)) = (overload.id.as_str(), args.first()) {
                size = self.entries_of(container).map(|e| e.value);
                let place = self.step(container, DataPath::element);
                self.places.insert(expr.id, place);
            }
            if size.is_none() {
                size = self.size(expr);
            }
        }
        if let Some(size) = size {
            self.sizes.insert(expr.id, size);
        }
        before.plus(total)
    }

    /// Cost of one overload with its arguments, and the size of its result.
    fn overload(&mut self, call: &CallSite<'_>) -> (Range, Option<Range>) {
        let sum = call.costs.iter().fold(Range::exactly(0), |sum, cost| sum.plus(*cost));
        let one = Range::exactly(1);
        let (cost, size) = match call.function.cost {
            Cost::Logical => {
                let [left, right] = call.costs else { return (sum, None) };
                return (Range { min: left.min, max: left.plus(*right).max }, None);
            }
            Cost::Conditional => {
                let ([condition, yes, no], [_, a, b]) = (call.costs, call.args) else { return (sum, None) };
                let size = self.size_or_unknown(a).union(self.size_or_unknown(b));
                if let (Some(x), Some(y)) = (self.entries_of(a), self.entries_of(b)) {
                    self.entries.insert(call.expr.id, x.union(y));
                }
                return (condition.plus(yes.union(*no)), Some(size));
            }
            _ => self.own_cost(call).unwrap_or((one, None)),
        };
        (cost.plus(sum), size)
    }

    /// Without the arguments; `None` is 1.
    fn own_cost(&mut self, call: &CallSite<'_>) -> Option<(Range, Option<Range>)> {
        let one = Range::exactly(1);
        let arg = |i: usize| call.args.get(i).copied();
        let id = call.overload.id.as_str();
        Some(match call.function.cost {
            Cost::One | Cost::Dyn | Cost::Logical | Cost::Conditional => return None,
            Cost::Equality | Cost::Comparison => (self.comparison(call, arg(0)?, arg(1)?)?, None),
            Cost::Add => self.addition(call, arg(0)?, arg(1)?)?,
            Cost::In if id == "in_list" => (self.size_or_unknown(arg(1)?), None),
            Cost::In => return None,
            Cost::ToBytes if id == "string_to_bytes" => {
                let size = self.size_or_unknown(arg(0)?);
                let result_size = Range { min: size.min, max: size.max.saturating_mul(4) };
                (size.scaled(TRAVERSAL), Some(result_size))
            }
            Cost::ToString if id == "bytes_to_string" => {
                let size = self.size_or_unknown(arg(0)?);
                (size.scaled(TRAVERSAL), Some(Range { min: size.min / 4, max: size.max }))
            }
            Cost::ToBytes | Cost::ToString => return None,
            Cost::Affix => (self.size_or_unknown(arg(0)?).scaled(TRAVERSAL), None),
            Cost::Format => (self.size_or_unknown(call.target?).scaled(TRAVERSAL), None),
            Cost::Contains => {
                let text = self.size_or_unknown(call.target?).scaled(TRAVERSAL);
                (text.times(self.size_or_unknown(arg(0)?).scaled(TRAVERSAL)), None)
            }
            Cost::Matches => (self.search_by_regex(call.target?, arg(0)?), None),
            Cost::Find => {
                let max = self.size_or_unknown(call.target?).max;
                (self.search_by_regex(call.target?, arg(0)?), Some(Range { min: 0, max }))
            }
            Cost::Traverse => {
                let size = self.size_or_unknown(call.target.or_else(|| arg(0))?);
                (size.scaled(TRAVERSAL), Some(size))
            }
            Cost::Replace => self.replacement(call.target?, arg(0)?, arg(1)?),
            Cost::Split => {
                let size = self.size_or_unknown(call.target?);
                let most = arg(1).and_then(literal_int).map_or(size.max, |n| n as u64);
                (size.scaled(2.0 * TRAVERSAL), Some(Range { min: 0, max: most }))
            }
            Cost::Join => {
                let size = self.joined_size(call.target?, arg(0));
                (size.scaled(TRAVERSAL), Some(size))
            }
            Cost::Search => (self.search(call.target?), None),
            Cost::Parse(_) if id == "cidr_ip" => return None,
            Cost::Parse(times) => (self.size_or_unknown(arg(0)?).scaled(f64::from(times) * TRAVERSAL), None),
            Cost::ContainsIp => (self.containment(id, arg(0)?), None),
            Cost::ContainsCidr => {
                let address = ADDRESS.scaled(TRAVERSAL);
                (self.containment(id, arg(0)?).plus(address).plus(one), None)
            }
            Cost::Validate => {
                let text = self.size_or_unknown(arg(0)?).scaled(TRAVERSAL);
                (text.scaled(LONGEST_FORMAT * REGEX_LENGTH), None)
            }
            Cost::Slice => self.slice(call.target?, arg(0)?, arg(1)?),
            Cost::Flatten => {
                let depth = arg(0).map_or(1, |depth| literal_size(depth, u64::MAX));
                made_list(depth as f64, self.size_or_unknown(call.target?))
            }
            Cost::Range => made_list(1.0, Range::exactly(literal_size(arg(0)?, u64::MAX))),
            Cost::ListCopy => made_list(1.0, self.size_or_unknown(call.target?)),
            Cost::SelfCompare(0) => self.self_comparison(id, call.target?),
            Cost::SelfCompare(_) => self.self_comparison(id, arg(0)?),
            Cost::Check => (Range::exactly(CHECK), None),
            Cost::Selector => {
                let size = self.size_or_unknown(arg(0)?);
                (Range { min: selector(size.min), max: selector(size.max) }, None)
            }
            Cost::Sets(times) => {
                let size = self.size_or_unknown(arg(0)?).times(self.size_or_unknown(arg(1)?));
                (size.scaled(f64::from(times)).plus(one), None)
            }
        })
    }

    fn comparison(&mut self, call: &CallSite<'_>, a: &Expr, b: &Expr) -> Option<Range> {
        if call.function.cost == Cost::Equality {
            if let (Type::Opaque(x), Type::Opaque(y)) = (self.type_of(a), self.type_of(b)) {
                let formats = x == y && *x == OpaqueType::Format;
                return formats.then(|| Range { min: 1, max: 64 }.scaled(TRAVERSAL));
            }
        }
        let id = call.overload.id.as_str();
        if !matches!(id, "equals" | "not_equals") && !id.ends_with("_string") && !id.ends_with("_bytes") {
            return None;
        }
        let max = self.size_or_unknown(a).max.min(self.size_or_unknown(b).max);
        Some(Range { min: u64::from(max > 0), max }.scaled(TRAVERSAL))
    }

    fn addition(&mut self, call: &CallSite<'_>, a: &Expr, b: &Expr) -> Option<(Range, Option<Range>)> {
        let id = call.overload.id.as_str();
        if !matches!(id, "add_string" | "add_bytes" | "add_list") {
            return None;
        }
        let size = self.size_or_unknown(a).plus(self.size_or_unknown(b));
        if let (Some(x), Some(y)) = (self.entries_of(a), self.entries_of(b)) {
            self.entries.insert(call.expr.id, x.union(y));
        }
        let cost = if id == "add_list" { Range::exactly(1) } else { size.scaled(TRAVERSAL) };
        Some((cost, Some(size)))
    }

    fn search_by_regex(&mut self, text: &Expr, pattern: &Expr) -> Range {
        let text = self.size_or_unknown(text).plus(Range::exactly(1)).scaled(TRAVERSAL);
        text.times(self.size_or_unknown(pattern).scaled(REGEX_LENGTH))
    }

    fn replacement(&mut self, text: &Expr, old: &Expr, new: &Expr) -> (Range, Option<Range>) {
        let text = self.size_or_unknown(text);
        let result_size = replaced(text, self.size_or_unknown(old), self.size_or_unknown(new));
        (text.scaled(2.0 * TRAVERSAL), Some(result_size))
    }

    fn slice(&mut self, list: &Expr, start: &Expr, end: &Expr) -> (Range, Option<Range>) {
        let most = self.size_or_unknown(list).max;
        let size = literal_size(end, most).wrapping_sub(literal_size(start, 0));
        made_list(1.0, Range::exactly(size))
    }

    /// Comparing the elements of a list with each other.
    fn self_comparison(&mut self, overload: &str, list: &Expr) -> (Range, Option<Range>) {
        let size = self.size_or_unknown(list);
        let of_texts = overload.starts_with("list_string_") || overload.starts_with("list_bytes_");
        made_list(if of_texts { 2.0 + TRAVERSAL } else { 2.0 }, size.times(size))
    }

    /// The size of the texts of a list, joined.
    fn joined_size(&mut self, list: &Expr, separator: Option<&Expr>) -> Range {
        let count = self.size_or_unknown(list);
        let size = count.times(self.element_size(list).unwrap_or(UNKNOWN));
        let Some(separator) = separator else { return size };
        let between = Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
        size.plus(self.size_or_unknown(separator).times(between))
    }

    /// The cost of finding an element of a list, or a part of a text.
    fn search(&mut self, target: &Expr) -> Range {
        let size = self.size_or_unknown(target);
        let of_texts = match self.type_of(target) {
            Type::List(element) => matches!(**element, Type::String | Type::Bytes),
            _ => return size.scaled(TRAVERSAL),
        };
        let mut each = Range::exactly(1);
        if of_texts {
            each = each.plus(self.element_size(target).unwrap_or(UNKNOWN).scaled(TRAVERSAL));
        }
        size.times(each)
    }

    /// The cost of comparing an address with a network; it may be a text that is parsed first.
    fn containment(&mut self, overload: &str, address: &Expr) -> Range {
        let compared = ADDRESS.plus(ADDRESS).scaled(TRAVERSAL);
        match overload.ends_with("_string") {
            true => compared.plus(self.size_or_unknown(address).scaled(TRAVERSAL)),
            false => compared,
        }
    }
}

/// The size of the longest regular expression of a format.
const LONGEST_FORMAT: f64 = 128.0;

/// The size of an IP address in bytes.
const ADDRESS: Range = Range { min: 4, max: 16 };

/// One overload of a call.
struct CallSite<'c> {
    expr: &'c Expr,
    function: &'static Function,
    overload: &'static Overload,
    target: Option<&'c Expr>,
    args: &'c [&'c Expr],
    costs: &'c [Range],
}

fn made_list(factor: f64, size: Range) -> (Range, Option<Range>) {
    (size.scaled(factor).plus(Range::exactly(LIST_CALL)), Some(size))
}

fn literal_int(expr: &Expr) -> Option<i64> {
    match &expr.kind {
        Kind::Literal(Literal::Int(n)) => Some(*n),
        _ => None,
    }
}

fn literal_size(expr: &Expr, otherwise: u64) -> u64 {
    literal_int(expr).map_or(otherwise, |n| u64::try_from(n).unwrap_or(0))
}

/// The size after `replace`.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    // How many are replaced, and how much is kept; nothing is replaced where that makes the bound looser.
    let bound = |text: u64, old: u64, is_looser_unchanged: bool| match old {
        // The empty string is found around every character.
        0 => (text.saturating_add(1), text),
        _ if is_looser_unchanged => (0, text),
        old => ((text as f64 / old as f64).ceil() as u64, 0),
    };
    let (most, most_kept) = bound(text.max, old.min, new.max <= old.min);
    let (least, least_kept) = bound(text.min, old.max, old.max <= new.min);
    let (count, kept) = (Range { min: least, max: most }, Range { min: least_kept, max: most_kept });
    count.times(new).plus(kept)
}
