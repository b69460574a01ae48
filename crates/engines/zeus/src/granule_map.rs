//! Maps of granules that are found by a hash, and one whose entries are visited in order.

use crate::granule::GranuleId;
use shoal_types::hash_index::{HashIndex, HashKey};
use std::collections::BTreeSet;
use std::ops::Bound;

/// An odd number whose bits are as good as random: 2^64 divided by the golden ratio.
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A map from granules, without an order.
pub(crate) type GranuleIndex<V> = HashIndex<GranuleId, V>;

/// A map from granules.
#[derive(Debug, Clone)]
pub(crate) struct GranuleMap<V> {
    index: GranuleIndex<V>,
    ordered: BTreeSet<GranuleId>,
}

impl<V> Default for GranuleMap<V> {
    fn default() -> GranuleMap<V> {
        GranuleMap { index: GranuleIndex::default(), ordered: BTreeSet::new() }
    }
}

impl HashKey for GranuleId {
    fn hash(&self) -> u64 {
        let mix = |hash: u64, word: u64| {
            let mixed = (hash ^ word).wrapping_mul(MIXER);
            mixed ^ mixed >> 32
        };
        let begin = mix(u64::from(self.family.0), self.prefix.len() as u64);
        self.prefix.chunks(8).fold(begin, |hash, bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            mix(hash, u64::from_le_bytes(word))
        })
    }
}

impl<V> GranuleMap<V> {
    pub(crate) fn get(&self, granule: &GranuleId) -> Option<&V> {
        self.index.get(granule)
    }

    pub(crate) fn get_mut(&mut self, granule: &GranuleId) -> Option<&mut V> {
        self.index.get_mut(granule)
    }

    /// The value of the granule, which is made if there is none.
    pub(crate) fn get_or_insert_with(
        &mut self,
        granule: &GranuleId,
        make: impl FnOnce() -> V,
    ) -> &mut V {
        let GranuleMap { index, ordered } = self;
        index.get_or_insert_with(granule, || {
            ordered.insert(granule.clone());
            make()
        })
    }

    /// Sets the value of the granule.
    pub(crate) fn insert(&mut self, granule: &GranuleId, value: V) {
        match self.index.get_mut(granule) {
            Some(former) => *former = value,
            None => {
                self.ordered.insert(granule.clone());
                self.index.insert(granule.clone(), value);
            }
        }
    }

    pub(crate) fn remove(&mut self, granule: &GranuleId) -> Option<V> {
        let removed = self.index.remove(granule)?;
        self.ordered.remove(granule);
        Some(removed)
    }

    pub(crate) fn clear(&mut self) {
        *self = GranuleMap::default();
    }

    /// All entries, ascending by granule.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&GranuleId, &V)> {
        self.iter_after(None)
    }

    /// The entries behind this granule, ascending.
    pub(crate) fn iter_after(
        &self,
        after: Option<&GranuleId>,
    ) -> impl Iterator<Item = (&GranuleId, &V)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let granules = self.ordered.range((start, Bound::Unbounded));
        granules.filter_map(|granule| Some((granule, self.get(granule)?)))
    }

    /// All entries, in an order that says nothing.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&GranuleId, &mut V)> {
        self.index.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shoal_types::{Random, TableId};
    use std::collections::BTreeMap;

    fn granule(number: u64) -> GranuleId {
        // Names of different lengths, also ones that begin alike.
        let bytes = number.to_be_bytes();
        let prefix = Bytes::copy_from_slice(&bytes[(number % 7) as usize..]);
        GranuleId { family: TableId((number % 2) as u32), prefix }
    }

    #[test]
    fn it_holds_what_a_tree_holds() {
        let (mut map, mut model) = (GranuleMap::default(), BTreeMap::new());
        let mut random = Random::new(3);
        for step in 0..20_000_u64 {
            let granule = granule(random.below(if step % 4000 < 2000 { 60 } else { 400 }));
            match random.below(4) {
                0 => assert_eq!(map.remove(&granule), model.remove(&granule)),
                1 => {
                    map.insert(&granule, step);
                    model.insert(granule, step);
                }
                2 => {
                    *map.get_or_insert_with(&granule, || step) += 1;
                    *model.entry(granule).or_insert(step) += 1;
                }
                _ => {
                    assert_eq!(map.get(&granule), model.get(&granule));
                    assert_eq!(map.get_mut(&granule), model.get_mut(&granule));
                }
            }
            if step % 100 == 0 {
                assert!(map.iter().eq(model.iter()), "after {step} steps");
                let (middle, end) = (self::granule(5), Bound::Unbounded);
                let behind = model.range((Bound::Excluded(&middle), end));
                assert!(map.iter_after(Some(&middle)).eq(behind));
                assert_eq!(map.iter_mut().count(), model.len());
            }
        }
        map.clear();
        assert_eq!(map.iter().next(), None);
    }

    #[test]
    fn hashes_of_neighbours_differ_in_their_lower_bits() {
        let hashes = (0..30_000_u32).map(|number| {
            let prefix = Bytes::copy_from_slice(&number.to_be_bytes());
            GranuleId { family: TableId(1), prefix }.hash() & 0xffff
        });
        let different = hashes.collect::<BTreeSet<u64>>().len();
        assert!(different > 22_000, "{different} of 65,536 homes");
    }
}
