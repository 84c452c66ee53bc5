//! Configuration compiled from FlowSchema and PriorityLevelConfiguration objects.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use hyper::header::HeaderValue;
use plinth_codec::Value;

use super::allocation::{self, LevelAllocation, SeatBounds, SeatDemand};
use super::bootstrap;
use super::classify::{Distinguisher, FlowSchemaRules, RequestDigest};
use super::level::PriorityLevel;
use super::metrics::{FlowMetrics, SchemaMetrics};
use super::queues::{Queuing, Rejected};
use super::shuffle::Dealer;

/// A compiled flow schema.
pub struct FlowSchema {
    /// Name of the FlowSchema object.
    pub name: String,
    /// `metadata.uid`, for the response header.
    pub uid: HeaderValue,
    /// The UID of its level.
    pub level_uid: HeaderValue,
    /// What distinguishes its flows.
    pub distinguisher: Distinguisher,
    /// The level that it assigns requests to.
    pub level: Arc<PriorityLevel>,
    /// Its series, looked up once.
    pub metrics: SchemaMetrics,
    rules: FlowSchemaRules,
    precedence: i64,
}

impl FlowSchema {
    /// Number of requests refused for that reason.
    pub(super) fn rejected(&self, why: Rejected) -> u64 {
        self.metrics.rejections(self.level.name(), &self.name, why)
    }
}

/// A level with its configuration and allocation.
struct LevelState {
    level: Arc<PriorityLevel>,
    allocation: LevelAllocation,
    limit: u32,
    uid: HeaderValue,
    shares: u32,
    lendable: u32,
    borrowing: Option<u32>,
    queuing: Queuing,
    hand: u32,
    /// Whether it has an object; a level without one is kept until it is idle.
    configured: bool,
}

/// Schemas in matching order. Immutable; replaced when objects change.
pub struct Config {
    schemas: Vec<Arc<FlowSchema>>,
}

impl Config {
    /// The schemas in matching order.
    pub(super) fn schemas(&self) -> &[Arc<FlowSchema>] {
        &self.schemas
    }

    /// The first schema that matches a request. Costs a few string comparisons per schema.
    pub fn classify(&self, digest: &RequestDigest<'_>) -> Option<&Arc<FlowSchema>> {
        // The last one, `catch-all`, is the fallback, as upstream's.
        self.schemas.iter().find(|schema| schema.rules.matches(digest)).or(self.schemas.last())
    }
}

/// A flow schema's reference to a level, for its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelReference {
    /// Name of the FlowSchema.
    pub schema: String,
    /// The referenced level.
    pub level: String,
    /// Whether the level exists.
    pub found: bool,
}

/// All levels and the allocation of the server's seats. Changed by one task only.
pub struct Levels {
    seats: u32,
    clock: Instant,
    metrics: FlowMetrics,
    levels: HashMap<String, LevelState>,
}

impl Levels {
    /// No levels yet, in a server with that many seats.
    pub fn new(seats: u32, metrics: FlowMetrics) -> Levels {
        Levels { seats, clock: Instant::now(), metrics, levels: HashMap::new() }
    }

    /// Applies the objects. Invalid objects count as absent, as upstream does; absent mandatory ones
    /// are replaced by their defaults.
    pub fn apply_objects(&mut self, levels: &[Value], schemas: &[Value]) -> (Config, Vec<LevelReference>) {
        let mandatory: Vec<bootstrap::BootstrapConfig> =
            bootstrap::objects().into_iter().filter(|object| object.mandatory).collect();
        let defaults_for = |resource: &str, given: &[Value]| -> Vec<Value> {
            let missing = |object: &&bootstrap::BootstrapConfig| {
                object.resource == resource && !given.iter().any(|v| name_of(v) == object.name)
            };
            mandatory.iter().filter(missing).map(|object| object.object.clone()).collect()
        };
        for state in self.levels.values_mut() {
            state.configured = false;
        }
        let defaults = defaults_for("prioritylevelconfigurations", levels);
        for object in levels.iter().chain(&defaults) {
            self.apply_level(object);
        }
        self.levels.retain(|name, state| {
            let stays = state.configured || !state.level.is_idle();
            if !stays {
                self.metrics.remove_level(name);
            }
            stays
        });
        self.update_bounds();
        let mut references = Vec::new();
        let mut found: Vec<Arc<FlowSchema>> = Vec::new();
        let defaults = defaults_for("flowschemas", schemas);
        for (at, object) in schemas.iter().chain(&defaults).enumerate() {
            let schema = self.schema(object);
            if at < schemas.len() {
                let level = object.str_at(&["spec", "priorityLevelConfiguration", "name"]);
                references.push(LevelReference {
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

    fn apply_level(&mut self, object: &Value) {
        let name = name_of(object);
        let Some(spec) = LevelSpec::read(name, object) else {
            tracing::warn!(name, "PriorityLevelConfiguration is invalid and ignored");
            return;
        };
        let clock = self.clock;
        let state = self.levels.entry(name.to_owned()).or_insert_with(|| LevelState {
            level: Arc::new(match spec.queuing {
                None => PriorityLevel::exempt(name, clock),
                Some(queuing) => PriorityLevel::limited(name, queuing, 0, clock),
            }),
            allocation: LevelAllocation {
                bounds: SeatBounds { nominal: 0, lower: 0, upper: 0 },
                demand: SeatDemand::default(),
                exempt: spec.queuing.is_none(),
            },
            limit: 0,
            uid: HeaderValue::from_static(""),
            shares: 0,
            lendable: 0,
            borrowing: None,
            queuing: Queuing::Reject,
            hand: 1,
            configured: true,
        });
        state.configured = true;
        state.uid = uid_of(object);
        state.shares = spec.shares;
        state.lendable = spec.lendable;
        state.borrowing = spec.borrowing;
        state.queuing = spec.queuing.unwrap_or(Queuing::Reject);
        state.hand = spec.hand;
    }

    /// Computes the limits of every level by shares, and the initial seats of new levels.
    fn update_bounds(&mut self) {
        let all: u32 = self.levels.values().map(|g| g.shares).fold(0, u32::saturating_add);
        for state in self.levels.values_mut() {
            let is_new = state.allocation.bounds == SeatBounds { nominal: 0, lower: 0, upper: 0 };
            let bounds = SeatBounds::new(self.seats, state.shares, all, state.lendable, state.borrowing);
            state.allocation.bounds = bounds;
            if is_new {
                // Without statistics its demand is assumed to be its initial limit.
                state.limit = bounds.initial();
            }
            state.level.configure(state.queuing, bounds.nominal, state.hand);
        }
        self.apply();
    }

    /// Reallocates the seats by the demand since the last call. Must be called every `BORROWING_PERIOD`.
    pub fn rebalance(&mut self) {
        for state in self.levels.values_mut() {
            state.allocation.demand.update(state.level.reset_demand());
        }
        self.apply();
    }

    fn apply(&mut self) {
        let levels: Vec<LevelAllocation> = self.levels.values().map(|g| g.allocation).collect();
        let (limits, fraction) = allocation::divide(&levels);
        for (state, limit) in self.levels.values_mut().zip(limits) {
            state.limit = limit;
            state.level.set_limit(limit);
            self.metrics.set_limits(state.level.name(), &state.allocation, limit);
        }
        self.metrics.set_fair_fraction(fraction);
    }

    fn schema(&self, object: &Value) -> Option<FlowSchema> {
        let spec = object.get("spec")?;
        let level = spec.str_at(&["priorityLevelConfiguration", "name"])?;
        let state = self.levels.get(level).filter(|state| state.configured)?;
        let (name, rules) = (name_of(object), FlowSchemaRules::read(spec));
        Some(FlowSchema {
            name: name.to_owned(),
            uid: uid_of(object),
            level_uid: state.uid.clone(),
            distinguisher: rules.distinguisher,
            level: state.level.clone(),
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
    /// `None` for the exempt level.
    queuing: Option<Queuing>,
    hand: u32,
}

impl LevelSpec {
    /// `None` when the spec is inconsistent (upstream's `queueSetCompleterForPL`). Absent fields have the
    /// API's defaults.
    fn read(name: &str, object: &Value) -> Option<LevelSpec> {
        let spec = object.get("spec")?;
        let exempt = spec.str_at(&["type"])? == "Exempt";
        let part = spec.get(if exempt { "exempt" } else { "limited" })?;
        // The type of a level is immutable, so the name decides.
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
