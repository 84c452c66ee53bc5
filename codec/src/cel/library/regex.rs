//! Regular expressions in RE2's syntax, run by the `regex` crate, which takes time in proportion to the text as RE2 does.

use regex::{Regex, RegexBuilder};

use crate::cel::program::{Context, EvalError};
use crate::cel::value::{Text, Val};

type Outcome<'a> = Result<Val<'a>, EvalError>;

/// Most memory of a compiled expression, in bytes.
const MAX_COMPILED: usize = 1 << 20;

/// Compiles an expression of RE2's syntax.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = translate(pattern);
    let mut builder = RegexBuilder::new(&translated);
    builder.size_limit(MAX_COMPILED).dfa_size_limit(MAX_COMPILED).nest_limit(200);
    builder.build().map_err(|e| {
        // The crate draws a picture of the place; its last line says what is wrong.
        let text = e.to_string();
        let line = text.lines().last().unwrap_or_default();
        let reason = line.strip_prefix("error: ").unwrap_or(line);
        let reason = match reason {
            "unclosed group" => "missing closing )",
            "unopened group" => "unexpected )",
            "unclosed character class" => "missing closing ]",
            "repetition operator missing expression" => "missing argument to repetition operator",
            other => other,
        };
        format!("error parsing regexp: {reason}: `{pattern}`")
    })
}

/// From RE2's syntax to the crate's: perl classes and word boundaries are ASCII, `\Q…\E` quotes, `\C` is no
/// escape, and inside brackets only RE2's operators are operators.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                None => out.push('\\'),
                Some('Q') if !in_class => {
                    while let Some(quoted) = chars.next() {
                        if quoted == '\\' && chars.peek() == Some(&'E') {
                            chars.next();
                            break;
                        }
                        out.push_str(&regex::escape(quoted.encode_utf8(&mut [0; 4])));
                    }
                }
                Some(class @ ('d' | 'D' | 'w' | 'W' | 's' | 'S')) => {
                    let members = match class.to_ascii_lowercase() {
                        'd' => "0-9",
                        'w' => "0-9A-Za-z_",
                        _ => "\\t\\n\\f\\r ",
                    };
                    let not = if class.is_ascii_uppercase() { "^" } else { "" };
                    out.push_str(&format!("[{not}{members}]"));
                }
                Some('b') if !in_class => out.push_str("(?-u:\\b)"),
                // Not between two bytes of one character, so only the Unicode form is a valid text.
                Some('B') if !in_class => out.push_str("\\B"),
                // Octal, which the crate has not.
                Some(digit @ '0'..='7') if digit == '0' || in_class => {
                    let mut value = digit.to_digit(8).unwrap_or(0);
                    while let Some(next) = chars.peek().and_then(|c| c.to_digit(8)).filter(|_| value < 32) {
                        value = value * 8 + next;
                        chars.next();
                    }
                    out.push_str(&format!("\\x{{{value:x}}}"));
                }
                Some(other) => {
                    out.push('\\');
                    out.push(other);
                }
            },
            '[' if in_class => match chars.peek() {
                Some(':') => out.push('['),
                _ => out.push_str("\\["),
            },
            '[' => {
                in_class = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    chars.next();
                    out.push('^');
                }
                // A bracket right at the start stands for itself.
                if chars.peek() == Some(&']') {
                    chars.next();
                    out.push_str("\\]");
                }
            }
            ':' if in_class
                && chars.peek() == Some(&']')
                && out.rfind("[:").is_some_and(|i| is_name(&out[i + 2..])) =>
            {
                chars.next();
                out.push_str(":]");
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && chars.peek() == Some(&'-') => out.push_str("\\-"),
            c => out.push(c),
        }
    }
    out
}

fn is_name(text: &str) -> bool {
    text.trim_start_matches('^').chars().all(|c| c.is_ascii_lowercase())
}

fn texts<'v, 'a>(args: &'v [Val<'a>]) -> Result<(&'v Text<'a>, &'v str), EvalError> {
    match args {
        [Val::String(text), Val::String(pattern), ..] => Ok((text, pattern.as_str())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn matches<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (text, pattern) = texts(args)?;
    let regex = context.regex(pattern)?;
    Ok(Val::Bool(regex.is_match(text.as_str())))
}

pub(super) fn find<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (text, pattern) = texts(args)?;
    let regex = context.regex(pattern)?;
    Ok(match text {
        Text::Data(text) => Val::String(Text::Data(regex.find(text).map_or("", |m| m.as_str()))),
        Text::Made(text) => Val::text(regex.find(text).map_or("", |m| m.as_str())),
    })
}

pub(super) fn find_all<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (text, pattern) = texts(args)?;
    let most = match args.get(2) {
        None => usize::MAX,
        Some(Val::Int(n)) => usize::try_from(*n).unwrap_or(usize::MAX),
        Some(_) => return Err(EvalError::NoSuchOverload),
    };
    let regex = context.regex(pattern)?;
    let found: Vec<Val<'a>> = match text {
        Text::Data(text) => {
            regex.find_iter(text).take(most).map(|m| Val::String(Text::Data(m.as_str()))).collect()
        }
        Text::Made(text) => regex.find_iter(text).take(most).map(|m| Val::text(m.as_str())).collect(),
    };
    context.work(found.len() as u64)?;
    Ok(Val::list(found))
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[test]
    fn expressions_mean_what_they_mean_in_re2() {
        for (pattern, text, matches) in [
            (r"^\d+$", "123", true),
            (r"^\d+$", "\u{0661}", false),
            (r"^\w$", "\u{e9}", false),
            (r"^[\w.-]+$", "a.b-c_d", true),
            (r"^[^\s]+$", "a b", false),
            (r"^[a-z[]+$", "a[b", true),
            (r"^[]a]+$", "]a", true),
            (r"^[^]a]+$", "b", true),
            (r"^[[:alpha:]_]+$", "ab_", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[!--]+$", "!-", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"\bfoo\b", "a foo b", true),
            (r"^\x41\x{42}$", "AB", true),
            (r"^(?i)ABC$", "abc", true),
            (r"^(?P<n>a)$", "a", true),
            (r"\pL", "\u{e9}", true),
            (r"a{2,3}", "aa", true),
        ] {
            assert_eq!(compile(pattern).unwrap().is_match(text), matches, "{pattern} {text}");
        }
        for pattern in ["(", "a**b(", "[a", "a{3,2}", r"\1", "(?<!a)b", "((a{900}){900}){900}"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
