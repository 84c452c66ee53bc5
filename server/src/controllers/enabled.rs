//! The controllers of kube-controller-manager, and `--controllers`, which selects them in its format.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use plinth_apiserver::context::Server;
use tokio::task::JoinHandle;

use super::{
    aggregation, certificates, collector, legacy_tokens, namespace, namespace_defaults, protection, quota,
    tokens,
};
use crate::admission::Plugins;
use crate::reconciler::spawn;

/// Settings of the controllers.
#[derive(Clone)]
pub struct ControllerSettings {
    /// The selected controllers.
    pub controllers: Controllers,
    /// The authority that clients inside of the cluster trust, PEM.
    pub root_ca: String,
    /// Admission's caches, for quotas.
    pub plugins: Arc<Plugins>,
    /// The authority that signs certificates.
    pub signing: certificates::SigningOptions,
    /// How long a legacy token may be unused.
    pub unused_tokens: Duration,
}

/// Starts a controller.
type Start = fn(&Arc<Server>, &ControllerSettings) -> JoinHandle<()>;

const ALL: &[(&str, Start)] = &[
    (namespace::NAME, |server, _| spawn(server, namespace::Namespaces::new(server))),
    (collector::NAME, |server, _| spawn(server, collector::Collector::new(server))),
    (protection::CLAIMS.name, |server, _| spawn(server, protection::CLAIMS.reconciler(server))),
    (protection::VOLUMES.name, |server, _| spawn(server, protection::VOLUMES.reconciler(server))),
    (protection::CLASSES.name, |server, _| spawn(server, protection::CLASSES.reconciler(server))),
    (quota::NAME, |server, settings| spawn(server, quota::Quotas::new(server, &settings.plugins))),
    (aggregation::NAME, |server, _| spawn(server, aggregation::Aggregation::new(server))),
    (namespace_defaults::SERVICE_ACCOUNT, |server, _| {
        spawn(server, namespace_defaults::default_service_account(server))
    }),
    (tokens::NAME, |server, settings| spawn(server, tokens::TokenSecrets::new(server, &settings.root_ca))),
    (legacy_tokens::NAME, |server, settings| {
        spawn(server, legacy_tokens::LegacyTokens::new(server, settings.unused_tokens))
    }),
    (namespace_defaults::ROOT_CA, |server, settings| {
        spawn(server, namespace_defaults::root_ca(server, &settings.root_ca))
    }),
    (certificates::APPROVING, |server, _| spawn(server, certificates::Requests::approving(server))),
    (certificates::SIGNING, |server, settings| {
        spawn(server, certificates::Requests::signing(server, &settings.signing))
    }),
    (certificates::CLEANER, |server, _| spawn(server, certificates::Requests::cleaner(server))),
];

/// The selected controllers. `*` selects all, `name` enables and `-name` disables one; the first entry that
/// names a controller decides (k8s.io/controller-manager `app/helper.go`, `IsControllerEnabled`).
///
/// ```
/// use plinth_server::controllers::Controllers;
///
/// let chosen: Controllers = "*,-garbage-collector-controller".parse().unwrap();
/// assert!(chosen.runs("namespace-controller"));
/// assert!(!chosen.runs("garbage-collector-controller"));
/// assert!("*,-garbage".parse::<Controllers>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers(Vec<String>);

/// No controller of this server has the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not in the list of known controllers: {}", known())]
pub struct UnknownController {
    name: String,
}

fn known() -> String {
    ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

impl Controllers {
    /// Whether a controller is enabled.
    pub fn runs(&self, name: &str) -> bool {
        for choice in &self.0 {
            match choice.strip_prefix('-') {
                Some(off) if off == name => return false,
                None if choice == name => return true,
                _ => {}
            }
        }
        self.0.iter().any(|choice| choice == "*")
    }
}

impl FromStr for Controllers {
    type Err = UnknownController;

    fn from_str(text: &str) -> Result<Controllers, UnknownController> {
        let choices: Vec<String> = text.split(',').map(str::trim).map(str::to_owned).collect();
        let is_known = |choice: &String| {
            let name = choice.strip_prefix('-').unwrap_or(choice);
            choice.is_empty() || choice == "*" || ALL.iter().any(|(known, _)| *known == name)
        };
        match choices.iter().find(|choice| !is_known(choice)) {
            Some(name) => Err(UnknownController { name: name.clone() }),
            None => Ok(Controllers(choices)),
        }
    }
}

/// Starts the selected controllers; returns their tasks.
pub fn start(server: &Arc<Server>, settings: &ControllerSettings) -> Vec<JoinHandle<()>> {
    let selected = ALL.iter().filter(|(name, _)| settings.controllers.runs(name));
    let start = selected.map(|(name, start)| {
        tracing::info!(controller = name, "starting controller");
        start(server, settings)
    });
    start.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_by_table() {
        let (gc, ns) = ("garbage-collector-controller", "namespace-controller");
        let rows = [
            ("*", true, true),
            ("*,-garbage-collector-controller", false, true),
            ("-garbage-collector-controller,*", false, true),
            ("-garbage-collector-controller", false, false),
            ("garbage-collector-controller", true, false),
            ("garbage-collector-controller,-garbage-collector-controller,*", true, true),
            ("", false, false),
        ];
        for (text, collector, namespaces) in rows {
            let chosen: Controllers = text.parse().unwrap();
            assert_eq!((chosen.runs(gc), chosen.runs(ns)), (collector, namespaces), "{text}");
        }
        let error = "*,-deployment".parse::<Controllers>().unwrap_err();
        assert!(error.to_string().starts_with("\"-deployment\" is not in the list of known controllers"));
    }
}
