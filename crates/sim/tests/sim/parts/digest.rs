//! The digest of a run differs where anything that was mixed in differs.

use shoal_sim::digest::Digest;

fn of(parts: &[&[u8]]) -> Digest {
    let mut digest = Digest::new();
    parts.iter().for_each(|part| digest.bytes(part));
    digest
}

#[test]
fn order_length_and_place_matter() {
    let all: [&[&[u8]]; 6] = [&[], &[b""], &[b"a", b"b"], &[b"b", b"a"], &[b"ab"], &[b"ab\0"]];
    for (at, one) in all.iter().enumerate() {
        for (other_at, other) in all.iter().enumerate() {
            assert_eq!(of(one) == of(other), at == other_at, "{one:?} {other:?}");
        }
    }
}
