//! `--runtime-config`: which built-in versions and resources are served
//! (k8s.io/apiserver, `pkg/server/resourceconfig`).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use clap::Args;
use plinth_codec::resources::{self, BuiltinResources, Table};
use plinth_codec::schema::{self, GVK};

use super::go_bool::parse_bool;
use plinth_apiserver::feature_gates::FeatureGates;

/// Every form of a version that a built-in group has had.
const VERSIONS: &[&str] = &["v1", "v2", "v1alpha1", "v1alpha2", "v1alpha3", "v1beta1", "v1beta2", "v1beta3"];

/// Keys that select versions by their stability, in the order in which they apply.
const STABILITIES: [(&str, fn(&str) -> bool); 4] = [
    ("api/all", |_| true),
    ("api/ga", |version| !version.contains("beta") && !version.contains("alpha")),
    ("api/beta", |version| version.contains("beta")),
    ("api/alpha", |version| version.contains("alpha")),
];

/// A value of the flag that upstream refuses, in its words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the variants are what is wrong; their texts say it
pub enum RuntimeConfigError {
    #[error("invalid runtime-config with only api/all=false")]
    Nothing,
    #[error("runtime-config invalid key {0}")]
    Key(String),
    #[error("unknown api groups {0}")]
    Groups(String),
    #[error("invalid value {key}={value}")]
    Stability { key: &'static str, value: String },
    #[error("group version {0} that has not been registered")]
    Version(String),
    #[error("invalid value of {key}: {value}, err: {error}")]
    Value { key: String, value: String, error: String },
    #[error(
        "invalid key {key}: group/version/resource and resource is always lowercase plural, not {resource:?}"
    )]
    Resource { key: String, resource: String },
}

/// Which built-in APIs are served.
#[derive(Debug, Default, Args)]
pub struct ApiEnablementOptions {
    /// Built-in APIs to enable or disable, as KEY=true|false,...: GROUP/VERSION, GROUP/VERSION/RESOURCE,
    /// api/all, api/ga, api/beta, api/alpha
    #[arg(long, value_name = "LIST")]
    pub runtime_config: Vec<String>,
}

/// A key that names a version or a resource.
struct Setting<'a> {
    key: &'a str,
    group: &'a str,
    version: &'a str,
    resource: Option<&'a str>,
    value: &'a str,
}

impl Setting<'_> {
    fn version(&self) -> String {
        GVK::new(self.group, self.version, "").api_version().to_string()
    }
}

impl ApiEnablementOptions {
    /// The resources that the flag selects, without those whose feature gate is off.
    ///
    /// # Errors
    /// When it names what does not exist.
    pub fn enabled(&self, gates: &FeatureGates) -> Result<Table, RuntimeConfigError> {
        let pairs = self.runtime_config.iter().flat_map(|list| list.split(','));
        let pairs =
            pairs.filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let values: BTreeMap<&str, &str> = pairs.map(|(key, value)| (key.trim(), value.trim())).collect();
        if values.len() == 1 && values.get("api/all") == Some(&"false") {
            return Err(RuntimeConfigError::Nothing);
        }
        let named = values.iter().filter(|(key, _)| STABILITIES.iter().all(|(name, _)| name != *key));
        let named: Vec<Setting<'_>> =
            named.map(|(key, value)| setting(key, value)).collect::<Result<_, _>>()?;
        let unknown = named.iter().filter(|setting| !is_group(setting.group));
        let unknown: BTreeSet<String> = unknown.map(Setting::version).collect();
        if !unknown.is_empty() {
            return Err(RuntimeConfigError::Groups(Vec::from_iter(unknown).join(",")));
        }
        let mut preferences = Preferences::new(resources::known());
        for (key, matches) in STABILITIES {
            match values.get(key) {
                None => {}
                Some(&"true") => preferences.set_matching(matches, true),
                Some(&"false") => preferences.set_matching(matches, false),
                Some(value) => {
                    return Err(RuntimeConfigError::Stability { key, value: (*value).to_owned() });
                }
            }
        }
        for setting in &named {
            preferences.apply(setting)?;
        }
        Ok(preferences.enabled(gates))
    }
}

fn setting<'a>(key: &'a str, value: &'a str) -> Result<Setting<'a>, RuntimeConfigError> {
    let tokens: Vec<&str> = key.split('/').collect();
    let (group, version, resource) = match tokens.as_slice() {
        [group, version] => (*group, *version, None),
        [group, version, resource] => (*group, *version, Some(*resource)),
        _ => return Err(RuntimeConfigError::Key(key.to_owned())),
    };
    Ok(Setting { key, group, version, resource, value })
}

/// Whether upstream's scheme has a version: those that are no longer served are among them.
fn is_version(group: &str, version: &str) -> bool {
    schema::builtin().kind(&GVK::new(group, version, "ListOptions")).is_some()
}

fn is_group(group: &str) -> bool {
    VERSIONS.iter().any(|version| is_version(group, version))
}

/// What is on and off, resources above versions.
struct Preferences {
    known: &'static BuiltinResources,
    versions: HashMap<(String, String), bool>,
    resources: HashMap<(String, String, String), bool>,
}

impl Preferences {
    fn new(known: &'static BuiltinResources) -> Preferences {
        let groups = known.table.groups.iter();
        let versions = groups.flat_map(|group| {
            group.versions.iter().map(|(version, _)| {
                let is_on = known.is_on_by_default(&group.name, version);
                ((group.name.to_string(), version.to_string()), is_on)
            })
        });
        Preferences { known, versions: versions.collect(), resources: HashMap::new() }
    }

    fn set_matching(&mut self, matches: fn(&str) -> bool, is_on: bool) {
        for ((_, version), value) in &mut self.versions {
            if matches(version) {
                *value = is_on;
            }
        }
    }

    fn apply(&mut self, setting: &Setting<'_>) -> Result<(), RuntimeConfigError> {
        let Setting { key, group, version, resource, value } = *setting;
        if !is_version(group, version) {
            return Err(RuntimeConfigError::Version(setting.version()));
        }
        let is_on = match value {
            "" => Ok(true),
            value => parse_bool(value),
        };
        let is_on = is_on.map_err(|error| {
            let (key, value) = (key.to_owned(), value.to_owned());
            RuntimeConfigError::Value { key, value, error }
        })?;
        if let Some(resource) = resource.filter(|resource| resource.to_lowercase() != *resource) {
            let (key, resource) = (key.to_owned(), resource.to_owned());
            return Err(RuntimeConfigError::Resource { key, resource });
        }
        let (group, version) = (group.to_owned(), version.to_owned());
        match resource {
            None => self.versions.insert((group, version), is_on),
            Some(resource) => self.resources.insert((group, version, resource.to_owned()), is_on),
        };
        Ok(())
    }

    fn is_on(&self, group: &str, version: &str, resource: &str) -> bool {
        let (group, version) = (group.to_owned(), version.to_owned());
        let of_version = || self.versions.get(&(group.clone(), version.clone())).copied();
        let of_resource = self.resources.get(&(group.clone(), version.clone(), resource.to_owned())).copied();
        of_resource.or_else(of_version).unwrap_or(false)
    }

    fn enabled(&self, gates: &FeatureGates) -> Table {
        self.known.table.selected(|row| {
            self.is_on(&row.group, &row.version, &row.plural)
                && self.known.gate(row).is_none_or(|gate| gates.is_on(gate))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enabled(values: &[&str]) -> Result<Table, String> {
        let runtime_config = values.iter().map(|value| (*value).to_owned()).collect();
        let gates = FeatureGates::from_iter(["StorageVersionMigrator"]);
        ApiEnablementOptions { runtime_config }.enabled(&gates).map_err(|error| error.to_string())
    }

    fn serves(table: &Table, group: &str, version: &str, plural: &str) -> bool {
        let mut rows = table.resources.iter();
        rows.any(|row| row.group == group && row.version == version && row.plural == plural)
    }

    #[test]
    fn versions_and_resources_are_switched() {
        let apis = enabled(&[]).unwrap();
        assert_eq!(&apis, resources::builtin());
        let apis =
            enabled(&["networking.k8s.io/v1beta1=true,apps/v1/daemonsets=false", "batch/v1=0"]).unwrap();
        assert!(serves(&apis, "networking.k8s.io", "v1beta1", "servicecidrs"));
        assert!(serves(&apis, "apps", "v1", "deployments") && !serves(&apis, "apps", "v1", "daemonsets"));
        assert!(!apis.groups.iter().any(|group| group.name == "batch"));
        // The last value counts; one without a value is true.
        let apis = enabled(&["batch/v1=false", "batch/v1"]).unwrap();
        assert!(serves(&apis, "batch", "v1", "jobs"));
        let apis = enabled(&["api/all=false,/v1=true,apps/v1/deployments=true"]).unwrap();
        assert!(serves(&apis, "", "v1", "pods") && serves(&apis, "apps", "v1", "deployments"));
        assert!(!serves(&apis, "apps", "v1", "daemonsets") && !serves(&apis, "batch", "v1", "jobs"));
        let apis = enabled(&["api/beta=true,api/alpha=false"]).unwrap();
        assert!(serves(&apis, "storage.k8s.io", "v1beta1", "volumeattributesclasses"));
        assert!(!serves(&apis, "admissionregistration.k8s.io", "v1alpha1", "mutatingadmissionpolicies"));
        assert!(serves(&apis, "resource.k8s.io", "v1beta2", "devicetaintrules"));
        assert!(serves(&apis, "resource.k8s.io", "v1beta1", "resourceslices"));
        assert!(!serves(&apis, "resource.k8s.io", "v1alpha3", "devicetaintrules"));
        // A group that is off as a whole.
        assert!(!apis.groups.iter().any(|group| group.name == "internal.apiserver.k8s.io"));
        let apis = enabled(&["internal.apiserver.k8s.io/v1alpha1=true"]).unwrap();
        assert!(serves(&apis, "internal.apiserver.k8s.io", "v1alpha1", "storageversions"));
        // What has a gate is served if that is on, and the version is.
        let apis = enabled(&["api/beta=true"]).unwrap();
        assert!(serves(&apis, "storagemigration.k8s.io", "v1beta1", "storageversionmigrations"));
        assert!(!serves(&apis, "certificates.k8s.io", "v1beta1", "clustertrustbundles"));
        // What upstream has a version of and serves nothing of.
        assert_eq!(
            &enabled(&["scheduling.k8s.io/v1alpha2=true,apps/v1beta1=true"]).unwrap(),
            resources::builtin()
        );
        assert_eq!(&enabled(&["resource.k8s.io/v1beta1=false"]).unwrap(), resources::builtin());
    }

    #[test]
    fn what_does_not_exist_is_refused_in_upstreams_words() {
        for (values, expected) in [
            ("api/all=false", "invalid runtime-config with only api/all=false"),
            ("v1=false", "runtime-config invalid key v1"),
            ("a/b/c/d=true", "runtime-config invalid key a/b/c/d"),
            ("example.com/v1=true,api/legacy=true", "unknown api groups api/legacy,example.com/v1"),
            ("api/beta=maybe", "invalid value api/beta=maybe"),
            ("apps/v7=true", "group version apps/v7 that has not been registered"),
            (
                "apps/v1=yes",
                r#"invalid value of apps/v1: yes, err: strconv.ParseBool: parsing "yes": invalid syntax"#,
            ),
            (
                "apps/v1/Deployments=true",
                r#"invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not "Deployments""#,
            ),
        ] {
            assert_eq!(enabled(&[values]).unwrap_err(), expected);
        }
    }
}
