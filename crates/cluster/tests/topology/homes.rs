//! The shard map against its meaning: a key that a scan can meet lives on a shard that the scan
//! asks, and the shards that are said to follow each other do.

use proptest::prelude::*;
use shoal_cluster::topology::{Home, Homes, Partitioning, Splits, Topology};
use shoal_types::transaction::ScanEnd;
use shoal_types::{Scan, ShardId, TableId};
use std::ops::Bound;

const SHARDS: u32 = 5;
const TABLE: TableId = TableId(0);

fn with_table(shards: u32, partitioning: Partitioning) -> Topology {
    Topology::symmetric(1, shards, 1, 0, 1).with_tables([("t", partitioning)]).expect("a topology")
}

/// Whether `scan` would find `key`, by definition.
fn finds(scan: &Scan<'_>, key: &[u8]) -> bool {
    let begun = match scan.start {
        Bound::Included(low) => key >= low,
        Bound::Excluded(low) => key > low,
        Bound::Unbounded => true,
    };
    begun
        && match scan.end {
            ScanEnd::Bound(Bound::Included(high)) => key <= high,
            ScanEnd::Bound(Bound::Excluded(high)) => key < high,
            ScanEnd::Bound(Bound::Unbounded) => true,
            ScanEnd::Prefix(prefix) => key <= prefix || key.starts_with(prefix),
        }
}

/// The homes of `scan` are right for those of `keys`, which ascend, that it finds.
#[track_caller]
fn check<'k>(topology: &Topology, scan: &Scan<'_>, keys: impl IntoIterator<Item = &'k [u8]>) {
    let homes = topology.homes(TABLE, scan).expect("the table");
    let mut reached = 0;
    for key in keys.into_iter().filter(|key| finds(scan, key)) {
        let Some(Home::One(home)) = topology.home(TABLE, key) else {
            assert_eq!(homes, Homes::Everywhere);
            continue;
        };
        match &homes {
            Homes::One(shard) => assert_eq!(home, *shard, "{key:?} in {scan:?}"),
            Homes::Ordered(shards) => {
                let place = shards[reached..].iter().position(|shard| *shard == home);
                reached += place.unwrap_or_else(|| panic!("{key:?} out of {homes:?}, {scan:?}"));
            }
            Homes::Mixed(shards) => assert!(shards.contains(&home), "{key:?} in {scan:?}"),
            Homes::Everywhere => panic!("{key:?} is on {home} only"),
        }
    }
    if let Homes::Ordered(shards) | Homes::Mixed(shards) = homes {
        assert!(shards.len() > 1, "{scan:?}");
        let once: std::collections::BTreeSet<_> = shards.iter().collect();
        assert_eq!(once.len(), shards.len(), "a shard is asked once: {shards:?}");
    }
}

/// All keys of at most `length` bytes, each 0, 1 or 255, ascending.
fn small_keys(length: usize) -> Vec<Vec<u8>> {
    let mut keys = vec![Vec::new()];
    if length > 0 {
        for first in [0, 1, 255] {
            keys.extend(
                small_keys(length - 1).into_iter().map(|key| [&[first], &key[..]].concat()),
            );
        }
    }
    keys
}

/// All scans with bounds among `keys`.
fn scans(keys: &[Vec<u8>]) -> Vec<Scan<'_>> {
    let starts = keys.iter().flat_map(|key| [Bound::Included(&key[..]), Bound::Excluded(&key[..])]);
    let starts: Vec<_> = starts.chain([Bound::Unbounded]).collect();
    let prefixes = keys.iter().map(|key| ScanEnd::Prefix(&key[..]));
    let ends: Vec<_> = starts.iter().map(|end| ScanEnd::Bound(*end)).chain(prefixes).collect();
    let scan = |start, end| Scan { start, end, ..Scan::all() };
    starts.iter().flat_map(|start| ends.iter().map(move |end| scan(*start, *end))).collect()
}

#[test]
fn every_small_scan_of_a_hashed_table_asks_the_right_shards() {
    let (bounds, keys) = (small_keys(2), small_keys(4));
    for prefix_bytes in 0..4 {
        for shards in [1, 2, 64] {
            let topology = with_table(shards, Partitioning::Hash { prefix_bytes });
            for scan in scans(&bounds) {
                check(&topology, &scan, keys.iter().map(Vec::as_slice));
            }
        }
    }
}

#[test]
fn every_small_scan_of_a_table_with_ranges_asks_the_right_shards() {
    let (bounds, keys) = (small_keys(2), small_keys(4));
    let splits = |owners: &[(&[u8], u32)]| {
        owners.iter().map(|(from, shard)| (Box::from(*from), ShardId(*shard))).collect::<Splits>()
    };
    for splits in [
        splits(&[(b"", 0)]),
        splits(&[(b"", 0), (b"\0", 1), (b"\0\0", 2)]),
        splits(&[(b"", 3), (b"\x01", 1), (b"\x01\x01", 1), (b"\xff", 0)]),
        splits(&[(b"", 0), (b"\0\xff", 1), (b"\x01\0\0", 0), (b"\xff\xff", 2)]),
    ] {
        let topology = with_table(SHARDS, Partitioning::Range { splits });
        for scan in scans(&bounds) {
            check(&topology, &scan, keys.iter().map(Vec::as_slice));
        }
    }
}

/// Keys that often share their first bytes, and their first eight.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let tail = prop::collection::vec(prop::sample::select(vec![0, 1, 7, 254, 255]), 0..4);
    (prop::sample::select(vec!["", "\0\0\0\0\0\0\0\0", "abcdefg", "abcdefgh"]), tail)
        .prop_map(|(front, tail)| [front.as_bytes(), &tail].concat())
}

fn partitioning() -> impl Strategy<Value = Partitioning> {
    let ranges = prop::collection::btree_map(key(), 0..SHARDS, 0..12).prop_map(|mut ranges| {
        ranges.entry(Vec::new()).or_insert(0);
        let splits = ranges.into_iter().map(|(from, shard)| (from.into(), ShardId(shard)));
        Partitioning::Range { splits: splits.collect() }
    });
    prop_oneof![
        2 => (0..12_usize).prop_map(|prefix_bytes| Partitioning::Hash { prefix_bytes }),
        4 => ranges,
        1 => Just(Partitioning::Everywhere),
    ]
}

fn bound(kind: u8, key: &[u8]) -> Bound<&[u8]> {
    match kind {
        0 => Bound::Unbounded,
        1 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_home_of_a_key_is_among_the_homes_of_its_scan(
        partitioning in partitioning(),
        (low, high) in (key(), key()),
        (low_kind, high_kind) in (0..3_u8, 0..4_u8),
        keys in prop::collection::btree_set(key(), 1..60),
    ) {
        let topology = with_table(SHARDS, partitioning);
        let end = match high_kind {
            3 => ScanEnd::Prefix(&high),
            kind => ScanEnd::Bound(bound(kind, &high)),
        };
        let scan = Scan { start: bound(low_kind, &low), end, ..Scan::all() };
        check(&topology, &scan, keys.iter().map(Vec::as_slice));
        check(&topology, &Scan::prefix(&low), keys.iter().map(Vec::as_slice));
    }

    #[test]
    fn a_range_has_the_keys_from_its_split_on(partitioning in partitioning(), key in key()) {
        let Partitioning::Range { splits } = &partitioning else { return Ok(()) };
        let (_, shard) = splits.iter().rfind(|(from, _)| **from <= *key).unwrap();
        let expected = Some(Home::One(*shard));
        prop_assert_eq!(with_table(SHARDS, partitioning).home(TABLE, &key), expected);
    }
}

#[test]
fn a_hashed_scan_within_one_prefix_asks_one_shard() {
    let topology = with_table(SHARDS, Partitioning::Hash { prefix_bytes: 2 });
    let homes = |scan: Scan<'_>| topology.homes(TABLE, &scan).expect("the table");
    let Some(Home::One(home)) = topology.home(TABLE, b"ab") else { panic!("hashed keys have one") };
    for scan in [
        Scan::prefix(b"ab"),
        Scan::prefix(b"abc"),
        Scan::range(&b"ab"[..]..b"ac"),
        Scan::range(&b"ab7"[..]..=b"abx"),
        Scan::range(&b"ab"[..]..=b"ab"),
        Scan::range((Bound::Excluded(&b"ab1"[..]), Bound::Excluded(&b"ac"[..]))),
    ] {
        assert_eq!(homes(scan), Homes::One(home), "{scan:?}");
    }
    let all = Homes::Mixed((0..SHARDS).map(ShardId).collect());
    for scan in [
        Scan::all(),
        Scan::prefix(b"a"),
        Scan::range(&b"ab"[..]..=b"ac"),
        Scan::range(&b"ab"[..]..b"ac\0"),
        Scan::range(&b"ab"[..]..),
        // The key "b" lies between, and counts whole.
        Scan::range(&b"a\xff"[..]..b"b\0"),
    ] {
        assert_eq!(homes(scan), all, "{scan:?}");
    }
}

#[test]
fn a_scan_of_whole_hashed_keys_asks_one_shard_for_one_key() {
    let topology = with_table(SHARDS, Partitioning::Hash { prefix_bytes: 0 });
    let Some(Home::One(home)) = topology.home(TABLE, b"ab") else { panic!("hashed keys have one") };
    for scan in [Scan::range(&b"ab"[..]..=b"ab"), Scan::range(&b"ab"[..]..b"ab\0")] {
        assert_eq!(topology.homes(TABLE, &scan), Some(Homes::One(home)), "{scan:?}");
    }
    assert!(matches!(topology.homes(TABLE, &Scan::prefix(b"ab")), Some(Homes::Mixed(_))));
}
