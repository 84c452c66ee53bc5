//! Formats of names and values (k8s.io/apiserver `pkg/cel/library/format.go`).

use plinth_codec::base64_text;
use plinth_codec::names;
use plinth_codec::time::Timestamp;

use super::url::Url;

/// A named format with its cost and its validation.
#[derive(Debug)]
pub(crate) struct NamedFormat {
    pub(crate) name: &'static str,
    /// Length of upstream's regular expression, which determines the cost.
    pub(crate) regex_size: u64,
    pub(crate) errors: fn(&str) -> Vec<String>,
}

const fn row(name: &'static str, regex_size: u64, errors: fn(&str) -> Vec<String>) -> NamedFormat {
    NamedFormat { name, regex_size, errors }
}

static FORMATS: [NamedFormat; 13] = [
    row("dns1123Label", 30, names::dns1123_label_errors),
    row("dns1123Subdomain", 60, names::dns1123_subdomain_errors),
    row("dns1035Label", 30, names::dns1035_label_errors),
    row("qualifiedName", 60, names::qualified_name_errors),
    row("dns1123LabelPrefix", 30, |s| names::dns1123_label_errors(&without_dash(s))),
    row("dns1123SubdomainPrefix", 60, |s| names::dns1123_subdomain_errors(&without_dash(s))),
    row("dns1035LabelPrefix", 30, |s| names::dns1035_label_errors(&without_dash(s))),
    row("labelValue", 40, names::label_value_errors),
    row("uri", 2000, |s| Url::parse_request(s).err().into_iter().collect()),
    row("uuid", 68, |s| error(is_uuid(s), "does not match the UUID format")),
    row("byte", 85, |s| error(is_base64(s), "invalid base64")),
    row("date", 133, |s| error(Timestamp::parse(&format!("{s}T00:00:00Z")).is_ok(), "invalid date")),
    row("datetime", 133, |s| error(Timestamp::parse(s).is_ok(), "invalid datetime")),
];

fn error(holds: bool, otherwise: &str) -> Vec<String> {
    match holds {
        true => Vec::new(),
        false => vec![otherwise.to_owned()],
    }
}

/// A name prefix may end in a dash.
fn without_dash(text: &str) -> String {
    match text.len() > 1 && text.ends_with('-') {
        true => format!("{}a", &text[..text.len() - 2]),
        false => text.to_owned(),
    }
}

fn is_uuid(text: &str) -> bool {
    let hex: Vec<usize> = text.split('-').map(|part| part.len()).collect();
    let digits = text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    digits && (hex == [8, 4, 4, 4, 12] || hex == [32])
}

fn is_base64(text: &str) -> bool {
    !text.is_empty() && base64_text::decode(text).is_ok()
}

impl NamedFormat {
    pub(crate) fn find(name: &str) -> Option<&'static NamedFormat> {
        FORMATS.iter().find(|f| f.name == name)
    }
}
