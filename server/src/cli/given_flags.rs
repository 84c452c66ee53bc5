//! The flags of `plinth serve` with their values, which `/flagz` shows.

use std::collections::BTreeMap;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

/// What is shown of a value that may contain a password; upstream's word.
const CLASSIFIED: &str = "CLASSIFIED";

/// The values of the command line and the defaults, by the identifier of the argument.
#[derive(Debug, Default)]
pub struct GivenFlags(BTreeMap<String, String>);

impl GivenFlags {
    /// Every flag of the command with its value; empty where there is none.
    pub fn values(&self, command: &Command) -> BTreeMap<String, String> {
        let value = |argument: &Arg| {
            let value = self.0.get(argument.get_id().as_str()).cloned().unwrap_or_default();
            // The authority of a URL before an @ is a user with a password.
            let is_secret = value.split_once("://").is_some_and(|(_, rest)| rest.contains('@'));
            if is_secret {
                CLASSIFIED.to_owned()
            } else {
                value
            }
        };
        let named = |argument: &Arg| Some((argument.get_long()?.to_owned(), value(argument)));
        command.get_arguments().filter_map(named).collect()
    }
}

impl FromArgMatches for GivenFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<GivenFlags, clap::Error> {
        let mut flags = GivenFlags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for id in matches.ids() {
            let Ok(Some(raw)) = matches.try_get_raw(id.as_str()) else { continue };
            let values: Vec<_> = raw.map(|value| value.to_string_lossy()).collect();
            self.0.insert(id.as_str().to_owned(), values.join(","));
        }
        Ok(())
    }
}

impl Args for GivenFlags {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ServeOptions;

    #[test]
    fn every_flag_has_its_value_and_passwords_are_not_shown() {
        let arguments = [
            "--data-dir=d",
            "--secure-port=8443",
            "--service-cluster-ip-range=10.0.0.0/24,fd00::/108",
            "--feature-gates=WatchList=true",
            "--etcd-servers=https://user:password@127.0.0.1:2379",
            "-v3",
        ];
        let options = ServeOptions::from_arguments(arguments).unwrap();
        let values = options.flag_values();
        for (name, value) in [
            ("data-dir", "d"),
            ("secure-port", "8443"),
            ("service-cluster-ip-range", "10.0.0.0/24,fd00::/108"),
            ("event-ttl", "1h"),
            ("feature-gates", "WatchList=true"),
            ("etcd-prefix", ""),
            ("etcd-servers", CLASSIFIED),
            ("v", "3"),
        ] {
            assert_eq!(values.get(name).map(String::as_str), Some(value), "{name}");
        }
    }
}
