//! Shuffle sharding: assigns a few of a level's queues to each flow.
//!
//! Two flows rarely have the same hand, so a flow that fills its queues leaves most others with a free one.
//! The algorithm is that of k8s.io/apiserver `pkg/util/shufflesharding`.

use sha2::{Digest, Sha256};

/// The largest hand that the API allows with a usable number of queues.
pub(crate) const LARGEST_HAND: usize = 15;
/// Bits of a hash that a hand may consume; more would bias the last cards.
const ENTROPY_BITS: f64 = 60.0;

/// Deals hands of queues. Immutable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dealer {
    deck: u64,
    hand: usize,
}

impl Dealer {
    /// Hands of `hand` out of `deck` queues; `None` when a hash has too little entropy.
    pub fn new(deck: usize, hand: usize) -> Option<Dealer> {
        let fits = (1..=LARGEST_HAND).contains(&hand) && hand <= deck && deck <= 1 << 26;
        let bits = ((deck as f64).log2() * hand as f64).ceil();
        (fits && bits <= ENTROPY_BITS).then_some(Dealer { deck: deck as u64, hand })
    }

    /// The hand of a flow: distinct numbers below the deck's size, in the first `len` elements.
    pub fn deal(&self, mut hash: u64) -> ([usize; LARGEST_HAND], usize) {
        let mut remainders = [0usize; LARGEST_HAND];
        for (i, remainder) in remainders.iter_mut().enumerate().take(self.hand) {
            let left = self.deck - i as u64;
            *remainder = (hash % left) as usize;
            hash /= left;
        }
        let mut cards = [0usize; LARGEST_HAND];
        for i in 0..self.hand {
            let mut card = remainders[i];
            for earlier in remainders[..i].iter().rev() {
                if card >= *earlier {
                    card += 1;
                }
            }
            cards[i] = card;
        }
        (cards, self.hand)
    }
}

/// The hash of a flow: schema name and distinguisher.
pub(crate) fn hash_flow(schema: &str, distinguisher: &str) -> u64 {
    let mut sha = Sha256::new();
    sha.update(schema.as_bytes());
    sha.update([0]);
    sha.update(distinguisher.as_bytes());
    let digest: [u8; 32] = sha.finalize().into();
    let mut first = [0u8; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_have_distinct_cards_of_the_deck() {
        for (deck, hand) in [(64, 6), (128, 6), (16, 4), (8, 8), (1, 1)] {
            let dealer = Dealer::new(deck, hand).unwrap();
            for flow in 0..500 {
                let (cards, len) = dealer.deal(hash_flow("schema", &flow.to_string()));
                let mut cards = cards[..len].to_vec();
                cards.sort_unstable();
                cards.dedup();
                assert_eq!(cards.len(), hand, "{deck} {hand}");
                assert!(cards.iter().all(|card| *card < deck));
            }
        }
    }

    #[test]
    fn what_cannot_be_dealt_is_no_dealer() {
        for (deck, hand) in [(0, 1), (1, 0), (4, 5), (128, 9), (1 << 27, 1)] {
            assert_eq!(Dealer::new(deck, hand), None, "{deck} {hand}");
        }
    }

    /// Computed with upstream's dealer for the deck 128, hand 6.
    #[test]
    fn cards_are_upstreams() {
        let dealer = Dealer::new(128, 6).unwrap();
        let (cards, len) = dealer.deal(0);
        assert_eq!(&cards[..len], &[0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn every_queue_is_dealt_about_equally_often() {
        let dealer = Dealer::new(16, 4).unwrap();
        let mut seen = [0u32; 16];
        for flow in 0..8000 {
            let (cards, len) = dealer.deal(hash_flow("s", &flow.to_string()));
            cards[..len].iter().for_each(|card| seen[*card] += 1);
        }
        // 2,000 each on average; five standard deviations are under 200.
        assert!(seen.iter().all(|n| (1800..2200).contains(n)), "{seen:?}");
    }
}
