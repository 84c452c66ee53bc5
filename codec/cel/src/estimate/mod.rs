//! The maximum cost of an expression, from the sizes that the schema allows (cel-go `checker/cost.go`,
//! k8s.io/apiserver `pkg/cel/library/cost.go`). Which rules a definition may have depends on these numbers,
//! so they equal upstream's exactly, oddities included.

mod calls;
mod range;

use std::collections::HashMap;

use super::ast::{Bind, Comprehension, Element, Entry, Expr, Kind, Literal};
use super::check::{Checked, Name};
use super::cost::{LIST, MAP, SELECT, STRUCT};
use super::types::{DeclType, Type};

use self::range::{DataPath, EntrySizes, Range, UNKNOWN};

/// A variable of a comprehension.
struct Local {
    place: Option<DataPath>,
    size: Option<Range>,
    entries: Option<EntrySizes>,
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
    entries: HashMap<usize, EntrySizes>,
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
            Kind::List(elements) => self.list(expr, elements),
            Kind::Map(entries) => self.map(expr, entries),
            Kind::Struct(message) => {
                let start = Range::exactly(STRUCT);
                message.fields.iter().fold(start, |sum, init| sum.plus(self.cost(&init.value)))
            }
            Kind::Comprehension(comprehension) => self.comprehension(expr, comprehension),
            Kind::Bind(bind) => self.bind(expr, bind),
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

    fn list(&mut self, expr: &Expr, elements: &[Element]) -> Range {
        let mut sum = Range::exactly(0);
        let mut value = Range { min: if elements.is_empty() { 0 } else { u64::MAX }, max: 0 };
        for element in elements {
            sum = sum.plus(self.cost(&element.value));
            value = value.union(self.size_or_unknown(&element.value));
        }
        self.entries.insert(expr.id, EntrySizes { list: true, key: Range::exactly(1), value });
        sum.plus(Range::exactly(LIST))
    }

    fn map(&mut self, expr: &Expr, entries: &[Entry]) -> Range {
        let mut sum = Range::exactly(0);
        let none = Range { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
        let (mut key, mut value) = (none, none);
        for entry in entries {
            sum = sum.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
            key = key.union(self.size_or_unknown(&entry.key));
            value = value.union(self.size_or_unknown(&entry.value));
        }
        self.entries.insert(expr.id, EntrySizes { list: false, key, value });
        sum.plus(Range::exactly(MAP))
    }

    fn bind(&mut self, expr: &Expr, bind: &Bind) -> Range {
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

    fn entries_of(&self, expr: &Expr) -> Option<EntrySizes> {
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
            DataPath::At(declared) if !list => DataPath::Key(declared.key_bytes()),
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

    /// The size of a list's elements, if the schema bounds it.
    fn element_size(&self, list: &Expr) -> Option<Range> {
        self.place(list)?.element().size()
    }
}
