//! The errors of generated objects, as a hash per kind (`recording.txt`): validation that is rewritten keeps
//! each error, its path, its text and its place among the others.
//!
//! Objects are random members of the schema, and random changes of the objects of `rules.txt`. Where a change
//! is meant, `RECORDING=dir` writes the new table to `dir/all`, and the hash of each object to a file per kind;
//! `RECORDING_TEXT=plural` adds the objects and their errors. `RECORDING_TIMES=n` makes n times as many
//! objects.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plinth_api::Cause;
use plinth_codec::schema::{self, Scalar, SchemaOr, Type, TypeId};
use plinth_codec::{json, patch, resources, Map, Value};

use crate::rows::ROWS;
use crate::Strategy;

/// Random objects of each kind.
const OBJECTS: usize = 150;

/// Changes of each value in the good objects.
const CHANGES: usize = 1;

const WORDS: &[&str] = &[
    "",
    "a",
    "b",
    "c",
    "A_b",
    "a.b",
    "a/b",
    "x.io/a",
    "x.example.io/a",
    "a b",
    ".",
    "..",
    "../a",
    "a/../b",
    "..a",
    "/",
    "/a",
    "//",
    "localhost/x",
    "10.0.0.1",
    "10.0.0.2",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.0.0.1/8",
    "010.0.0.1",
    "127.0.0.1",
    "fd00::1",
    "FD00::1",
    "fd00::/8",
    "::ffff:1.2.3.4",
    "1",
    "-1",
    "0",
    "100m",
    "2Gi",
    "3",
    "50%",
    "150%",
    "x%",
    "v1",
    "apps/v1",
    "a/b/c",
    "None",
    "Always",
    "Never",
    "OnFailure",
    "True",
    "False",
    "*",
    "*/*",
    "pods",
    "pods/*",
    "*/scale",
    "pods/scale",
    "nodes",
    "metadata.name",
    "metadata.labels['a']",
    "metadata.annotations['a b']",
    "spec.nodeName",
    "limits.cpu",
    "cpu",
    "memory",
    "storage",
    "hugepages-2Mi",
    "http",
    "HTTP",
    "https://a/b",
    "http://u@a/b?c#d",
    "* * * * *",
    "*/0 * * * *",
    "@daily",
    "TZ=UTC * * * * *",
    "UTC",
    "kubernetes.io/a",
    "iqn.2001-04.com.example:s",
    "Localhost",
    "RuntimeDefault",
    "Unconfined",
    "Bidirectional",
    "Enabled",
    "IfPossible",
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
    "Gt",
    "Lt",
    "Equal",
    "NoExecute",
    "NoSchedule",
    "Container",
    "Pod",
    "PersistentVolumeClaim",
    "Pods",
    "Resource",
    "Object",
    "External",
    "ContainerResource",
    "Utilization",
    "Value",
    "AverageValue",
    "ExternalName",
    "LoadBalancer",
    "NodePort",
    "ClusterIP",
    "Local",
    "IPv4",
    "IPv6",
    "FQDN",
    "Indexed",
    "FailIndex",
    "Terminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "2024-01-01T00:00:00Z",
    "2023-01-01T00:00:00Z",
    "User",
    "Group",
    "ServiceAccount",
    "ClusterRole",
    "rbac.authorization.k8s.io",
    "Queue",
    "Reject",
    "Limited",
    "Exempt",
    "DELETE",
    "CREATE",
    "object.a == 1",
    "object.a ==",
    "Deny",
    "Warn",
    "ReadWriteOnce",
    "ReadWriteOncePod",
    "Recycle",
    "Retain",
    "RollingUpdate",
    "OnDelete",
    "Recreate",
    "RestartContainer",
    "Suspended",
    "Complete",
    "Failed",
    "FailureTarget",
    "SuccessCriteriaMet",
    "0-3,5",
    "3,1",
    "ExactCount",
    "All",
    "system-x",
    "0Mi",
    "-5",
    "x.io/b",
];

const NUMBERS: &[i64] = &[
    0,
    0,
    1,
    1,
    1,
    2,
    3,
    -1,
    5,
    10,
    80,
    100,
    101,
    255,
    256,
    443,
    600,
    599,
    1000,
    1801,
    3601,
    65535,
    65536,
    99_999,
    100_000,
    100_001,
    20_001,
    i32::MAX as i64,
    i32::MAX as i64 + 1,
    (1 << 32) + 1,
];

/// Random numbers by xorshift64.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most.max(1)
    }

    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn word(&mut self) -> String {
        match self.below(60) {
            0 => "a".repeat(64),
            1 => "a".repeat(254),
            2 => "a.".repeat(2100),
            3..20 => WORDS[1 + self.below(3)].to_owned(),
            _ => WORDS[self.below(WORDS.len())].to_owned(),
        }
    }

    pub(super) fn object(&mut self, id: TypeId, depth: usize) -> Value {
        let schema = schema::builtin();
        match schema.get(id) {
            Type::Scalar(scalar) => self.scalar(scalar, depth),
            Type::Struct(members) => {
                let mut object = Map::new();
                let chance = [60, 250, 500, 900][self.below(4)] / members.fields.len().max(4) + 4;
                for field in members.fields.iter().filter(|field| field.name != "managedFields") {
                    let wanted = match depth {
                        0 => field.name != "status" || self.percent(50),
                        _ => self.percent(if field.required { 85 } else { chance.min(70) }),
                    };
                    if wanted && depth < 14 {
                        object.insert(field.name.clone(), self.object(field.type_id, depth + 1));
                    }
                }
                Value::Object(object)
            }
            Type::List { element, .. } => {
                let count = [0, 1, 1, 2, 3][self.below(5)];
                let mut list: Vec<Value> = (0..count).map(|_| self.object(*element, depth + 1)).collect();
                if let Some(last) = list.last().filter(|_| count > 0).cloned().filter(|_| self.percent(20)) {
                    list.push(last);
                }
                list.into()
            }
            Type::Map { value, .. } => {
                let count = self.below(3);
                let mut map = Map::new();
                for _ in 0..count {
                    map.insert(self.word(), self.object(*value, depth + 1));
                }
                Value::Object(map)
            }
        }
    }

    fn scalar(&mut self, scalar: &Scalar, depth: usize) -> Value {
        match scalar {
            Scalar::Bool => self.percent(50).into(),
            Scalar::Int32 | Scalar::Int64 => NUMBERS[self.below(NUMBERS.len())].into(),
            Scalar::Double => Value::Float(0.5),
            Scalar::String { values } if !values.is_empty() && self.percent(85) => {
                values[self.below(values.len())].as_str().into()
            }
            Scalar::Quantity => ["1", "2", "0", "-1", "100m", "1Gi", "2Gi", "3Mi"][self.below(8)].into(),
            Scalar::IntOrString if self.percent(60) => NUMBERS[self.below(NUMBERS.len())].into(),
            Scalar::Time | Scalar::MicroTime => {
                ["2024-01-01T00:00:00Z", "2023-01-01T00:00:00Z"][self.below(2)].into()
            }
            Scalar::Json | Scalar::RawExtension | Scalar::Any | Scalar::FieldsV1 => Value::object(),
            Scalar::SchemaOr(SchemaOr::Bool, _) => true.into(),
            Scalar::SchemaOr(_, id) if depth < 6 => self.object(*id, depth + 1),
            Scalar::SchemaOr(..) => Value::object(),
            _ => self.word().into(),
        }
    }

    /// Another value in place of this one; `None` removes it.
    fn other(&mut self, value: &Value) -> Option<Value> {
        match (value, self.below(8)) {
            (_, 0) => None,
            (Value::Array(_), 1) => Some(Vec::<Value>::new().into()),
            (Value::Array(list), 2..6) => {
                let mut list = list.clone();
                let copy = list.get(self.below(list.len())).cloned();
                list.extend(copy);
                Some(list.into())
            }
            (Value::Array(list), _) => {
                let count = [3, 9, 33, 101, 260][self.below(5)];
                Some(
                    list.iter()
                        .cycle()
                        .take(if list.is_empty() { 0 } else { count })
                        .cloned()
                        .collect::<Vec<_>>()
                        .into(),
                )
            }
            (Value::Object(_), 1..4) => Some(Value::object()),
            (Value::Object(map), _) => {
                let mut map = map.clone();
                let key = self.word();
                let copy = map.values().next().cloned().unwrap_or_else(|| "a".into());
                map.insert(key, copy);
                Some(Value::Object(map))
            }
            (Value::Bool(flag), _) => Some((!flag).into()),
            (Value::Int(_), 1..8) => Some(NUMBERS[self.below(NUMBERS.len())].into()),
            (Value::String(_), 1) => Some("".into()),
            _ => Some(self.word().into()),
        }
    }
}

/// The places of all values in an object, as keys and indexes.
pub(super) fn places(value: &Value, at: &[String], found: &mut Vec<Vec<String>>) {
    let mut below = |key: String, inner: &Value| {
        let place = [at, &[key]].concat();
        found.push(place.clone());
        places(inner, &place, found);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| below(key.to_string(), inner)),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, inner)| below(i.to_string(), inner)),
        _ => {}
    }
}

pub(super) fn with(object: &Value, place: &[String], change: impl FnOnce(&Value) -> Option<Value>) -> Value {
    let mut object = object.clone();
    let (last, parents) = place.split_last().unwrap();
    let mut holder = &mut object;
    for step in parents {
        holder = match holder {
            Value::Array(list) => &mut list[step.parse::<usize>().unwrap()],
            other => other.get_mut(step).unwrap(),
        };
    }
    match holder {
        Value::Array(list) => {
            let i = last.parse::<usize>().unwrap();
            match change(&list[i]) {
                Some(value) => list[i] = value,
                None => drop(list.remove(i)),
            }
        }
        Value::Object(map) => match change(&map.get(last).cloned().unwrap_or_default()) {
            Some(value) => drop(map.insert(last.as_str(), value)),
            None => drop(map.remove(last)),
        },
        _ => {}
    }
    object
}

/// A hash by FNV-1a that goes on from `start`.
pub(super) fn hash(text: &[u8], start: u64) -> u64 {
    text.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

pub(super) const START: u64 = 0xcbf2_9ce4_8422_2325;

#[derive(Default)]
struct Record {
    objects: usize,
    causes: usize,
    hash: u64,
    lines: String,
}

impl Record {
    fn add(&mut self, strategy: &Strategy, plural: &str, object: &Value, old: &Value, text: Option<&str>) {
        let mut all: Vec<(String, Vec<Cause>)> = vec![
            ("create".into(), strategy.create_errors(object)),
            ("changed".into(), strategy.changed_errors(object, old)),
            ("update".into(), strategy.update_errors(object, old)),
            ("status".into(), strategy.status_errors(object, old)),
        ];
        for subresource in strategy.subresources {
            all.push((subresource.name.into(), subresource_errors(subresource, object, old)));
            let mut new = object.clone();
            (subresource.prepare)(&mut new, old);
            all.push((format!("{} prepared", subresource.name), subresource_errors(subresource, &new, old)));
        }
        for name in ["", "status", "approval"] {
            all.push((format!("subresource {name}"), through(strategy, name, object, old)));
        }
        if plural == "services" {
            for (old, cluster) in [(None, &["IPv4"][..]), (Some(old), &["IPv4", "IPv6"][..])] {
                let errors = crate::service_families::set_families(&mut object.clone(), old, cluster);
                all.push(("families".into(), errors));
            }
        }
        if let Some(spec) = object.get("spec").filter(|spec| spec.get("tolerations").is_some()) {
            all.push(("tolerations".into(), tolerations(spec)));
        }
        let mut shown = String::new();
        for (name, errors) in &all {
            for error in errors {
                self.causes += 1;
                let _ = writeln!(shown, "{name}: {} {} {}", error.field, error.reason, error.message);
            }
        }
        self.objects += 1;
        let own = hash(shown.as_bytes(), START);
        self.hash = hash(&own.to_le_bytes(), self.hash);
        let _ = writeln!(self.lines, "{} {own:016x}", self.objects);
        if text == Some(plural) {
            let mut bytes = Vec::new();
            json::write_untyped(object, &mut bytes);
            let _ = writeln!(self.lines, "{}\n{shown}", String::from_utf8_lossy(&bytes));
        }
    }
}

fn subresource_errors(subresource: &crate::SubresourceStrategy, new: &Value, old: &Value) -> Vec<Cause> {
    subresource.errors(new, old)
}

fn through(strategy: &Strategy, name: &str, new: &Value, old: &Value) -> Vec<Cause> {
    strategy.subresource_errors(name, new, old)
}

fn tolerations(spec: &Value) -> Vec<Cause> {
    let mut errors = Vec::new();
    crate::validate_tolerations(spec, format_args!("plugin.key."), &mut errors);
    errors
}

/// The good objects of `rules.txt`, and what its rows make of them, by resource.
pub(super) fn good_objects() -> BTreeMap<(String, String), Vec<Value>> {
    let table = include_str!("rules.txt");
    let mut bases: BTreeMap<&str, ((String, String), Vec<&str>, Value)> = BTreeMap::new();
    let mut objects: BTreeMap<(String, String), Vec<Value>> = BTreeMap::new();
    for line in table.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        if let Some(rest) = line.strip_prefix("base ") {
            let parts: Vec<&str> = rest.splitn(4, ' ').collect();
            let (group, plural) = parts[1].split_once('/').unwrap();
            let object = json::parse(parts[3].as_bytes()).unwrap();
            let key = (group.to_owned(), plural.to_owned());
            objects.entry(key.clone()).or_default().push(object.clone());
            bases.insert(parts[0], (key, parts[2].split('.').collect(), object));
            continue;
        }
        let parts: Vec<&str> = line.splitn(3, " |").collect();
        let (key, way, base) = &bases[parts[0]];
        let mut object = base.clone();
        let target = super::rules::place(&mut object, way).unwrap();
        *target =
            patch::merge_patch(target.clone(), json::parse(parts[1].trim().as_bytes()).unwrap()).unwrap();
        objects.entry(key.clone()).or_default().push(object);
    }
    objects
}

#[test]
fn errors_are_as_recorded() {
    let (dir, text) = (std::env::var("RECORDING").ok(), std::env::var("RECORDING_TEXT").ok());
    let times = std::env::var("RECORDING_TIMES").ok().and_then(|times| times.parse::<usize>().ok());
    let good = good_objects();
    let mut all = String::new();
    let (mut objects, mut causes) = (0, 0);
    for (group, plural, strategy) in ROWS {
        if text.as_deref().is_some_and(|wanted| wanted != *plural) {
            continue;
        }
        let rows = &resources::known().table.resources;
        let served = rows.iter().find(|row| row.group == *group && row.plural == *plural).unwrap();
        let gvk = served.gvk();
        let mut random = Random(hash(plural.as_bytes(), START));
        let mut record = Record { hash: START, ..Record::default() };
        let mut old = Value::object();
        let id = schema::builtin().kind(&gvk).unwrap();
        for _ in 0..OBJECTS * times.unwrap_or(1) {
            let mut object = random.object(id, 0);
            if let Some(map) = object.as_object_mut() {
                map.insert("kind", gvk.kind.as_str());
                map.insert("apiVersion", gvk.api_version().as_str());
            }
            if random.percent(70) {
                strategy.default(&mut object);
            }
            record.add(strategy, plural, &object, &old, text.as_deref());
            old = object;
        }
        for base in good.get(&((*group).to_owned(), (*plural).to_owned())).into_iter().flatten() {
            let mut base = base.clone();
            strategy.default(&mut base);
            let mut found = Vec::new();
            places(&base, &[], &mut found);
            record.add(strategy, plural, &base, &old, text.as_deref());
            for place in &found {
                for _ in 0..CHANGES * times.unwrap_or(1) {
                    let changed = with(&base, place, |value| random.other(value));
                    record.add(strategy, plural, &changed, &base, text.as_deref());
                    if random.percent(20) {
                        record.add(strategy, plural, &base, &changed, text.as_deref());
                    }
                }
            }
        }
        if let Some(dir) = &dir {
            std::fs::write(format!("{dir}/{plural}.{group}"), &record.lines).unwrap();
        }
        let _ = writeln!(all, "{group}/{plural} {:016x}", record.hash);
        objects += record.objects;
        causes += record.causes;
    }
    if let Some(dir) = &dir {
        std::fs::write(format!("{dir}/all"), &all).unwrap();
    }
    println!("{objects} objects, {causes} causes");
    if times.is_none() && text.is_none() {
        let changed: Vec<&str> = all
            .lines()
            .filter(|line| !include_str!("recording.txt").lines().any(|old| old == *line))
            .collect();
        assert!(changed.is_empty(), "errors of {changed:?} changed");
    }
}
