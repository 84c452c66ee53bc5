//! The flags of `plinth serve` with their values, which `/flagz` shows.

use std::collections::BTreeMap;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::upstream::value_of;

/// What is shown of a value that may contain a password; upstream's word.
const CLASSIFIED: &str = "CLASSIFIED";

/// The values of the command line and the defaults, by the identifier of the argument.
#[derive(Debug, Default)]
pub struct GivenFlags(BTreeMap<String, Vec<String>>);

impl GivenFlags {
    /// Every flag of the command with its value, in the form of kube-apiserver where that has the flag; empty
    /// where there is none.
    pub fn values(&self, command: &Command) -> BTreeMap<String, String> {
        let value = |argument: &Arg, name: &str| {
            let given = self.0.get(argument.get_id().as_str()).map(Vec::as_slice);
            // The authority of a URL before an @ is a user with a password.
            let is_secret =
                |value: &String| value.split_once("://").is_some_and(|(_, rest)| rest.contains('@'));
            match given {
                Some(values) if values.iter().any(is_secret) => CLASSIFIED.to_owned(),
                given => value_of(name, given).unwrap_or_else(|| given.unwrap_or_default().join(",")),
            }
        };
        let named = |argument: &Arg| {
            let name = argument.get_long()?;
            Some((name.to_owned(), value(argument, name)))
        };
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
            let values = raw.map(|value| value.to_string_lossy().into_owned()).collect();
            self.0.insert(id.as_str().to_owned(), values);
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
            "--watch-cache=F",
            "--enable-admission-plugins=A,B",
            "--enable-admission-plugins=C",
        ];
        let options = ServeOptions::from_arguments(arguments).unwrap();
        let values = options.flag_values();
        for (name, value) in [
            ("data-dir", "d"),
            ("secure-port", "8443"),
            ("service-cluster-ip-range", "10.0.0.0/24,fd00::/108"),
            ("event-ttl", "1h0m0s"),
            ("feature-gates", "WatchList=true"),
            ("etcd-prefix", "/registry"),
            ("authorization-mode", "[Node,RBAC]"),
            ("anonymous-auth", "true"),
            ("profiling", "false"),
            ("watch-cache", "false"),
            ("etcd-servers-overrides", "[]"),
            ("request-timeout", "1m0s"),
            ("oidc-signing-algs", "[RS256]"),
            ("enable-admission-plugins", "[A,B,C]"),
            ("client-ca-file", ""),
            ("backup-interval", "24h"),
            ("bind-address", "127.0.0.1"),
            ("etcd-servers", CLASSIFIED),
            ("v", "3"),
        ] {
            assert_eq!(values.get(name).map(String::as_str), Some(value), "{name}");
        }
    }
}
