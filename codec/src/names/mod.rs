//! Name rules: DNS labels and subdomains, label keys and values.
//!
//! Each function returns the errors of a text, with upstream's messages (k8s.io/apimachinery
//! `pkg/util/validation` and `pkg/api/validate/content`); an empty list means that it is valid.

/// Longest DNS label and label value, in bytes.
const LABEL_MAX: usize = 63;
/// Longest DNS subdomain, in bytes.
const SUBDOMAIN_MAX: usize = 253;

const LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035_FORMAT: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE_FORMAT: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

/// Upstream counts bytes everywhere, but calls them characters in the rules of DNS names.
fn too_long(most: usize, unit: &str) -> String {
    format!("must be no more than {most} {unit}")
}

fn broken(rule: &str, format: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{format}')", examples.join(" or "))
}

/// Whether the text is not empty, starts and ends with `edge` and has only `inner` between.
fn is_made_of(text: &str, edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [one] => edge(*one),
        [first, middle @ .., last] => edge(*first) && edge(*last) && middle.iter().all(|b| inner(*b)),
    }
}

fn lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn lower_or_dash(b: u8) -> bool {
    lower(b) || b == b'-'
}

fn any_or_joint(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')
}

fn is_label(text: &str) -> bool {
    is_made_of(text, lower, lower_or_dash)
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// A DNS label as RFC 1123 has it: lower case, digits and dashes, 63 bytes.
pub fn dns1123_label_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX, "characters"));
    }
    if !is_label(text) {
        errors.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            broken(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL_FORMAT,
                &["my-name", "123-abc"],
            )
        });
    }
    errors
}

/// Labels joined by dots, 253 bytes.
pub fn dns1123_subdomain_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX, "characters"));
    }
    if !is_subdomain(text) {
        errors.push(broken(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN_FORMAT,
            &["example.com"],
        ));
    }
    errors
}

/// As [`dns1123_subdomain_errors`], with underscores: names for DNS lookups.
pub fn underscored_subdomain_errors(text: &str) -> Vec<String> {
    const LABEL: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
    let is_label = |label: &str| {
        is_made_of(label.strip_prefix('_').unwrap_or(label), lower, |b| lower_or_dash(b) || b == b'_')
    };
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX, "characters"));
    }
    if !text.split('.').all(is_label) {
        errors.push(broken(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            &format!("{LABEL}(\\.{LABEL})*"),
            &["example.com"],
        ));
    }
    errors
}

/// A DNS label as RFC 1035 has it: as [`dns1123_label_errors`], and starts with a letter.
pub fn dns1035_label_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX, "characters"));
    }
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(broken(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            LABEL_1035_FORMAT,
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// A name that fits into a path segment.
pub fn path_segment_errors(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"].iter().filter(|c| text.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// A key of a ConfigMap or Secret.
pub fn config_key_errors(key: &str) -> Vec<String> {
    const MAX: usize = 253;
    let mut errors = Vec::new();
    if key.len() > MAX {
        errors.push(format!("must be no more than {MAX} characters"));
    }
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(good) {
        errors.push("a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')".into());
    }
    match key {
        "." | ".." => errors.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => errors.push("must not start with '..'".into()),
        _ => {}
    }
    errors
}

/// A label key, annotation key or finalizer: a name of at most 63 bytes, optionally after a DNS subdomain
/// and a slash.
pub fn qualified_name_errors(text: &str) -> Vec<String> {
    const RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    const EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];
    let mut errors = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors
                    .extend(dns1123_subdomain_errors(prefix).into_iter().map(|f| format!("prefix part {f}")));
            }
            *name
        }
        _ => {
            let rule = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
            let what = broken(rule, QUALIFIED_FORMAT, EXAMPLES);
            return vec![format!(
                "{what} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part {}", too_long(LABEL_MAX, "bytes")));
    }
    if !is_made_of(name, |b| b.is_ascii_alphanumeric(), any_or_joint) {
        errors.push(broken(RULE, QUALIFIED_FORMAT, EXAMPLES));
    }
    errors
}

/// The value of a label; may be empty.
pub fn label_value_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX, "bytes"));
    }
    if !text.is_empty() && !is_made_of(text, |b| b.is_ascii_alphanumeric(), any_or_joint) {
        errors.push(broken(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            LABEL_VALUE_FORMAT,
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_and_bad_names() {
        let long = "a".repeat(64);
        type Rule = fn(&str) -> Vec<String>;
        let rows: [(Rule, &[&str], &[&str]); 6] = [
            (dns1123_label_errors, &["a", "1-a", "a1"], &["", "A", "-a", "a-", "a.b", "a_b", "ä", &long]),
            (dns1123_subdomain_errors, &["a", "a.b-c.1"], &["", ".", "a..b", "a.", "A.b"]),
            (dns1035_label_errors, &["a", "a-1"], &["1a", "", "a.b"]),
            (path_segment_errors, &["a:b", "A b", ""], &[".", "..", "a/b", "a%2f"]),
            (
                qualified_name_errors,
                &["a", "A_b.c", "example.com/x"],
                &["", "/a", "a/", "a/b/c", "-a", "E.com/x"],
            ),
            (label_value_errors, &["", "a", "A_b.c-d"], &["-a", "a b", &long]),
        ];
        for (rule, good, bad) in rows {
            for text in good {
                assert_eq!(rule(text), Vec::<String>::new(), "{text:?}");
            }
            for text in bad {
                assert!(!rule(text).is_empty(), "{text:?}");
            }
        }
    }

    #[test]
    fn the_words_are_upstreams() {
        assert_eq!(
            dns1123_subdomain_errors("A"),
            ["a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"]
        );
        assert_eq!(dns1123_label_errors("a.b"), ["must not contain dots"]);
        assert_eq!(dns1123_label_errors(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(label_value_errors(&"a".repeat(64)), ["must be no more than 63 bytes"]);
    }
}
