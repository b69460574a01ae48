//! The memory that code takes, for targets that bound it.
//!
//! The allocator of every program that uses this crate counts, by `allocation-counter`: a crate with `unsafe` of its own would be
//! needed otherwise. It counts the bytes that the calling thread has asked for and not given back. A block that grows counts twice
//! while its bytes move, as with an allocator that copies them.

/// What a reader may take beside its file, in bytes: names of files, headers, summaries of segments, the text of an error. None of it
/// grows with a file, so the bound says something of files of some KiB already.
pub const FIXED_BYTES: u64 = 4 << 10;

/// Runs code, and returns the most bytes that it held at one time with its result. What it held before, and what other threads
/// take, does not count.
pub fn peak_bytes<T>(run: impl FnOnce() -> T) -> (T, u64) {
    let mut result = None;
    let counted = allocation_counter::measure(|| result = Some(run()));
    (result.expect("it was run"), counted.bytes_max)
}

/// Runs a reader of `file_bytes` bytes, and returns its result.
///
/// # Panics
/// If it takes more memory than twice the file and [`FIXED_BYTES`].
pub fn within_twice<T>(file_bytes: u64, read: impl FnOnce() -> T) -> T {
    let (result, peak) = peak_bytes(read);
    let most = 2 * file_bytes + FIXED_BYTES;
    assert!(peak <= most, "{peak} bytes of memory for a file of {file_bytes}, at most {most}");
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::panic::catch_unwind;

    const BYTES: usize = 100_000;

    #[test]
    fn the_peak_is_what_was_held_at_one_time() {
        let take = |bytes: usize| black_box(vec![1_u8; bytes]);
        let (_, peak) = peak_bytes(|| take(BYTES));
        assert_eq!(peak, BYTES as u64);
        let (_, peak) = peak_bytes(|| (drop(take(BYTES)), drop(take(BYTES / 2))));
        assert_eq!(peak, BYTES as u64, "one after the other");
        let (_, peak) = peak_bytes(|| (take(BYTES), take(BYTES / 2)));
        assert_eq!(peak, (BYTES + BYTES / 2) as u64, "both at once");
        let held = take(BYTES);
        let (_, peak) = peak_bytes(|| drop(held));
        assert_eq!(peak, 0, "what was held before");
    }

    #[test]
    fn a_reader_that_takes_more_than_twice_its_file_fails() {
        let file_bytes = BYTES as u64;
        let read = |bytes: u64| move || drop(black_box(vec![1_u8; bytes as usize]));
        let most = 2 * file_bytes + FIXED_BYTES;
        within_twice(file_bytes, read(most));
        assert!(catch_unwind(|| within_twice(file_bytes, read(most + 1))).is_err());
    }
}
