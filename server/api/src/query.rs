//! The query parameters of a resource request, parsed once.
//!
//! Names and conversions are upstream's (k8s.io/apimachinery `pkg/runtime/conversion.go`, the option types of
//! `pkg/apis/meta/v1`): the first value of a repeated parameter is used, a boolean is true for
//! everything but `false` in any case and `0`, an integer that is given must be one, unknown parameters are
//! ignored.

use std::borrow::Cow;

use plinth_codec::error::{is_printable, quoted};

use crate::api_error::{ApiError, Cause};

/// Which options a request reads: integers of others need not be such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionsOf {
    /// ListOptions, also those of a watch.
    List,
    /// DeleteOptions, of a single object.
    Delete,
    /// ListOptions and DeleteOptions.
    DeleteCollection,
    /// None of them; the query of a proxied request is that of its target.
    Other,
}

/// The options of a resource request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Label selector, unparsed.
    pub label_selector: Option<String>,
    /// Field selector, unparsed.
    pub field_selector: Option<String>,
    /// Maximum number of items; 0 for all.
    pub limit: i64,
    /// Where the previous page ended.
    pub continue_token: Option<String>,
    /// Empty when absent.
    pub resource_version: String,
    /// Empty when absent.
    pub resource_version_match: String,
    /// Whether the client accepts bookmarks.
    pub allow_watch_bookmarks: bool,
    /// `None` when not given: unset and `false` differ for watches.
    pub send_initial_events: Option<bool>,
    /// Duration of a watch, in seconds.
    pub timeout_seconds: Option<i64>,
    /// `dryRun` values.
    pub dry_run: Vec<String>,
    /// `fieldManager`.
    pub field_manager: Option<String>,
    /// `fieldValidation`; empty when absent.
    pub field_validation: String,
    /// `force` of an apply.
    pub force: Option<bool>,
    /// `includeObject` of a Table.
    pub include_object: Option<String>,
    /// Grace period of a delete.
    pub grace_period_seconds: Option<i64>,
    /// `propagationPolicy`.
    pub propagation_policy: Option<String>,
    /// Deprecated form of `propagation_policy`.
    pub orphan_dependents: Option<bool>,
    /// Delete only the object with this UID.
    pub uid: Option<String>,
    /// Unsafe deletion of an unreadable object.
    pub ignore_store_read_error: Option<bool>,
}

impl Query {
    /// Parses a raw query string.
    ///
    /// # Errors
    /// 400 for a malformed number, with upstream's message.
    pub fn parse(raw: Option<&str>, of: OptionsOf) -> Result<Query, ApiError> {
        let lists = matches!(of, OptionsOf::List | OptionsOf::DeleteCollection);
        let deletes = matches!(of, OptionsOf::Delete | OptionsOf::DeleteCollection);
        let mut q = Query::default();
        let mut seen: Vec<Cow<'_, str>> = Vec::new();
        for (key, value) in query_parameters(raw.unwrap_or_default()) {
            if key == "dryRun" {
                q.dry_run.push(value.into_owned());
                continue;
            }
            if seen.contains(&key) {
                continue;
            }
            match &*key {
                "labelSelector" => q.label_selector = Some(value.into_owned()),
                "fieldSelector" => q.field_selector = Some(value.into_owned()),
                "limit" if lists => q.limit = parse_integer(&value)?,
                "continue" => q.continue_token = Some(value.into_owned()).filter(|t| !t.is_empty()),
                "resourceVersion" => q.resource_version = value.into_owned(),
                "resourceVersionMatch" => q.resource_version_match = value.into_owned(),
                "allowWatchBookmarks" => q.allow_watch_bookmarks = parse_boolean(&value),
                "sendInitialEvents" => q.send_initial_events = Some(parse_boolean(&value)),
                "timeoutSeconds" if lists => q.timeout_seconds = Some(parse_integer(&value)?),
                "fieldManager" => q.field_manager = Some(value.into_owned()).filter(|m| !m.is_empty()),
                "fieldValidation" => q.field_validation = value.into_owned(),
                "force" => q.force = Some(parse_boolean(&value)),
                "includeObject" => q.include_object = Some(value.into_owned()),
                "gracePeriodSeconds" if deletes => q.grace_period_seconds = Some(parse_integer(&value)?),
                "propagationPolicy" => q.propagation_policy = Some(value.into_owned()),
                "uid" => q.uid = Some(value.into_owned()).filter(|uid| !uid.is_empty()),
                "orphanDependents" => q.orphan_dependents = Some(parse_boolean(&value)),
                "ignoreStoreReadErrorWithClusterBreakingPotential" => {
                    q.ignore_store_read_error = Some(parse_boolean(&value));
                }
                _ => continue,
            }
            seen.push(key);
        }
        Ok(q)
    }

    /// Whether the request is a dry run.
    pub fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    /// Checks the parameters that all mutating verbs share (`ValidateCreateOptions` and its sisters in
    /// apimachinery `pkg/apis/meta/v1/validation`). `options` is the kind in the message.
    ///
    /// # Errors
    /// 422 with a cause per parameter.
    pub fn check_write_options(&self, options: &str) -> Result<(), ApiError> {
        let mut causes = Vec::new();
        if let Some(manager) = &self.field_manager {
            causes.extend(field_manager_error(manager));
        }
        if self.dry_run.iter().any(|v| v != "All") {
            let given: Vec<String> = self.dry_run.iter().map(|v| quoted(v)).collect();
            causes.push(Cause {
                reason: "FieldValueNotSupported",
                message: format!("Unsupported value: [{}]: supported values: \"All\"", given.join(",")),
                field: "dryRun".into(),
            });
        }
        if !matches!(self.field_validation.as_str(), "" | "Ignore" | "Warn" | "Strict") {
            causes.push(Cause {
                reason: "FieldValueNotSupported",
                message: format!(
                    "Unsupported value: {}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
                    quoted(&self.field_validation)
                ),
                field: "fieldValidation".into(),
            });
        }
        match causes.is_empty() {
            true => Ok(()),
            false => Err(ApiError::invalid("meta.k8s.io", options, "", causes)),
        }
    }
}

/// Maximum length of `fieldManager`, in bytes.
const FIELD_MANAGER_MAX: usize = 128;

fn field_manager_error(manager: &str) -> Option<Cause> {
    let error = |reason, message| Some(Cause { reason, message, field: "fieldManager".into() });
    if manager.len() > FIELD_MANAGER_MAX {
        return error(
            "FieldValueTooLong",
            format!("Too long: may not be more than {FIELD_MANAGER_MAX} bytes"),
        );
    }
    let bad = manager.char_indices().find(|(_, c)| !is_printable(*c));
    bad.and_then(|(at, c)| {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        error("FieldValueInvalid", format!("Invalid value: {}: {why}", quoted(manager)))
    })
}

/// The parameters of a raw query, decoded, in their order. Parts with a semicolon or a broken escape are
/// ignored, as Go ignores them. Every reader of a query uses this: a selector that authorization saw and a
/// list did not would expose all objects.
pub fn query_parameters(raw: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let is_escape = |bytes: &[u8]| bytes.len() >= 2 && bytes[..2].iter().all(u8::is_ascii_hexdigit);
    let is_good = move |part: &&str| {
        let bytes = part.as_bytes();
        !part.contains(';') && (0..bytes.len()).all(|i| bytes[i] != b'%' || is_escape(&bytes[i + 1..]))
    };
    raw.split('&').filter(is_good).flat_map(|part| form_urlencoded::parse(part.as_bytes()))
}

/// The first value of a parameter. Most queries without it are not parsed.
pub fn query_parameter<'a>(raw: &'a str, name: &str) -> Option<Cow<'a, str>> {
    query_may_have(raw, name)
        .then(|| query_parameters(raw).find(|(key, _)| key == name))
        .flatten()
        .map(|(_, v)| v)
}

/// Whether a raw query may have a parameter: it has its name, or something that is written otherwise.
pub fn query_may_have(raw: &str, name: &str) -> bool {
    raw.contains(name) || raw.contains(['%', '+'])
}

/// The value of a boolean parameter that is given (`Convert_Slice_string_To_bool`): also of an empty one.
pub fn parse_boolean(value: &str) -> bool {
    !value.eq_ignore_ascii_case("false") && value != "0"
}

/// The value of an integer parameter that is given.
///
/// # Errors
/// 400 with the error of Go's `strconv.ParseInt`, as upstream shows it; also for an empty value.
pub fn parse_integer(value: &str) -> Result<i64, ApiError> {
    match value.parse::<i64>() {
        Ok(n) => Ok(n),
        Err(e) => {
            use std::num::IntErrorKind::{NegOverflow, PosOverflow};
            let why = match e.kind() {
                PosOverflow | NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            Err(ApiError::bad_request(format!("strconv.ParseInt: parsing {value:?}: {why}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_repeated_parameter_counts() {
        let q =
            Query::parse(Some("limit=5&limit=7&watch=1&dryRun=All&dryRun=All&unknown=x"), OptionsOf::List)
                .unwrap();
        assert_eq!(q.limit, 5);
        assert_eq!(q.dry_run, ["All", "All"]);
    }

    #[test]
    fn what_go_cannot_read_is_left_out() {
        // query, what is read of it
        let rows: &[(&str, &[(&str, &str)])] = &[
            ("a=b&c=d%20e+f", &[("a", "b"), ("c", "d e f")]),
            ("a=b;c&d=e", &[("d", "e")]),
            ("a=%zz&b=%4&c=%&d=%41", &[("d", "A")]),
            ("&&a&=b", &[("a", ""), ("", "b")]),
            ("", &[]),
        ];
        for (query, expected) in rows {
            let read: Vec<_> = query_parameters(query).collect();
            let read: Vec<(&str, &str)> = read.iter().map(|(k, v)| (&**k, &**v)).collect();
            assert_eq!(&read, expected, "{query}");
        }
        assert_eq!(query_parameter("a=1;&a=2&a=3", "a").as_deref(), Some("2"));
        assert_eq!(query_parameter("p%72etty=1", "pretty").as_deref(), Some("1"));
        assert_eq!(query_parameter("x=pretty", "pretty"), None);
    }

    #[test]
    fn numbers_are_checked_in_gos_words() {
        for (query, value, why) in [
            ("limit=x", "x", "invalid syntax"),
            ("limit=", "", "invalid syntax"),
            ("timeoutSeconds=", "", "invalid syntax"),
            ("gracePeriodSeconds=1.5", "1.5", "invalid syntax"),
            ("timeoutSeconds=9223372036854775808", "9223372036854775808", "value out of range"),
        ] {
            let e = Query::parse(Some(query), OptionsOf::DeleteCollection).unwrap_err();
            let expected = format!("strconv.ParseInt: parsing \"{value}\": {why}");
            assert_eq!((e.code, e.message), (400, expected), "{query}");
            assert!(Query::parse(Some(query), OptionsOf::Other).is_ok(), "{query} is the target's");
        }
    }

    #[test]
    fn booleans_are_true_unless_they_are_false_or_zero() {
        for (value, expected) in [
            ("true", true),
            ("false", false),
            ("False", false),
            ("FALSE", false),
            ("fAlSe", false),
            ("0", false),
            ("", true),
            ("f", true),
            ("00", true),
            ("no", true),
            ("foo", true),
        ] {
            let q = format!("allowWatchBookmarks={value}&sendInitialEvents={value}&force={value}");
            let q = Query::parse(Some(&q), OptionsOf::List).unwrap();
            assert_eq!(q.allow_watch_bookmarks, expected, "{value}");
            assert_eq!((q.send_initial_events, q.force), (Some(expected), Some(expected)), "{value}");
        }
    }

    #[test]
    fn write_options_name_each_error() {
        let q = Query::parse(Some("dryRun=all&fieldValidation=strict&fieldManager=a%07b"), OptionsOf::Other)
            .unwrap();
        let e = q.check_write_options("CreateOptions").unwrap_err();
        let causes = e.details.unwrap().causes;
        let fields: Vec<&str> = causes.iter().map(|c| c.field.as_str()).collect();
        assert_eq!((e.code, fields), (422, vec!["fieldManager", "dryRun", "fieldValidation"]));
    }
}
