//! `EventRateLimit`: limits the rate of events, in total, per namespace, per user, and per object. Off by
//! default.
//!
//! Upstream: kubernetes `plugin/pkg/admission/eventratelimit`.

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::Mutex;
use plinth_codec::Value;
use serde::Deserialize;

use super::call::Call;
use super::section::decode_section;
use plinth_api::{ApiError, Cause, ConfigKind, Reason};
use plinth_apiserver::token_bucket::{TokenBucket, TokenRate};

pub(super) const NAME: &str = "EventRateLimit";
/// Default number of buckets of a limit.
const BUCKETS: usize = 4096;

/// Which events share a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Server,
    Namespace,
    User,
    SourceAndObject,
}

const KINDS: [(&str, Kind); 4] = [
    ("Server", Kind::Server),
    ("Namespace", Kind::Namespace),
    ("User", Kind::User),
    ("SourceAndObject", Kind::SourceAndObject),
];

impl Kind {
    fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map(|(name, _)| *name).unwrap_or_default()
    }

    fn key(self, namespace: &str, user: &str, event: &Value) -> String {
        match self {
            Kind::Server => String::new(),
            Kind::Namespace => namespace.to_owned(),
            Kind::User => user.to_owned(),
            Kind::SourceAndObject => {
                const PARTS: [[&str; 2]; 7] = [
                    ["source", "component"],
                    ["source", "host"],
                    ["involvedObject", "kind"],
                    ["involvedObject", "namespace"],
                    ["involvedObject", "name"],
                    ["involvedObject", "uid"],
                    ["involvedObject", "apiVersion"],
                ];
                PARTS.iter().map(|path| event.str_at(path).unwrap_or_default()).collect()
            }
        }
    }
}

/// One limit. The lock of its buckets is held for a lookup, or a pass over all of them when there are too
/// many.
#[derive(Debug)]
struct Limit {
    kind: Kind,
    /// Of events.
    rate: TokenRate,
    most: usize,
    buckets: Mutex<HashMap<String, TokenBucket>>,
}

impl Limit {
    /// Takes a token if there is one.
    fn take_token(&self, key: &str, now: Instant) -> bool {
        let mut buckets = self.buckets.lock();
        if !buckets.contains_key(key) && buckets.len() >= self.most {
            self.make_room(&mut buckets, now);
        }
        let bucket = buckets.entry(key.to_owned()).or_insert_with(|| TokenBucket::full(&self.rate, now));
        bucket.try_take(&self.rate, now)
    }

    /// Removes full buckets, which are equivalent to absent ones; if there are none, the half that is least
    /// recently used.
    fn make_room(&self, buckets: &mut HashMap<String, TokenBucket>, now: Instant) {
        buckets.retain(|_, bucket| !bucket.is_full(&self.rate, now));
        if buckets.len() < self.most {
            return;
        }
        let mut times: Vec<Instant> = buckets.values().map(TokenBucket::used_at).collect();
        let middle = times.len() / 2;
        if middle < times.len() {
            let (_, median, _) = times.select_nth_unstable(middle);
            let median = *median;
            buckets.retain(|_, bucket| bucket.used_at() > median);
        }
    }
}

const KIND: ConfigKind =
    ConfigKind { kind: "Configuration", versions: &["eventratelimit.admission.k8s.io/v1alpha1"] };

/// The section of the configuration file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Configuration {
    limits: Vec<LimitEntry>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LimitEntry {
    r#type: String,
    qps: i32,
    burst: i32,
    cache_size: i32,
}

/// The configured limits.
#[derive(Debug, Default)]
pub(super) struct Limits(Vec<Limit>);

impl Limits {
    /// Loads the configuration; null when there is none, which is an error: a limit is required.
    ///
    /// # Errors
    /// Another kind, unknown members, no limit, limits that allow nothing.
    pub(super) fn read(part: &Value) -> Result<Limits, String> {
        let config: Configuration =
            if part.is_null() { Configuration::default() } else { decode_section(part, KIND)? };
        if config.limits.is_empty() {
            return Err("limits: Invalid value: null: must not be empty".to_owned());
        }
        config
            .limits
            .iter()
            .enumerate()
            .map(|(i, entry)| limit_of(entry, i))
            .collect::<Result<_, _>>()
            .map(Limits)
    }

    /// The limits that are exceeded; empty when the event is allowed.
    fn refusals(&self, namespace: &str, user: &str, event: &Value, now: Instant) -> Vec<String> {
        let mut out = Vec::new();
        for limit in &self.0 {
            let key = limit.kind.key(namespace, user, event);
            if !limit.take_token(&key, now) {
                out.push(format!("limit reached on type {} for key {key}", limit.kind.name()));
            }
        }
        out
    }
}

fn limit_of(entry: &LimitEntry, i: usize) -> Result<Limit, String> {
    let at = format!("limits[{i}]");
    let given = entry.r#type.as_str();
    let Some((_, kind)) = KINDS.into_iter().find(|(name, _)| *name == given) else {
        let names = ["Namespace", "Server", "SourceAndObject", "User"];
        let error = Cause::not_supported(format!("{at}.type"), given, &names);
        return Err(format!("{}: {}", error.field, error.message));
    };
    for (key, given) in [("burst", entry.burst), ("qps", entry.qps)] {
        if given <= 0 {
            return Err(format!("{at}.{key}: Invalid value: {given}: must be positive"));
        }
    }
    let most = match entry.cache_size {
        0 => BUCKETS,
        given => usize::try_from(given)
            .map_err(|_| format!("{at}.cacheSize: Invalid value: {given}: must not be negative"))?,
    };
    let rate = TokenRate::new(f64::from(entry.qps), entry.burst.unsigned_abs());
    Ok(Limit { kind, rate, most, buckets: Mutex::default() })
}

/// Denies an event beyond a limit.
///
/// # Errors
/// 429 where a limit is used up.
pub(super) fn validate(call: &Call<'_>, limits: &Limits, event: &Value) -> Result<(), ApiError> {
    if call.dry_run {
        return Ok(());
    }
    let refusals = limits.refusals(call.namespace, &call.cx.user.name, event, Instant::now());
    let why = match refusals.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    Err(ApiError::new(429, Reason::TooManyRequests, format!("Too many requests: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;
    use std::time::Duration;

    fn limits(list: &str) -> Result<Limits, String> {
        let text = format!(
            r#"{{"apiVersion":"eventratelimit.admission.k8s.io/v1alpha1","kind":"Configuration","limits":{list}}}"#
        );
        Limits::read(&json::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn buckets_empty_and_fill_again() {
        let limits =
            limits(r#"[{"type":"Namespace","qps":2,"burst":3},{"type":"User","qps":1,"burst":4}]"#).unwrap();
        let event = Value::object();
        let start = Instant::now();
        let refusals = |namespace: &str, user: &str, millis: u64| {
            limits.refusals(namespace, user, &event, start + Duration::from_millis(millis))
        };
        for _ in 0..3 {
            assert!(refusals("a", "u", 0).is_empty());
        }
        assert_eq!(refusals("a", "u", 0), ["limit reached on type Namespace for key a"]);
        // The user's four are used up by now, too.
        assert_eq!(
            refusals("a", "u", 0),
            ["limit reached on type Namespace for key a", "limit reached on type User for key u"]
        );
        assert!(refusals("b", "v", 0).is_empty());
        assert!(refusals("a", "v", 500).is_empty());
        assert_eq!(refusals("a", "v", 500).len(), 1);
    }

    #[test]
    fn sources_and_objects_have_buckets_of_their_own_and_there_are_not_too_many() {
        let limits = limits(r#"[{"type":"SourceAndObject","qps":1,"burst":1,"cacheSize":2}]"#).unwrap();
        let event = |name: &str| {
            let text = format!(r#"{{"source":{{"component":"c"}},"involvedObject":{{"name":"{name}"}}}}"#);
            json::parse(text.as_bytes()).unwrap()
        };
        let start = Instant::now();
        let refusals = |name: &str, millis: u64| {
            limits.refusals("n", "u", &event(name), start + Duration::from_millis(millis)).len()
        };
        assert_eq!(
            [refusals("a", 0), refusals("a", 0), refusals("b", 1), refusals("c", 2), refusals("b", 3)],
            [0, 1, 0, 0, 0]
        );
        assert!(limits.0[0].buckets.lock().len() <= 2);
    }

    #[test]
    fn configurations_by_table() {
        let rows = [
            ("[]", "limits: Invalid value: null: must not be empty"),
            (r#"[{"type":"X","qps":1,"burst":1}]"#, "limits[0].type: Unsupported value: \"X\": supported values: \"Namespace\", \"Server\", \"SourceAndObject\", \"User\""),
            (r#"[{"type":"User","qps":1}]"#, "limits[0].burst: Invalid value: 0: must be positive"),
            (r#"[{"type":"User","qps":-1,"burst":1}]"#, "limits[0].qps: Invalid value: -1: must be positive"),
            (r#"[{"type":"User","qps":1,"burst":1,"cacheSize":-1}]"#, "limits[0].cacheSize: Invalid value: -1: must not be negative"),
            (r#"[{"type":"User","qp":1}]"#, "strict decoding error: unknown field \"limits[0].qp\""),
        ];
        for (list, error) in rows {
            assert_eq!(limits(list).unwrap_err(), error, "{list}");
        }
    }
}
