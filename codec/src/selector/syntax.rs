//! The rules that label keys and values of a selector follow, with the messages of
//! `k8s.io/apimachinery/pkg/api/validate/content`.

const LABEL: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName', or 'my.name', or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

const SUBDOMAIN: &str =
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
     and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const VALUE: &str =
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
     and end with an alphanumeric character (e.g. 'MyValue', or 'my_value', or '12345', regex used for validation \
     is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The longest name part of a key, and the longest value, in bytes.
const MAX_NAME: usize = 63;
/// The longest prefix of a key, in bytes.
const MAX_PREFIX: usize = 253;

/// What is wrong with a label key, joined by `; `; `None` when nothing is.
pub(super) fn label_key(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        None => (None, key),
        Some((prefix, name)) if !name.contains('/') => (Some(prefix), name),
        Some(_) => {
            return Some(format!(
                "a valid label key {LABEL} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ))
        }
    };
    let mut faults = Vec::new();
    match prefix {
        Some("") => faults.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            if prefix.len() > MAX_PREFIX {
                faults.push(format!("prefix part must be no more than {MAX_PREFIX} bytes"));
            }
            if !is_subdomain(prefix) {
                faults.push(format!("prefix part {SUBDOMAIN}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_NAME {
        faults.push(format!("name part must be no more than {MAX_NAME} bytes"));
    }
    if !is_name(name) {
        faults.push(format!("name part {LABEL}"));
    }
    (!faults.is_empty()).then(|| faults.join("; "))
}

/// What is wrong with a label value, likewise.
pub(super) fn label_value(value: &str) -> Option<String> {
    let mut faults = Vec::new();
    if value.len() > MAX_NAME {
        faults.push(format!("must be no more than {MAX_NAME} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        faults.push(VALUE.to_owned());
    }
    (!faults.is_empty()).then(|| faults.join("; "))
}

fn is_name(text: &str) -> bool {
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    edge(text.bytes().next())
        && edge(text.bytes().last())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_subdomain(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.split('.').all(|label| {
        label.bytes().next().is_some_and(inner)
            && label.bytes().last().is_some_and(inner)
            && label.bytes().all(|b| inner(b) || b == b'-')
    })
}
