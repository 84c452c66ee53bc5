//! The names of the program: called as kube-apiserver it is `plinth serve`, and as etcd `plinth etcd`, so
//! that it can be that program's image in the manifest of a control plane.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::config_file::{self, FlagFileError};
use super::etcd_configuration;
use super::flag_origins::Arguments;

/// Upstream's names of the program.
const KUBE_APISERVER: &str = "kube-apiserver";
const ETCD: &str = "etcd";

/// What the program is asked for.
#[derive(Debug, PartialEq, Eq)]
pub enum Invocation {
    /// A command, with the arguments of environment and configuration file added.
    Command(Arguments),
    /// `kube-apiserver --version`.
    UpstreamVersion,
    /// `etcd --version`.
    EtcdVersion,
}

impl Invocation {
    /// Reads the arguments of the process, the program's name first.
    ///
    /// # Errors
    /// When the configuration file cannot be used.
    pub fn of(
        mut arguments: Vec<OsString>,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Invocation, FlagFileError> {
        let asks_version =
            arguments.iter().skip(1).any(|word| word == "--version" || word == "--version=true");
        if arguments.first().is_some_and(|name| is_called(name, ETCD)) {
            if asks_version {
                return Ok(Invocation::EtcdVersion);
            }
            arguments.insert(1, ETCD.into());
            return with_configuration(arguments, environment).map(Invocation::Command);
        }
        if !arguments.first().is_some_and(|name| is_called(name, KUBE_APISERVER)) {
            return with_configuration(arguments, environment).map(Invocation::Command);
        }
        if asks_version {
            return Ok(Invocation::UpstreamVersion);
        }
        arguments.insert(1, "serve".into());
        let mut arguments = with_configuration(arguments, environment)?;
        // kube-apiserver runs no controllers: beside it kube-controller-manager does. Before what is set
        // elsewhere, which takes precedence.
        arguments.words.insert(2, "--controllers=".into());
        Ok(Invocation::Command(arguments))
    }
}

/// The arguments with those of environment and file added, of which the command `etcd` has other ones.
fn with_configuration(
    arguments: Vec<OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Arguments, FlagFileError> {
    match arguments.get(1).is_some_and(|command| command == ETCD) {
        true => etcd_configuration::with_configuration(arguments, environment),
        false => config_file::with_configuration(arguments, environment),
    }
}

/// Whether the program was called by a name, by whatever path.
fn is_called(program: &OsStr, name: &str) -> bool {
    Path::new(program).file_name().is_some_and(|program| program == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, ServeOptions};
    use clap::Parser;

    fn invocation(words: &[&str], variables: &[(&str, &str)]) -> Invocation {
        let look_up =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        Invocation::of(words.iter().map(OsString::from).collect(), look_up).unwrap()
    }

    fn serve(words: &[&str], variables: &[(&str, &str)]) -> Box<ServeOptions> {
        let Invocation::Command(arguments) = invocation(words, variables) else { panic!("{words:?}") };
        let cli = Cli::try_parse_from(arguments.words).unwrap();
        let Command::Serve(options) = cli.command else { panic!("{words:?} is not plinth serve") };
        options
    }

    #[test]
    fn as_kube_apiserver_it_serves_without_controllers() {
        let controllers = |options: &ServeOptions| options.flag_values()["controllers"].clone();
        let options = serve(&["kube-apiserver", "--secure-port=6444"], &[]);
        assert_eq!((options.secure_port, controllers(&options).as_str()), (6444, ""));
        let options = serve(&["/usr/local/bin/kube-apiserver"], &[("PLINTH_SECURE_PORT", "6445")]);
        assert_eq!((options.secure_port, controllers(&options).as_str()), (6445, ""));
        // Whoever wants controllers sets the flag.
        let options = serve(&["kube-apiserver", "--controllers=*"], &[]);
        assert_eq!(controllers(&options), "*");
        let options = serve(&["kube-apiserver"], &[("PLINTH_CONTROLLERS", "*")]);
        assert_eq!(controllers(&options), "*");
    }

    #[test]
    fn other_names_are_those_of_plinth() {
        let options = serve(&["plinth", "serve"], &[]);
        assert_eq!(options.flag_values()["controllers"], "*");
        for name in ["plinth", "kube-apiserver.old", "kube-apiserver/plinth", ""] {
            let words = [name, "--secure-port=6444"].map(OsString::from).to_vec();
            assert_eq!(
                Invocation::of(words.clone(), |_| Some("x".into())).unwrap(),
                Invocation::Command(Arguments::given(words))
            );
        }
    }

    #[test]
    fn the_version_is_printed_as_by_kube_apiserver() {
        assert_eq!(invocation(&["kube-apiserver", "--version"], &[]), Invocation::UpstreamVersion);
        assert_eq!(
            invocation(&["kube-apiserver", "--v=2", "--version=true"], &[]),
            Invocation::UpstreamVersion
        );
        assert!(matches!(invocation(&["plinth", "--version"], &[]), Invocation::Command(_)));
        assert_eq!(invocation(&["/usr/local/bin/etcd", "--version"], &[]), Invocation::EtcdVersion);
    }

    #[test]
    fn as_etcd_it_takes_flags_and_variables_of_etcd() {
        let words = ["/usr/local/bin/etcd", "--name=n1", "--snapshot-count=10000"];
        let Invocation::Command(arguments) =
            invocation(&words, &[("ETCD_DATA_DIR", "d"), ("ETCD_NAME", "n2")])
        else {
            panic!("it is a command")
        };
        let Command::Etcd(options) = Cli::try_parse_from(arguments.words).unwrap().command else {
            panic!("it is plinth etcd")
        };
        assert_eq!((options.etcd.name.as_str(), options.etcd.data_dir.to_str()), ("n1", Some("d")));
    }
}
