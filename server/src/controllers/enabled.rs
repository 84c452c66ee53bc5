//! `--controllers`: selection of controllers, in kube-controller-manager's format.

use std::str::FromStr;

use super::ALL;

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
