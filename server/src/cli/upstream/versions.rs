//! `--emulated-version` and `--min-compatibility-version` (k8s.io/component-base `compatibility`). One
//! version is served; values that upstream refuses are refused in its words.

use std::fmt;

use clap::Args;
use plinth_registry::{VersionInfo, VERSION_INFO};

/// Minor version of the API that is served; the major one is 1.
const SERVED: u64 = 36;
/// Oldest minor version that upstream of this version emulates, and is compatible with.
const FLOOR: u64 = 33;
/// Name of the only component.
const KUBE: &str = "kube";
/// The minor versions from [`FLOOR`] to [`SERVED`].
const MINORS: [&str; 4] = ["33", "34", "35", "36"];

/// The versions that the server is to behave like.
#[derive(Clone, Debug, Default, Args)]
pub struct VersionFlags {
    /// Versions that components emulate
    #[arg(long, hide = true, value_name = "VERSIONS", value_delimiter = ',')]
    pub emulated_version: Vec<String>,
    /// Oldest versions that components are compatible with
    #[arg(long, hide = true, value_name = "VERSIONS", value_delimiter = ',')]
    pub min_compatibility_version: Vec<String>,
}

/// A version that cannot be emulated, or is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionFlagError {
    /// Not upstream's, whose words these are.
    #[error("{0}")]
    Invalid(String),
    /// Upstream emulates it.
    #[error("--emulated-version={0} is not supported: only v1.36 is served")]
    NotEmulated(String),
}

impl VersionFlags {
    /// What `/version` shows with these flags.
    ///
    /// # Errors
    /// [`VersionFlagError`].
    pub fn version(&self) -> Result<VersionInfo<'static>, VersionFlagError> {
        let emulated = of_kube(&self.emulated_version)?;
        let oldest = of_kube(&self.min_compatibility_version)?;
        let emulated = emulated.unwrap_or_else(|| Version::minor(SERVED));
        // Upstream's default follows the emulated version.
        let oldest = oldest.unwrap_or_else(|| Version::minor(emulated.default_oldest()));
        let mut errors = Vec::new();
        if !emulated.is_between(&Version::minor(FLOOR), &Version::minor(SERVED)) {
            errors.push(format!("emulation version {emulated} is not between [1.{FLOOR}, 1.{SERVED}.0]"));
        }
        if !oldest.is_between(&Version::minor(FLOOR), &emulated) {
            errors.push(format!(
                "minCompatibilityVersion version {oldest} is not between [1.{FLOOR}, {emulated}]"
            ));
        }
        match errors.as_slice() {
            [] => {}
            [error] => return Err(VersionFlagError::Invalid(error.clone())),
            errors => return Err(VersionFlagError::Invalid(format!("[{}]", errors.join(", ")))),
        }
        if emulated.numbers.get(1) != Some(&SERVED) {
            return Err(VersionFlagError::NotEmulated(emulated.to_string()));
        }
        let place = oldest.numbers.get(1).and_then(|minor| usize::try_from(minor.checked_sub(FLOOR)?).ok());
        let minor = place.and_then(|place| MINORS.get(place)).copied();
        let min_compatibility_minor = minor.unwrap_or(VERSION_INFO.min_compatibility_minor);
        Ok(VersionInfo { min_compatibility_minor, ..VERSION_INFO })
    }
}

/// The version of the only component in the values of a flag.
fn of_kube(values: &[String]) -> Result<Option<Version>, VersionFlagError> {
    if matches!(values, [value] if value.is_empty()) {
        return Ok(None);
    }
    let mut found: Vec<(&str, Version)> = Vec::new();
    for value in values {
        let (component, text) = match value.split_once('=') {
            Some((component, text)) => (component.trim(), text.trim()),
            None => (KUBE, value.as_str()),
        };
        let version = Version::parse(text).map_err(VersionFlagError::Invalid)?;
        if version.numbers.get(2).is_some_and(|patch| *patch != 0) {
            let error = format!("patch version not allowed, got: {component}={version}");
            return Err(VersionFlagError::Invalid(error));
        }
        if let Some((_, other)) = found.iter().find(|(name, _)| *name == component) {
            let error = format!("duplicate version flag, {component}={other} and {component}={version}");
            return Err(VersionFlagError::Invalid(error));
        }
        found.push((component, version));
    }
    if let Some((component, _)) = found.iter().find(|(component, _)| *component != KUBE) {
        return Err(VersionFlagError::Invalid(format!("component not registered: {component}")));
    }
    Ok(found.pop().map(|(_, version)| version))
}

/// The numbers of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    numbers: Vec<u64>,
}

impl Version {
    fn minor(minor: u64) -> Version {
        Version { numbers: vec![1, minor] }
    }

    /// As k8s.io/apimachinery `version.Parse`: an optional `v`, then numbers; what follows them is ignored.
    fn parse(text: &str) -> Result<Version, String> {
        let unquoted = text.trim_start();
        let unquoted = unquoted.strip_prefix('v').unwrap_or(unquoted);
        let mut numbers = Vec::new();
        let mut rest = unquoted;
        loop {
            let length = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, after) = rest.split_at(length);
            if number.is_empty() {
                break;
            }
            if numbers.is_empty() && number.len() > 1 && number.starts_with('0') {
                return Err(format!("illegal zero-prefixed version component {number:?} in {text:?}"));
            }
            let parsed = number.parse().map_err(|_| {
                format!(
                    "illegal non-numeric version component {number:?} in {text:?}: strconv.ParseUint: parsing \
                     {number:?}: value out of range"
                )
            })?;
            numbers.push(parsed);
            match after.strip_prefix('.') {
                Some(next) => rest = next,
                None => break,
            }
        }
        match numbers.len() {
            0 => Err(format!("could not parse {text:?} as version")),
            1 => Err(format!("illegal version string {text:?}")),
            _ => Ok(Version { numbers }),
        }
    }

    fn major_and_minor(&self) -> (u64, u64) {
        let number = |place: usize| self.numbers.get(place).copied().unwrap_or_default();
        (number(0), number(1))
    }

    fn is_between(&self, oldest: &Version, newest: &Version) -> bool {
        (oldest.major_and_minor()..=newest.major_and_minor()).contains(&self.major_and_minor())
    }

    /// The minor version before, down to the floor.
    fn default_oldest(&self) -> u64 {
        self.major_and_minor().1.saturating_sub(1).max(FLOOR)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, number) in self.numbers.iter().enumerate() {
            let dot = if place == 0 { "" } else { "." };
            write!(f, "{dot}{number}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors are those of kube-apiserver v1.36.2.
    #[test]
    fn versions_by_table() {
        let below =
            "[emulation version 1.32 is not between [1.33, 1.36.0], minCompatibilityVersion version 1.33 is not between [1.33, 1.32]]";
        let both =
            "[emulation version 1.32 is not between [1.33, 1.36.0], minCompatibilityVersion version 1.30 is not between [1.33, 1.32]]";
        let range = |version: &str, newest: &str| {
            Err(format!("minCompatibilityVersion version {version} is not between [1.33, {newest}]"))
        };
        let error = |text: &str| Err(text.to_owned());
        // --emulated-version, --min-compatibility-version, oldest minor version or error
        let rows: [(&[&str], &[&str], Result<&str, String>); 24] = [
            (&[], &[], Ok("35")),
            (&[""], &[""], Ok("35")),
            (&["1.36"], &[], Ok("35")),
            (&["v1.36"], &["1.36"], Ok("36")),
            (&["kube=1.36.0"], &["kube=1.33"], Ok("33")),
            (&[], &["1.34"], Ok("34")),
            (&[], &["1.30"], range("1.30", "1.36")),
            (&[], &["1.37"], range("1.37", "1.36")),
            (&["1.35"], &["1.36"], range("1.36", "1.35")),
            (&[], &["foo"], error("could not parse \"foo\" as version")),
            (&[], &["bar=1.35"], error("component not registered: bar")),
            (&[], &["kube=1.35", "kube=1.34"], error("duplicate version flag, kube=1.35 and kube=1.34")),
            (&[], &["1.35.2"], error("patch version not allowed, got: kube=1.35.2")),
            (&["1.32"], &[], error(below)),
            (&["1.32"], &["1.30"], error(both)),
            (&["1.37"], &[], error("emulation version 1.37 is not between [1.33, 1.36.0]")),
            (&["foo"], &[], error("could not parse \"foo\" as version")),
            (&["1"], &[], error("illegal version string \"1\"")),
            (&["kube:1.35"], &[], error("could not parse \"kube:1.35\" as version")),
            (&["1.36", "1.35"], &[], error("duplicate version flag, kube=1.36 and kube=1.35")),
            (&["01.36"], &[], error("illegal zero-prefixed version component \"01\" in \"01.36\"")),
            (&["1.36", ""], &[], error("could not parse \"\" as version")),
            (&["1.35"], &[], error("--emulated-version=1.35 is not supported: only v1.36 is served")),
            (
                &["kube=1.33"],
                &["1.33"],
                error("--emulated-version=1.33 is not supported: only v1.36 is served"),
            ),
        ];
        for (emulated, oldest, expected) in rows {
            let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
            let flags =
                VersionFlags { emulated_version: owned(emulated), min_compatibility_version: owned(oldest) };
            let version = flags.version().map(|version| version.min_compatibility_minor);
            assert_eq!(version.map_err(|e| e.to_string()), expected, "{emulated:?} {oldest:?}");
        }
    }
}
