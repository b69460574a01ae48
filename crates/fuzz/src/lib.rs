//! Fuzz targets for code that reads bytes from outside, run by `cargo test`.
//!
//! A target is a test that calls [`fuzz!`](crate::fuzz) with its name and a function of bytes that panics where a
//! rule is broken. Its kept inputs are in `__fuzz__/NAME/corpus/`, beside its file. Each run tries:
//!
//! 1. every kept input, and every one in `__fuzz__/NAME/crashes/`;
//! 2. random bytes, or, under `cargo bolero test`, inputs that a coverage-guided fuzzer derives from the corpus;
//! 3. changes of the kept inputs: bytes, lines and numbers replaced, removed, repeated, or taken from another
//!    kept input. These are drawn from a fixed seed, so that a failure can be repeated.
//!
//! An input of the third kind that fails is written to `crashes/`, for the first kind to repeat until the
//! fault is fixed; then it is moved to `corpus/`. `FUZZ_CASES=100000` before a run makes so many changes instead of
//! [`CASES`].
//!
//! A target shows what it asserts, for the inputs of a run. An input under a checksum is changed into one that its reader refuses
//! at the checksum: a target for what is behind that puts the checksums in itself, or has them passed over. What memory a reader
//! takes is counted by [`memory`], where a target asks for it.
//!
//! Most targets are in the crates whose bytes they read. Those of logs and checkpoints, which go through several crates, are in
//! `tests/files/` of this one.

pub mod memory;

pub use bolero;

use shoal_types::Random;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

/// The number of changed inputs that a run tries for each target.
pub const CASES: u64 = 3000;

/// The number of random inputs that a run tries for each target.
pub const RANDOM_CASES: usize = 300;

/// Longest changed input, in bytes.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// Runs a target: `fuzz!("name", |bytes: &[u8]| …)`.
#[macro_export]
macro_rules! fuzz {
    ($name:literal, $target:expr) => {{
        let target = $target;
        $crate::bolero::check!(name = $name)
            .with_iterations($crate::RANDOM_CASES)
            .for_each(|bytes: &[u8]| target(bytes));
        let source = ::std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let source = source.ancestors().map(|folder| folder.join(file!()));
        let source = source.into_iter().find(|path| path.exists()).expect("the target's source");
        $crate::try_changes(&source.with_file_name("__fuzz__").join($name), &target);
    }};
}

/// Tries changes of the kept inputs in a target's folder.
///
/// # Panics
/// If there is no kept input, and if the target panics.
pub fn try_changes(folder: &Path, target: &dyn Fn(&[u8])) {
    let kept = read_corpus(&folder.join("corpus"));
    assert!(!kept.is_empty(), "{} holds no kept input", folder.join("corpus").display());
    let cases = std::env::var("FUZZ_CASES").map_or(CASES, |text| {
        text.parse().unwrap_or_else(|_| panic!("FUZZ_CASES is a number, not {text:?}"))
    });
    for seed in 0..cases {
        let input = changed(&kept, &mut Random::new(seed));
        let run = panic::catch_unwind(AssertUnwindSafe(|| target(&input)));
        if let Err(cause) = run {
            let path = folder.join("crashes").join(format!("change-{seed}"));
            let kept = fs::create_dir_all(folder.join("crashes"));
            match kept.and_then(|()| fs::write(&path, &input)) {
                Ok(()) => eprintln!("the input is kept in {}", path.display()),
                Err(error) => eprintln!("cannot keep the input in {}: {error}", path.display()),
            }
            panic::resume_unwind(cause);
        }
    }
}

/// The files of a folder, by name.
fn read_corpus(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder);
    let entries = entries.unwrap_or_else(|error| panic!("no {}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a kept input")).collect()
}

/// One of the kept inputs after up to four changes.
fn changed(kept: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let pick = |random: &mut Random| random.pick(kept).expect("there are kept inputs").clone();
    let mut input = pick(random);
    for _ in 0..1 + random.below(4) {
        let other = pick(random);
        change(&mut input, &other, random);
        input.truncate(INPUT_BYTES_MAX);
    }
    input
}

fn change(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let separator = if random.chance(1, 2) { b'\n' } else { b',' };
    let part = part_of(input.len(), random);
    match random.below(9) {
        0 => input.truncate(part.start),
        1 => drop(input.drain(part)),
        2 => {
            let repeated = input[part.clone()].to_vec();
            drop(input.splice(part.start..part.start, repeated));
        }
        3 => {
            let theirs = &other[part_of(other.len(), random)];
            drop(input.splice(part, theirs.iter().copied()));
        }
        4 => {
            let theirs: Vec<&[u8]> = other.split(|byte| *byte == separator).collect();
            let mut own: Vec<Vec<u8>> =
                input.split(|byte| *byte == separator).map(Into::into).collect();
            let place = random.below(own.len() as u64) as usize;
            own[place] = random.pick(&theirs).expect("a split has parts").to_vec();
            *input = own.join(&separator);
        }
        5 => replace_number(input, random),
        _ => {
            if let Some(byte) = input.get_mut(part.start) {
                *byte = match random.below(3) {
                    0 => *byte ^ (1 << random.below(8)),
                    1 => *random.pick(&[0, 1, 0x7f, 0x80, 0xff]).expect("there are some"),
                    _ => random.next_u64() as u8,
                };
            }
        }
    }
}

/// A range of an input of this length, mostly a short one.
fn part_of(length: usize, random: &mut Random) -> std::ops::Range<usize> {
    let start = random.below(length as u64 + 1) as usize;
    let bytes_max = if random.chance(1, 4) { length - start } else { (length - start).min(8) };
    start..start + random.below(bytes_max as u64 + 1) as usize
}

/// Replaces a number in decimal digits by one at the limit of an integer type.
fn replace_number(input: &mut Vec<u8>, random: &mut Random) {
    const EDGES: [&str; 9] =
        ["0", "1", "-1", "255", "65536", "4294967295", "18446744073709551615", "1e308", "0.5"];
    let starts: Vec<usize> = (0..input.len())
        .filter(|&at| input[at].is_ascii_digit() && (at == 0 || !input[at - 1].is_ascii_digit()))
        .collect();
    let Some(&start) = random.pick(&starts) else { return };
    let digits = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let edge = random.pick(&EDGES).expect("there are some");
    drop(input.splice(start..start + digits, edge.bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn changes_are_repeatable_varied_and_bounded() {
        let kept = vec![b"one = 1\ntwo = 22\n".to_vec(), vec![0; 40], Vec::new()];
        let make = |seed| changed(&kept, &mut Random::new(seed));
        let all: std::collections::BTreeSet<Vec<u8>> = (0..1000).map(make).collect();
        assert!(all.len() > 500, "only {} different inputs", all.len());
        assert!(all.iter().all(|input| input.len() <= INPUT_BYTES_MAX));
        assert_eq!(make(7), make(7));
    }

    #[test]
    fn an_input_that_fails_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("corpus")).expect("a folder in it");
        fs::write(folder.path().join("corpus/one"), b"12").expect("a file");
        let runs = Cell::new(0);
        let failed = panic::catch_unwind(AssertUnwindSafe(|| {
            try_changes(folder.path(), &|bytes| {
                runs.set(runs.get() + 1);
                assert!(bytes.len() < 4, "too long");
            });
        }));
        assert!(failed.is_err());
        let kept = folder.path().join("crashes").join(format!("change-{}", runs.get() - 1));
        assert!(fs::read(kept).expect("the input").len() >= 4);
    }
}
