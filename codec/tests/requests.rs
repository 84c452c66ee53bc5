//! The fuzz targets of request parts over mutated inputs, on stable Rust. A million inputs each with
//! `PLINTH_SMOKE_INPUTS=1000000 cargo test --release -p plinth-codec --test requests`.

#[path = "../../fuzz/requests.rs"]
mod requests;

/// xorshift64*: the same inputs in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n.max(1)
    }
}

/// A few small changes: bytes set, pieces taken out, doubled or put in from another seed, fragments of the
/// syntax.
fn mutate(seeds: &[&str], random: &mut Random) -> Vec<u8> {
    const FRAGMENTS: [&str; 16] = [
        "",
        ",",
        "=",
        "!",
        "(",
        ")",
        "\\",
        "\"",
        "\0",
        "é",
        "..",
        "[",
        "]",
        "{",
        ";q=0",
        "9223372036854775808",
    ];
    let mut input = seeds[random.below(seeds.len())].as_bytes().to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        let end = at + random.below(input.len() - at + 1).min(12);
        match random.below(5) {
            0 if at < input.len() => input[at] = random.below(256) as u8,
            1 => drop(input.drain(at..end)),
            2 => {
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
            3 => {
                let other = seeds[random.below(seeds.len())].as_bytes();
                let from = random.below(other.len() + 1);
                input.splice(at..end, other[from..].iter().copied().take(20));
            }
            _ => {
                let fragment = FRAGMENTS[random.below(FRAGMENTS.len())];
                input.splice(at..end, fragment.bytes());
            }
        }
    }
    input
}

#[test]
fn no_input_breaks_a_target() {
    let inputs = std::env::var("PLINTH_SMOKE_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(5_000);
    for (name, target, seeds) in requests::ALL {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for _ in 0..inputs {
            let input = mutate(seeds, &mut random);
            let outcome = std::panic::catch_unwind(|| target(&input));
            assert!(outcome.is_ok(), "{name}: {:?}", String::from_utf8_lossy(&input));
        }
    }
}
