//! Finds what two servers cannot have in common: UIDs, times, revisions, random names, keys and ports.

use std::collections::{BTreeMap, HashMap};

use regex::bytes::Regex;

/// What a part of an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Must be equal.
    Literal,
    /// Must correspond to one UID of the other server.
    Uid,
    /// Must correspond to one revision of the other server, in the same order.
    Revision,
    /// May differ: times, ages, random suffixes, tokens, certificates, ports, allocated addresses.
    Free,
}

/// A part of an answer.
pub(crate) type Part<'b> = (Kind, &'b [u8]);

/// What is found in every answer; the alternatives of `free` continue in `TEXT` and `BINARY`. Addresses of
/// Services are allocated from 10.0.0.16 on, those below it are chosen by the corpus.
const ALWAYS: &str = concat!(
    r"(?-u)(?P<uid>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})",
    r"|(?P<time>20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)",
    r"|(?P<free>eyJ[\w-]{10,}\.[\w-]+\.[\w-]+",
    r"|LS0tLS1CRUdJTi[A-Za-z0-9+/=]+|-----BEGIN [A-Z ]+-----[^-]+-----END [A-Z ]+-----",
    r"|(?:random|kube-api-access)-[bcdfghjklmnpqrstvwxz2456789]{5}|X509SHA256=[0-9a-f]{64}",
    r"|\b10\.0\.0\.(?:1[6-9]|[2-9]\d|\d{3})\b|",
);
const TEXT: &str = concat!(
    r"\bPORT\b)",
    r#"|(?:resourceVersion\\?"?: ?\\?"?|resource version: )(?P<revision>\d+)"#,
    r#"|\bcontinue"?: ?"?(?P<continue>[\w.=-]+)|[nN]odePort"?: ?(?P<port>\d+)"#,
);
const AGE: &str = r#"|"(?P<age>(?:\d+[dhms])+|<invalid>)""#;
/// Revisions are field 2 of a list's metadata and 6 of an object's, continue tokens field 3 of a list's,
/// seconds field 1 of a time.
const BINARY: &str = concat!(
    r"VARINT|\bPORT\b)",
    r"|(?:\x1a[\x3c-\xff]\x01?|continue[\x58\x78].)(?P<continue>[\w-]{60,})",
    r"|(?:resourceVersion[\x41-\x48\x61-\x68]|[\x12\x32][\x01-\x08])(?P<revision>\d+)",
    r"|\x08(?P<seconds>[\x80-\xff]{4}[\x06-\x0f])",
);

/// What to look for in the answers of one server.
pub(crate) struct Normalizer {
    text: Regex,
    table: Regex,
    binary: Regex,
    /// When the server was started, as RFC 3339: earlier times come from requests and are equal.
    started: Vec<u8>,
}

impl Normalizer {
    pub(crate) fn new(port: u16, started: &str) -> Result<Normalizer, regex::Error> {
        let port_bytes = [(port & 0x7f) | 0x80, ((port >> 7) & 0x7f) | 0x80, port >> 14];
        let varint: String = port_bytes.iter().map(|byte| format!(r"\x{byte:02x}")).collect();
        let text = TEXT.replace("PORT", &port.to_string());
        let binary = BINARY.replace("VARINT", &varint).replace("PORT", &port.to_string());
        Ok(Normalizer {
            text: Regex::new(&format!("{ALWAYS}{text}"))?,
            table: Regex::new(&format!("{ALWAYS}{text}{AGE}"))?,
            binary: Regex::new(&format!("{ALWAYS}{binary}"))?,
            started: started.as_bytes().to_vec(),
        })
    }

    /// The parts of a header's value or of a textual body.
    pub(crate) fn text<'b>(&self, text: &'b [u8]) -> Vec<Part<'b>> {
        let head = &text[..text.len().min(128)];
        let is_table = head.windows(7).any(|window| window == b"\"Table\"");
        self.parts(if is_table { &self.table } else { &self.text }, text, true)
    }

    /// The parts of a body in protobuf or CBOR.
    pub(crate) fn binary<'b>(&self, bytes: &'b [u8]) -> Vec<Part<'b>> {
        self.parts(&self.binary, bytes, false)
    }

    fn parts<'b>(&self, regex: &Regex, bytes: &'b [u8], text: bool) -> Vec<Part<'b>> {
        let mut parts = Vec::new();
        let mut end = 0;
        for captures in regex.captures_iter(bytes) {
            let groups = [
                ("uid", Kind::Uid),
                ("time", Kind::Free),
                ("revision", Kind::Revision),
                ("free", Kind::Free),
                ("continue", Kind::Free),
                ("port", Kind::Free),
                ("age", Kind::Free),
                ("seconds", Kind::Free),
            ];
            let found = groups.iter().find_map(|(name, kind)| captures.name(name).map(|m| (*name, m, *kind)));
            let Some((name, found, kind)) = found else { continue };
            if name == "time" && found.as_bytes() < self.started.as_slice() {
                continue;
            }
            let mut found = found.range();
            if name == "revision" && !text {
                // The byte before it is its length, and what follows may look like a digit.
                let length = usize::from(bytes[found.start - 1] & 0x0f);
                found.end = found.end.min(found.start + length);
            }
            parts.push((Kind::Literal, &bytes[end..found.start]));
            parts.push((kind, &bytes[found.clone()]));
            end = found.end;
        }
        parts.push((Kind::Literal, &bytes[end..]));
        parts
    }
}

/// Which UID and which revision of one server is which of the other.
#[derive(Default)]
pub(crate) struct Correspondence {
    /// The revision up to which the servers have written by themselves: concurrently, so in any order.
    pub baseline: u64,
    revisions: BTreeMap<u64, u64>,
    old_to_new: HashMap<Vec<u8>, Vec<u8>>,
    new_to_old: HashMap<Vec<u8>, Vec<u8>>,
}

impl Correspondence {
    /// Compares two answers' parts; the error is the first difference.
    pub(crate) fn compare(&mut self, old: &[Part<'_>], new: &[Part<'_>]) -> Result<(), String> {
        for (old, new) in old.iter().zip(new) {
            let equal = match (old.0, new.0) {
                (Kind::Revision, Kind::Revision) => self.same_revision(old.1, new.1),
                (Kind::Uid, Kind::Uid) => self.same_name(old.1, new.1),
                (Kind::Free, Kind::Free) => true,
                _ => old.1 == new.1,
            };
            if !equal {
                return Err(around(old.1, new.1));
            }
        }
        match old.len() == new.len() {
            true => Ok(()),
            false => Err(format!("{} parts became {}", old.len(), new.len())),
        }
    }

    /// Revisions correspond when their order is the same: the larger of two is the larger on both servers.
    fn same_revision(&mut self, old: &[u8], new: &[u8]) -> bool {
        let number = |digits: &[u8]| std::str::from_utf8(digits).ok().and_then(|d| d.parse::<u64>().ok());
        let (Some(old), Some(new)) = (number(old), number(new)) else { return old == new };
        if old <= self.baseline && new <= self.baseline {
            return self.same_name(format!("{old}").as_bytes(), format!("{new}").as_bytes());
        }
        if let Some(known) = self.revisions.get(&old) {
            return *known == new;
        }
        let below = self.revisions.range(..old).next_back().is_none_or(|(_, below)| *below < new);
        let above = self.revisions.range(old..).next().is_none_or(|(_, above)| *above > new);
        if below && above {
            self.revisions.insert(old, new);
        }
        below && above
    }

    fn same_name(&mut self, old: &[u8], new: &[u8]) -> bool {
        match (self.old_to_new.get(old), self.new_to_old.get(new)) {
            (Some(known), _) => known == new,
            (None, Some(_)) => false,
            (None, None) => {
                self.old_to_new.insert(old.to_vec(), new.to_vec());
                self.new_to_old.insert(new.to_vec(), old.to_vec());
                true
            }
        }
    }
}

/// The surroundings of the first byte that differs.
fn around(old: &[u8], new: &[u8]) -> String {
    let at = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let excerpt = |bytes: &[u8]| {
        let range = at.saturating_sub(80)..bytes.len().min(at + 160);
        String::from_utf8_lossy(&bytes[range]).into_owned()
    };
    format!("at byte {at} of a part:\n      old …{}…\n      new …{}…", excerpt(old), excerpt(new))
}
