//! `--token-auth-file`: static bearer tokens, one user per line: token, name, UID and, in quotes when there
//! are several, groups (k8s.io/apiserver `pkg/authentication/token/tokenfile`). Loaded once, at start.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::digest::{digest, SHA256};

use plinth_api::User;

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It cannot be read.
    #[error("cannot read token file {path}: {source}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A line has too few columns.
    #[error(
        "token file '{path}' must have at least 3 columns (token, user name, user uid), found {found} in \
            line {line}"
    )]
    Columns {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Number of columns.
        found: usize,
    },
    /// A quote that is not closed, or text after the closing one.
    #[error("token file '{path}': wrong quotes in line {line}")]
    Quotes {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
}

/// Users by the hash of their token, so that the time of a look-up does not reveal how much of a guess is
/// right. Immutable.
#[derive(Debug, Default)]
pub struct TokenFile {
    users: HashMap<[u8; 32], Arc<User>>,
}

impl TokenFile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`TokenFileError`].
    pub fn read(path: &Path) -> Result<TokenFile, TokenFileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TokenFileError::Io { path: path.to_owned(), source })?;
        let mut users = HashMap::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let line_number = number + 1;
            let quotes = || TokenFileError::Quotes { path: path.to_owned(), line: line_number };
            let columns = columns(line).ok_or_else(quotes)?;
            let [token, name, uid, rest @ ..] = columns.as_slice() else {
                let found = columns.len();
                return Err(TokenFileError::Columns { path: path.to_owned(), line: line_number, found });
            };
            if token.is_empty() {
                tracing::warn!(line = line_number, "token in the token file is empty; line ignored");
                continue;
            }
            let groups = rest.first().filter(|groups| !groups.is_empty());
            let groups = groups.map(|g| g.split(',').map(str::to_owned).collect()).unwrap_or_default();
            let user = User { name: name.clone(), uid: uid.clone(), groups, ..User::default() };
            if users.insert(hash(token), Arc::new(user.authenticated())).is_some() {
                tracing::warn!(
                    line = line_number,
                    "token in the token file is duplicated; the last line is used"
                );
            }
        }
        Ok(TokenFile { users })
    }

    /// The user of a token.
    pub fn authenticate(&self, token: &str) -> Option<Arc<User>> {
        self.users.get(&hash(token)).cloned()
    }
}

fn hash(token: &str) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    out
}

/// Splits a line of CSV (RFC 4180, without line breaks in quotes); `None` for unbalanced quotes.
fn columns(line: &str) -> Option<Vec<String>> {
    let mut columns = Vec::new();
    let mut rest = line;
    loop {
        let column;
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut text = String::new();
            let mut from = quoted;
            loop {
                let (part, after) = from.split_once('"')?;
                text.push_str(part);
                match after.strip_prefix('"') {
                    Some(after) => {
                        text.push('"');
                        from = after;
                    }
                    None => {
                        rest = after;
                        break;
                    }
                }
            }
            column = text;
            if !rest.is_empty() && !rest.starts_with(',') {
                return None;
            }
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            let (text, after) = rest.split_at(end);
            if text.contains('"') {
                return None;
            }
            column = text.to_owned();
            rest = after;
        }
        columns.push(column);
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None => return Some(columns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TokenFile, TokenFileError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        TokenFile::read(file.path())
    }

    #[test]
    fn users_by_table() {
        let file =
            read("t1,jane,u1\nt2,joe,u2,\"a,b\"\r\n\n,nobody,u3\nt4,\"o\"\"brien\",u4,dev\nt1,late,u5\n")
                .unwrap();
        let rows: &[(&str, Option<(&str, &str, &[&str])>)] = &[
            ("t1", Some(("late", "u5", &["system:authenticated"]))),
            ("t2", Some(("joe", "u2", &["a", "b", "system:authenticated"]))),
            ("t4", Some(("o\"brien", "u4", &["dev", "system:authenticated"]))),
            ("", None),
            ("t", None),
            ("t1 ", None),
        ];
        for (token, expected) in rows {
            let user = file.authenticate(token);
            let found = user.as_ref().map(|u| (u.name.as_str(), u.uid.as_str(), u.groups.clone()));
            let expected = expected.map(|(name, uid, groups)| {
                (name, uid, groups.iter().map(|g| (*g).to_owned()).collect::<Vec<_>>())
            });
            assert_eq!(found, expected, "{token:?}");
        }
    }

    #[test]
    fn bad_files_say_where() {
        let rows = [
            ("a,b,c\nd,e\n", "must have at least 3 columns (token, user name, user uid), found 2 in line 2"),
            ("a,\"b,c\n", "wrong quotes in line 1"),
            ("a,\"b\"x,c\n", "wrong quotes in line 1"),
            ("a,b\"x,c\n", "wrong quotes in line 1"),
        ];
        for (text, error) in rows {
            assert!(read(text).unwrap_err().to_string().ends_with(error), "{text}");
        }
    }
}
