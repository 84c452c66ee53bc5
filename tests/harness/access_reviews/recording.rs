//! The text format of a recording. A line begins with a word that says what it is:
//!
//! | word | line |
//! |---|---|
//! | `#` | a comment |
//! | `as` | the user of the requests that follow, then groups; `uid:` and `extra:KEY=` go before a value, and `#` stands for a number that no other request has |
//! | `wait` | until what was prepared is in force: kube-apiserver's caches need a moment |
//! | `!` | a request of the administrator that prepares something: method and target |
//! | `>` | a request: method and target. It is made once for each review that it leads to, with that one denied, and once with all allowed |
//! | `>>` | a request that is made once, with all allowed |
//! | `h` | a header of the request above |
//! | `b` | its body: JSON, or `@APIVERSION KIND NAME NAMESPACE` for a sample with a JSON merge patch behind it. `$RV` and `$UID` are those of the target |
//! | `=` | what kube-apiserver did with all reviews allowed: the code and reason of the answer, and the reviews in order. `deny N:` begins a line of what it did with the Nth denied, where that is anything else than 403 right after it |
//! | `~` | what Plinth does instead, in the same form |
//! | `why` | why: every difference has its reason |

use std::fmt::Write as _;

/// A recording: a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// Its lines in order.
    pub items: Vec<Item>,
}

/// One or more lines of a recording that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A comment or an empty line.
    Comment(String),
    /// The user of the requests that follow.
    As(Requester),
    /// Wait until what was prepared is in force.
    Wait,
    /// A request of the administrator.
    Setup(Exchange),
    /// A request whose reviews are recorded.
    Case(Box<Case>),
}

/// The user of requests, as authentication finds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requester {
    /// Name of the user.
    pub name: String,
    /// Groups, without those that the server adds.
    pub groups: Vec<String>,
    /// UID of the user; empty for none.
    pub uid: String,
    /// Extra keys, each with one value.
    pub extra: Vec<(String, String)>,
}

/// One HTTP request, as a recording writes it down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    /// The method, as it is sent.
    pub method: String,
    /// Path and query, as they are sent.
    pub target: String,
    /// Headers in the order in which they are sent.
    pub headers: Vec<(String, String)>,
    /// The body as it is written in the recording; empty for none.
    pub body: String,
}

/// A request with what came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Case {
    /// What is sent.
    pub request: Exchange,
    /// Whether it is made once only, with every review allowed.
    pub once: bool,
    /// What kube-apiserver did.
    pub upstream: Vec<String>,
    /// What Plinth does where that differs; empty where it does not.
    pub plinth: Vec<String>,
    /// The reason for the difference.
    pub reason: String,
}

impl Case {
    /// What Plinth is expected to do.
    pub fn expected(&self) -> &[String] {
        if self.plinth.is_empty() {
            &self.upstream
        } else {
            &self.plinth
        }
    }

    /// How many requests it is: one for each review that is denied, and one with all allowed.
    pub fn requests(&self) -> usize {
        let reviews = self.expected().last().map_or(0, |line| line.matches(" | ").count());
        if self.once {
            1
        } else {
            1 + reviews
        }
    }
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// The number of the line that cannot be read, and why.
    pub fn parse(text: &str) -> Result<Recording, String> {
        let mut items = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let bad = |why: &str| format!("line {}: {why}: {line}", number + 1);
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "" | "#" => items.push(Item::Comment(line.to_owned())),
                "wait" => items.push(Item::Wait),
                "as" => items.push(Item::As(Requester::parse(rest))),
                "!" => items.push(Item::Setup(Exchange::parse(rest).ok_or_else(|| bad("no target"))?)),
                ">" | ">>" => items.push(Item::Case(Box::new(Case {
                    request: Exchange::parse(rest).ok_or_else(|| bad("no target"))?,
                    once: word == ">>",
                    ..Case::default()
                }))),
                "h" | "b" => {
                    let request = match items.last_mut() {
                        Some(Item::Case(case)) => &mut case.request,
                        Some(Item::Setup(request)) => request,
                        _ => return Err(bad("belongs to no request")),
                    };
                    match (word, rest.split_once(": ")) {
                        ("b", _) => rest.clone_into(&mut request.body),
                        (_, Some((name, value))) => request.headers.push((name.to_owned(), value.to_owned())),
                        (_, None) => return Err(bad("no header")),
                    }
                }
                "=" | "~" | "why" => {
                    let Some(Item::Case(case)) = items.last_mut() else {
                        return Err(bad("belongs to no request"));
                    };
                    match word {
                        "=" => case.upstream.push(rest.to_owned()),
                        "~" => case.plinth.push(rest.to_owned()),
                        _ => rest.clone_into(&mut case.reason),
                    }
                }
                _ => return Err(bad("unknown word")),
            }
        }
        Ok(Recording { items })
    }

    /// Writes the recording in the form that [`parse`](Recording::parse) reads.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for item in &self.items {
            match item {
                Item::Comment(line) => out.push_str(&format!("{line}\n")),
                Item::Wait => out.push_str("wait\n"),
                Item::As(requester) => requester.write(&mut out),
                Item::Setup(request) => request.write("!", &mut out),
                Item::Case(case) => {
                    case.request.write(if case.once { ">>" } else { ">" }, &mut out);
                    for (word, lines) in [("=", &case.upstream), ("~", &case.plinth)] {
                        for line in lines {
                            let _ = writeln!(out, "{word} {line}");
                        }
                    }
                    if !case.reason.is_empty() {
                        let _ = writeln!(out, "why {}", case.reason);
                    }
                }
            }
        }
        out
    }

    /// The cases of all groups, in order.
    pub fn cases(&self) -> impl Iterator<Item = &Case> {
        self.items.iter().filter_map(|item| match item {
            Item::Case(case) => Some(&**case),
            _ => None,
        })
    }
}

impl Requester {
    fn parse(text: &str) -> Requester {
        let mut words = text.split(' ').filter(|word| !word.is_empty());
        let mut requester =
            Requester { name: words.next().unwrap_or_default().to_owned(), ..Requester::default() };
        for word in words {
            if let Some(uid) = word.strip_prefix("uid:") {
                uid.clone_into(&mut requester.uid);
            } else if let Some((key, value)) = word.strip_prefix("extra:").and_then(|e| e.split_once('=')) {
                requester.extra.push((key.to_owned(), value.to_owned()));
            } else {
                requester.groups.push(word.to_owned());
            }
        }
        requester
    }

    fn write(&self, out: &mut String) {
        let _ = write!(out, "as {}", self.name);
        for group in &self.groups {
            let _ = write!(out, " {group}");
        }
        if !self.uid.is_empty() {
            let _ = write!(out, " uid:{}", self.uid);
        }
        for (key, value) in &self.extra {
            let _ = write!(out, " extra:{key}={value}");
        }
        out.push('\n');
    }

    /// The headers with which a front proxy names this user.
    pub fn headers(&self) -> Vec<(String, String)> {
        let mut headers = vec![("X-Remote-User".to_owned(), self.name.clone())];
        headers.extend(self.groups.iter().map(|group| ("X-Remote-Group".to_owned(), group.clone())));
        if !self.uid.is_empty() {
            headers.push(("X-Remote-Uid".to_owned(), self.uid.clone()));
        }
        for (key, value) in &self.extra {
            headers.push((format!("X-Remote-Extra-{}", key.replace('/', "%2F")), value.clone()));
        }
        headers
    }
}

impl Exchange {
    fn parse(text: &str) -> Option<Exchange> {
        let (method, target) = text.split_once(' ')?;
        Some(Exchange { method: method.to_owned(), target: target.to_owned(), ..Exchange::default() })
    }

    fn write(&self, word: &str, out: &mut String) {
        let _ = writeln!(out, "{word} {} {}", self.method, self.target);
        for (name, value) in &self.headers {
            let _ = writeln!(out, "h {name}: {value}");
        }
        if !self.body.is_empty() {
            let _ = writeln!(out, "b {}", self.body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_written_as_it_was_read() {
        let text =
            "# title\n\nas alice dev uid:1 extra:a=b\n! POST /a\nb {}\nwait\n> GET /b?c=d\nh accept: x\n\
                    = allow: 200 | get v1 pods\n~ allow: 404 | get v1 pods\nwhy because\n>> GET /c\n";
        let recording = Recording::parse(text).unwrap();
        assert_eq!(recording.to_text(), text);
        let case = recording.cases().next().unwrap();
        assert_eq!(case.expected(), ["allow: 404 | get v1 pods"]);
        assert!(recording.cases().nth(1).unwrap().once);
    }

    #[test]
    fn lines_that_belong_to_nothing_are_errors() {
        for text in ["h a: b", "= allow: 200", "? x", "> GET", "as a\nb {}"] {
            assert!(Recording::parse(text).is_err(), "{text}");
        }
    }
}
