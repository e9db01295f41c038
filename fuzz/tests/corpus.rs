//! The kept inputs of each fuzz target, and inputs changed from them at random with a fixed seed, keep its property.

use std::fs;
use std::path::Path;

use fuzz_targets::{TARGETS, records};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Changed inputs of each target.
const CHANGED: usize = 2_000;

/// The kept inputs of a target, in the order of their names.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// One to four changes: a byte, a range, a repetition, or the rest of another input.
fn change(rng: &mut ChaCha8Rng, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut input = inputs[rng.random_range(0..inputs.len())].clone();
    for _ in 0..rng.random_range(1..=4) {
        let at = rng.random_range(0..=input.len());
        match rng.random_range(0..5) {
            0 if at < input.len() => input[at] = rng.random(),
            1 if at < input.len() => input[at] ^= 1 << rng.random_range(0..8),
            2 => input.insert(at, rng.random()),
            3 => {
                let end = rng.random_range(at..=input.len().min(at + 16));
                input.drain(at..end);
            }
            _ => {
                let other = &inputs[rng.random_range(0..inputs.len())];
                let from = rng.random_range(0..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
    input
}

#[test]
fn every_kept_input_and_changed_ones_keep_the_property_of_their_target() {
    for target in TARGETS {
        let inputs = corpus(target.name);
        let taken = inputs.iter().filter(|input| (target.check)(input)).count();
        // A property that no input meets, or all do, would show nothing.
        assert!(
            taken > 0 && taken < inputs.len(),
            "{}: {taken} of {} inputs are taken",
            target.name,
            inputs.len()
        );
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..CHANGED {
            (target.check)(&change(&mut rng, &inputs));
        }
    }
}

/// A record of an earlier release stays among the inputs; a later release adds its own beside it.
#[test]
fn each_stored_record_has_an_input_that_is_read() {
    let stored = TARGETS.iter().find(|target| target.name == "stored_records").unwrap();
    let inputs = corpus(stored.name);
    for record in records() {
        let begin = format!("{record}\n");
        let read = inputs.iter().filter(|input| input.starts_with(begin.as_bytes()) && (stored.check)(input));
        assert!(read.count() > 0, "no input has the record {record}");
    }
}
