//! The tokens of users: signed ones (`jwt.rs`), or simple ones: random, in memory, ended when they are not
//! used for a time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tonic::Status;

use super::jwt::JwtOptions;

/// Kind of the tokens that users get.
#[derive(Debug, Clone)]
pub(crate) enum TokenKind {
    /// Random ones, with how long they live after their last use.
    Simple(Duration),
    /// Signed ones.
    Jwt(JwtOptions),
}

/// The tokens of a server.
pub(crate) enum Tokens {
    Simple(SimpleTokens),
    Jwt(JwtOptions),
}

impl Tokens {
    pub(crate) fn new(kind: &TokenKind) -> Tokens {
        match kind {
            TokenKind::Simple(time_to_live) => Tokens::Simple(SimpleTokens::new(*time_to_live)),
            TokenKind::Jwt(options) => Tokens::Jwt(options.clone()),
        }
    }

    /// A new token of a user, as of a revision of users and roles.
    pub(crate) fn issue(&self, user: &str, revision: u64) -> Result<String, Status> {
        match self {
            Tokens::Simple(tokens) => Ok(tokens.issue(user)),
            Tokens::Jwt(options) => options.issue(user, revision),
        }
    }

    /// The user of a token, and the revision that it counts for: a simple token is good for the present one.
    pub(crate) fn user(&self, token: &str, current: u64) -> Option<(Arc<str>, u64)> {
        match self {
            Tokens::Simple(tokens) => tokens.user(token).map(|user| (user, current)),
            Tokens::Jwt(options) => options.user(token),
        }
    }

    /// Ends the tokens of a user. Signed ones have ended with the revision.
    pub(crate) fn end_of(&self, user: &str) {
        if let Tokens::Simple(tokens) = self {
            tokens.end_of(user);
        }
    }

    /// Ends all tokens, likewise.
    pub(crate) fn end_all(&self) {
        if let Tokens::Simple(tokens) = self {
            tokens.end_all();
        }
    }
}

/// Tokens at a time. A further one takes the place of that which ends first.
const TOKENS: usize = 65_536;

struct Token {
    user: Arc<str>,
    ends: Instant,
}

/// Simple tokens. None of them outlives the server: clients authenticate again.
pub(crate) struct SimpleTokens {
    time_to_live: Duration,
    issued: AtomicU64,
    tokens: Mutex<HashMap<String, Token>>,
}

impl SimpleTokens {
    fn new(time_to_live: Duration) -> SimpleTokens {
        SimpleTokens { time_to_live, issued: AtomicU64::new(0), tokens: Mutex::default() }
    }

    /// A new token of a user, in the form of etcd's: something random, a dot and a number.
    fn issue(&self, user: &str) -> String {
        self.issue_at(user, Instant::now())
    }

    fn issue_at(&self, user: &str, now: Instant) -> String {
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        let token = format!("{}.{number}", uuid::Uuid::new_v4().simple());
        let mut tokens = self.tokens.lock();
        if tokens.len() >= TOKENS {
            tokens.retain(|_, token| token.ends > now);
        }
        if tokens.len() >= TOKENS {
            let first = tokens.iter().min_by_key(|(_, token)| token.ends).map(|(token, _)| token.clone());
            first.and_then(|first| tokens.remove(&first));
        }
        tokens.insert(token.clone(), Token { user: user.into(), ends: now + self.time_to_live });
        token
    }

    /// The user of a token, which lives on by that.
    fn user(&self, token: &str) -> Option<Arc<str>> {
        self.user_at(token, Instant::now())
    }

    fn user_at(&self, token: &str, now: Instant) -> Option<Arc<str>> {
        let mut tokens = self.tokens.lock();
        let found = tokens.get_mut(token)?;
        if found.ends <= now {
            tokens.remove(token);
            return None;
        }
        found.ends = now + self.time_to_live;
        Some(Arc::clone(&found.user))
    }

    /// Ends the tokens of a user.
    fn end_of(&self, user: &str) {
        self.tokens.lock().retain(|_, token| &*token.user != user);
    }

    /// Ends all tokens.
    fn end_all(&self) {
        self.tokens.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lives_while_it_is_used() {
        let tokens = SimpleTokens::new(Duration::from_secs(300));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (a, b) = (tokens.issue_at("a", start), tokens.issue_at("b", start));
        assert_ne!(a, b);
        assert_eq!(tokens.user_at(&a, at(299)).as_deref(), Some("a"));
        assert_eq!(tokens.user_at(&a, at(598)).as_deref(), Some("a"));
        assert_eq!(tokens.user_at(&b, at(300)), None);
        assert_eq!(tokens.user_at("", at(0)), None);
        tokens.end_of("a");
        assert_eq!(tokens.user_at(&a, at(599)), None);
        let c = tokens.issue_at("c", start);
        tokens.end_all();
        assert_eq!(tokens.user_at(&c, start), None);
    }

    #[test]
    fn the_number_of_tokens_is_bounded() {
        let tokens = SimpleTokens::new(Duration::from_secs(1));
        let start = Instant::now();
        let first = tokens.issue_at("first", start);
        let later = start + Duration::from_millis(500);
        let issued: Vec<String> = (0..TOKENS).map(|_| tokens.issue_at("u", later)).collect();
        assert_eq!(tokens.tokens.lock().len(), TOKENS);
        assert_eq!(tokens.user_at(&first, later), None, "it would have ended first");
        assert!(issued.iter().all(|token| tokens.user_at(token, later).is_some()));
        tokens.issue_at("last", start + Duration::from_secs(5));
        assert_eq!(tokens.tokens.lock().len(), 1, "what has ended is forgotten");
    }
}
