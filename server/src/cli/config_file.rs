//! Flags of `plinth serve` from the environment and from a configuration file.
//!
//! A flag `--secure-port` is `PLINTH_SECURE_PORT` in the environment and `secure-port:` in the file of
//! `--config`. The command line takes precedence over the environment, and the environment over the file. All
//! three become arguments, so that one parser knows what a flag may be.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Args, Command};
use plinth_api::{parse_config, Strictness};
use plinth_codec::value::Value;

use super::flag_origins::{Arguments, FlagOrigins, Origin};
use super::serve::ServeOptions;

/// The flag that names the file.
const CONFIG: &str = "config";

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are what is wrong; their texts say it
pub enum FlagFileError {
    #[error("--{flag}: {path}: {source}")]
    Read { flag: &'static str, path: PathBuf, source: std::io::Error },
    #[error("--{flag}: {path}: {reason}")]
    Invalid { flag: &'static str, path: PathBuf, reason: String },
}

/// The arguments of the program with those of environment and file added, if the command is `serve` or `up`.
///
/// # Errors
/// When the file cannot be read, or has a key that is no flag.
pub(super) fn with_configuration(
    arguments: Vec<OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Arguments, FlagFileError> {
    if arguments.get(1).is_none_or(|command| command != "serve" && command != "up") {
        return Ok(Arguments::given(arguments));
    }
    let command = ServeOptions::augment_args(Command::new("serve"));
    let flags: Vec<(&Arg, &str)> =
        command.get_arguments().filter_map(|arg| Some((arg, arg.get_long()?))).collect();
    let given = flags_in(&arguments[2..]);
    let mut set: BTreeSet<String> = given.iter().map(|(name, _)| name.clone()).collect();
    if set.contains("help") {
        return Ok(Arguments::given(arguments));
    }
    let (mut added, mut origins) = (Vec::new(), FlagOrigins::default());
    let mut config = given.into_iter().rev().find_map(|(name, value)| value.filter(|_| name == CONFIG));
    for (_, name) in &flags {
        let Some(value) = environment(&variable(name)).filter(|_| !set.contains(*name)) else { continue };
        if *name == CONFIG {
            config = Some(value.clone());
        }
        added.push(argument(name, &value));
        origins.add(name, Origin::Variable(variable(name)));
        set.insert((*name).to_owned());
    }
    if let Some(path) = config.map(PathBuf::from) {
        for (name, value) in read(CONFIG, &path)? {
            let Some((arg, _)) = flags.iter().find(|(_, flag)| *flag == name && *flag != CONFIG) else {
                let reason = format!("{name}: not a flag of \"plinth serve\"; its --help lists them");
                return Err(FlagFileError::Invalid { flag: CONFIG, path, reason });
            };
            if set.contains(&name) {
                continue;
            }
            origins.add(&name, Origin::File(CONFIG, path.clone()));
            let values = arguments_of(&name, arg, &value);
            added.extend(values.map_err(|reason| FlagFileError::Invalid {
                flag: CONFIG,
                path: path.clone(),
                reason,
            })?);
        }
    }
    let mut words: Vec<OsString> = arguments[..2].to_vec();
    words.extend(added);
    words.extend_from_slice(&arguments[2..]);
    Ok(Arguments { words, origins })
}

/// The variable of the environment that has the value of a flag.
pub(super) fn variable(flag: &str) -> String {
    format!("PLINTH_{}", flag.to_uppercase().replace('-', "_"))
}

/// Long flags on a command line, with the value that follows `=` or is the next word; `-v` as `v`.
pub(super) fn flags_in(arguments: &[OsString]) -> Vec<(String, Option<OsString>)> {
    let mut found = Vec::new();
    for (index, argument) in arguments.iter().enumerate() {
        let Some(text) = argument.to_str() else { continue };
        let Some(flag) = text.strip_prefix("--") else {
            match text {
                "-h" => found.push(("help".to_owned(), None)),
                _ if text.starts_with("-v") => found.push(("v".to_owned(), None)),
                _ => {}
            }
            continue;
        };
        found.push(match flag.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.into())),
            None => (flag.to_owned(), arguments.get(index + 1).cloned()),
        });
    }
    found
}

pub(super) fn argument(name: &str, value: &OsStr) -> OsString {
    let mut argument = OsString::from(format!("--{name}="));
    argument.push(value);
    argument
}

/// The flags of a file, in its order.
pub(super) fn read(flag: &'static str, path: &Path) -> Result<Vec<(String, Value)>, FlagFileError> {
    let invalid = |reason: String| FlagFileError::Invalid { flag, path: path.to_owned(), reason };
    let text =
        std::fs::read(path).map_err(|source| FlagFileError::Read { flag, path: path.to_owned(), source })?;
    match parse_config(&text, Strictness::Strict).map_err(|error| invalid(error.to_string()))? {
        Value::Null => Ok(Vec::new()),
        Value::Object(map) => Ok(map.into_iter().map(|(name, value)| (name.to_string(), value)).collect()),
        _ => Err(invalid("a map of flags and their values is expected, like \"secure-port: 6443\"".into())),
    }
}

/// The arguments that give a flag this value.
pub(super) fn arguments_of(name: &str, arg: &Arg, value: &Value) -> Result<Vec<OsString>, String> {
    let takes_value = arg.get_action().takes_values();
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.to_string()),
        Value::Int(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Bool(value) => Ok(value.to_string()),
        _ => Err(format!("{name}: text, a number, true, false or a list of those is expected")),
    };
    let one = |value: &Value| text(value).map(|text| argument(name, OsStr::new(&text)));
    match value {
        Value::Bool(true) if !takes_value => Ok(vec![format!("--{name}").into()]),
        Value::Bool(false) if !takes_value => Ok(Vec::new()),
        // Of a flag with one value that is given twice the last would count: its list is one value.
        Value::Array(values) if !matches!(arg.get_action(), ArgAction::Append) => {
            let texts = values.iter().map(text).collect::<Result<Vec<_>, _>>()?;
            Ok(vec![argument(name, OsStr::new(&texts.join(",")))])
        }
        Value::Array(values) => values.iter().map(one).collect(),
        value => Ok(vec![one(value)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(
        arguments: &[&str],
        variables: &[(&str, &str)],
        file: Option<&str>,
    ) -> Result<Vec<String>, String> {
        let dir = tempfile::tempdir().unwrap();
        let mut words: Vec<OsString> = vec!["plinth".into(), "serve".into()];
        if let Some(file) = file {
            let path = dir.path().join("config.yaml");
            std::fs::write(&path, file).unwrap();
            words.push("--config".into());
            words.push(path.into());
        }
        words.extend(arguments.iter().map(OsString::from));
        let look_up =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        let all = with_configuration(words, look_up).map_err(|error| error.to_string())?;
        let shown = all.words.into_iter().skip(2).map(|word| word.into_string().unwrap());
        let is_config = |word: &String| word == "--config" || word.ends_with("config.yaml");
        Ok(shown.filter(|word| !is_config(word)).collect())
    }

    #[test]
    fn the_command_line_precedes_the_environment_and_that_the_file() {
        let file = "secure-port: 1\nhistory-retention: 1h\nv: 2\nservice-cluster-ip-range: [10.0.0.0/24, 'fd00::/112']\n";
        let variables = [("PLINTH_SECURE_PORT", "2"), ("PLINTH_EVENT_TTL", "2h"), ("PLINTH_UNRELATED", "x")];
        let all = expand(&["--secure-port", "3", "-v1"], &variables, Some(file)).unwrap();
        assert_eq!(
            all,
            [
                "--event-ttl=2h",
                "--history-retention=1h",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--service-cluster-ip-range=fd00::/112",
                "--secure-port",
                "3",
                "-v1"
            ]
        );
        let all = expand(&[], &variables, Some(file)).unwrap();
        assert_eq!(all[..3], ["--secure-port=2", "--event-ttl=2h", "--history-retention=1h"]);
    }

    #[test]
    fn a_list_is_whole_whether_or_not_its_flag_may_be_repeated() {
        let file = "controllers: ['*', -garbage-collector-controller]\ntls-san: [a.example, b.example]\n";
        let all = expand(&[], &[], Some(file)).unwrap();
        assert_eq!(
            all,
            ["--controllers=*,-garbage-collector-controller", "--tls-san=a.example", "--tls-san=b.example"]
        );
    }

    #[test]
    fn errors_name_file_and_flag() {
        let error = expand(&[], &[], Some("no-such-flag: 1")).unwrap_err();
        assert!(
            error.starts_with("--config: ")
                && error.ends_with(
                    "config.yaml: no-such-flag: not a flag of \"plinth serve\"; its --help lists them"
                ),
            "{error}"
        );
        let error = expand(&[], &[], Some("secure-port: {a: 1}")).unwrap_err();
        assert!(error.ends_with("secure-port: text, a number, true, false or a list of those is expected"));
        let error = expand(&[], &[], Some("- a")).unwrap_err();
        assert!(error.contains("a map of flags and their values is expected"), "{error}");
        // A file does not name another.
        assert!(expand(&[], &[], Some("config: other.yaml")).is_err());
    }

    #[test]
    fn other_commands_are_left_alone() {
        let words: Vec<OsString> = ["plinth", "verify", "--data-dir", "d"].map(OsString::from).to_vec();
        let unchanged = Arguments::given(words.clone());
        assert_eq!(with_configuration(words, |_| Some("x".into())).unwrap(), unchanged);
    }
}
