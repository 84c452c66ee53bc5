//! The functions that expressions can call: a table of names, signatures and costs, and their
//! implementations.
//!
//! A function is found by its name and dispatches on the values of its arguments, as upstream's dispatcher
//! does: types were checked before, but those of `dyn` values are known only at evaluation.
//!
//! | file | functions |
//! |---|---|
//! | `standard` | the language's own operators and conversions |
//! | `strings`, `formatting` | cel-go's string extensions, version 2 |
//! | `lists` | Kubernetes' lists, cel-go's lists version 3 and sets |
//! | `optional` | optional values |
//! | `regex` | `matches`, `find`, `findAll` in RE2's syntax |
//! | `net`, `url` | IP addresses, networks, URLs |
//! | `quantity`, `semver`, `format` | the types of the same names |
//! | `authz` | authorization checks |

mod arguments;
mod authz;
mod format;
pub(crate) mod formatting;
mod lists;
mod net;
mod optional;
mod quantity;
mod regex;
mod semver;
mod standard;
mod strings;
mod url;

use std::collections::HashMap;
use std::sync::LazyLock;

pub(crate) use self::standard::duration_text;
use super::context::{Context, Outcome};
use super::cost::Cost;
use super::types::{OpaqueType, Type};
use super::value::Val;

/// An implementation. The arguments start with the receiver.
pub(crate) type Implementation = for<'a> fn(&mut Context<'a>, &[Val<'a>]) -> Outcome<'a>;

/// A function with all its overloads.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
    pub(crate) cost: Cost,
    pub(crate) call: Implementation,
}

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: String,
    /// Whether it is called on a receiver, which is the first argument.
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The function of a name.
pub(crate) fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.get(name)
}

/// All functions.
#[cfg(test)]
pub(crate) fn functions() -> impl Iterator<Item = &'static Function> {
    FUNCTIONS.values()
}

static FUNCTIONS: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(|| {
    ROWS.iter()
        .map(|(name, cost, call, signatures)| {
            let overloads = signatures.split(';').flat_map(read_overloads).collect();
            (*name, Function { name, overloads, cost: *cost, call: *call })
        })
        .collect()
});

/// Parses `.id (args) result`, with a dot for a receiver, and `… for a b c`, which substitutes each for `@`.
fn read_overloads(text: &'static str) -> Vec<Overload> {
    let (signature, names) = text.split_once(" for ").unwrap_or((text, ""));
    let names: Vec<&str> = match names {
        "" => vec![""],
        names => names.split_whitespace().collect(),
    };
    names.into_iter().filter_map(|name| read_overload(&signature.replace('@', name))).collect()
}

fn read_overload(text: &str) -> Option<Overload> {
    let (id, rest) = text.trim().split_once(' ')?;
    let mut reader = TypeReader { rest };
    let args = reader.list();
    let result = reader.one()?;
    let (member, id) = id.strip_prefix('.').map_or((false, id), |id| (true, id));
    Some(Overload { id: id.to_owned(), member, args, result })
}

struct TypeReader<'a> {
    rest: &'a str,
}

impl TypeReader<'_> {
    fn list(&mut self) -> Vec<Type> {
        let mut types = Vec::new();
        self.rest = self.rest.trim_start().strip_prefix('(').unwrap_or_default();
        loop {
            self.rest = self.rest.trim_start_matches([' ', ',']);
            match self.rest.strip_prefix(')') {
                Some(rest) => {
                    self.rest = rest;
                    return types;
                }
                None => types.extend(self.one()),
            }
            if self.rest.is_empty() {
                return types;
            }
        }
    }

    fn one(&mut self) -> Option<Type> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(match name {
            "A" => Type::Param(0),
            "B" => Type::Param(1),
            "list" => Type::list(self.list().pop()?),
            "optional" => Type::optional(self.list().pop()?),
            "map" => {
                let mut both = self.list().into_iter();
                Type::map(both.next()?, both.next()?)
            }
            name => simple_type(name)?,
        })
    }
}

fn simple_type(name: &str) -> Option<Type> {
    Some(match name {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "type" => Type::Kind,
        "quantity" => Type::Opaque(OpaqueType::Quantity),
        "url" => Type::Opaque(OpaqueType::Url),
        "ip" => Type::Opaque(OpaqueType::Ip),
        "cidr" => Type::Opaque(OpaqueType::Cidr),
        "format" => Type::Opaque(OpaqueType::Format),
        "semver" => Type::Opaque(OpaqueType::Semver),
        "authorizer" => Type::Opaque(OpaqueType::Authorizer),
        "pathcheck" => Type::Opaque(OpaqueType::PathCheck),
        "groupcheck" => Type::Opaque(OpaqueType::GroupCheck),
        "resourcecheck" => Type::Opaque(OpaqueType::ResourceCheck),
        "decision" => Type::Opaque(OpaqueType::Decision),
        _ => return None,
    })
}

/// Names of types that expressions can write.
pub(crate) const TYPE_NAMES: [&str; 14] = [
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
    "dyn",
    "optional_type",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
];

type Row = (&'static str, Cost, Implementation, &'static str);

/// Name, cost, implementation, signatures.
#[rustfmt::skip]
static ROWS: &[Row] = &[
    // Operators. Those with short-circuit evaluation are evaluated by the program itself.
    ("_?_:_", Cost::Conditional, standard::unreachable, "conditional (bool, A, A) A"),
    ("_&&_", Cost::Logical, standard::unreachable, "logical_and (bool, bool) bool"),
    ("_||_", Cost::Logical, standard::unreachable, "logical_or (bool, bool) bool"),
    ("!_", Cost::One, standard::not, "logical_not (bool) bool"),
    ("@not_strictly_false", Cost::One, standard::unreachable, "not_strictly_false (bool) bool"),
    ("_==_", Cost::Equality, standard::equals, "equals (A, A) bool"),
    ("_!=_", Cost::Comparison, standard::not_equals, "not_equals (A, A) bool"),
    ("_<_", Cost::Comparison, standard::less, LESS),
    ("_<=_", Cost::Comparison, standard::less_equals, LESS_EQUALS),
    ("_>_", Cost::Comparison, standard::greater, GREATER),
    ("_>=_", Cost::Comparison, standard::greater_equals, GREATER_EQUALS),
    ("_+_", Cost::Add, standard::add,
        "add_bytes (bytes, bytes) bytes; add_double (double, double) double; \
         add_duration_duration (duration, duration) duration; \
         add_duration_timestamp (duration, timestamp) timestamp; \
         add_timestamp_duration (timestamp, duration) timestamp; add_int64 (int, int) int; \
         add_list (list(A), list(A)) list(A); add_string (string, string) string; add_uint64 (uint, uint) uint"),
    ("_-_", Cost::One, standard::subtract,
        "subtract_double (double, double) double; subtract_duration_duration (duration, duration) duration; \
         subtract_int64 (int, int) int; subtract_timestamp_duration (timestamp, duration) timestamp; \
         subtract_timestamp_timestamp (timestamp, timestamp) duration; subtract_uint64 (uint, uint) uint"),
    ("_*_", Cost::One, standard::multiply,
        "multiply_double (double, double) double; multiply_int64 (int, int) int; multiply_uint64 (uint, uint) uint"),
    ("_/_", Cost::One, standard::divide,
        "divide_double (double, double) double; divide_int64 (int, int) int; divide_uint64 (uint, uint) uint"),
    ("_%_", Cost::One, standard::modulo, "modulo_int64 (int, int) int; modulo_uint64 (uint, uint) uint"),
    ("-_", Cost::One, standard::negate, "negate_double (double) double; negate_int64 (int) int"),
    ("_[_]", Cost::One, standard::index,
        "index_list (list(A), int) A; index_map (map(A, B), A) B; \
         optional_list_index_int (optional(list(A)), int) optional(A); \
         optional_map_index_value (optional(map(A, B)), A) optional(B)"),
    ("_[?_]", Cost::One, standard::optional_index,
        "list_optindex_optional_int (list(A), int) optional(A); \
         optional_list_optindex_optional_int (optional(list(A)), int) optional(A); \
         map_optindex_optional_value (map(A, B), A) optional(B); \
         optional_map_optindex_optional_value (optional(map(A, B)), A) optional(B)"),
    ("_?._", Cost::One, standard::unreachable, "select_optional_field (dyn, string) optional(A)"),
    ("@in", Cost::In, standard::contains_in, "in_list (A, list(A)) bool; in_map (A, map(A, B)) bool"),
    ("cel.@mapInsert", Cost::One, standard::map_insert,
        "@mapInsert_map_key_value (map(A, B), A, B) map(A, B); @mapInsert_map_map (map(A, B), map(A, B)) map(A, B)"),
    // Conversions and the other standard functions.
    ("size", Cost::One, standard::size,
        "size_bytes (bytes) int; .bytes_size (bytes) int; size_list (list(A)) int; .list_size (list(A)) int; \
         size_map (map(A, B)) int; .map_size (map(A, B)) int; size_string (string) int; .string_size (string) int"),
    ("type", Cost::One, standard::type_of, "type (A) type"),
    ("dyn", Cost::Dyn, standard::to_dyn, "to_dyn (A) dyn"),
    ("bool", Cost::One, standard::to_bool, "bool_to_bool (bool) bool; string_to_bool (string) bool"),
    ("bytes", Cost::ToBytes, standard::to_bytes, "bytes_to_bytes (bytes) bytes; string_to_bytes (string) bytes"),
    ("double", Cost::One, standard::to_double, "@_to_double (@) double for double int string uint"),
    ("duration", Cost::One, standard::to_duration, "@_to_duration (@) duration for duration int string"),
    ("int", Cost::One, standard::to_int, "@_to_int (@) int for int double duration string timestamp uint"),
    ("uint", Cost::One, standard::to_uint, "@_to_uint (@) uint for uint double int string"),
    ("timestamp", Cost::One, standard::to_timestamp, "@_to_timestamp (@) timestamp for timestamp int string"),
    ("string", Cost::ToString, standard::to_string,
        "@_to_string (@) string for string bool bytes double duration int timestamp uint ip cidr"),
    ("startsWith", Cost::Affix, standard::starts_with, ".starts_with_string (string, string) bool"),
    ("endsWith", Cost::Affix, standard::ends_with, ".ends_with_string (string, string) bool"),
    ("contains", Cost::Contains, standard::contains, ".contains_string (string, string) bool"),
    ("matches", Cost::Matches, regex::matches,
        "matches (string, string) bool; .matches_string (string, string) bool"),
    ("getFullYear", Cost::One, |c, a| standard::part_of_time(c, a, "getFullYear"), DATE_PART),
    ("getMonth", Cost::One, |c, a| standard::part_of_time(c, a, "getMonth"), DATE_PART),
    ("getDayOfYear", Cost::One, |c, a| standard::part_of_time(c, a, "getDayOfYear"), DATE_PART),
    ("getDayOfMonth", Cost::One, |c, a| standard::part_of_time(c, a, "getDayOfMonth"), DATE_PART),
    ("getDate", Cost::One, |c, a| standard::part_of_time(c, a, "getDate"), DATE_PART),
    ("getDayOfWeek", Cost::One, |c, a| standard::part_of_time(c, a, "getDayOfWeek"), DATE_PART),
    ("getHours", Cost::One, |c, a| standard::part_of_time(c, a, "getHours"), TIME_PART),
    ("getMinutes", Cost::One, |c, a| standard::part_of_time(c, a, "getMinutes"), TIME_PART),
    ("getSeconds", Cost::One, |c, a| standard::part_of_time(c, a, "getSeconds"), TIME_PART),
    ("getMilliseconds", Cost::One, |c, a| standard::part_of_time(c, a, "getMilliseconds"), TIME_PART),
    // String extensions.
    ("charAt", Cost::One, strings::char_at, ".string_char_at_int (string, int) string"),
    ("indexOf", Cost::Search, strings::index_of,
        ".string_index_of_string (string, string) int; .string_index_of_string_int (string, string, int) int; \
         .list_a_index_of_int (list(A), A) int"),
    ("lastIndexOf", Cost::Search, strings::last_index_of,
        ".string_last_index_of_string (string, string) int; \
         .string_last_index_of_string_int (string, string, int) int; .list_a_last_index_of_int (list(A), A) int"),
    ("lowerAscii", Cost::Traverse, strings::lower_ascii, ".string_lower_ascii (string) string"),
    ("upperAscii", Cost::Traverse, strings::upper_ascii, ".string_upper_ascii (string) string"),
    ("trim", Cost::Traverse, strings::trim, ".string_trim (string) string"),
    ("substring", Cost::Traverse, strings::substring,
        ".string_substring_int (string, int) string; .string_substring_int_int (string, int, int) string"),
    ("replace", Cost::Replace, strings::replace,
        ".string_replace_string_string (string, string, string) string; \
         .string_replace_string_string_int (string, string, string, int) string"),
    ("split", Cost::Split, strings::split,
        ".string_split_string (string, string) list(string); \
         .string_split_string_int (string, string, int) list(string)"),
    ("join", Cost::Join, strings::join,
        ".list_join (list(string)) string; .list_join_string (list(string), string) string"),
    ("jsonpatch.escapeKey", Cost::One, strings::escape_key, "string_jsonpatch_escapeKey_string (string) string"),
    ("strings.quote", Cost::One, strings::quote, "strings_quote (string) string"),
    ("format", Cost::Format, formatting::format, ".string_format (string, list(dyn)) string"),
    ("find", Cost::Find, regex::find, ".string_find_string (string, string) string"),
    ("findAll", Cost::Find, regex::find_all,
        ".string_find_all_string (string, string) list(string); \
         .string_find_all_string_int (string, string, int) list(string)"),
    // Lists and sets.
    ("isSorted", Cost::Search, lists::is_sorted,
        ".list_@_is_sorted_bool (list(@)) bool for int uint double bool duration timestamp string bytes"),
    ("sum", Cost::Search, lists::sum, ".list_@_sum_@ (list(@)) @ for int uint double duration"),
    ("max", Cost::Search, lists::max,
        ".list_@_max_@ (list(@)) @ for int uint double bool duration timestamp string bytes"),
    ("min", Cost::Search, lists::min,
        ".list_@_min_@ (list(@)) @ for int uint double bool duration timestamp string bytes"),
    ("slice", Cost::Slice, lists::slice, ".list_slice (list(A), int, int) list(A)"),
    ("flatten", Cost::Flatten, lists::flatten,
        ".list_flatten (list(list(A))) list(A); .list_flatten_int (list(dyn), int) list(dyn)"),
    ("sort", Cost::SelfCompare(0), lists::sort,
        ".list_@_sort (list(@)) list(@) for int uint double bool duration timestamp string bytes"),
    ("@sortByAssociatedKeys", Cost::SelfCompare(1), lists::sort_by_keys,
        ".list_@_sortByAssociatedKeys (list(A), list(@)) list(A) \
         for int uint double bool duration timestamp string bytes"),
    ("lists.range", Cost::Range, lists::range, "lists_range (int) list(int)"),
    ("reverse", Cost::ListCopy, lists::reverse, ".list_reverse (list(A)) list(A)"),
    ("distinct", Cost::SelfCompare(0), lists::distinct, ".list_distinct (list(A)) list(A)"),
    ("sets.contains", Cost::Sets(1), lists::sets_contains, "list_sets_contains_list (list(A), list(A)) bool"),
    ("sets.intersects", Cost::Sets(1), lists::sets_intersects, "list_sets_intersects_list (list(A), list(A)) bool"),
    ("sets.equivalent", Cost::Sets(2), lists::sets_equivalent, "list_sets_equivalent_list (list(A), list(A)) bool"),
    // Optional values.
    ("optional.of", Cost::One, optional::of, "optional_of (A) optional(A)"),
    ("optional.ofNonZeroValue", Cost::One, optional::of_non_zero, "optional_ofNonZeroValue (A) optional(A)"),
    ("optional.none", Cost::One, optional::none, "optional_none () optional(A)"),
    ("value", Cost::One, optional::value, ".optional_value (optional(A)) A"),
    ("hasValue", Cost::One, optional::has_value, ".optional_hasValue (optional(A)) bool"),
    ("or", Cost::One, standard::unreachable, ".optional_or_optional (optional(A), optional(A)) optional(A)"),
    ("orValue", Cost::One, standard::unreachable, ".optional_orValue_value (optional(A), A) A"),
    ("first", Cost::One, optional::first, ".list_first (list(A)) optional(A)"),
    ("last", Cost::One, optional::last, ".list_last (list(A)) optional(A)"),
    ("optional.unwrap", Cost::One, optional::unwrap, "optional_unwrap (list(optional(A))) list(A)"),
    ("unwrapOpt", Cost::One, optional::unwrap, ".optional_unwrapOpt (list(optional(A))) list(A)"),
    // Addresses.
    ("ip", Cost::Parse(1), net::ip, "string_to_ip (string) ip; .cidr_ip (cidr) ip"),
    ("family", Cost::One, net::family, ".ip_family (ip) int"),
    ("ip.isCanonical", Cost::Parse(2), net::is_canonical, "ip_is_canonical (string) bool"),
    ("isUnspecified", Cost::One, net::is_unspecified, ".ip_is_unspecified (ip) bool"),
    ("isLoopback", Cost::One, net::is_loopback, ".ip_is_loopback (ip) bool"),
    ("isLinkLocalMulticast", Cost::One, net::is_link_local_multicast, ".ip_is_link_local_multicast (ip) bool"),
    ("isLinkLocalUnicast", Cost::One, net::is_link_local_unicast, ".ip_is_link_local_unicast (ip) bool"),
    ("isGlobalUnicast", Cost::One, net::is_global_unicast, ".ip_is_global_unicast (ip) bool"),
    ("isIP", Cost::Parse(1), net::is_ip, "is_ip (string) bool"),
    ("cidr", Cost::Parse(1), net::cidr, "string_to_cidr (string) cidr"),
    ("isCIDR", Cost::Parse(1), net::is_cidr, "is_cidr (string) bool"),
    ("containsIP", Cost::ContainsIp, net::contains_ip,
        ".cidr_contains_ip_string (cidr, string) bool; .cidr_contains_ip_ip (cidr, ip) bool"),
    ("containsCIDR", Cost::ContainsCidr, net::contains_cidr,
        ".cidr_contains_cidr_string (cidr, string) bool; .cidr_contains_cidr (cidr, cidr) bool"),
    ("prefixLength", Cost::One, net::prefix_length, ".cidr_prefix_length (cidr) int"),
    ("masked", Cost::One, net::masked, ".cidr_masked (cidr) cidr"),
    ("url", Cost::Traverse, url::url, "string_to_url (string) url"),
    ("isURL", Cost::One, url::is_url, "is_url_string (string) bool"),
    ("getScheme", Cost::One, |_, a| url::scheme_of(a), ".url_get_scheme (url) string"),
    ("getHost", Cost::One, |_, a| url::host_of(a), ".url_get_host (url) string"),
    ("getHostname", Cost::One, url::hostname, ".url_get_hostname (url) string"),
    ("getPort", Cost::One, url::port, ".url_get_port (url) string"),
    ("getEscapedPath", Cost::One, url::escaped_path, ".url_get_escaped_path (url) string"),
    ("getQuery", Cost::One, url::query, ".url_get_query (url) map(string, list(string))"),
    // Quantities, versions and formats.
    ("quantity", Cost::Parse(1), quantity::quantity, "string_to_quantity (string) quantity"),
    ("isQuantity", Cost::Parse(1), quantity::is_quantity, "is_quantity_string (string) bool"),
    ("sign", Cost::One, quantity::sign, "quantity_sign (quantity) int"),
    ("isInteger", Cost::One, quantity::is_integer, ".quantity_is_integer (quantity) bool"),
    ("asInteger", Cost::One, quantity::as_integer, ".quantity_get_int (quantity) int"),
    ("asApproximateFloat", Cost::One, quantity::as_float, ".quantity_get_float (quantity) double"),
    ("add", Cost::One, quantity::add,
        ".quantity_add (quantity, quantity) quantity; .quantity_add_int (quantity, int) quantity"),
    ("sub", Cost::One, quantity::sub,
        ".quantity_sub (quantity, quantity) quantity; .quantity_sub_int (quantity, int) quantity"),
    ("isGreaterThan", Cost::One, quantity::is_greater,
        ".@_is_greater_than (@, @) bool for quantity semver"),
    ("isLessThan", Cost::One, quantity::is_less, ".@_is_less_than (@, @) bool for quantity semver"),
    ("compareTo", Cost::One, quantity::compare_to, ".@_compare_to (@, @) int for quantity semver"),
    ("semver", Cost::Parse(1), semver::semver,
        "string_to_semver (string) semver; string_bool_to_semver (string, bool) semver"),
    ("isSemver", Cost::Parse(1), semver::is_semver,
        "is_semver_string (string) bool; is_semver_string_bool (string, bool) bool"),
    ("major", Cost::One, semver::major, ".semver_major (semver) int"),
    ("minor", Cost::One, semver::minor, ".semver_minor (semver) int"),
    ("patch", Cost::One, semver::patch, ".semver_patch (semver) int"),
    ("format.named", Cost::One, format::named, "format-named (string) optional(format)"),
    ("validate", Cost::Validate, format::validate, ".format-validate (format, string) optional(list(string))"),
    ("format.dns1123Label", Cost::One, |_, _| format::get("dns1123Label"), FORMAT),
    ("format.dns1123Subdomain", Cost::One, |_, _| format::get("dns1123Subdomain"), FORMAT),
    ("format.dns1035Label", Cost::One, |_, _| format::get("dns1035Label"), FORMAT),
    ("format.qualifiedName", Cost::One, |_, _| format::get("qualifiedName"), FORMAT),
    ("format.dns1123LabelPrefix", Cost::One, |_, _| format::get("dns1123LabelPrefix"), FORMAT),
    ("format.dns1123SubdomainPrefix", Cost::One, |_, _| format::get("dns1123SubdomainPrefix"), FORMAT),
    ("format.dns1035LabelPrefix", Cost::One, |_, _| format::get("dns1035LabelPrefix"), FORMAT),
    ("format.labelValue", Cost::One, |_, _| format::get("labelValue"), FORMAT),
    ("format.uri", Cost::One, |_, _| format::get("uri"), FORMAT),
    ("format.uuid", Cost::One, |_, _| format::get("uuid"), FORMAT),
    ("format.byte", Cost::One, |_, _| format::get("byte"), FORMAT),
    // Authorization.
    ("path", Cost::One, authz::path, ".authorizer_path (authorizer, string) pathcheck"),
    ("group", Cost::One, authz::group, ".authorizer_group (authorizer, string) groupcheck"),
    ("serviceAccount", Cost::One, authz::service_account,
        ".authorizer_serviceaccount (authorizer, string, string) authorizer"),
    ("resource", Cost::One, authz::resource, ".groupcheck_resource (groupcheck, string) resourcecheck"),
    ("subresource", Cost::One, |_, a| authz::narrow(a, |r| &mut r.subresource),
        ".resourcecheck_subresource (resourcecheck, string) resourcecheck"),
    ("namespace", Cost::One, |_, a| authz::narrow(a, |r| &mut r.namespace),
        ".resourcecheck_namespace (resourcecheck, string) resourcecheck"),
    ("name", Cost::One, |_, a| authz::narrow(a, |r| &mut r.name),
        ".resourcecheck_name (resourcecheck, string) resourcecheck"),
    ("fieldSelector", Cost::Selector, |_, a| authz::narrow(a, |r| &mut r.field_selector),
        ".authorizer_fieldselector (resourcecheck, string) resourcecheck"),
    ("labelSelector", Cost::Selector, |_, a| authz::narrow(a, |r| &mut r.label_selector),
        ".authorizer_labelselector (resourcecheck, string) resourcecheck"),
    ("check", Cost::Check, authz::check,
        ".pathcheck_check (pathcheck, string) decision; .resourcecheck_check (resourcecheck, string) decision"),
    ("allowed", Cost::One, |_, a| authz::allowed(a), ".decision_allowed (decision) bool"),
    ("reason", Cost::One, |_, a| authz::reason(a), ".decision_reason (decision) string"),
    ("errored", Cost::One, |_, a| authz::errored(a), ".decision_errored (decision) bool"),
    ("error", Cost::One, |_, a| authz::error(a), ".decision_error (decision) string"),
    ("format.date", Cost::One, |_, _| format::get("date"), FORMAT),
    ("format.datetime", Cost::One, |_, _| format::get("datetime"), FORMAT),
];

const FORMAT: &str = "format_constant () format";
const DATE_PART: &str = ".part (timestamp) int; .part_with_tz (timestamp, string) int";
const TIME_PART: &str =
    ".part (timestamp) int; .part_with_tz (timestamp, string) int; .duration_part (duration) int";

macro_rules! ordered {
    ($name:literal) => {
        concat!(
            $name,
            "_@ (@, @) bool for bool int uint double string bytes timestamp duration; ",
            $name,
            "_int64_double (int, double) bool; ",
            $name,
            "_int64_uint64 (int, uint) bool; ",
            $name,
            "_uint64_double (uint, double) bool; ",
            $name,
            "_uint64_int64 (uint, int) bool; ",
            $name,
            "_double_int64 (double, int) bool; ",
            $name,
            "_double_uint64 (double, uint) bool"
        )
    };
}

const LESS: &str = ordered!("less");
const LESS_EQUALS: &str = ordered!("less_equals");
const GREATER: &str = ordered!("greater");
const GREATER_EQUALS: &str = ordered!("greater_equals");
