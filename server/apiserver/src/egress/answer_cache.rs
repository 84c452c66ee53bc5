//! What a remote service answered, for as long as its operator allows.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Answers by question, each until it expires. When it is full, the half that expires first is dropped: one
/// who asks many new questions cannot drop all of them. The lock is held to look up and to insert.
pub struct AnswerCache<Q, A> {
    most: usize,
    answers: Mutex<HashMap<Q, (A, Instant)>>,
}

impl<Q: Eq + Hash, A: Clone> AnswerCache<Q, A> {
    /// A cache of so many answers.
    pub fn new(most: usize) -> AnswerCache<Q, A> {
        AnswerCache { most, answers: Mutex::default() }
    }

    /// The answer that was given, unless it has expired.
    pub fn get(&self, question: &Q) -> Option<A> {
        let answers = self.answers.lock();
        let (answer, until) = answers.get(question)?;
        (*until > Instant::now()).then(|| answer.clone())
    }

    /// Keeps an answer for a time; zero disables caching.
    pub fn insert(&self, question: Q, answer: A, time: Duration) {
        let Some(until) = Instant::now().checked_add(time).filter(|_| !time.is_zero()) else { return };
        let mut answers = self.answers.lock();
        if answers.len() >= self.most {
            let mut ends: Vec<Instant> = answers.values().map(|(_, until)| *until).collect();
            let middle = ends.len() / 2;
            if middle > 0 {
                let (_, median, _) = ends.select_nth_unstable(middle);
                answers.retain(|_, (_, until)| until > median);
            }
        }
        answers.insert(question, (answer, until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_drops_what_expires_first() {
        let (most, cache) = (100, AnswerCache::new(100));
        for n in 0..=most {
            cache.insert(n, "yes", Duration::from_secs(1000 + n as u64));
        }
        assert!(cache.answers.lock().len() <= most / 2 + 1);
        assert_eq!((cache.get(&most), cache.get(&0)), (Some("yes"), None));
    }

    #[test]
    fn an_answer_without_time_is_not_kept() {
        let cache = AnswerCache::new(1);
        cache.insert(1, "yes", Duration::ZERO);
        assert_eq!(cache.get(&1), None);
        cache.insert(1, "yes", Duration::from_secs(1000));
        cache.insert(2, "no", Duration::from_secs(1000));
        assert_eq!(cache.get(&2), Some("no"));
    }
}
