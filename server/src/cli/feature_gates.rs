//! `--feature-gates`: those of kube-apiserver v1.36 (k8s.io/component-base, `featuregate`). What most gates
//! switch has one state here; one that asks for the other state is refused.

use std::collections::BTreeMap;

use clap::Args;

use super::go_bool::parse_bool;
use plinth_apiserver::feature_gates::FeatureGates;

/// The gates; its header describes the format.
const TABLE: &str = include_str!("feature_gates.table");

/// Gates of all gates of a stage.
const STAGES: [(&str, &str); 2] = [("AllAlpha", "alpha"), ("AllBeta", "beta")];

/// A gate of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gate<'a> {
    name: &'a str,
    stage: &'a str,
    is_on_by_default: bool,
    is_locked: bool,
    here: Here,
}

/// What becomes of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Here {
    /// Works, and cannot be switched off.
    On,
    /// Not implemented.
    Off,
    /// Switches kinds on and off.
    Either,
    /// Changes no answer of an API server.
    Without,
}

/// A value of the flag that upstream refuses, in its words, or that asks for the other state.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the variants are what is wrong; their texts say it
pub enum FeatureGateError {
    #[error("missing bool value for {0}")]
    NoValue(String),
    #[error("invalid value of {key}={value}, err: {error}")]
    Value { key: String, value: String, error: String },
    #[error("component not registered: {0}")]
    Component(String),
    #[error("set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use")]
    Mixed,
    #[error("{}", aggregate(.0))]
    Gates(Vec<String>),
}

/// Several errors as upstream lists them.
fn aggregate(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// Feature gates.
#[derive(Debug, Default, Args)]
pub struct FeatureGateOptions {
    /// Feature gates of kube-apiserver, as GATE=true|false,...; what most switch cannot be changed here
    #[arg(long, value_name = "LIST")]
    pub feature_gates: Vec<String>,
}

impl FeatureGateOptions {
    /// Checks that every gate has the state that is asked for, and returns those that are on of the ones that
    /// can be switched.
    ///
    /// # Errors
    /// For unknown gates, and for those that cannot be switched.
    pub fn enabled(&self) -> Result<FeatureGates, FeatureGateError> {
        let gates: BTreeMap<&str, Gate<'static>> = gates().map(|gate| (gate.name, gate)).collect();
        let mut errors = Vec::new();
        let values = self.values()?;
        for (name, is_on) in &values {
            let is_on = *is_on;
            match (name.as_str(), gates.get(name.as_str())) {
                (name, None) if let Some((_, stage)) = STAGES.iter().find(|(group, _)| *group == name) => {
                    errors.extend(group_error(&gates, name, stage, is_on));
                }
                (_, None) => errors.push(format!("unrecognized feature gate: {name}")),
                (_, Some(gate)) => errors.extend(gate.error(is_on)),
            }
        }
        if !errors.is_empty() {
            return Err(FeatureGateError::Gates(errors));
        }
        let is_on = |gate: &&Gate<'_>| {
            let of_stage = STAGES.iter().find(|(_, stage)| *stage == gate.stage);
            let value = values.get(gate.name).or_else(|| values.get(of_stage?.0));
            value.copied().unwrap_or(gate.is_on_by_default)
        };
        Ok(gates
            .values()
            .filter(|gate| gate.here == Here::Either)
            .filter(is_on)
            .map(|gate| gate.name)
            .collect())
    }

    /// Name, upstream's name of the stage, and state of every gate, for its metric.
    pub(super) fn states(&self, enabled: &FeatureGates) -> Vec<(&'static str, &'static str, bool)> {
        // A value that is wrong ends the start before.
        let given = self.values().unwrap_or_default();
        let state = |gate: Gate<'static>| {
            let stage = match gate.stage {
                "alpha" => "ALPHA",
                "beta" => "BETA",
                "deprecated" => "DEPRECATED",
                _ => "",
            };
            let is_on = match gate.here {
                Here::On => true,
                Here::Off => false,
                Here::Either => enabled.is_on(gate.name),
                Here::Without => given.get(gate.name).copied().unwrap_or(gate.is_on_by_default),
            };
            (gate.name, stage, is_on)
        };
        gates().map(state).collect()
    }

    /// The values by name; of one that is given twice the last.
    fn values(&self) -> Result<BTreeMap<String, bool>, FeatureGateError> {
        const COMPONENT: &str = "kube";
        let mut values = BTreeMap::new();
        let mut prefixes = [false; 2];
        for pair in self.feature_gates.iter().flat_map(|list| list.split(',')).filter(|pair| !pair.is_empty())
        {
            let (component, pair) = pair.split_once(':').unwrap_or(("", pair));
            match component.trim() {
                "" => prefixes[0] = true,
                COMPONENT => prefixes[1] = true,
                other => return Err(FeatureGateError::Component(other.to_owned())),
            }
            let Some((key, value)) = pair.split_once('=') else {
                return Err(FeatureGateError::NoValue(pair.trim().to_owned()));
            };
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            let is_on = match parse_bool(&value) {
                Ok(is_on) => is_on,
                Err(error) => return Err(FeatureGateError::Value { key, value, error }),
            };
            values.insert(key, is_on);
        }
        match prefixes {
            [true, true] => Err(FeatureGateError::Mixed),
            _ => Ok(values),
        }
    }
}

/// The error of `AllAlpha` or `AllBeta`, which names the gates that cannot be switched.
fn group_error(gates: &BTreeMap<&str, Gate<'_>>, name: &str, stage: &str, is_on: bool) -> Option<String> {
    // What is on or off anyway is not asked for.
    let others = |gate: &&Gate<'_>| gate.stage == stage && !gate.is_locked && gate.is_on_by_default != is_on;
    let fixed = gates.values().filter(others);
    let fixed: Vec<&str> = fixed.filter(|gate| gate.conflicts(is_on)).map(|gate| gate.name).collect();
    let why = if is_on { "are not implemented" } else { "cannot be switched off" };
    (!fixed.is_empty())
        .then(|| format!("cannot set feature gate {name} to {is_on}: {} {why}", fixed.join(", ")))
}

impl Gate<'_> {
    fn conflicts(&self, is_on: bool) -> bool {
        matches!((self.here, is_on), (Here::On, false) | (Here::Off, true))
    }

    fn error(&self, is_on: bool) -> Option<String> {
        let name = self.name;
        if self.is_locked && is_on != self.is_on_by_default {
            let default = self.is_on_by_default;
            return Some(format!(
                "cannot set feature gate {name} to {is_on}, feature is locked to {default}"
            ));
        }
        let why = if is_on { "it is not implemented" } else { "it cannot be switched off" };
        self.conflicts(is_on).then(|| format!("cannot set feature gate {name} to {is_on}: {why}"))
    }
}

fn gates() -> impl Iterator<Item = Gate<'static>> {
    TABLE.lines().filter_map(gate)
}

/// `None` for comments, and for a line that is none of a gate; a test finds those.
fn gate(line: &str) -> Option<Gate<'_>> {
    let columns: Vec<&str> = line.split_whitespace().collect();
    let [name, stage, default, here] = columns.as_slice() else { return None };
    if name.starts_with('#') {
        return None;
    }
    let here = match *here {
        "on" | "part" => Here::On,
        "off" => Here::Off,
        "either" => Here::Either,
        "none" => Here::Without,
        _ => return None,
    };
    Some(Gate {
        name,
        stage,
        is_on_by_default: default.starts_with("on"),
        is_locked: default.ends_with('!'),
        here,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn check(values: &[&str]) -> Result<(), String> {
        let feature_gates = values.iter().map(|value| (*value).to_owned()).collect();
        FeatureGateOptions { feature_gates }.enabled().map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn what_can_be_switched_is_what_the_table_of_resources_names() {
        let either: BTreeSet<&str> =
            gates().filter(|gate| gate.here == Here::Either).map(|gate| gate.name).collect();
        assert_eq!(either, plinth_codec::resources::known().gates().collect());
        let enabled = |values: &[&str]| {
            let feature_gates = values.iter().map(|value| (*value).to_owned()).collect();
            FeatureGateOptions { feature_gates }.enabled().unwrap()
        };
        assert_eq!(enabled(&[]), FeatureGates::default());
        let on = enabled(&["ClusterTrustBundle=true,StorageVersionMigrator=false"]);
        assert!(on.is_on("ClusterTrustBundle") && !on.is_on("StorageVersionMigrator"));
    }

    #[test]
    fn every_line_is_a_gate_and_in_order() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        let names: Vec<&str> = gates().map(|gate| gate.name).collect();
        assert_eq!(names.len(), lines);
        assert!(names.is_sorted() && lines == names.iter().collect::<BTreeSet<_>>().len());
        for gate in gates() {
            assert!(["alpha", "beta", "ga", "deprecated"].contains(&gate.stage), "{}", gate.name);
        }
    }

    /// Those that concern an API server and are not locked are in the document, with the state of the table.
    #[test]
    fn the_document_has_the_gates() {
        let document = include_str!("../../../docs/feature-gates.md");
        let (document, _) = document.split_once("\n## ").unwrap();
        let documented: BTreeMap<&str, &str> = document
            .lines()
            .filter_map(|line| {
                let cells: Vec<&str> = line.strip_prefix("| `")?.split('|').map(str::trim).collect();
                Some((cells.first()?.trim_end_matches('`'), *cells.get(2)?))
            })
            .collect();
        let lines = TABLE.lines().filter_map(|line| Some((gate(line)?, line.split_whitespace().last()?)));
        let expected: BTreeMap<&str, &str> = lines
            .filter(|(gate, _)| !gate.is_locked && gate.here != Here::Without)
            .map(|(gate, here)| (gate.name, here))
            .collect();
        assert_eq!(documented, expected);
    }

    #[test]
    fn gates_have_one_state() {
        for given in [
            &["WatchList=true"][..],
            &["kube:WatchList=true,kube:HPAScaleToZero=false"],
            // Other components', and how upstream does it.
            &["GracefulNodeShutdown=false", "ListFromCacheSnapshot=false,"],
            &["SidecarContainers=true"],
            &["AllAlpha=false"],
            &["WatchList=false", "WatchList=1"],
            &[],
        ] {
            assert_eq!(check(given), Ok(()), "{given:?}");
        }
    }

    #[test]
    fn the_other_state_and_unknown_gates_are_refused() {
        for (given, expected) in [
            ("Nonesuch=true", "unrecognized feature gate: Nonesuch"),
            ("WatchList", "missing bool value for WatchList"),
            (
                "WatchList=maybe",
                r#"invalid value of WatchList=maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax"#,
            ),
            (
                "SidecarContainers=false",
                "cannot set feature gate SidecarContainers to false, feature is locked to true",
            ),
            ("WatchList=false", "cannot set feature gate WatchList to false: it cannot be switched off"),
            ("HPAScaleToZero=true", "cannot set feature gate HPAScaleToZero to true: it is not implemented"),
            (
                "HPAScaleToZero=true,Nonesuch=false",
                "[cannot set feature gate HPAScaleToZero to true: it is not implemented, unrecognized feature gate: Nonesuch]",
            ),
            ("wardle:X=true", "component not registered: wardle"),
            (
                "kube:WatchList=true,WatchList=true",
                "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use",
            ),
        ] {
            assert_eq!(check(&[given]).unwrap_err(), expected);
        }
        let error = check(&["AllAlpha=true"]).unwrap_err();
        assert!(error.contains("HPAScaleToZero") && error.ends_with("are not implemented"), "{error}");
        let error = check(&["AllBeta=false"]).unwrap_err();
        assert!(error.contains("WatchList") && error.ends_with("cannot be switched off"), "{error}");
    }
}
