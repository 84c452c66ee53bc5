//! LeaseCandidate (`coordination.k8s.io`): who could lead. The versions that have it are off by default, and
//! so is the controller that would elect.

use plinth_codec::names;
use plinth_codec::selector::{Selectable, SelectableField};
use plinth_codec::table::Column;
use semver::Version;

use crate::checks::Check::{self, By, Required};
use crate::checks::Part;
use crate::strategy::{Conversion, Deprecation, NameRule, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    name: NameRule::ConfigKey,
    create_on_update: true,
    unconditional_update: false,
    checks: CHECKS,
    immutable: &["spec.leaseName"],
    columns: COLUMNS,
    selectable: Selectable::new(&[
        SelectableField::NAME,
        SelectableField::NAMESPACE,
        SelectableField::new("spec.leaseName"),
    ]),
    deprecations: &[
        Deprecation::new(
            "v1beta1",
            "coordination.k8s.io/v1beta1 LeaseCandidate is deprecated in v1.36+, unavailable in v1.39+",
            "1.39",
        ),
        Deprecation::new(
            "v1alpha2",
            "coordination.k8s.io/v1alpha2 LeaseCandidate is deprecated in v1.35+, unavailable in v1.38+",
            "1.38",
        ),
    ],
    conversions: &[Conversion::same("v1alpha2", ("coordination.k8s.io", "v1beta1"))],
    ..BASE
};

const CHECKS: &[Check] = &[Required("spec.leaseName", ""), By(versions), By(election)];

const OLDEST: &str = "OldestEmulationVersion";
const BINARY: &str = "spec.binaryVersion";
const EMULATION: &str = "spec.emulationVersion";

/// A version, with an error where there is one that cannot be read.
fn version(candidate: &Part<'_>, path: &str) -> Option<Version> {
    let text = candidate.set_text(path)?;
    let version = Version::parse(text);
    if version.is_err() {
        candidate.invalid(path, text, "must be a valid semantic version");
    }
    version.ok()
}

fn versions(candidate: &Part<'_>) {
    let emulation = version(candidate, EMULATION);
    if candidate.text(BINARY).is_empty() {
        candidate.required(BINARY, "");
        return;
    }
    // One that cannot be read counts as the lowest, as upstream.
    let none = || Version::new(0, 0, 0);
    let binary = version(candidate, BINARY).unwrap_or_else(none);
    let is_older = binary.cmp_precedence(&emulation.unwrap_or_else(none)).is_lt();
    if is_older && !candidate.text(EMULATION).is_empty() {
        let why = "must be greater than or equal to `emulationVersion`";
        candidate.invalid(BINARY, candidate.text(BINARY), why);
    }
}

fn election(candidate: &Part<'_>) {
    const STRATEGY: &str = "spec.strategy";
    let strategy = candidate.text(STRATEGY);
    if strategy.is_empty() {
        candidate.required(STRATEGY, "");
        return;
    }
    let is_zero = |text: &str| Version::parse(text).map_or(true, |version| version == Version::new(0, 0, 0));
    if strategy == OLDEST && is_zero(candidate.text(EMULATION)) {
        candidate.required(EMULATION, "must be specified when `strategy` is 'OldestEmulationVersion'");
    }
    // Upstream names the field twice.
    let path = "spec.strategy.strategy";
    if strategy.contains('/') {
        candidate.check_text(path, strategy, names::qualified_name_errors);
    } else if strategy != OLDEST {
        candidate.not_supported(path, strategy, &[OLDEST]);
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("LeaseName", "spec.leaseName", ""),
    Column::text("BinaryVersion", "spec.binaryVersion", ""),
    Column::text("EmulationVersion", "spec.emulationVersion", ""),
    Column::AGE,
];

#[cfg(test)]
mod tests {
    use plinth_codec::json;

    use super::*;
    use crate::checks::ErrorList;

    #[test]
    fn candidates_are_checked() {
        for (spec, fields) in [
            (r#"{"leaseName":"a","binaryVersion":"1.2.3","strategy":"example.com/own"}"#, &[][..]),
            (
                r#"{"leaseName":"a","binaryVersion":"1.2.3","emulationVersion":"1.2.0","strategy":"OldestEmulationVersion"}"#,
                &[],
            ),
            (
                r#"{"leaseName":"a","binaryVersion":"1.2.0-rc.1","emulationVersion":"1.2.0","strategy":"a/b"}"#,
                &[BINARY],
            ),
            (r#"{}"#, &["spec.leaseName", BINARY, "spec.strategy"]),
            (
                r#"{"leaseName":"a","binaryVersion":"1.2","emulationVersion":"v1","strategy":"a/b"}"#,
                &[EMULATION, BINARY],
            ),
            (
                r#"{"leaseName":"a","binaryVersion":"1.2.3","strategy":"OldestEmulationVersion"}"#,
                &[EMULATION],
            ),
            (r#"{"leaseName":"a","binaryVersion":"1.2.3","strategy":"Newest"}"#, &["spec.strategy.strategy"]),
            (r#"{"leaseName":"a","binaryVersion":"1.2.3","strategy":"a/b/c"}"#, &["spec.strategy.strategy"]),
        ] {
            let object = json::parse(format!("{{\"spec\":{spec}}}").as_bytes()).unwrap();
            let errors = ErrorList::of(&object, |candidate| candidate.check(CHECKS));
            let found: Vec<String> = errors.into_iter().map(|error| error.field).collect();
            assert_eq!(found, fields, "{spec}");
        }
    }
}
