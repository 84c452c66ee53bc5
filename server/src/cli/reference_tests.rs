//! The reference of commands in `docs/reference/`, made from what clap knows of them. Tests only: the pages
//! are in the repository, and a test compares. `PLINTH_WRITE_REFERENCE=1` writes them
//! (`cargo test --release -p plinth-server reference`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::config_file::variable;
use super::Cli;

/// Written at the head of each page.
const NOTE: &str = "<!-- Made from the program: PLINTH_WRITE_REFERENCE=1 cargo test --release -p plinth-server reference -->";

/// The group of flags that have no heading.
const NO_GROUP: &str = "Flags";

/// Text in a cell of a table or in a paragraph.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        if matches!(character, '|' | '*' | '<' | '[' | '`' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out
}

/// Code in a cell of a table; nothing where there is none.
fn code(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!("`{}`", text.replace('|', "\\|")),
    }
}

/// As on a command line: `--tls-san NAME`.
fn spelling(arg: &Arg) -> String {
    let names: Vec<&str> =
        arg.get_value_names().unwrap_or_default().iter().map(|name| name.as_str()).collect();
    let value = names.join(" ");
    let Some(long) = arg.get_long() else { return value };
    let short = arg.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    let is_optional = arg.get_num_args().is_some_and(|count| count.min_values() == 0);
    match arg.get_action().takes_values() {
        false => format!("{short}--{long}"),
        true if is_optional => format!("{short}--{long}[={value}]"),
        true => format!("{short}--{long} {value}"),
    }
}

/// What is used where the flag is not given.
fn default(arg: &Arg) -> String {
    if arg.is_required_set() {
        return "required".to_owned();
    }
    if arg.is_hide_default_value_set() || !arg.get_action().takes_values() {
        return String::new();
    }
    let values: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    code(&values.join(","))
}

/// What the flag does, and which values it takes.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = escaped(&help);
    let values = arg.get_possible_values();
    let is_switch = values.iter().any(|value| value.get_name() == "true");
    if arg.get_action().takes_values() && !values.is_empty() && !is_switch {
        let described =
            values.iter().filter(|value| !value.is_hide_set()).map(|value| match value.get_help() {
                Some(help) => format!("{} ({})", code(value.get_name()), escaped(&help.to_string())),
                None => code(value.get_name()),
            });
        let _ = write!(text, ". One of: {}", described.collect::<Vec<_>>().join(", "));
    }
    if matches!(arg.get_action(), ArgAction::Append) || arg.get_value_delimiter().is_some() {
        text.push_str(". Takes several values");
    }
    text
}

/// Flags by their groups, in the order of the help.
fn groups<'c>(command: &'c Command, skip: &BTreeSet<&str>) -> Vec<(&'c str, Vec<&'c Arg>)> {
    let mut groups: Vec<(&str, Vec<&Arg>)> = Vec::new();
    for arg in command.get_arguments() {
        let name = arg.get_id().as_str();
        if arg.is_hide_set() || name == "help" || name == "version" || skip.contains(name) {
            continue;
        }
        let heading = match arg.is_positional() {
            true => "Arguments",
            false => arg.get_help_heading().unwrap_or(NO_GROUP),
        };
        match groups.iter_mut().find(|(group, _)| *group == heading) {
            Some((_, args)) => args.push(arg),
            None => groups.push((heading, vec![arg])),
        }
    }
    groups
}

/// A command, and those below it.
fn describe(
    command: &Command,
    level: usize,
    skip: &BTreeSet<&str>,
    from_environment: bool,
    out: &mut String,
) {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let marks = "#".repeat(level);
    let _ = write!(
        out,
        "{marks} {name}\n\n{}.\n\n    {}\n",
        escaped(&about),
        usage.trim_start_matches("Usage: ")
    );
    for (group, args) in groups(command, skip) {
        let (more, line) = match from_environment {
            true => (" environment |", "---|"),
            false => ("", ""),
        };
        let _ =
            write!(out, "\n{marks}# {group}\n\n| flag | default |{more} meaning |\n|---|---|{line}---|\n");
        for arg in args {
            let environment = match (from_environment, arg.get_long()) {
                (true, Some(long)) => format!(" {} |", code(&variable(long))),
                _ => String::new(),
            };
            let (spelling, default) = (code(&spelling(arg)), default(arg));
            let _ = writeln!(out, "| {spelling} | {default} |{environment} {} |", meaning(arg));
        }
    }
    if let Some(text) = command.get_after_long_help().or(command.get_after_help()) {
        out.push('\n');
        for line in text.to_string().lines() {
            let _ = writeln!(out, "{}", format!("    {line}").trim_end());
        }
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set())
    {
        out.push('\n');
        describe(below, level + 1, skip, false, out);
    }
}

/// Every page, by the name of its file.
fn pages() -> BTreeMap<String, String> {
    let mut program = Cli::command();
    program.build();
    let serve = program.find_subcommand("serve").expect("plinth serve").clone();
    let of_serve: BTreeSet<&str> = serve.get_arguments().map(|arg| arg.get_id().as_str()).collect();
    let mut pages = BTreeMap::new();
    let mut index = format!("{NOTE}\n# Reference of commands\n\n| command | |\n|---|---|\n");
    for command in program.get_subcommands() {
        let name = command.get_name();
        if command.is_hide_set() || name == "help" {
            continue;
        }
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(index, "| [plinth {name}](plinth-{name}.md) | {} |", escaped(&about));
        let mut page = format!("{NOTE}\n");
        let none = BTreeSet::new();
        let skip = if name == "up" { &of_serve } else { &none };
        describe(command, 1, skip, name == "serve" || name == "up", &mut page);
        if name == "up" {
            page.push_str("\nThe flags of [plinth serve](plinth-serve.md) are flags of this command, too.\n");
        }
        pages.insert(format!("plinth-{name}.md"), page);
    }
    index.push_str(
        "\nFlags of `plinth serve` and `plinth up` are taken from variables of the environment and from the file of \
         `--config`,\ntoo ([installing](../install.md#as-a-service)); the command line precedes the environment, and \
         that the file. Durations\nare Go's, with days before them (`7d`, `1d12h`). Metrics: [metrics.md](metrics.md).\n\n",
    );
    let text = program.get_after_help().map(ToString::to_string).unwrap_or_default();
    let codes = text.split_once("Exit codes:\n").map(|(_, codes)| codes).expect("exit codes");
    index.push_str("## Exit codes\n\n| code | |\n|---|---|\n");
    for line in codes.lines() {
        let (code, meaning) = line.trim().split_once(' ').expect("a code and what it means");
        let _ = writeln!(index, "| {code} | {} |", escaped(meaning));
    }
    pages.insert("commands.md".to_owned(), index);
    pages
}

#[cfg(feature = "bench")]
#[test]
fn the_reference_of_commands_is_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
    let pages = pages();
    if std::env::var_os("PLINTH_WRITE_REFERENCE").is_some() {
        for (name, page) in &pages {
            fs::write(folder.join(name), page).unwrap();
        }
    }
    for (name, page) in &pages {
        let stored = fs::read_to_string(folder.join(name)).unwrap_or_default();
        for (number, (stored, made)) in stored.lines().zip(page.lines()).enumerate() {
            assert_eq!(
                stored,
                made,
                "docs/reference/{name}, line {}: run with PLINTH_WRITE_REFERENCE=1",
                number + 1
            );
        }
        assert_eq!(
            stored.lines().count(),
            page.lines().count(),
            "docs/reference/{name}: PLINTH_WRITE_REFERENCE=1"
        );
    }
    let commands = |name: &String| name.starts_with("plinth-");
    let stored: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(commands)
        .collect();
    assert_eq!(stored, pages.into_keys().filter(commands).collect(), "a page of a command that is not there");
}

/// Beginnings of the names of flags, and the groups that these are in.
const GROUPS: &[(&str, &str)] = &[
    ("audit-", "Audit"),
    ("authentication-", "Authentication"),
    ("authorization-", "Authorization"),
    ("backup-", "Backups"),
    ("checkpoint-", "Replicas"),
    ("cluster-signing-", "Controllers"),
    ("encryption-", "Encryption at rest"),
    ("journal", "Replicas"),
    ("kubelet-", "Kubelets"),
    ("max-connections", "Connections"),
    ("max-open-files", "Connections"),
    ("max-unread-bytes", "Connections"),
    ("max-mutating-requests-inflight", "Flow control"),
    ("max-requests-inflight", "Flow control"),
    ("oidc-", "Authentication"),
    ("requestheader-", "Authentication"),
    ("service-account-", "Authentication"),
    ("service-cluster-ip-", "Services"),
    ("service-node-port-", "Services"),
    ("shutdown-", "Serving"),
    ("tls-", "TLS"),
    ("tracing-", "Traces"),
];

#[test]
fn every_flag_of_serve_is_in_its_group() {
    let mut program = Cli::command();
    program.build();
    let serve = program.find_subcommand("serve").expect("plinth serve");
    let mut found = BTreeSet::new();
    for arg in serve.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let Some(long) = arg.get_long().filter(|long| *long != "help") else { continue };
        let group = arg.get_help_heading().unwrap_or_else(|| panic!("--{long} has no group"));
        let of_name = GROUPS.iter().find(|(beginning, _)| long.starts_with(beginning));
        if let Some((beginning, expected)) = of_name {
            assert_eq!(group, *expected, "--{long}");
            found.insert(*beginning);
        }
        if group == "TLS" {
            assert!(long.starts_with("tls-") || long == "disable-http2-serving", "--{long} is not about TLS");
        }
    }
    assert_eq!(found.len(), GROUPS.len(), "a group of flags that are not there");
}
