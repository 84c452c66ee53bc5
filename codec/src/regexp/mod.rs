//! Regular expressions as Go's `regexp` (RE2) reads them, run by the crate `regex`: linear in the text, no
//! backtracking.
//!
//! The two syntaxes differ in places that patterns of definitions use: Go's `\d`, `\w`, `\s` and `\b` are
//! ASCII only, `{` is a literal where no count follows, classes have no set operations, `\Q…\E` quotes. So a
//! pattern is parsed by Go's grammar, with Go's errors, and translated to the other syntax with all literals
//! escaped.
//!
//! One difference remains: Go accepts the names of Unicode classes in one spelling only.

mod error;
mod translate;

pub use self::error::RegexpError;

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;
use regex::{Regex, RegexBuilder};
use smol_str::SmolStr;

use self::error::error;
use self::translate::translate;

/// Maximum compiled size of most patterns, in bytes.
const SMALL: usize = 128 << 10;
/// Maximum compiled size of a pattern, in bytes; larger ones are refused.
const LARGE: usize = 4 << 20;
/// Maximum size of the cache in bytes, each pattern counted as [`SMALL`] or [`LARGE`].
const CACHE_BYTES: usize = 32 << 20;

/// An LRU cache of compiled patterns. One lock, held for a lookup or an insertion, never while a pattern is
/// compiled.
#[derive(Default)]
struct Cache {
    patterns: HashMap<SmolStr, CachedPattern>,
    weight: usize,
    clock: u64,
}

struct CachedPattern {
    regex: Regex,
    weight: usize,
    used: u64,
}

static CACHE: LazyLock<Mutex<Cache>> = LazyLock::new(Mutex::default);

impl Cache {
    fn get(&mut self, pattern: &str) -> Option<Regex> {
        self.clock += 1;
        let kept = self.patterns.get_mut(pattern)?;
        kept.used = self.clock;
        Some(kept.regex.clone())
    }

    fn put(&mut self, pattern: &str, regex: Regex, weight: usize) {
        while self.weight + weight > CACHE_BYTES {
            let oldest =
                self.patterns.iter().min_by_key(|(_, kept)| kept.used).map(|(pattern, _)| pattern.clone());
            let Some(removed) = oldest.and_then(|pattern| self.patterns.remove(&pattern)) else { break };
            self.weight -= removed.weight;
        }
        let kept = CachedPattern { regex, weight, used: self.clock };
        self.weight += weight;
        if let Some(before) = self.patterns.insert(pattern.into(), kept) {
            self.weight -= before.weight;
        }
    }
}

/// Whether the text matches a built-in pattern; an invalid pattern matches nothing.
pub fn is_match(pattern: &str, text: &str) -> bool {
    compile(pattern).is_ok_and(|regex| regex.is_match(text))
}

/// The compiled pattern, from the cache of the process if present. A few hundred are cached.
///
/// # Errors
/// When it is not a regular expression or takes more than 4 MiB.
pub fn compile(pattern: &str) -> Result<Regex, RegexpError> {
    if let Some(regex) = CACHE.lock().get(pattern) {
        return Ok(regex);
    }
    let (regex, weight) = build(pattern)?;
    CACHE.lock().put(pattern, regex.clone(), weight);
    Ok(regex)
}

fn build(pattern: &str) -> Result<(Regex, usize), RegexpError> {
    let translated = translate(pattern)?;
    let build = |limit| RegexBuilder::new(&translated).size_limit(limit).dfa_size_limit(limit).build();
    for limit in [SMALL, LARGE] {
        match build(limit) {
            Ok(regex) => return Ok((regex, limit)),
            Err(regex::Error::CompiledTooBig(_)) => {}
            // Only names of Unicode classes are not validated by the translation.
            Err(_) => return Err(error("invalid character class range", pattern)),
        }
    }
    Err(error("expression too large", pattern))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_those_of_go() {
        for (pattern, message) in [
            ("(", "missing closing ): `(`"),
            (")", "unexpected ): `)`"),
            ("[", "missing closing ]: `[`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("x{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("a|*", "missing argument to repetition operator: `*`"),
            ("(?i)*", "missing argument to repetition operator: `*`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("((a{100}){100}){100}", "invalid repeat count: `{100}`"),
            (r"\8", r"invalid escape sequence: `\8`"),
            (r"\1", r"invalid escape sequence: `\1`"),
            (r"\Z", r"invalid escape sequence: `\Z`"),
            (r"\é", r"invalid escape sequence: `\é`"),
            (r"\x{110000}", r"invalid escape sequence: `\x{110000}`"),
            (r"\xZ", r"invalid escape sequence: `\x`"),
            (r"[a-\d]", r"invalid escape sequence: `\d`"),
            (r"[\Q]\E]", r"invalid escape sequence: `\Q`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            (r"\pX", r"invalid character class range: `\pX`"),
            ("(?P<n", "invalid named capture: `(?P<n`"),
            ("(?i", "invalid or unsupported Perl syntax: `(?i`"),
            ("(?z)", "invalid or unsupported Perl syntax: `(?z`"),
            ("(?-)", "invalid or unsupported Perl syntax: `(?-)`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            (r"a\", "trailing backslash at end of expression: ``"),
        ] {
            let error = compile(pattern).unwrap_err().to_string();
            assert_eq!(error, format!("error parsing regexp: {message}"), "{pattern}");
        }
    }

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        for (pattern, yes, no) in [
            ("^a{,2}$", &["a{,2}"][..], &["a", "aa"][..]),
            (r"^\d+$", &["12"], &["٣", ""]),
            (r"^\w$", &["_", "a"], &["é", "-"]),
            (r"^[[a]]$", &["[]", "a]"], &["a"]),
            (r"^[a&&b]$", &["a", "b", "&"], &["&&"]),
            (r"^[!--b]$", &["!", "#", "-", "b"], &["a"]),
            (r"^[]a]$", &["]", "a"], &["b"]),
            (r"^[^]a]$", &["b"], &["]", "a"]),
            (r"^\Qa.b\E+$", &["a.bb"], &["axb"]),
            (r"^\07\x41\x{e9}\_\<$", &["\u{7}Aé_<"], &[]),
            (r"(?i)^ab$", &["AB"], &["ABC"]),
            (r"^(?P<a>x)(?P<a>y)$", &["xy"], &["x"]),
            (r"^\p{^Greek}\pL$", &["aa"], &["αa"]),
            (r"\bfoo\b", &["a foo b"], &["afoo"]),
            (r"^a\Bb", &["ab"], &["a b"]),
            (r"^(|a)$", &["", "a"], &["b"]),
            ("^.$", &["é"], &["\n"]),
            ("^[^a]$", &["\n"], &["a"]),
            (r"^#[ ]x$", &["# x"], &["#x"]),
            (r"^(?:x{2}){3}$", &["xxxxxx"], &["xxxxx"]),
            (r"^[\w.-]+@[[:alpha:]]+$", &["a.b-c@d"], &["a@1"]),
        ] {
            let regex = compile(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert!(yes.iter().all(|text| regex.is_match(text)), "{pattern} {yes:?}");
            assert!(no.iter().all(|text| !regex.is_match(text)), "{pattern} {no:?}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let large = |n: u32| format!("^([a-z{n}]{{1,900}}){{1,1}}é*\\pL{{{}}}$", 10 + n);
        for n in 0..40 {
            compile(&large(n)).unwrap();
        }
        let cache = CACHE.lock();
        assert!(cache.weight <= CACHE_BYTES);
        assert_eq!(cache.weight, cache.patterns.values().map(|kept| kept.weight).sum::<usize>());
        drop(cache);
        assert_eq!(compile(r"(\pL{900}\pN{900}){1}").unwrap_err().what, "expression too large");
    }
}
