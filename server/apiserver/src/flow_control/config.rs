//! What FlowSchema and PriorityLevelConfiguration objects say, ready for the requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use hyper::header::HeaderValue;
use plinth_codec::Value;

use super::allocation::{self, Bounds, Claim, Wanted};
use super::bootstrap;
use super::classify::{Digest, Distinguisher, Rules};
use super::level::Level;
use super::metrics::{FlowMetrics, SchemaMetrics};
use super::queues::Queuing;
use super::shuffle::Dealer;

/// A flow schema in use.
pub struct Schema {
    /// Its name.
    pub name: String,
    /// `metadata.uid`, for the answer's header.
    pub uid: HeaderValue,
    /// The UID of its level.
    pub level_uid: HeaderValue,
    /// What tells its flows apart.
    pub distinguisher: Distinguisher,
    /// Its level.
    pub level: Arc<Level>,
    /// What it counts.
    pub metrics: SchemaMetrics,
    rules: Rules,
    precedence: i64,
}

/// A level in use, with what it has and wants.
struct Graded {
    level: Arc<Level>,
    claim: Claim,
    limit: u32,
    uid: HeaderValue,
    shares: u32,
    lendable: u32,
    borrowing: Option<u32>,
    queuing: Queuing,
    hand: u32,
    /// Whether an object stands behind it; one without lives on until it is idle.
    wanted: bool,
}

/// The schemas in the order in which they are asked. Immutable; a change of objects makes a new one.
pub struct Config {
    schemas: Vec<Arc<Schema>>,
}

impl Config {
    /// The schema of a request: the first that matches. Costs a few comparisons of strings for each schema before.
    pub fn classify(&self, digest: &Digest<'_>) -> Option<&Arc<Schema>> {
        // The last one, `catch-all`, takes what nobody wants, as upstream's does.
        self.schemas.iter().find(|schema| schema.rules.matches(digest)).or(self.schemas.last())
    }
}

/// A reference of a flow schema to a level, for its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The schema.
    pub schema: String,
    /// The level that it names.
    pub level: String,
    /// Whether there is such a level.
    pub found: bool,
}

/// All levels, and how the server's seats are divided among them. Changed by one task only.
pub struct Levels {
    seats: u32,
    clock: Instant,
    metrics: FlowMetrics,
    levels: HashMap<String, Graded>,
}

impl Levels {
    /// No levels yet, in a server that serves so many requests at once.
    pub fn new(seats: u32, metrics: FlowMetrics) -> Levels {
        Levels { seats, clock: Instant::now(), metrics, levels: HashMap::new() }
    }

    /// Takes the objects over. Objects that make no sense are taken for absent, as upstream does; mandatory ones that
    /// are absent are made up.
    pub fn digest(&mut self, levels: &[Value], schemas: &[Value]) -> (Config, Vec<Reference>) {
        let mandatory: Vec<bootstrap::Bootstrap> =
            bootstrap::objects().into_iter().filter(|object| object.mandatory).collect();
        let made_up = |resource: &str, given: &[Value]| -> Vec<Value> {
            let missing = |object: &&bootstrap::Bootstrap| {
                object.resource == resource && !given.iter().any(|v| name_of(v) == object.name)
            };
            mandatory.iter().filter(missing).map(|object| object.object.clone()).collect()
        };
        for graded in self.levels.values_mut() {
            graded.wanted = false;
        }
        let imagined = made_up("prioritylevelconfigurations", levels);
        for object in levels.iter().chain(&imagined) {
            self.take_in(object);
        }
        self.levels.retain(|name, graded| {
            let stays = graded.wanted || !graded.level.is_idle();
            if !stays {
                self.metrics.forget_level(name);
            }
            stays
        });
        self.share_out();
        let mut references = Vec::new();
        let mut found: Vec<Arc<Schema>> = Vec::new();
        let imagined = made_up("flowschemas", schemas);
        for (at, object) in schemas.iter().chain(&imagined).enumerate() {
            let schema = self.schema(object);
            if at < schemas.len() {
                let level = object.str_at(&["spec", "priorityLevelConfiguration", "name"]);
                references.push(Reference {
                    schema: name_of(object).to_owned(),
                    level: level.unwrap_or_default().to_owned(),
                    found: schema.is_some(),
                });
            }
            found.extend(schema.map(Arc::new));
        }
        // Upstream's order: precedence, then name.
        found.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        (Config { schemas: found }, references)
    }

    fn take_in(&mut self, object: &Value) {
        let name = name_of(object);
        let Some(spec) = LevelSpec::read(name, object) else {
            tracing::warn!(name, "a PriorityLevelConfiguration makes no sense and is not used");
            return;
        };
        let clock = self.clock;
        let graded = self.levels.entry(name.to_owned()).or_insert_with(|| Graded {
            level: Arc::new(match spec.queuing {
                None => Level::exempt(name, clock),
                Some(queuing) => Level::limited(name, queuing, 0, clock),
            }),
            claim: Claim {
                bounds: Bounds { nominal: 0, least: 0, most: 0 },
                wanted: Wanted::default(),
                exempt: spec.queuing.is_none(),
            },
            limit: 0,
            uid: HeaderValue::from_static(""),
            shares: 0,
            lendable: 0,
            borrowing: None,
            queuing: Queuing::Reject,
            hand: 1,
            wanted: true,
        });
        graded.wanted = true;
        graded.uid = uid_of(object);
        graded.shares = spec.shares;
        graded.lendable = spec.lendable;
        graded.borrowing = spec.borrowing;
        graded.queuing = spec.queuing.unwrap_or(Queuing::Reject);
        graded.hand = spec.hand;
    }

    /// Gives every level its bounds by shares, new levels their first seats.
    fn share_out(&mut self) {
        let all: u32 = self.levels.values().map(|g| g.shares).fold(0, u32::saturating_add);
        for graded in self.levels.values_mut() {
            let is_new = graded.claim.bounds == Bounds { nominal: 0, least: 0, most: 0 };
            let bounds = Bounds::new(self.seats, graded.shares, all, graded.lendable, graded.borrowing);
            graded.claim.bounds = bounds;
            if is_new {
                // Until it is known what it wants, its demand is taken to be its first limit.
                graded.limit = bounds.at_first();
            }
            graded.level.configure(graded.queuing, bounds.nominal, graded.hand);
        }
        self.apply();
    }

    /// Divides the seats anew by what was wanted since the last time. To be called every
    /// `BORROWING_PERIOD`.
    pub fn rebalance(&mut self) {
        for graded in self.levels.values_mut() {
            graded.claim.wanted.take_in(graded.level.reset_demand());
        }
        self.apply();
    }

    fn apply(&mut self) {
        let claims: Vec<Claim> = self.levels.values().map(|g| g.claim).collect();
        let (limits, fraction) = allocation::divide(&claims);
        for (graded, limit) in self.levels.values_mut().zip(limits) {
            graded.limit = limit;
            graded.level.set_limit(limit);
            self.metrics.limits(graded.level.name(), &graded.claim, limit);
        }
        self.metrics.fair_fraction(fraction);
    }

    fn schema(&self, object: &Value) -> Option<Schema> {
        let spec = object.get("spec")?;
        let level = spec.str_at(&["priorityLevelConfiguration", "name"])?;
        let graded = self.levels.get(level).filter(|graded| graded.wanted)?;
        let (name, rules) = (name_of(object), Rules::read(spec));
        Some(Schema {
            name: name.to_owned(),
            uid: uid_of(object),
            level_uid: graded.uid.clone(),
            distinguisher: rules.distinguisher,
            level: graded.level.clone(),
            metrics: self.metrics.schema(level, name),
            rules,
            precedence: spec.get("matchingPrecedence").and_then(Value::as_int).unwrap_or(1000),
        })
    }
}

fn name_of(object: &Value) -> &str {
    object.str_at(&["metadata", "name"]).unwrap_or_default()
}

fn uid_of(object: &Value) -> HeaderValue {
    let uid = object.str_at(&["metadata", "uid"]).unwrap_or_default();
    HeaderValue::from_str(uid).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The `spec` of a PriorityLevelConfiguration.
struct LevelSpec {
    shares: u32,
    lendable: u32,
    borrowing: Option<u32>,
    /// None for the exempt level.
    queuing: Option<Queuing>,
    hand: u32,
}

impl LevelSpec {
    /// `None` when the parts do not fit together (upstream's `queueSetCompleterForPL`). Absent fields have the API's
    /// defaults.
    fn read(name: &str, object: &Value) -> Option<LevelSpec> {
        let spec = object.get("spec")?;
        let exempt = spec.str_at(&["type"])? == "Exempt";
        let part = spec.get(if exempt { "exempt" } else { "limited" })?;
        // A level cannot turn from exempt to limited, so the name decides.
        if exempt != (name == "exempt") {
            return None;
        }
        let number =
            |v: &Value, key: &str| v.get(key).and_then(Value::as_int).and_then(|n| u32::try_from(n).ok());
        let shares = number(part, "nominalConcurrencyShares").unwrap_or(if exempt { 0 } else { 30 });
        let lendable = number(part, "lendablePercent").unwrap_or(0).min(100);
        let borrowing = number(part, "borrowingLimitPercent");
        if exempt {
            return Some(LevelSpec { shares, lendable, borrowing, queuing: None, hand: 1 });
        }
        let response = part.get("limitResponse")?;
        let (queuing, hand) = match (response.str_at(&["type"])?, response.get("queuing")) {
            ("Reject", None) => (Queuing::Reject, 1),
            ("Queue", Some(queuing)) => {
                let queues = number(queuing, "queues").unwrap_or(64);
                let hand = number(queuing, "handSize").unwrap_or(8);
                let length = number(queuing, "queueLengthLimit").unwrap_or(50);
                let dealer = Dealer::new(queues as usize, hand as usize)?;
                (Queuing::Queue { dealer, queues: queues as usize, length: length as usize }, hand)
            }
            _ => return None,
        };
        Some(LevelSpec { shares, lendable, borrowing, queuing: Some(queuing), hand })
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
