//! Formats of addresses: hosts, networks, email, URIs.

use std::net::{Ipv4Addr, Ipv6Addr};

use plinth_codec::regexp;
use plinth_codec::url;

/// An absolute URI or an absolute path.
pub(crate) fn is_uri(text: &str) -> bool {
    url::parse(text, true).is_ok()
}

/// An IPv4 address, in which leading zeros are allowed.
fn parse_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut bytes = [0; 4];
    let mut parts = text.split('.');
    for byte in &mut bytes {
        let part = parts.next().filter(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))?;
        *byte = part
            .trim_start_matches('0')
            .parse()
            .or_else(|e| match part.bytes().all(|b| b == b'0') {
                true => Ok(0),
                false => Err(e),
            })
            .ok()?;
    }
    parts.next().is_none().then(|| bytes.into())
}

pub(super) fn is_ipv4(text: &str) -> bool {
    text.contains('.') && (parse_ipv4(text).is_some() || text.parse::<Ipv6Addr>().is_ok())
}

pub(super) fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok()
}

pub(super) fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let bits = match (parse_ipv4(address), address.parse::<Ipv6Addr>()) {
        (Some(_), _) => 32,
        (None, Ok(_)) => 128,
        (None, Err(_)) => return false,
    };
    let digits = !length.is_empty() && length.len() <= 3 && length.bytes().all(|b| b.is_ascii_digit());
    digits && length.parse::<u8>().is_ok_and(|n| n <= bits)
}

/// 6, 8 or 20 bytes: `01:23:…`, `01-23-…`, `0123.4567.…`.
pub(super) fn is_mac(text: &str) -> bool {
    let (separator, digits) = match text.as_bytes().get(2) {
        Some(b':') => (':', 2),
        Some(b'-') => ('-', 2),
        _ => ('.', 4),
    };
    let groups: Vec<&str> = text.split(separator).collect();
    matches!(groups.len() * digits / 2, 6 | 8 | 20)
        && groups.iter().all(|g| g.len() == digits && g.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// A letter, digit or symbol of any script.
fn is_host_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || is_of(r"[\p{S}\p{L}]", c)
}

fn is_of(class: &str, c: char) -> bool {
    // Compiled once; a class of characters always compiles.
    let mut buffer = [0; 4];
    regexp::compile(class).is_ok_and(|regex| regex.is_match(c.encode_utf8(&mut buffer)))
}

/// A single label (with dashes after its first character only), or labels and a top-level domain of letters.
pub(super) fn is_hostname(text: &str) -> bool {
    let is_label = |label: &str| {
        let count = label.chars().count();
        (1..=63).contains(&count)
            && label.chars().all(|c| c == '-' || is_host_char(c))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_single = || {
        let mut chars = text.chars();
        let first = chars.next().is_some_and(is_host_char);
        let rest = chars.as_str();
        let rest = rest.strip_prefix('-').unwrap_or(rest);
        first && rest.chars().count() <= 62 && rest.chars().all(is_host_char)
    };
    let fits = match text.rsplit_once('.') {
        None => is_single(),
        Some((labels, top)) => {
            let is_letter = |c: char| c.is_ascii_alphabetic() || (!c.is_ascii() && is_of(r"\p{L}", c));
            labels.split('.').all(is_label)
                && (2..=63).contains(&top.chars().count())
                && top.chars().all(is_letter)
        }
    };
    fits && text.len() <= 255 && text.split('.').all(|label| label.len() <= 63)
}

/// An address of RFC 5322, with or without a name before it: `a@b.c`, `Bob <a@b.c>`.
pub(super) fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    if is_address(text) {
        return true;
    }
    let Some((name, address)) = text.strip_suffix('>').and_then(|t| t.rsplit_once('<')) else { return false };
    let is_name = name
        .split([' ', '\t'])
        .filter(|w| !w.is_empty())
        .all(|word| word.chars().all(|c| is_atom_char(c) || c == '.'));
    let name = name.trim_matches([' ', '\t']);
    (is_name || is_quoted(name)) && is_address(address)
}

fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_dotted =
        |text: &str| text.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom_char));
    let is_literal = || {
        let inside = domain.strip_prefix('[').and_then(|d| d.strip_suffix(']'));
        inside.is_some_and(|ip| {
            ip.parse::<Ipv4Addr>().is_ok()
                || ip.strip_prefix("IPv6:").is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok())
        })
    };
    (is_dotted(local) || is_quoted(local)) && (is_dotted(domain) || is_literal())
}

fn is_atom_char(c: char) -> bool {
    !c.is_ascii() || c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c)
}

fn is_quoted(text: &str) -> bool {
    let inside = text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
    let Some(inside) = inside.filter(|t| !t.is_empty()) else { return false };
    let mut escaped = false;
    for c in inside.chars() {
        match c {
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return false,
            c if (c as u32) < 0x20 && c != '\t' => return false,
            _ => escaped = false,
        }
    }
    !escaped
}
