//! Flags of `plinth etcd` from the environment and from a file, as etcd takes them.
//!
//! A flag `--listen-client-urls` is `ETCD_LISTEN_CLIENT_URLS` in the environment; the command line takes
//! precedence. Where `--config-file` names a file, all flags are in it, and etcd ignores the others: so does
//! this.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Arg, Args, Command};
use plinth_codec::value::Value;

use super::config_file::{argument, arguments_of, flags_in, read, FlagFileError};
use super::etcd::EtcdCommandOptions;
use super::flag_origins::{Arguments, FlagOrigins, Origin};

/// The flag that names the file.
const CONFIG: &str = "config-file";
/// Flags that are this program's and not etcd's: the file leaves them.
const OWN: [&str; 2] = ["v", "logging-format"];
/// Maps of the file, and what the flags begin with that are in them.
const SECTIONS: [(&str, &str); 3] =
    [("client-transport-security", ""), ("peer-transport-security", "peer-"), ("socket-options", "socket-")];
/// Flags whose values are times: in a file of etcd they are numbers of nanoseconds.
const TIMES: [&str; 4] = [
    "grpc-keepalive-min-time",
    "grpc-keepalive-interval",
    "grpc-keepalive-timeout",
    "watch-progress-notify-interval",
];

/// The variable of the environment that has the value of a flag.
fn variable(flag: &str) -> String {
    format!("ETCD_{}", flag.to_uppercase().replace('-', "_"))
}

/// The arguments of `plinth etcd` with those of environment or file.
///
/// # Errors
/// When the file cannot be read, or has a key that is no flag.
pub(super) fn with_configuration(
    arguments: Vec<OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Arguments, FlagFileError> {
    let (program, words) = arguments.split_at(arguments.len().min(2));
    let given = flags_in(words);
    if given.iter().any(|(name, _)| name == "help") {
        return Ok(Arguments::given(arguments));
    }
    let mut origins = FlagOrigins::default();
    let environment = |name: &str| environment(&variable(name)).filter(|value| !value.is_empty());
    let named = given.iter().rev().find_map(|(name, value)| value.clone().filter(|_| name == CONFIG));
    let command = EtcdCommandOptions::augment_args(Command::new("etcd"));
    if let Some(path) = named.or_else(|| environment(CONFIG)).map(PathBuf::from) {
        let mut words = program.to_vec();
        words.extend(of_file(&path, &command)?);
        for (flag, _) in flags_in(&words) {
            origins.add(&flag, Origin::File(CONFIG, path.clone()));
        }
        let own = given.into_iter().filter(|(name, _)| OWN.contains(&name.as_str()));
        words.extend(own.filter_map(|(name, value)| Some(argument(&name, &value?))));
        return Ok(Arguments { words, origins });
    }
    let flags = command.get_arguments().filter_map(Arg::get_long);
    let set = flags.filter(|flag| !OWN.contains(flag) && !given.iter().any(|(name, _)| name == flag));
    let mut all = program.to_vec();
    for (flag, value) in set.filter_map(|flag| Some((flag, environment(flag)?))) {
        all.push(argument(flag, &value));
        origins.add(flag, Origin::Variable(variable(flag)));
    }
    all.extend_from_slice(words);
    Ok(Arguments { words: all, origins })
}

/// The arguments that a file has.
fn of_file(path: &Path, command: &Command) -> Result<Vec<OsString>, FlagFileError> {
    let invalid = |reason| FlagFileError::Invalid { flag: CONFIG, path: path.to_owned(), reason };
    let mut arguments = Vec::new();
    for (name, value) in read(CONFIG, path)? {
        let Some((_, prefix)) = SECTIONS.iter().find(|(section, _)| *section == name) else {
            arguments.extend(of_flag(command, &name, &value).map_err(invalid)?);
            continue;
        };
        let Value::Object(section) = value else { return Err(invalid(format!("{name}: a map is expected"))) };
        for (key, value) in section.iter() {
            let flag = match key.as_ref() {
                "allowed-cn" => format!("{prefix}cert-allowed-cn"),
                "allowed-hostname" if prefix.is_empty() => "client-cert-allowed-hostname".to_owned(),
                "allowed-hostname" => format!("{prefix}cert-allowed-hostname"),
                key => format!("{prefix}{key}"),
            };
            arguments.extend(
                of_flag(command, &flag, value).map_err(|reason| invalid(format!("{name}: {reason}")))?,
            );
        }
    }
    Ok(arguments)
}

/// The arguments of one flag. Nothing is as if it were not there, as in etcd.
fn of_flag(command: &Command, name: &str, value: &Value) -> Result<Vec<OsString>, String> {
    let flag = command.get_arguments().find(|arg| arg.get_long() == Some(name) && name != CONFIG);
    let flag = flag.ok_or_else(|| format!("{name}: not a flag of \"plinth etcd\"; its --help lists them"))?;
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        Value::Int(nanoseconds) if TIMES.contains(&name) => {
            Ok(vec![argument(name, OsStr::new(&format!("{nanoseconds}ns")))])
        }
        value => arguments_of(name, flag, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(words: &[&str], variables: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let words = ["plinth", "etcd"].iter().chain(words).map(OsString::from).collect();
        let look_up =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        let all = with_configuration(words, look_up).map_err(|error| error.to_string())?;
        Ok(all.words.iter().skip(2).map(|word| word.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn the_environment_has_flags_that_the_command_line_has_not() {
        let variables = [
            ("ETCD_NAME", "n1"),
            ("ETCD_DATA_DIR", "/data"),
            ("ETCD_CLIENT_CERT_AUTH", "true"),
            ("ETCD_SNAPSHOT_COUNT", "5"),
            ("ETCD_QUOTA_BACKEND_BYTES", ""),
            ("ETCD_V", "9"),
            ("ETCD_NO_SUCH_FLAG", "x"),
            ("PLINTH_MAX_TXN_OPS", "7"),
        ];
        let mut all = expand(&["--name=n2"], &variables).unwrap();
        all.sort();
        assert_eq!(all, ["--client-cert-auth=true", "--data-dir=/data", "--name=n2", "--snapshot-count=5"]);
        assert_eq!(expand(&["--help"], &variables).unwrap(), ["--help"]);
    }

    #[test]
    fn a_file_has_all_flags() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("etcd.yaml");
        let path = file.to_str().unwrap();
        let text = "
name: n1
data-dir: /data
listen-client-urls: http://127.0.0.1:2379,http://127.0.0.2:2379
grpc-keepalive-min-time: 5000000000
quota-backend-bytes: 0
discovery-srv:
initial-cluster-token: ''
client-transport-security:
  cert-file: server.crt
  client-cert-auth: true
  auto-tls: false
peer-transport-security:
  cert-file: peer.crt
  allowed-cn: [one]
  client-cert-auth: true
";
        std::fs::write(&file, text).unwrap();
        let expected = [
            "--auto-tls=false",
            "--cert-file=server.crt",
            "--client-cert-auth=true",
            "--data-dir=/data",
            "--grpc-keepalive-min-time=5000000000ns",
            "--listen-client-urls=http://127.0.0.1:2379,http://127.0.0.2:2379",
            "--name=n1",
            "--peer-cert-allowed-cn=one",
            "--peer-cert-file=peer.crt",
            "--peer-client-cert-auth=true",
            "--quota-backend-bytes=0",
        ];
        let given = ["--config-file", path, "--name=n2", "--max-txn-ops=4"];
        assert_eq!(expand(&given, &[("ETCD_NAME", "n3")]).unwrap(), expected);
        let by_variable = [("ETCD_CONFIG_FILE", path), ("ETCD_MAX_TXN_OPS", "4")];
        let with_own = [&expected[..], &["--v=3"]].concat();
        assert_eq!(expand(&["--v=3"], &by_variable).unwrap(), with_own);
        for (text, reason) in [
            ("no-such-flag: 1", "no-such-flag: not a flag of \"plinth etcd\""),
            ("config-file: x", "config-file: not a flag"),
            ("client-transport-security: x", "client-transport-security: a map is expected"),
            ("peer-transport-security: {x: y}", "peer-transport-security: peer-x: not a flag"),
            ("- name", "a map of flags"),
            ("name: {a: b}", "name: text, a number"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = expand(&["--config-file", path], &[]).unwrap_err();
            assert!(error.contains(reason) && error.starts_with("--config-file: "), "{error}");
        }
        assert!(expand(&["--config-file=nowhere.yaml"], &[]).unwrap_err().contains("nowhere.yaml"));
    }
}
