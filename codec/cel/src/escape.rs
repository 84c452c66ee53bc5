//! Property names as CEL identifiers, and back (k8s.io/apiserver, `pkg/cel/escaping.go`).

use std::borrow::Cow;

/// Reserved words of CEL; a property of such a name is written `__word__`.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// Whether a name is a valid identifier without escapes.
pub fn is_identifier(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic());
    starts && name.bytes().all(|c| c == b'_' || c.is_ascii_alphanumeric()) && !is_reserved(name)
}

/// The identifier for a property: `a-b` is `a__dash__b`. `None` when the name has characters that cannot be
/// escaped.
pub(crate) fn escape(name: &str) -> Option<Cow<'_, str>> {
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() {
        return None;
    }
    if is_reserved(name) {
        return Some(Cow::Owned(format!("__{name}__")));
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-/".contains(&b)) {
        return None;
    }
    if !name.contains("__") && !name.bytes().any(|b| b".-/".contains(&b)) {
        return Some(Cow::Borrowed(name));
    }
    let mut out = String::with_capacity(name.len() + 16);
    let mut rest = name;
    while !rest.is_empty() {
        let (word, length) = match rest.as_bytes()[0] {
            b'_' if rest.starts_with("__") => ("__underscores__", 2),
            b'.' => ("__dot__", 1),
            b'-' => ("__dash__", 1),
            b'/' => ("__slash__", 1),
            _ => (&rest[..1], 1),
        };
        out.push_str(word);
        rest = &rest[length..];
    }
    Some(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_become_identifiers() {
        for (name, identifier) in [
            ("a", Some("a")),
            ("_a_b", Some("_a_b")),
            ("a-b", Some("a__dash__b")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("a__b", Some("a__underscores__b")),
            ("a___b", Some("a__underscores___b")),
            ("namespace", Some("__namespace__")),
            ("if", Some("__if__")),
            ("self", Some("self")),
            ("1a", None),
            ("", None),
            ("a b", None),
            ("é", None),
        ] {
            assert_eq!(escape(name).as_deref(), identifier, "{name}");
        }
    }
}
