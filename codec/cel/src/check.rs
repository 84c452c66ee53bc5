//! The type checker (cel-go `checker/checker.go`): every expression gets a type, every call its overloads.

use smol_str::SmolStr;

use super::ast::{
    Call, Comprehension, Element, Entry, Expr, FieldInit, Kind, Literal, OptMap, Struct, ACCUMULATOR,
};
use super::library::{self, Function, Overload, TYPE_NAMES};
use super::message::{self, MessageTypes};
use super::parse::{Issue, Tree};
use super::types::{most_general, Bindings, Type, PARAMS};

/// The result of the checker, by expression id.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) types: Vec<Type>,
    pub(crate) calls: Vec<Option<ResolvedCall>>,
    /// What an identifier or a chain of selections resolves to.
    pub(crate) names: Vec<Option<Name>>,
}

/// The function that a call calls.
#[derive(Debug)]
pub(crate) struct ResolvedCall {
    pub(crate) function: &'static Function,
    pub(crate) overloads: Vec<&'static Overload>,
    /// Whether the receiver is part of the function's name: `optional.of(x)`.
    pub(crate) namespaced: bool,
}

/// What a name resolves to.
#[derive(Clone, Debug)]
pub(crate) enum Name {
    /// A variable of the caller, by its number.
    Variable(usize),
    /// A variable of a comprehension, by its depth on the stack.
    Local(usize),
    Type(SmolStr),
}

/// Checks a tree. `variables` are the names that the caller declares, `messages` the message types that can
/// be constructed.
pub(crate) fn check(
    tree: &Tree,
    variables: &[(&str, Type)],
    messages: MessageTypes,
) -> Result<Checked, Vec<Issue>> {
    let mut checker = Checker {
        variables,
        messages,
        locals: Vec::new(),
        bindings: Bindings::default(),
        issues: Vec::new(),
        checked: Checked {
            types: vec![Type::Error; tree.ids],
            calls: (0..tree.ids).map(|_| None).collect(),
            names: vec![None; tree.ids],
        },
    };
    checker.check(&tree.root);
    let Checker { bindings, mut issues, mut checked, .. } = checker;
    for t in &mut checked.types {
        *t = bindings.substitute(t, true);
    }
    if issues.is_empty() {
        validate(&tree.root, &checked, false, &mut issues);
    }
    if !issues.is_empty() {
        issues.sort_by_key(|issue| issue.offset);
        return Err(issues);
    }
    Ok(checked)
}

struct Checker<'c> {
    variables: &'c [(&'c str, Type)],
    messages: MessageTypes,
    locals: Vec<(SmolStr, Type)>,
    bindings: Bindings,
    issues: Vec<Issue>,
    checked: Checked,
}

impl Checker<'_> {
    fn issue(&mut self, at: &Expr, message: String) {
        /// Maximum number of errors that are reported.
        const MOST: usize = 100;
        if self.issues.len() < MOST {
            self.issues.push(Issue { offset: at.offset, message });
        }
    }

    fn type_of(&self, expr: &Expr) -> Type {
        self.checked.types[expr.id].clone()
    }

    fn substituted(&self, t: &Type) -> Type {
        self.bindings.substitute(t, false)
    }

    fn mismatch(&mut self, at: &Expr, expected: &Type, found: &Type) {
        let (expected, found) = (self.with_dyn(expected), self.with_dyn(found));
        self.issue(at, format!("expected type '{expected}' but found '{found}'"));
    }

    fn with_dyn(&self, t: &Type) -> Type {
        self.bindings.substitute(t, true)
    }

    fn check(&mut self, expr: &Expr) {
        let t = plinth_codec::value::level(|| self.find_type(expr));
        self.checked.types[expr.id] = t;
    }

    fn find_type(&mut self, expr: &Expr) -> Type {
        match &expr.kind {
            Kind::Literal(literal) => literal_type(literal),
            Kind::Ident(name) => match self.lookup(expr, name) {
                Some(t) => t,
                None => {
                    self.issue(expr, format!("undeclared reference to '{name}' (in container '')"));
                    Type::Error
                }
            },
            Kind::Select { operand, field, test } => {
                if !test {
                    if let Some(t) = expr.qualified_name().and_then(|name| self.lookup_qualified(expr, &name))
                    {
                        return t;
                    }
                }
                let t = self.select(expr, operand, field, false);
                if let (true, Some(prefix)) = (*test, operand.qualified_name()) {
                    self.name_variable(expr, &format!("{prefix}.{field}"));
                }
                match test {
                    true => Type::Bool,
                    false => self.substituted(&t),
                }
            }
            Kind::Call(call) if call.function == "_?._" => self.optional_select(expr, call),
            Kind::Call(call) => self.call(expr, call),
            Kind::List(elements) => self.list(elements),
            Kind::Map(entries) => self.map(entries),
            Kind::Struct(message) => self.make(expr, message),
            Kind::Comprehension(comprehension) => self.comprehension(comprehension),
            Kind::Bind(bind) => {
                self.check(&bind.value);
                let t = self.type_of(&bind.value);
                self.locals.push((bind.name.clone(), t));
                self.check(&bind.body);
                self.locals.pop();
                self.type_of(&bind.body)
            }
            Kind::OptMap(map) => self.opt_map(expr, map),
        }
    }

    fn list(&mut self, elements: &[Element]) -> Type {
        let mut joined = None;
        for element in elements {
            self.check(&element.value);
            let t = self.element_type(&element.value, element.optional);
            joined = Some(self.join(joined, t));
        }
        Type::list(joined.unwrap_or_else(|| self.bindings.fresh()))
    }

    fn map(&mut self, entries: &[Entry]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.check(&entry.key);
            let t = self.type_of(&entry.key);
            keys = Some(self.join(keys, t));
            self.check(&entry.value);
            let t = self.element_type(&entry.value, entry.optional);
            values = Some(self.join(values, t));
        }
        let key = keys.unwrap_or_else(|| self.bindings.fresh());
        Type::map(key, values.unwrap_or_else(|| self.bindings.fresh()))
    }

    /// `optMap` and `optFlatMap`.
    fn opt_map(&mut self, expr: &Expr, map: &OptMap) -> Type {
        self.check(&map.target);
        let target = self.type_of(&map.target);
        let value = self.bindings.fresh();
        if !self.bindings.assign(&target, &Type::optional(value.clone())) {
            let signature = format!("{}.()", self.with_dyn(&target));
            self.issue(expr, format!("found no matching overload for 'hasValue' applied to '{signature}'"));
        }
        let value = self.substituted(&value);
        self.locals.push((map.name.clone(), value));
        self.check(&map.body);
        self.locals.pop();
        let body = self.type_of(&map.body);
        if !map.flat {
            return Type::optional(body);
        }
        let wanted = Type::optional(self.bindings.fresh());
        if !self.bindings.assign(&body, &wanted) {
            let arguments = format!("(bool, {}, optional_type(dyn))", self.with_dyn(&body));
            self.issue(expr, format!("found no matching overload for '_?_:_' applied to '{arguments}'"));
            return Type::Error;
        }
        self.substituted(&wanted)
    }

    /// `Name{field: value}`.
    fn make(&mut self, expr: &Expr, message: &Struct) -> Type {
        let name = &message.name;
        let known = self.messages.has(name);
        if !known && !TYPE_NAMES.contains(&name.as_str()) {
            return self.undeclared(expr, name);
        }
        if !known {
            self.issue(expr, format!("'{name}' is not a message type"));
        }
        for init in &message.fields {
            self.check(&init.value);
            self.assign_field(name, known, init);
        }
        match known {
            true => Type::Message(name.clone()),
            false => Type::Error,
        }
    }

    fn assign_field(&mut self, name: &str, known: bool, init: &FieldInit) {
        let t = self.element_type(&init.value, init.optional);
        let field = &init.field;
        let why = match message::field_type(name, field).filter(|_| known) {
            Some(wanted) if self.bindings.assign(&wanted, &t) => return,
            Some(wanted) => format!(
                "expected type of field '{field}' is '{wanted}' but provided type is '{}'",
                self.with_dyn(&t)
            ),
            None => format!("undefined field '{field}'"),
        };
        self.issues.push(Issue { offset: init.offset, message: why });
    }

    /// The type of an element; of an optional one, the type inside.
    fn element_type(&mut self, value: &Expr, optional: bool) -> Type {
        let t = self.type_of(value);
        if !optional {
            return t;
        }
        let (inner, is_optional) = t.unwrap_optional();
        if !is_optional && !inner.is_dyn_or_error() {
            self.mismatch(value, &Type::optional(inner.clone()), &t);
        }
        inner
    }

    /// The type of elements of both types. Literals of mixed types are refused by [`validate`].
    fn join(&mut self, before: Option<Type>, t: Type) -> Type {
        match before {
            None => t,
            Some(before) if self.bindings.assign(&before, &t) => most_general(&before, &t),
            Some(_) => Type::Dyn,
        }
    }

    fn lookup(&mut self, expr: &Expr, name: &str) -> Option<Type> {
        if let Some(i) = self.locals.iter().rposition(|(local, _)| local == name) {
            self.checked.names[expr.id] = Some(Name::Local(i));
            return Some(self.locals[i].1.clone());
        }
        self.lookup_qualified(expr, name)
    }

    fn lookup_qualified(&mut self, expr: &Expr, name: &str) -> Option<Type> {
        let root = name.split('.').next().unwrap_or_default();
        if name.contains('.') && self.locals.iter().any(|(local, _)| local == root) {
            return None;
        }
        if let Some(i) = self.name_variable(expr, name) {
            return Some(self.variables[i].1.clone());
        }
        let name = TYPE_NAMES.iter().find(|t| **t == name)?;
        self.checked.names[expr.id] = Some(Name::Type(SmolStr::new_static(name)));
        Some(Type::Kind)
    }

    /// Records which variable of the caller an expression refers to. Of variables with one name the last one
    /// counts.
    fn name_variable(&mut self, expr: &Expr, name: &str) -> Option<usize> {
        let i = self.variables.iter().rposition(|(variable, _)| *variable == name)?;
        self.checked.names[expr.id] = Some(Name::Variable(i));
        Some(i)
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand = self.substituted(&self.type_of(operand));
        let (target, is_optional) = operand.unwrap_optional();
        let result = match &target {
            Type::Map(both) => both.1.clone(),
            Type::Object(declared) => match declared.field(field) {
                Some(field) => field.declared.to_type(),
                None => {
                    self.issue(expr, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Param(_) => {
                self.bindings.assign(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Message(name) => match message::field_type(name, field) {
                Some(t) => t,
                None => {
                    self.issue(expr, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            t if t.is_dyn_or_error() => Type::Dyn,
            // Upstream declares those of its own as objects without fields, those of `net` as opaque.
            Type::Opaque(opaque) if opaque.name().starts_with("kubernetes.") => {
                self.issue(expr, format!("unexpected failed resolution of '{target}'"));
                Type::Error
            }
            t => {
                self.issue(expr, format!("type '{t}' does not support field selection"));
                Type::Dyn
            }
        };
        match is_optional || optional {
            true => Type::optional(result),
            false => result,
        }
    }

    fn optional_select(&mut self, expr: &Expr, call: &Call) -> Type {
        let [operand, field] = call.args.as_slice() else { return Type::Error };
        let Kind::Literal(Literal::String(name)) = &field.kind else {
            self.issue(field, "unsupported optional field selection".to_owned());
            return Type::Error;
        };
        self.checked.types[field.id] = Type::String;
        let t = self.select(expr, operand, name, true);
        self.resolve_as(expr, "_?._");
        self.substituted(&t)
    }

    fn resolve_as(&mut self, expr: &Expr, name: &str) {
        self.checked.calls[expr.id] = library::function(name).map(|function| ResolvedCall {
            function,
            overloads: function.overloads.iter().collect(),
            namespaced: false,
        });
    }

    fn call(&mut self, expr: &Expr, call: &Call) -> Type {
        for arg in &call.args {
            self.check(arg);
        }
        let Some(target) = &call.target else {
            return match self.function(&call.function) {
                Some(function) => self.resolve(expr, function, None, &call.args, false),
                None => self.undeclared(expr, &call.function),
            };
        };
        if let Some(prefix) = target.qualified_name() {
            if let Some(function) = self.function(&format!("{prefix}.{}", call.function)) {
                return self.resolve(expr, function, None, &call.args, true);
            }
        }
        self.check(target);
        match library::function(&call.function) {
            Some(function) => self.resolve(expr, function, Some(target), &call.args, false),
            None => self.undeclared(expr, &call.function),
        }
    }

    /// The function of a name, if expressions of this kind can call it.
    fn function(&self, name: &str) -> Option<&'static Function> {
        library::function(name).filter(|function| self.messages.calls(function.name))
    }

    fn undeclared(&mut self, expr: &Expr, name: &str) -> Type {
        self.issue(expr, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    fn resolve(
        &mut self,
        expr: &Expr,
        function: &'static Function,
        target: Option<&Expr>,
        args: &[Expr],
        namespaced: bool,
    ) -> Type {
        let types: Vec<Type> = target.into_iter().chain(args).map(|arg| self.type_of(arg)).collect();
        if matches!(function.name, "_&&_" | "_||_") {
            let mut fits = true;
            for (arg, t) in args.iter().zip(&types) {
                if !self.bindings.assign(t, &Type::Bool) {
                    self.mismatch(arg, &Type::Bool, t);
                    fits = false;
                }
            }
            if !fits {
                return Type::Error;
            }
            self.resolve_as(expr, function.name);
            return Type::Bool;
        }
        let mut matching = Vec::new();
        let mut result: Option<Type> = None;
        for overload in &function.overloads {
            if overload.member != target.is_some() || overload.args.len() != types.len() {
                continue;
            }
            let mut names = [None; PARAMS as usize];
            let mut pairs = Vec::with_capacity(types.len());
            for (t, wanted) in types.iter().zip(&overload.args) {
                pairs.push((t.clone(), self.bindings.instantiate(wanted, &mut names)));
            }
            let returns = self.bindings.instantiate(&overload.result, &mut names);
            if !self.bindings.assign_all(&pairs) {
                continue;
            }
            matching.push(overload);
            let returns = self.substituted(&returns);
            result = Some(match result {
                None => returns,
                Some(dynamic @ (Type::Dyn | Type::Any)) => dynamic,
                Some(before) if returns.is_exactly(&before) => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            let shown: Vec<String> = types.iter().map(|t| self.with_dyn(t).to_string()).collect();
            let signature = match (target, shown.split_first()) {
                (Some(_), Some((target, args))) => format!("{target}.({})", args.join(", ")),
                _ => format!("({})", shown.join(", ")),
            };
            let name = function.name;
            self.issue(expr, format!("found no matching overload for '{name}' applied to '{signature}'"));
            return Type::Error;
        };
        self.checked.calls[expr.id] = Some(ResolvedCall { function, overloads: matching, namespaced });
        result
    }

    fn comprehension(&mut self, c: &Comprehension) -> Type {
        self.check(&c.range);
        self.check(&c.init);
        let range = self.substituted(&self.type_of(&c.range));
        let (var, var2) = match &range {
            Type::List(element) if c.var2.is_some() => (Type::Int, Type::clone(element)),
            Type::List(element) => (Type::clone(element), Type::Error),
            Type::Map(both) => both.as_ref().clone(),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.bindings.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message =
                    format!("expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)");
                self.issue(&c.range, message);
                (Type::Error, Type::Error)
            }
        };
        let accumulator = self.type_of(&c.init);
        let outside = self.locals.len();
        self.locals.push((SmolStr::new_static(ACCUMULATOR), accumulator.clone()));
        self.locals.push((c.var.clone(), var));
        if let Some(name) = &c.var2 {
            self.locals.push((name.clone(), var2));
        }
        self.check(&c.condition);
        self.assert(&c.condition, &Type::Bool);
        self.check(&c.step);
        self.assert(&c.step, &accumulator);
        self.locals.truncate(outside + 1);
        self.check(&c.result);
        self.locals.truncate(outside);
        self.substituted(&self.type_of(&c.result))
    }

    fn assert(&mut self, expr: &Expr, wanted: &Type) {
        let t = self.type_of(expr);
        if !self.bindings.assign(wanted, &t) {
            self.mismatch(expr, wanted, &t);
        }
    }
}

/// Upstream's checks of literals: durations, timestamps, regular expressions and the elements of lists and
/// maps. The arguments of `format` may be of any types.
fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

fn validate(expr: &Expr, checked: &Checked, mixed: bool, issues: &mut Vec<Issue>) {
    plinth_codec::value::level(|| {
        let mut issue = |at: &Expr, message: String| issues.push(Issue { offset: at.offset, message });
        if let (Kind::Call(call), Some(resolved)) = (&expr.kind, &checked.calls[expr.id]) {
            let literal = |arg: Option<&Expr>| match arg.map(|a| &a.kind) {
                Some(Kind::Literal(Literal::String(s))) => Some(s.clone()),
                _ => None,
            };
            let first = literal(call.args.first());
            match (resolved.function.name, first, call.args.as_slice()) {
                ("duration", Some(text), [arg]) if plinth_codec::time::parse_duration(&text).is_err() => {
                    issue(arg, "invalid duration argument".to_owned());
                }
                ("timestamp", Some(text), [arg]) if plinth_codec::time::Timestamp::parse(&text).is_err() => {
                    issue(arg, "invalid timestamp argument".to_owned());
                }
                ("matches", _, args) => {
                    let pattern = args.get(usize::from(call.target.is_none()));
                    if let (Some(text), Some(arg)) = (literal(pattern), pattern) {
                        if plinth_codec::regexp::compile(&text).is_err() {
                            issue(arg, "invalid matches argument".to_owned());
                        }
                    }
                }
                ("format", _, [Expr { kind: Kind::List(elements), .. }]) => {
                    let types =
                        elements.iter().map(|e| checked.types[e.value.id].literal_name()).collect::<Vec<_>>();
                    if let Some(pattern) = literal(call.target.as_deref()) {
                        if let Err((why, place)) = library::formatting::check(&pattern, &types) {
                            let element = place.and_then(|i| elements.get(i)).map(|e| &e.value);
                            issue(element.unwrap_or(expr), why);
                        }
                    }
                }
                _ => {}
            }
        }
        let mut alike = |exprs: &mut dyn Iterator<Item = (&Expr, bool)>| {
            let mut types = exprs.map(|(e, optional)| {
                let t = &checked.types[e.id];
                (e, if optional { t.unwrap_optional().0 } else { t.clone() })
            });
            let Some((_, first)) = types.next() else { return };
            if let Some((at, t)) = types.find(|(_, t)| !t.is_exactly(&first)) {
                issue(at, format!("expected type '{first}' but found '{t}'"));
            }
        };
        match &expr.kind {
            Kind::List(elements) if !mixed => alike(&mut elements.iter().map(|e| (&e.value, e.optional))),
            Kind::Map(entries) if !mixed => {
                alike(&mut entries.iter().map(|e| (&e.key, false)));
                alike(&mut entries.iter().map(|e| (&e.value, e.optional)));
            }
            _ => {}
        }
        let mixed = mixed || matches!(&expr.kind, Kind::Call(call) if call.function == "format");
        for child in children(expr) {
            validate(child, checked, mixed, issues);
        }
    });
}

/// The subexpressions of an expression.
pub(crate) fn children(expr: &Expr) -> Vec<&Expr> {
    match &expr.kind {
        Kind::Literal(_) | Kind::Ident(_) => Vec::new(),
        Kind::Struct(message) => message.fields.iter().map(|init| &init.value).collect(),
        Kind::Select { operand, .. } => vec![operand],
        Kind::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Kind::List(elements) => elements.iter().map(|e| &e.value).collect(),
        Kind::Map(entries) => entries.iter().flat_map(|e| [&e.key, &e.value]).collect(),
        Kind::Comprehension(c) => vec![&c.range, &c.init, &c.condition, &c.step, &c.result],
        Kind::Bind(bind) => vec![&bind.value, &bind.body],
        Kind::OptMap(map) => vec![&map.target, &map.body],
    }
}
