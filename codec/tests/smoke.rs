//! The fuzz targets on stable Rust: mutated objects of every kind through every decoder.
//!
//! Twenty thousand inputs; `PLINTH_SMOKE_INPUTS` sets another number.

#[path = "../../fuzz/targets.rs"]
mod targets;

mod support;

use plinth_codec::schema::{self, GVK};
use plinth_codec::{cbor, json, protobuf, yaml};
use support::{object, Random};

/// Bodies in each encoding, a random object of every kind each.
fn seeds(random: &mut Random) -> Vec<Vec<u8>> {
    let schema = schema::builtin();
    let mut kinds: Vec<&GVK> = schema.kinds.keys().collect();
    kinds.sort();
    let mut seeds = vec![br#"{"a":[1,-2.5e3,"\u00e9\n",null,true,{}]}"#.to_vec()];
    for gvk in kinds {
        let Some(id) = schema.kind(gvk) else { continue };
        let tree = object(random, schema, id);
        let mut body = Vec::new();
        if protobuf::encode(&tree, gvk, schema, id, &mut body).is_ok() {
            let raw = protobuf::decode(&body).unwrap().raw.to_vec();
            seeds.extend([body, raw]);
        }
        let (mut text, mut binary) = (Vec::new(), Vec::new());
        json::write(&tree, schema, id, &mut text);
        cbor::encode(&tree, Some((schema, id)), &mut binary).unwrap();
        let mut yaml = Vec::new();
        yaml::write(&tree, &mut yaml);
        seeds.extend([text, binary, yaml]);
    }
    // Long ones cost time and reach no more code.
    seeds.retain(|seed| seed.len() < 4096);
    seeds
}

fn mutate(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut input = random.pick(seeds).clone();
    for _ in 0..1 + random.below(4) {
        if input.is_empty() {
            input.push(random.next() as u8);
        }
        let (at, len) = (random.below(input.len()), input.len());
        match random.below(9) {
            0 => input[at] ^= 1 << random.below(8),
            1 => input[at] = random.next() as u8,
            2 => input.truncate(at),
            3 => drop(input.remove(at)),
            4 => input.insert(at, random.next() as u8),
            // Large lengths and numbers.
            5 => input.splice(at..at, [0xff, 0xff, 0xff, 0xff, 0x0f]).for_each(drop),
            6 => input[at] = *random.pick(b"\x00\x7f\x80\xff{}[]\",:\x0a\x0b\x0c\x12"),
            // A piece of itself once more: merged messages, duplicate keys, deeper nesting.
            7 => {
                let end = at + random.below(len - at) + 1;
                let piece = input[at..end].to_vec();
                let to = random.below(len);
                input.splice(to..to, piece).for_each(drop);
            }
            // A piece of another one.
            _ => {
                let other = random.pick(seeds);
                let from = random.below(other.len().max(1));
                let piece = other.get(from..).unwrap_or_default();
                input.splice(at..at, piece.iter().take(64).copied()).for_each(drop);
            }
        }
    }
    input
}

#[test]
fn mutated_bodies_are_errors_or_objects_but_never_panics() {
    let wanted = std::env::var("PLINTH_SMOKE_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000u64);
    // Another run may name another seed to see other inputs.
    let seed = std::env::var("PLINTH_SMOKE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut random = Random::new(seed);
    let seeds = seeds(&mut random);
    for seed in &seeds {
        targets::ALL.iter().for_each(|(_, target)| target(seed));
    }
    for n in 0..wanted {
        let input = mutate(&mut random, &seeds);
        for (name, target) in targets::ALL {
            let caught = std::panic::catch_unwind(|| target(&input));
            assert!(caught.is_ok(), "input {n} of seed {seed} to {name}: {input:02x?}");
        }
    }
    println!("{wanted} inputs to {} targets", targets::ALL.len());
}
