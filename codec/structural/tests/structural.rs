//! The fuzz targets of custom resources over mutated inputs, on stable Rust. A million inputs each with
//! `PLINTH_SMOKE_INPUTS=1000000 cargo test --release -p plinth-structural --test structural`.

#[path = "../../../fuzz/structural.rs"]
mod structural;

#[path = "../../tests/support/mod.rs"]
mod support;

use support::Random;

/// Words of schemas, put in the place of others.
const WORDS: &[&str] = &[
    "\"type\":\"string\"",
    "\"type\":\"object\"",
    "\"type\":\"array\"",
    "\"nullable\":true",
    "\"default\":{}",
    "\"default\":\"x\"",
    "\"default\":null",
    "\"properties\":{}",
    "\"additionalProperties\":true",
    "\"items\":{\"type\":\"string\"}",
    "\"x-kubernetes-preserve-unknown-fields\":true",
    "\"x-kubernetes-embedded-resource\":true",
    "\"x-kubernetes-int-or-string\":true",
    "\"x-kubernetes-list-type\":\"set\"",
    "\"metadata\":{\"name\":1}",
    "null",
    "{}",
    "[]",
    "1e300",
    "-1",
    "\"\"",
    "true",
];

/// A few changes: words of JSON replaced, pieces doubled, taken out, exchanged with those of other seeds,
/// bytes set.
fn mutate(seeds: &[&str], random: &mut Random) -> Vec<u8> {
    let mut input = random.pick(seeds).as_bytes().to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        let end = (at + random.below(30)).min(input.len());
        // Most changes keep to the limits of words, so that the result is JSON more often.
        let limit = |from: usize, input: &[u8]| {
            let next = input[from..].iter().position(|b| matches!(b, b',' | b'{' | b'}' | b'[' | b']'));
            from + next.unwrap_or(input.len() - from)
        };
        match random.below(6) {
            0 if at < input.len() => input[at] = random.next() as u8,
            1 => drop(input.drain(at..end)),
            2 => {
                let (from, to) = (limit(at, &input), limit(end, &input));
                let piece = input[from.min(to)..to.max(from)].to_vec();
                input.splice(from..from, piece);
            }
            3 => {
                let other = random.pick(seeds).as_bytes();
                let from = limit(random.below(other.len()), other);
                let place = limit(at, &input);
                input.splice(place..place, other[from..].iter().copied().take(60));
            }
            _ => {
                let from = (limit(at, &input) + 1).min(input.len());
                let to = limit(from, &input);
                input.splice(from..to, random.pick(WORDS).bytes());
            }
        }
    }
    input
}

#[test]
fn no_input_breaks_a_target() {
    let inputs = std::env::var("PLINTH_SMOKE_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(5_000);
    for (name, target, seeds) in structural::ALL {
        for seed in *seeds {
            target(seed.as_bytes());
        }
        let mut random = Random::new(7);
        for _ in 0..inputs {
            let input = mutate(seeds, &mut random);
            let outcome = std::panic::catch_unwind(|| target(&input));
            assert!(outcome.is_ok(), "{name}: {:?}", String::from_utf8_lossy(&input));
        }
    }
}
