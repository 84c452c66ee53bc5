//! Where the flags of a command have their values from, if that is not its command line: so an error about a
//! value names the variable or the file that has it.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};

/// The arguments of the program, and the origins of those that are not from its command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The program's name first.
    pub words: Vec<OsString>,
    /// Origins by flag, without dashes.
    pub origins: FlagOrigins,
}

impl Arguments {
    /// Arguments that are all from the command line.
    pub(super) fn given(words: Vec<OsString>) -> Arguments {
        Arguments { words, origins: FlagOrigins::default() }
    }
}

/// Origins of flags.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FlagOrigins(Vec<(String, Origin)>);

/// The origin of a flag's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A variable of the environment.
    Variable(String),
    /// A file, and the flag that names it.
    File(&'static str, PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Variable(name) => f.write_str(name),
            Origin::File(flag, path) => write!(f, "--{flag}: {}", path.display()),
        }
    }
}

impl FlagOrigins {
    /// Adds a flag.
    pub(super) fn add(&mut self, flag: &str, origin: Origin) {
        self.0.push((flag.to_owned(), origin));
    }

    fn of(&self, flag: &str) -> Option<&Origin> {
        self.0.iter().find(|(name, _)| name == flag).map(|(_, origin)| origin)
    }

    /// The text of an error of the command line that is about a flag of environment or file; none for others.
    pub fn explain(&self, error: &clap::Error) -> Option<String> {
        let named = match error.get(ContextKind::InvalidArg)? {
            ContextValue::String(name) => vec![name],
            ContextValue::Strings(names) => names.iter().collect(),
            _ => return None,
        };
        let origin = named.iter().find_map(|name| self.of(flags(name).next()?))?;
        Some(error.to_string().replacen("error: ", &format!("error: {origin}: "), 1))
    }

    /// A line for each flag of environment or file that an error text names.
    pub fn notes(&self, text: &str) -> String {
        let mut notes = String::new();
        let mut seen = Vec::new();
        for flag in flags(text).filter(|flag| !flag.is_empty()) {
            if let Some(origin) = self.of(flag).filter(|_| !seen.contains(&flag)) {
                seen.push(flag);
                notes.push_str(&format!("\n--{flag} is from {origin}"));
            }
        }
        notes
    }
}

/// The flags that a text names, without dashes.
fn flags(text: &str) -> impl Iterator<Item = &str> {
    text.split("--").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
        rest.get(..end).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_explained_by_the_origin_of_the_flag() {
        let mut origins = FlagOrigins::default();
        origins.add("secure-port", Origin::Variable("PLINTH_SECURE_PORT".into()));
        origins.add("event-ttl", Origin::File("config", "/etc/c.yaml".into()));
        let command = || {
            clap::Command::new("serve")
                .arg(clap::Arg::new("p").long("secure-port").value_name("PORT"))
                .arg(clap::Arg::new("q").long("other").value_parser(clap::value_parser!(u16)))
                .arg(clap::Arg::new("e").long("event-ttl").value_parser(clap::value_parser!(u16)))
        };
        let explained = |words: &[&str]| {
            let error = command().try_get_matches_from(["serve"].iter().chain(words)).unwrap_err();
            origins.explain(&error)
        };
        let text = explained(&["--event-ttl=x"]).unwrap();
        assert!(
            text.starts_with("error: --config: /etc/c.yaml: invalid value 'x' for '--event-ttl"),
            "{text}"
        );
        assert_eq!(explained(&["--other=x"]), None);
        assert_eq!(explained(&["--none"]), None);
        assert_eq!(
            origins.notes("--secure-port: as --secure-port, and --event-ttl-s, is wrong"),
            "\n--secure-port is from PLINTH_SECURE_PORT"
        );
        assert_eq!(origins.notes("an error -- of nothing"), "");
    }
}
