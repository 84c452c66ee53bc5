//! The maximum cost of an expression, from the sizes that the schema allows (cel-go `checker/cost.go`,
//! k8s.io/apiserver `pkg/cel/library/cost.go`). Which rules a definition may have depends on these numbers,
//! so they equal upstream's exactly, oddities included.

mod range;

use std::collections::HashMap;

use super::ast::{Call, Comprehension, Expr, Kind, Literal};
use super::check::{Checked, Name};
use super::cost::{selector, Cost, CHECK, LIST, LIST_CALL, MAP, REGEX_LENGTH, SELECT, STRUCT, TRAVERSAL};
use super::library::{Function, Overload};
use super::types::DeclType;
use super::types::{OpaqueType, Type};

use self::range::{DataPath, Entries, Range, UNKNOWN};

/// A variable of a comprehension.
struct Local {
    place: Option<DataPath>,
    size: Option<Range>,
    entries: Option<Entries>,
}

struct Estimator<'e> {
    checked: &'e Checked,
    /// The declaration in which the sizes of all variables are looked up. Upstream drops the first step of a
    /// path and resolves the rest here, even when the first step is not a variable: an element of a list that
    /// the expression created is taken for the root.
    root: Option<&'e DeclType>,
    locals: Vec<Local>,
    places: HashMap<usize, DataPath>,
    sizes: HashMap<usize, Range>,
    entries: HashMap<usize, Entries>,
}

/// The maximum cost of the expression.
pub(crate) fn estimate(expr: &Expr, checked: &Checked, root: Option<&DeclType>) -> u64 {
    let mut estimator = Estimator {
        checked,
        root,
        locals: Vec::new(),
        places: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    };
    estimator.cost(expr).max
}

impl Estimator<'_> {
    fn type_of(&self, expr: &Expr) -> &Type {
        &self.checked.types[expr.id]
    }

    fn cost(&mut self, expr: &Expr) -> Range {
        plinth_codec::value::level(|| self.cost_here(expr))
    }

    fn cost_here(&mut self, expr: &Expr) -> Range {
        match &expr.kind {
            Kind::Literal(_) => Range::exactly(0),
            Kind::Ident(_) => {
                self.name(expr);
                Range::exactly(SELECT)
            }
            // A name with dots is one variable or type.
            Kind::Select { test: false, .. } if self.checked.names[expr.id].is_some() => {
                self.name(expr);
                Range::exactly(SELECT)
            }
            Kind::Select { operand, test: true, .. } => self.cost(operand),
            Kind::Select { operand, field, .. } => {
                let mut sum = self.cost(operand);
                if matches!(self.type_of(operand), Type::Map(_) | Type::Object(_)) {
                    sum = sum.plus(Range::exactly(SELECT));
                }
                let place = self.step(operand, |place| place.field(field));
                self.places.insert(expr.id, place);
                sum
            }
            Kind::Call(call) => self.call(expr, call),
            Kind::List(elements) => {
                let mut sum = Range::exactly(0);
                let mut value = Range { min: if elements.is_empty() { 0 } else { u64::MAX }, max: 0 };
                for element in elements {
                    sum = sum.plus(self.cost(&element.value));
                    value = value.union(self.size_or_unknown(&element.value));
                }
                self.entries.insert(expr.id, Entries { list: true, key: Range::exactly(1), value });
                sum.plus(Range::exactly(LIST))
            }
            Kind::Map(entries) => {
                let mut sum = Range::exactly(0);
                let none = Range { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
                let (mut key, mut value) = (none, none);
                for entry in entries {
                    sum = sum.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                self.entries.insert(expr.id, Entries { list: false, key, value });
                sum.plus(Range::exactly(MAP))
            }
            Kind::Struct(message) => {
                let start = Range::exactly(STRUCT);
                message.fields.iter().fold(start, |sum, init| sum.plus(self.cost(&init.value)))
            }
            Kind::Comprehension(comprehension) => self.comprehension(expr, comprehension),
            Kind::Bind(bind) => {
                // The list that a binding iterates over in upstream's form.
                let mut sum = Range::exactly(LIST).plus(self.cost(&bind.value));
                let local = Local {
                    place: self.place(&bind.value),
                    size: self.size(&bind.value),
                    entries: self.entries_of(&bind.value),
                };
                self.locals.push(local);
                sum = sum.plus(self.cost(&bind.body));
                if let Some(size) = self.size(&bind.body) {
                    self.sizes.insert(expr.id, size);
                }
                if let Some(entries) = self.entries_of(&bind.body) {
                    self.entries.insert(expr.id, entries);
                }
                self.locals.pop();
                sum
            }
            Kind::OptMap(map) => {
                let target = self.cost(&map.target);
                let one = Range::exactly(1);
                let (value, _) = self.type_of(&map.target).unwrap_optional();
                let size = value.is_scalar().then_some(one);
                self.locals.push(Local { place: None, size, entries: None });
                let body = self.cost(&map.body);
                self.locals.pop();
                let bound = Range::exactly(LIST).plus(target).plus(one).plus(body);
                let some = if map.flat { bound } else { bound.plus(one) };
                target.plus(one).plus(some.union(one))
            }
        }
    }

    fn name(&mut self, expr: &Expr) {
        let place = match &self.checked.names[expr.id] {
            Some(Name::Variable(_) | Name::Type(_)) => self.first(),
            Some(Name::Local(i)) => match self.locals.get(*i).and_then(|local| local.place.clone()) {
                Some(place) => place,
                None => return,
            },
            None => return,
        };
        self.places.insert(expr.id, place);
    }

    fn first(&self) -> DataPath {
        self.root.cloned().map_or(DataPath::Unknown, DataPath::At)
    }

    /// The path one step below that of the expression.
    fn step(&self, expr: &Expr, further: impl Fn(&DataPath) -> DataPath) -> DataPath {
        self.place(expr).map_or_else(|| self.first(), |place| further(&place))
    }

    fn local(&self, expr: &Expr) -> Option<&Local> {
        match (&expr.kind, &self.checked.names[expr.id]) {
            (Kind::Ident(_), Some(Name::Local(i))) => self.locals.get(*i),
            _ => None,
        }
    }

    fn place(&self, expr: &Expr) -> Option<DataPath> {
        match self.local(expr) {
            Some(local) => local.place.clone(),
            None => self.places.get(&expr.id).cloned(),
        }
    }

    fn size(&mut self, expr: &Expr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        let written = match &expr.kind {
            Kind::Literal(Literal::String(s)) => Some(s.chars().count()),
            Kind::Literal(Literal::Bytes(b)) => Some(b.len()),
            Kind::Literal(_) => Some(1),
            Kind::List(elements) => Some(elements.len()),
            Kind::Map(entries) => Some(entries.len()),
            _ => None,
        };
        if let Some(size) = written {
            return Some(Range::exactly(size as u64));
        }
        if let Some(size) = self.place(expr).and_then(|place| place.size()) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if self.type_of(expr).is_scalar() {
            return Some(Range::exactly(1));
        }
        self.local(expr).and_then(|local| local.size)
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Range {
        self.size(expr).unwrap_or(UNKNOWN)
    }

    fn entries_of(&self, expr: &Expr) -> Option<Entries> {
        self.entries.get(&expr.id).copied().or_else(|| self.local(expr).and_then(|local| local.entries))
    }

    fn comprehension(&mut self, expr: &Expr, c: &Comprehension) -> Range {
        let mut sum = self.cost(&c.range).plus(self.cost(&c.init));
        let accumulator =
            Local { place: self.place(&c.init), size: self.size(&c.init), entries: self.entries_of(&c.init) };
        self.locals.push(accumulator);
        let entries = self.entries_of(&c.range);
        let list = match (&entries, self.type_of(&c.range)) {
            (Some(entries), _) => entries.list,
            (None, t) => matches!(t, Type::List(_)),
        };
        let key = self.step(&c.range, |range| match range {
            DataPath::At(_) if !list => DataPath::Key,
            _ => DataPath::Unknown,
        });
        let key = Local { place: Some(key), size: entries.map(|e| e.key), entries: None };
        let value = self.step(&c.range, DataPath::element);
        let value = Local { place: Some(value), size: entries.map(|e| e.value), entries: None };
        let pushed = match (&c.var2, list) {
            (Some(_), _) => {
                self.locals.push(key);
                self.locals.push(value);
                2
            }
            (None, list) => {
                self.locals.push(if list { value } else { key });
                1
            }
        };
        let step = self.cost(&c.condition).plus(self.cost(&c.step));
        // The entries of the last step are known while its variables are in scope.
        let step_entries = self.entries_of(&c.step);
        self.locals.truncate(self.locals.len() - pushed);
        sum = sum.plus(self.cost(&c.result));
        self.locals.pop();
        let count = self.size_or_unknown(&c.range);
        sum = sum.plus(count.times(step));
        match &c.init.kind {
            Kind::Literal(_) => {
                if let Some(size) = self.size(&c.init) {
                    self.sizes.insert(expr.id, size);
                }
            }
            Kind::List(_) | Kind::Map(_) => {
                self.sizes.insert(expr.id, count);
                if let Some(step_entries) = step_entries {
                    self.entries.insert(expr.id, step_entries);
                }
            }
            _ => {}
        }
        sum
    }

    fn call(&mut self, expr: &Expr, call: &Call) -> Range {
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
            Cost::Equality | Cost::Comparison => {
                let (a, b) = (arg(0)?, arg(1)?);
                if call.function.cost == Cost::Equality {
                    if let (Type::Opaque(x), Type::Opaque(y)) = (self.type_of(a), self.type_of(b)) {
                        return match (x == y, x) {
                            (true, OpaqueType::Format) => {
                                Some((Range { min: 1, max: 64 }.scaled(TRAVERSAL), None))
                            }
                            _ => None,
                        };
                    }
                }
                if !matches!(id, "equals" | "not_equals")
                    && !id.ends_with("_string")
                    && !id.ends_with("_bytes")
                {
                    return None;
                }
                let max = self.size_or_unknown(a).max.min(self.size_or_unknown(b).max);
                (Range { min: u64::from(max > 0), max }.scaled(TRAVERSAL), None)
            }
            Cost::Add => {
                if !matches!(id, "add_string" | "add_bytes" | "add_list") {
                    return None;
                }
                let (a, b) = (arg(0)?, arg(1)?);
                let size = self.size_or_unknown(a).plus(self.size_or_unknown(b));
                if let (Some(x), Some(y)) = (self.entries_of(a), self.entries_of(b)) {
                    self.entries.insert(call.expr.id, x.union(y));
                }
                let cost = if id == "add_list" { one } else { size.scaled(TRAVERSAL) };
                (cost, Some(size))
            }
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
            Cost::Matches | Cost::Find => {
                let size = self.size_or_unknown(call.target?);
                let text = size.plus(one).scaled(TRAVERSAL);
                let cost = text.times(self.size_or_unknown(arg(0)?).scaled(REGEX_LENGTH));
                let result_size =
                    (call.function.cost == Cost::Find).then_some(Range { min: 0, max: size.max });
                (cost, result_size)
            }
            Cost::Traverse => {
                let size = self.size_or_unknown(call.target.or_else(|| arg(0))?);
                (size.scaled(TRAVERSAL), Some(size))
            }
            Cost::Replace => {
                let text = self.size_or_unknown(call.target?);
                let result_size =
                    replaced(text, self.size_or_unknown(arg(0)?), self.size_or_unknown(arg(1)?));
                (text.scaled(2.0 * TRAVERSAL), Some(result_size))
            }
            Cost::Split => {
                let size = self.size_or_unknown(call.target?);
                let most = arg(1).and_then(literal_int).map_or(size.max, |n| n as u64);
                (size.scaled(2.0 * TRAVERSAL), Some(Range { min: 0, max: most }))
            }
            Cost::Join => {
                let list = call.target?;
                let count = self.size_or_unknown(list);
                let mut size = count.times(self.element_size(list).unwrap_or(UNKNOWN));
                if let Some(separator) = arg(0) {
                    let between =
                        Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                    size = size.plus(self.size_or_unknown(separator).times(between));
                }
                (size.scaled(TRAVERSAL), Some(size))
            }
            Cost::Search => {
                let target = call.target?;
                let size = self.size_or_unknown(target);
                let element = match self.type_of(target) {
                    Type::List(element) => Type::clone(element),
                    _ => return Some((size.scaled(TRAVERSAL), None)),
                };
                let mut each = one;
                if matches!(element, Type::String | Type::Bytes) {
                    each = each.plus(self.element_size(target).unwrap_or(UNKNOWN).scaled(TRAVERSAL));
                }
                (size.times(each), None)
            }
            Cost::Parse(_) if id == "cidr_ip" => return None,
            Cost::Parse(times) => (self.size_or_unknown(arg(0)?).scaled(f64::from(times) * TRAVERSAL), None),
            Cost::ContainsIp | Cost::ContainsCidr => {
                let address = Range { min: 4, max: 16 };
                let mut cost = address.plus(address).scaled(TRAVERSAL);
                if call.function.cost == Cost::ContainsCidr {
                    cost = cost.plus(address.scaled(TRAVERSAL)).plus(one);
                }
                if id.ends_with("_string") {
                    cost = cost.plus(self.size_or_unknown(arg(0)?).scaled(TRAVERSAL));
                }
                (cost, None)
            }
            Cost::Validate => {
                /// The longest regular expression of a format.
                const REGEX: f64 = 128.0;
                (self.size_or_unknown(arg(0)?).scaled(TRAVERSAL).scaled(REGEX * REGEX_LENGTH), None)
            }
            Cost::Slice => {
                let most = self.size_or_unknown(call.target?).max;
                let start = literal_size(arg(0)?, 0);
                made_list(1.0, Range::exactly(literal_size(arg(1)?, most).wrapping_sub(start)))
            }
            Cost::Flatten => {
                let depth = arg(0).map_or(1, |depth| literal_size(depth, u64::MAX));
                made_list(depth as f64, self.size_or_unknown(call.target?))
            }
            Cost::Range => made_list(1.0, Range::exactly(literal_size(arg(0)?, u64::MAX))),
            Cost::ListCopy => made_list(1.0, self.size_or_unknown(call.target?)),
            Cost::SelfCompare(which) => {
                let compared = if which == 0 { call.target? } else { arg(0)? };
                let size = self.size_or_unknown(compared);
                let texts = id.starts_with("list_string_") || id.starts_with("list_bytes_");
                made_list(if texts { 2.0 + TRAVERSAL } else { 2.0 }, size.times(size))
            }
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

    /// The size of a list's elements, if the schema bounds it.
    fn element_size(&self, list: &Expr) -> Option<Range> {
        self.place(list)?.element().size()
    }
}

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
    let (mut count, mut kept) = (Range::exactly(0), Range::exactly(0));
    if old.min == 0 {
        // The empty string is found around every character.
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if new.max <= old.min {
        kept.max = text.max;
    } else {
        count.max = (text.max as f64 / old.min as f64).ceil() as u64;
    }
    if old.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if old.max <= new.min {
        kept.min = text.min;
    } else {
        count.min = (text.min as f64 / old.max as f64).ceil() as u64;
    }
    count.times(new).plus(kept)
}
