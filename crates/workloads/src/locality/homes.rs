//! How objects are divided among homes, and what the workloads whose data has homes share.

use crate::rows;
use shoal_types::{Database, Random, Result, TableId};
use std::ops::Range;

/// Shares are given in millionths.
pub(super) const MILLION: u64 = 1_000_000;

/// How the objects of a workload are divided among homes, and how many transactions leave theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Homes {
    /// The number of homes: of clients that are near each other.
    pub homes: u32,
    /// The number of objects of each home.
    pub objects: u32,
    /// Of a million transactions that write, how many take an object of another home; none does where there is one home.
    pub remote_ppm: u32,
}

/// A client: its home, and the random source of what it does.
#[derive(Debug)]
pub struct HomeClient {
    pub(super) number: usize,
    pub(super) home: u32,
    pub(super) random: Random,
}

impl Homes {
    /// # Panics
    /// If there is no home or no object, or the share is more than all.
    pub(super) fn check(&self) {
        assert!(self.homes > 0 && self.objects > 0, "a workload needs a home and an object");
        assert!(u64::from(self.remote_ppm) <= MILLION, "{} of a million", self.remote_ppm);
    }

    /// How many objects there are.
    pub(super) fn all(&self) -> u64 {
        u64::from(self.homes) * u64::from(self.objects)
    }

    /// An object of a home.
    pub(super) fn object(&self, random: &mut Random, home: u32) -> u32 {
        home * self.objects + random.below(self.objects.into()) as u32
    }

    /// The home of the object that a transaction of a client takes beside its own: mostly the client's.
    pub(super) fn other_home(&self, random: &mut Random, home: u32) -> u32 {
        if self.homes == 1 || !random.chance(self.remote_ppm.into(), MILLION) {
            return home;
        }
        let drawn = random.below(u64::from(self.homes) - 1) as u32;
        drawn + u32::from(drawn >= home)
    }

    /// The parts of a load. Each is of one home, and they take turns: where objects move, its loader is the first to have them.
    pub(super) fn parts(&self) -> usize {
        self.homes as usize * rows::parts(self.objects.into())
    }

    /// The objects of a part, by their numbers.
    pub(super) fn part(&self, part: usize) -> Range<u64> {
        let (home, part) = (part % self.homes as usize, part / self.homes as usize);
        let first = home as u64 * u64::from(self.objects);
        let Range { start, end } = rows::part_of(self.objects.into(), part);
        first + start..first + end
    }

    /// The home of which this part is the first, if it is.
    pub(super) fn begins_home(&self, part: usize) -> Option<u32> {
        u32::try_from(part).ok().filter(|home| *home < self.homes)
    }

    pub(super) fn client(&self, number: usize, seed: u64) -> HomeClient {
        let home = (number % self.homes as usize) as u32;
        HomeClient { number, home, random: Random::new(seed).fork(number as u64) }
    }

    /// What a result has to state.
    pub(super) fn parameters(&self, objects: &'static str) -> Vec<(&'static str, String)> {
        vec![
            ("homes", self.homes.to_string()),
            (objects, self.all().to_string()),
            ("remote writes", format!("{} %", f64::from(self.remote_ppm) / 10_000.0)),
        ]
    }
}

/// The number that a client draws its type by: an index into `shares`, which add up to a hundred.
pub(super) fn draw_kind(random: &mut Random, shares: &[u32]) -> usize {
    let mut lot = random.below(100) as u32;
    for (kind, share) in shares.iter().enumerate() {
        if lot < *share {
            return kind;
        }
        lot -= share;
    }
    unreachable!("shares add up to a hundred")
}

/// A row that begins with a number, little-endian, and is zero behind it.
pub(super) fn row<const BYTES: usize>(number: i64) -> [u8; BYTES] {
    let mut row = [0; BYTES];
    row[..8].copy_from_slice(&number.to_le_bytes());
    row
}

/// The key of the row with this number, in tables of a row for each.
pub(super) fn key(number: u64) -> [u8; 4] {
    (number as u32).to_be_bytes()
}

/// The number at the beginning of a [`row`].
pub(super) fn number(value: Option<&[u8]>) -> Result<i64> {
    let bytes = value.and_then(|value| value.first_chunk());
    bytes.map(|bytes| i64::from_le_bytes(*bytes)).ok_or_else(|| rows::corrupt("a row is missing"))
}

/// Calls `visit` with the numbers of the first `count` rows of a table with a row for each [`key`]. Returns how many are
/// missing.
pub(super) async fn visit_numbers<D: Database>(
    db: &D,
    table: TableId,
    count: u64,
    mut visit: impl FnMut(u64, i64),
) -> Result<u64> {
    let mut missing = 0;
    rows::visit_rows(db, table, 0..count, key, |at, row| match number(row) {
        Ok(number) => visit(at, number),
        Err(_) => missing += 1,
    })
    .await?;
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOMES: Homes = Homes { homes: 3, objects: 4, remote_ppm: 250_000 };

    #[test]
    fn objects_are_of_the_home_that_was_asked_for() {
        let mut random = Random::new(1);
        for home in 0..3 {
            for _ in 0..100 {
                let object = HOMES.object(&mut random, home);
                assert_eq!(object / HOMES.objects, home);
            }
        }
    }

    #[test]
    fn each_part_is_of_one_home() {
        let homes = Homes { objects: 40_000, ..HOMES };
        let mut all: Vec<_> = (0..homes.parts()).map(|part| (part, homes.part(part))).collect();
        for (part, objects) in &all {
            let of = |object: u64| object / u64::from(homes.objects);
            assert_eq!(
                (of(objects.start), of(objects.end - 1)),
                ((part % 3) as u64, (part % 3) as u64)
            );
        }
        all.sort_unstable_by_key(|(_, objects)| objects.start);
        let ends = all.iter().map(|(_, objects)| objects.end);
        let starts = all.iter().skip(1).map(|(_, objects)| objects.start).chain([homes.all()]);
        assert!(all[0].1.start == 0 && ends.eq(starts), "{all:?}");
    }

    #[test]
    fn a_share_of_transactions_leaves_its_home() {
        let mut random = Random::new(1);
        let left = (0..10_000).filter(|_| HOMES.other_home(&mut random, 1) != 1).count();
        assert!((2_200..2_800).contains(&left), "{left}");
        let alone = Homes { homes: 1, ..HOMES };
        assert!((0..100).all(|_| alone.other_home(&mut random, 0) == 0));
    }

    #[test]
    fn kinds_are_drawn_by_their_shares() {
        let mut random = Random::new(1);
        let mut counts = [0; 3];
        (0..10_000).for_each(|_| counts[draw_kind(&mut random, &[0, 30, 70])] += 1);
        assert_eq!(counts[0], 0);
        assert!((2_800..3_200).contains(&counts[1]), "{counts:?}");
    }
}
