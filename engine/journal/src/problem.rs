//! [`Problem`]: what is wrong with a journal, or with one of its members.

use std::fmt;

/// Something that is wrong with a journal's settings or with one member, in words, with what to do.
#[derive(Debug, Clone)]
pub struct Problem {
    member: Option<String>,
    text: String,
}

impl Problem {
    /// A problem of the journal.
    pub fn new(text: impl Into<String>) -> Problem {
        Problem { member: None, text: text.into() }
    }

    /// A problem of the member at an address.
    pub fn of_member(address: impl Into<String>, text: impl Into<String>) -> Problem {
        Problem { member: Some(address.into()), text: text.into() }
    }

    /// Whether it is the problem that was found before: of the same member, and of the same kind. Numbers in
    /// the words tell no kind: they grow with time (seconds since a certificate has expired), or with what
    /// others do.
    pub fn is_same(&self, before: &Problem) -> bool {
        let kind = |problem: &Problem| problem.text.replace(|c: char| c.is_ascii_digit(), "");
        self.member == before.member && kind(self) == kind(before)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_problem_may_have_other_numbers() {
        let expired =
            |member: &str, seconds: u32| Problem::of_member(member, format!("expired {seconds} seconds ago"));
        assert!(expired("a:1", 9).is_same(&expired("a:1", 10)));
        assert!(!expired("a:1", 9).is_same(&expired("a:2", 9)));
        assert!(!expired("a:1", 9).is_same(&Problem::of_member("a:1", "lacks records")));
        assert!(!expired("a:1", 9).is_same(&Problem::new("expired 9 seconds ago")));
    }
}
