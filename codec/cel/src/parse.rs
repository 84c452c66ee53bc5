//! The parser: the `cel` crate parses, macros are expanded here, because Kubernetes has some that the crate
//! does not.

use std::sync::LazyLock;

use cel::common::ast::{operators, EntryExpr, Expr as Parsed, IdedExpr, LiteralValue, SourceInfo};
use cel::Env;
use smol_str::SmolStr;

use super::ast::{
    Bind, Call, Comprehension, Element, Entry, Expr, FieldInit, Kind, Literal, OptMap, Struct, ACCUMULATOR,
};
use super::limits::{MAX_DEPTH, MAX_EXPRESSION_DEPTH, MAX_EXPRESSION_LENGTH};

/// An error in an expression with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Issue {
    /// Byte offset in the source.
    pub(crate) offset: u32,
    pub(crate) message: String,
}

/// A tree and how many ids it uses.
pub(crate) struct Tree {
    pub(crate) root: Expr,
    pub(crate) ids: usize,
}

/// Without macros: calls are left unexpanded.
static ENVIRONMENT: LazyLock<Env> = LazyLock::new(Env::default);

/// Which macros expressions have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Macros {
    #[default]
    Standard,
    /// `cel.bind(name, value, body)` as well.
    Bindings,
}

/// Parses. The issues are in the order of the source. Work is in proportion to the length of the text, which
/// is bounded.
pub(crate) fn parse(source: &str, macros: Macros) -> Result<Tree, Vec<Issue>> {
    let length = source.chars().count();
    if length > MAX_EXPRESSION_LENGTH {
        let message = format!(
            "expression code point size exceeds limit: size: {length}, limit {MAX_EXPRESSION_LENGTH}"
        );
        return Err(vec![Issue { offset: 0, message }]);
    }
    // The crate's parser recurses along chains like `a.b.c`, which only the length bounds. A level takes two
    // bytes of source at least; 4 KiB of stack for each byte (touched only when used) are more than it needs.
    // Nested expressions may take more per byte, but are bounded in depth.
    let stack = source.len() * 4096 + (32 << 20);
    stacker::grow(stack, || parse_here(source, macros))
}

fn parse_here(source: &str, macros: Macros) -> Result<Tree, Vec<Issue>> {
    let parser = ENVIRONMENT.parser().max_recursion_depth(MAX_EXPRESSION_DEPTH);
    let (parsed, info) = parser.parse_with_source_info(source).map_err(|errors| {
        let lines = Lines::of(source);
        let issue =
            |e: cel::ParseError| Issue { offset: lines.offset(e.pos.0, e.pos.1), message: readable(&e.msg) };
        errors.errors.into_iter().map(issue).collect::<Vec<_>>()
    })?;
    let mut reader = Reader { info, macros, ids: 0, issues: Vec::new() };
    let root = reader.expr(parsed, 0);
    if !reader.issues.is_empty() {
        reader.issues.sort_by_key(|issue| issue.offset);
        return Err(reader.issues);
    }
    Ok(Tree { root, ids: reader.ids })
}

/// The crate formats the error at the depth limit as debug text.
fn readable(message: &str) -> String {
    if message.contains("Recursion limit of") {
        return format!("expression recursion limit exceeded: {MAX_EXPRESSION_DEPTH}");
    }
    message.to_owned()
}

/// The byte offsets at which lines begin.
struct Lines<'a> {
    source: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(source: &'a str) -> Lines<'a> {
        let starts = std::iter::once(0).chain(source.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Lines { source, starts }
    }

    /// The byte offset of a line and column, both from 1 and in code points.
    fn offset(&self, line: isize, column: isize) -> u32 {
        let line = usize::try_from(line - 1).unwrap_or(0);
        let start = self.starts.get(line).copied().unwrap_or(self.source.len());
        let column = usize::try_from(column - 1).unwrap_or(0);
        let rest = &self.source[start..];
        let within = rest.char_indices().nth(column).map_or(rest.len(), |(i, _)| i);
        (start + within) as u32
    }
}

/// The issues as upstream formats them: position, text, the line and a marker below it.
pub(crate) fn describe(source: &str, issues: &[Issue]) -> String {
    /// A longer line is not shown.
    const LONGEST: usize = 16_384;
    let shown = issues.iter().take(100).map(|issue| {
        let offset = (issue.offset as usize).min(source.len());
        let before = &source[..source.floor_char_boundary(offset)];
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        let column = before[start..].chars().count();
        let text = source[start..].split('\n').next().unwrap_or_default();
        let mut out = format!("ERROR: <input>:{line}:{}: {}", column + 1, issue.message);
        if !text.is_empty() && text.len() <= LONGEST {
            let wide = |c: char, narrow: char, wide: char| if c.len_utf8() > 1 { wide } else { narrow };
            let mut mark: String = before[start..].chars().map(|c| wide(c, '.', '\u{ff0e}')).collect();
            mark.push(
                text[column_bytes(text, column)..].chars().next().map_or('^', |c| wide(c, '^', '\u{ff3e}')),
            );
            out.push_str(&format!("\n | {}\n | {mark}", text.replace('\t', " ")));
        }
        out
    });
    shown.collect::<Vec<_>>().join("\n")
}

fn column_bytes(text: &str, column: usize) -> usize {
    text.char_indices().nth(column).map_or(text.len(), |(i, _)| i)
}

struct Reader {
    info: SourceInfo,
    macros: Macros,
    ids: usize,
    issues: Vec<Issue>,
}

impl Reader {
    fn node(&mut self, offset: u32, kind: Kind) -> Expr {
        let id = self.ids;
        self.ids += 1;
        Expr { id, offset, kind }
    }

    fn issue(&mut self, offset: u32, message: impl Into<String>) {
        self.issues.push(Issue { offset, message: message.into() });
    }

    /// The byte offset of a node of the crate's tree.
    fn offset(&self, id: u64) -> u32 {
        self.info.offset_for(id).unwrap_or_default().0
    }

    fn exprs(&mut self, parsed: Vec<IdedExpr>, depth: usize) -> Vec<Expr> {
        parsed.into_iter().map(|e| self.expr(e, depth)).collect()
    }

    fn expr(&mut self, parsed: IdedExpr, depth: usize) -> Expr {
        let offset = self.offset(parsed.id);
        if depth > MAX_DEPTH {
            if self.issues.is_empty() {
                self.issue(offset, format!("expression recursion limit exceeded: {MAX_DEPTH}"));
            }
            return self.node(offset, Kind::Literal(Literal::Null));
        }
        let depth = depth + 1;
        let kind = match parsed.expr {
            Parsed::Unspecified => {
                self.issue(offset, "Syntax error: incomplete expression");
                Kind::Literal(Literal::Null)
            }
            Parsed::Literal(literal) => Kind::Literal(match literal {
                LiteralValue::Boolean(b) => Literal::Bool(*b.inner()),
                LiteralValue::Bytes(b) => Literal::Bytes(b.inner().to_vec()),
                LiteralValue::Double(d) => Literal::Double(*d.inner()),
                LiteralValue::Int(i) => Literal::Int(*i.inner()),
                LiteralValue::Null => Literal::Null,
                LiteralValue::String(s) => Literal::String(SmolStr::new(s.inner())),
                LiteralValue::UInt(u) => Literal::Uint(*u.inner()),
            }),
            Parsed::Ident(name) => Kind::Ident(SmolStr::from(name)),
            Parsed::Select(select) => {
                let operand = Box::new(self.expr(*select.operand, depth));
                Kind::Select { operand, field: SmolStr::from(select.field), test: select.test }
            }
            Parsed::Call(call) => return self.call(offset, call, depth),
            Parsed::List(list) => {
                let mut elements = Vec::with_capacity(list.elements.len());
                for (i, element) in list.elements.into_iter().enumerate() {
                    let optional = list.optional_indices.contains(&i);
                    elements.push(Element { value: self.expr(element, depth), optional });
                }
                Kind::List(elements)
            }
            Parsed::Map(map) => {
                let mut entries = Vec::with_capacity(map.entries.len());
                for entry in map.entries {
                    if let EntryExpr::MapEntry(entry) = entry.expr {
                        entries.push(Entry {
                            key: self.expr(entry.key, depth),
                            value: self.expr(entry.value, depth),
                            optional: entry.optional,
                        });
                    }
                }
                Kind::Map(entries)
            }
            Parsed::Struct(object) => {
                let mut fields = Vec::with_capacity(object.entries.len());
                for entry in object.entries {
                    let offset = self.offset(entry.id);
                    if let EntryExpr::StructField(init) = entry.expr {
                        fields.push(FieldInit {
                            offset,
                            field: SmolStr::from(init.field),
                            value: self.expr(init.value, depth),
                            optional: init.optional,
                        });
                    }
                }
                // A leading dot marks an absolute name, which all names are here.
                let name = object.type_name.strip_prefix('.').unwrap_or(&object.type_name);
                Kind::Struct(Struct { name: SmolStr::new(name), fields })
            }
            Parsed::Comprehension(_) => {
                self.issue(offset, "Syntax error: unexpected comprehension");
                Kind::Literal(Literal::Null)
            }
        };
        self.node(offset, kind)
    }

    fn call(&mut self, offset: u32, call: cel::common::ast::CallExpr, depth: usize) -> Expr {
        let fits = |m: &&Macro| {
            m.name == call.func_name && m.member == call.target.is_some() && m.args.contains(&call.args.len())
        };
        let is_cel =
            |target: &IdedExpr| matches!(&target.expr, Parsed::Ident(name) if name.as_str() == "cel");
        let binds = self.macros == Macros::Bindings && call.target.as_deref().is_some_and(is_cel);
        let bindings = if binds { BINDINGS } else { &[] };
        let Some(rule) = bindings.iter().chain(MACROS).find(fits) else {
            let target = call.target.map(|t| Box::new(self.expr(*t, depth)));
            let args = self.exprs(call.args, depth);
            return self
                .node(offset, Kind::Call(Call { function: SmolStr::from(call.func_name), target, args }));
        };
        let target = call.target.map(|t| self.expr(*t, depth));
        let args = self.exprs(call.args, depth);
        let issues = self.issues.len();
        match (rule.expand)(self, offset, target, args) {
            Some(expr) => expr,
            None => {
                debug_assert!(self.issues.len() > issues, "a macro that declines reports why");
                self.node(offset, Kind::Literal(Literal::Null))
            }
        }
    }

    fn ident(&mut self, offset: u32, name: &str) -> Expr {
        self.node(offset, Kind::Ident(SmolStr::new(name)))
    }

    fn accumulator(&mut self, offset: u32) -> Expr {
        self.ident(offset, ACCUMULATOR)
    }

    fn literal(&mut self, offset: u32, literal: Literal) -> Expr {
        self.node(offset, Kind::Literal(literal))
    }

    fn operator(&mut self, offset: u32, function: &'static str, args: Vec<Expr>) -> Expr {
        self.node(offset, Kind::Call(Call { function: SmolStr::new_static(function), target: None, args }))
    }

    /// The identifier that a macro's argument must be.
    fn name(&mut self, arg: &Expr, message: &str) -> Option<SmolStr> {
        match &arg.kind {
            Kind::Ident(name) => Some(name.clone()),
            _ => {
                self.issue(arg.offset, message);
                None
            }
        }
    }

    /// One or two variables from the first arguments.
    fn variables(&mut self, args: &mut Vec<Expr>, two: bool) -> Option<(SmolStr, Option<SmolStr>)> {
        const MESSAGE: &str = "argument must be a simple name";
        self.variables_or(args, two, MESSAGE)
    }

    /// As [`Reader::variables`], with another message when the first is not an identifier.
    fn variables_or(
        &mut self,
        args: &mut Vec<Expr>,
        two: bool,
        message: &str,
    ) -> Option<(SmolStr, Option<SmolStr>)> {
        const MESSAGE: &str = "argument must be a simple name";
        let first = args.remove(0);
        let var = self.name(&first, message)?;
        if !two {
            return Some((var, None));
        }
        let second = args.remove(0);
        let var2 = self.name(&second, MESSAGE)?;
        if var == var2 {
            self.issue(second.offset, format!("duplicate variable name: {var}"));
            return None;
        }
        Some((var, Some(var2)))
    }
}

type Expand = fn(&mut Reader, u32, Option<Expr>, Vec<Expr>) -> Option<Expr>;

/// A call that is expanded to another expression.
struct Macro {
    name: &'static str,
    member: bool,
    /// Accepted numbers of arguments.
    args: &'static [usize],
    expand: Expand,
}

const fn member(name: &'static str, args: &'static [usize], expand: Expand) -> Macro {
    Macro { name, member: true, args, expand }
}

/// The standard macros, those of optional values, of two-variable comprehensions and of lists.
static MACROS: &[Macro] = &[
    Macro { name: "has", member: false, args: &[1], expand: has },
    member("all", &[2, 3], |r, at, target, args| quantifier(r, at, target, args, false)),
    member("exists", &[2, 3], |r, at, target, args| quantifier(r, at, target, args, true)),
    member("exists_one", &[2, 3], exists_one),
    member("existsOne", &[3], exists_one),
    member("map", &[2, 3], |r, at, target, args| transform(r, at, target, args, false, TransformKind::List)),
    member("filter", &[2], filter),
    member("transformList", &[3, 4], |r, at, target, args| {
        transform(r, at, target, args, true, TransformKind::List)
    }),
    member("transformMap", &[3, 4], |r, at, target, args| {
        transform(r, at, target, args, true, TransformKind::Map)
    }),
    member("transformMapEntry", &[3, 4], |r, at, target, args| {
        transform(r, at, target, args, true, TransformKind::Entry)
    }),
    member("optMap", &[2], |r, at, target, args| opt_map(r, at, target, args, false)),
    member("optFlatMap", &[2], |r, at, target, args| opt_map(r, at, target, args, true)),
    member("sortBy", &[2], sort_by),
];

/// Macros of the name `cel` (cel-go `ext/bindings.go`).
static BINDINGS: &[Macro] = &[member("bind", &[3], bind)];

fn bind(r: &mut Reader, at: u32, _: Option<Expr>, mut args: Vec<Expr>) -> Option<Expr> {
    let body = args.pop()?;
    let value = args.pop()?;
    let name = args.pop()?;
    let name = r.name(&name, "cel.bind() variable names must be simple identifiers")?;
    Some(r.node(at, Kind::Bind(Box::new(Bind { name, value, body }))))
}

fn has(r: &mut Reader, at: u32, _: Option<Expr>, mut args: Vec<Expr>) -> Option<Expr> {
    let arg = args.pop()?;
    match arg.kind {
        Kind::Select { operand, field, .. } => Some(r.node(at, Kind::Select { operand, field, test: true })),
        _ => {
            r.issue(arg.offset, "invalid argument to has() macro");
            None
        }
    }
}

fn quantifier(r: &mut Reader, at: u32, target: Option<Expr>, mut args: Vec<Expr>, any: bool) -> Option<Expr> {
    let two = args.len() == 3;
    let (var, var2) = r.variables(&mut args, two)?;
    let predicate = args.pop()?;
    let init = r.literal(at, Literal::Bool(!any));
    let mut condition = r.accumulator(at);
    if any {
        condition = r.operator(at, operators::LOGICAL_NOT, vec![condition]);
    }
    let condition = r.operator(at, NOT_STRICTLY_FALSE, vec![condition]);
    let accumulator = r.accumulator(at);
    let operator = if any { operators::LOGICAL_OR } else { operators::LOGICAL_AND };
    let step = r.operator(at, operator, vec![accumulator, predicate]);
    let result = r.accumulator(at);
    fold(r, at, Comprehension { range: target?, var, var2, init, condition, step, result })
}

fn exists_one(r: &mut Reader, at: u32, target: Option<Expr>, mut args: Vec<Expr>) -> Option<Expr> {
    let two = args.len() == 3;
    let (var, var2) = r.variables(&mut args, two)?;
    let predicate = args.pop()?;
    let init = r.literal(at, Literal::Int(0));
    let condition = r.literal(at, Literal::Bool(true));
    let (so_far, one) = (r.accumulator(at), r.literal(at, Literal::Int(1)));
    let more = r.operator(at, operators::ADD, vec![so_far, one]);
    let same = r.accumulator(at);
    let step = r.operator(at, operators::CONDITIONAL, vec![predicate, more, same]);
    let (all, one) = (r.accumulator(at), r.literal(at, Literal::Int(1)));
    let result = r.operator(at, operators::EQUALS, vec![all, one]);
    fold(r, at, Comprehension { range: target?, var, var2, init, condition, step, result })
}

/// The result of a transformation macro.
#[derive(Clone, Copy)]
enum TransformKind {
    List,
    /// A map with the keys of the range.
    Map,
    /// A map of the entries that the transformation returns.
    Entry,
}

fn transform(
    r: &mut Reader,
    at: u32,
    target: Option<Expr>,
    mut args: Vec<Expr>,
    two: bool,
    into: TransformKind,
) -> Option<Expr> {
    let (var, var2) = match two {
        true => r.variables(&mut args, true)?,
        false => r.variables_or(&mut args, false, NO_IDENTIFIER)?,
    };
    let value = args.pop()?;
    let predicate = args.pop();
    let (init, so_far) = match into {
        TransformKind::List => (r.node(at, Kind::List(Vec::new())), r.accumulator(at)),
        _ => (r.node(at, Kind::Map(Vec::new())), r.accumulator(at)),
    };
    let condition = r.literal(at, Literal::Bool(true));
    let mut step = match into {
        TransformKind::List => {
            let one = r.node(at, Kind::List(vec![Element { value, optional: false }]));
            r.operator(at, operators::ADD, vec![so_far, one])
        }
        TransformKind::Map => {
            let key = r.ident(at, &var);
            r.operator(at, MAP_INSERT, vec![so_far, key, value])
        }
        TransformKind::Entry => r.operator(at, MAP_INSERT, vec![so_far, value]),
    };
    if let Some(predicate) = predicate {
        let same = r.accumulator(at);
        step = r.operator(at, operators::CONDITIONAL, vec![predicate, step, same]);
    }
    let result = r.accumulator(at);
    fold(r, at, Comprehension { range: target?, var, var2, init, condition, step, result })
}

fn filter(r: &mut Reader, at: u32, target: Option<Expr>, args: Vec<Expr>) -> Option<Expr> {
    let offset = args.first()?.offset;
    let mut args = args;
    let predicate = args.pop()?;
    let (var, _) = r.variables_or(&mut args, false, NO_IDENTIFIER)?;
    let value = r.ident(offset, &var);
    let var = r.ident(offset, &var);
    transform(r, at, target, vec![var, predicate, value], false, TransformKind::List)
}

fn opt_map(r: &mut Reader, at: u32, target: Option<Expr>, mut args: Vec<Expr>, flat: bool) -> Option<Expr> {
    let body = args.pop()?;
    let name = args.pop()?;
    let function = if flat { "optFlatMap" } else { "optMap" };
    let name = r.name(&name, &format!("{function}() variable name must be a simple identifier"))?;
    Some(r.node(at, Kind::OptMap(Box::new(OptMap { target: target?, name, body, flat }))))
}

fn sort_by(r: &mut Reader, at: u32, target: Option<Expr>, args: Vec<Expr>) -> Option<Expr> {
    const INPUT: &str = "@__sortBy_input__";
    let target = target?;
    if matches!(target.kind, Kind::Literal(_) | Kind::Map(_) | Kind::Struct(_)) {
        let message =
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        r.issue(target.offset, message);
        return None;
    }
    let input = r.ident(at, INPUT);
    let keys = transform(r, at, Some(input), args, false, TransformKind::List)?;
    let input = Some(Box::new(r.ident(at, INPUT)));
    let call = Call { function: SmolStr::new_static(SORT_BY_KEYS), target: input, args: vec![keys] };
    let body = r.node(at, Kind::Call(call));
    Some(r.node(at, Kind::Bind(Box::new(Bind { name: SmolStr::new_static(INPUT), value: target, body }))))
}

fn fold(r: &mut Reader, at: u32, comprehension: Comprehension) -> Option<Expr> {
    Some(r.node(at, Kind::Comprehension(Box::new(comprehension))))
}

const NO_IDENTIFIER: &str = "argument is not an identifier";
pub(crate) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
pub(crate) const MAP_INSERT: &str = "cel.@mapInsert";
pub(crate) const SORT_BY_KEYS: &str = "@sortByAssociatedKeys";
