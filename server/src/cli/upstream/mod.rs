//! Flags of the programs whose place this one takes that have no effect here, so that their manifests can be
//! used unchanged.
//!
//! Each is a row with its handling. Flags without any effect to lose are accepted silently; where somebody
//! may miss something, a warning is logged; and if others rely on something that the server cannot do, it
//! does not start. Flags that have an effect here are options of their own modules.

mod etcd;
mod kube_apiserver;
mod versions;

use std::ffi::OsString;
use std::marker::PhantomData;

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

pub(super) use self::etcd::Etcd;
pub(super) use self::kube_apiserver::{value_of, KubeApiserver};
pub(super) use self::versions::{VersionFlagError, VersionFlags};
use self::Outcome::{Ignored, Only, Refused, Warned};
use self::Takes::{Switch, Value};

/// The flags of a program that have no effect.
pub trait FlagTable {
    /// The rows, by name.
    const FLAGS: &'static [Flag];
}

/// A flag without effect.
#[derive(Debug)]
pub struct Flag {
    name: &'static str,
    takes: Takes,
    outcome: Outcome,
}

/// The kind of value of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// A required value.
    Value,
    /// `=true`, `=false` or no value.
    Switch,
}

/// How a flag is handled.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    /// Ignored silently.
    Ignored,
    /// Ignored with a warning.
    Warned(&'static str),
    /// Accepted with one of these values.
    Only(&'static [&'static str], &'static str),
    /// The start fails, with this reason.
    Refused(&'static str),
}

const TRUE: &[&str] = &["true"];
const FALSE: &[&str] = &["false"];
const NO_PROFILES: &str = "profiles are taken with tools of the system (perf), not at /debug/pprof";

const fn row(name: &'static str, takes: Takes, outcome: Outcome) -> Flag {
    Flag { name, takes, outcome }
}

impl Flag {
    fn arg(&self) -> Arg {
        let arg = Arg::new(self.name).long(self.name).hide(true).action(ArgAction::Append);
        match self.takes {
            Value => arg,
            Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        }
    }

    /// The warning for a value, if any.
    fn check(&self, value: &str) -> Result<Option<&'static str>, UpstreamFlagError> {
        let refused = |why| UpstreamFlagError { flag: self.name, value: value.to_owned(), why };
        match self.outcome {
            // As if the flag were not given.
            _ if value.is_empty() => Ok(None),
            Ignored => Ok(None),
            Warned(what) => Ok(Some(what)),
            Only(values, _) if values.contains(&value.to_ascii_lowercase().as_str()) => Ok(None),
            Only(_, why) | Refused(why) => Err(refused(why)),
        }
    }
}

/// A flag that asks for something unsupported.
#[derive(Debug, thiserror::Error)]
#[error("--{flag}={value} is not supported: {why}")]
pub struct UpstreamFlagError {
    flag: &'static str,
    value: String,
    why: &'static str,
}

/// The flags of a table that were given.
#[derive(Debug)]
pub struct UpstreamFlags<T> {
    /// Name and value, by the table's order.
    given: Vec<(&'static str, String)>,
    table: PhantomData<fn() -> T>,
}

impl<T> Default for UpstreamFlags<T> {
    fn default() -> UpstreamFlags<T> {
        UpstreamFlags { given: Vec::new(), table: PhantomData }
    }
}

impl<T: FlagTable> UpstreamFlags<T> {
    /// The warnings for the given flags, each once: name and text.
    ///
    /// # Errors
    /// The first flag that is rejected.
    pub fn warnings(&self) -> Result<Vec<(&'static str, &'static str)>, UpstreamFlagError> {
        let mut warnings: Vec<(&str, &str)> = Vec::new();
        for (name, value) in &self.given {
            let Some(flag) = T::FLAGS.iter().find(|flag| flag.name == *name) else { continue };
            let warning = flag.check(value)?.map(|what| (flag.name, what));
            warnings.extend(warning.filter(|warning| !warnings.contains(warning)));
        }
        Ok(warnings)
    }
}

impl<T: FlagTable> FromArgMatches for UpstreamFlags<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<UpstreamFlags<T>, clap::Error> {
        let mut flags = UpstreamFlags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for flag in T::FLAGS {
            let values = matches.get_raw(flag.name).into_iter().flatten();
            let values =
                values.map(|value| (flag.name, OsString::from(value).to_string_lossy().into_owned()));
            self.given.extend(values);
        }
        Ok(())
    }
}

impl<T: FlagTable> clap::Args for UpstreamFlags<T> {
    fn augment_args(command: Command) -> Command {
        T::FLAGS.iter().fold(command, |command, flag| command.arg(flag.arg()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
