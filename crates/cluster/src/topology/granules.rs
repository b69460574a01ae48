//! How a table is divided, as it is defined: among the shards, and into granules.
//!
//! A granule is what an engine moves between nodes as one: all rows, present or absent, of the tables of a *family* whose keys
//! share a prefix. Engines that move nothing do not look at it.
//!
//! Invariant: all rows of a granule are on one shard. [`TableGranules::of`] checks that.

use super::partitioning::Partitioning;
use shoal_types::TableId;
use shoal_types::limits::KEY_BYTES_MAX;
use shoal_types::wire::Coded;

/// What a table is created with. A [`Partitioning`] is one with the granules that come by default.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct TableDefinition {
    /// How the keys are divided among the shards.
    pub partitioning: Partitioning,
    /// How many bytes of a key name its granule; a shorter key counts whole. 0: each range of a range-partitioned table is a
    /// granule. By default as the family has it; else 0 for ranges, and what is hashed of a key for a hashed table.
    pub granule_bytes: Option<usize>,
    /// The first table of the family, which is divided like this one: rows of both whose keys share the prefix are one
    /// granule. By default the table is a family of its own.
    pub family: Option<String>,
}

impl From<Partitioning> for TableDefinition {
    fn from(partitioning: Partitioning) -> TableDefinition {
        TableDefinition { partitioning, granule_bytes: None, family: None }
    }
}

impl TableDefinition {
    /// The same with granules of so many bytes.
    #[must_use]
    pub fn granule_bytes(self, granule_bytes: usize) -> TableDefinition {
        TableDefinition { granule_bytes: Some(granule_bytes), ..self }
    }

    /// The same in the family of this table.
    #[must_use]
    pub fn family(self, family: impl Into<String>) -> TableDefinition {
        TableDefinition { family: Some(family.into()), ..self }
    }
}

/// How the keys of a table are divided into granules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableGranules {
    /// The tables of a family have the granules in common. A table with its own number is the first of its family.
    pub family: TableId,
    /// How many bytes of a key name its granule; a shorter key counts whole, and `usize::MAX` makes each key a granule. 0:
    /// each range of a range-partitioned table is a granule.
    pub granule_bytes: usize,
}

impl TableGranules {
    /// The granules of a table, of which `family` is the first table of its family, if that is another one.
    ///
    /// # Errors
    /// Says what has to change, if a granule had rows on several shards, or the tables of the family are divided otherwise.
    pub(super) fn of(
        table: TableId,
        definition: &TableDefinition,
        family: Option<(TableId, &TableDefinition)>,
    ) -> Result<TableGranules, String> {
        let partitioning = &definition.partitioning;
        let family_bytes = family.map(|(_, first)| granule_bytes_of(first));
        let granule_bytes =
            definition.granule_bytes.or(family_bytes).unwrap_or_else(|| default_of(partitioning));
        if let Some((_, first)) = family {
            if first.family.is_some() {
                return Err("its family is itself in another family; name the first table".into());
            }
            if first.partitioning != *partitioning || family_bytes != Some(granule_bytes) {
                let what = "it is divided otherwise than its family; give both the same \
                            partitioning and granule_bytes";
                return Err(what.into());
            }
        }
        let says_something = definition.granule_bytes.is_some() || family.is_some();
        check(partitioning, granule_bytes, says_something)?;
        let family = family.map_or(table, |(first, _)| first);
        Ok(TableGranules { family, granule_bytes })
    }
}

fn granule_bytes_of(definition: &TableDefinition) -> usize {
    definition.granule_bytes.unwrap_or_else(|| default_of(&definition.partitioning))
}

/// The finest granules that the partitioning names.
fn default_of(partitioning: &Partitioning) -> usize {
    match partitioning {
        Partitioning::Hash { prefix_bytes: 0 } => usize::MAX,
        Partitioning::Hash { prefix_bytes } => *prefix_bytes,
        Partitioning::Range { .. } | Partitioning::Everywhere => 0,
    }
}

/// Whether each granule lies on one shard.
fn check(
    partitioning: &Partitioning,
    granule_bytes: usize,
    says_something: bool,
) -> Result<(), String> {
    let why = match partitioning {
        _ if granule_bytes > KEY_BYTES_MAX && granule_bytes < usize::MAX => {
            return Err(format!("a key has at most KEY_BYTES_MAX = {KEY_BYTES_MAX} bytes"));
        }
        Partitioning::Everywhere if says_something => {
            "a table that every shard has is in no granule; take granule_bytes and family away"
        }
        Partitioning::Hash { .. } if granule_bytes == 0 => {
            "granule_bytes = 0 needs a range-partitioned table"
        }
        Partitioning::Hash { prefix_bytes: 0 } if granule_bytes < usize::MAX => {
            "it is hashed by whole keys; hash it by a prefix of at most granule_bytes"
        }
        Partitioning::Hash { prefix_bytes } if *prefix_bytes > granule_bytes => {
            "it is hashed by a longer prefix than granule_bytes"
        }
        Partitioning::Range { splits }
            if granule_bytes > 0 && splits.iter().any(|(at, _)| at.len() > granule_bytes) =>
        {
            "a range begins within a granule; make its first key no longer than granule_bytes"
        }
        Partitioning::Hash { .. } | Partitioning::Range { .. } | Partitioning::Everywhere => {
            return Ok(());
        }
    };
    Err(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: TableId = TableId(0);

    fn by_hash(prefix_bytes: usize) -> TableDefinition {
        Partitioning::Hash { prefix_bytes }.into()
    }

    fn by_range(firsts: &[&str]) -> TableDefinition {
        Partitioning::ranges(firsts.iter().map(|first| first.as_bytes().to_vec())).into()
    }

    #[test]
    fn granules_that_are_divided_among_shards_are_refused() {
        let everywhere = || TableDefinition::from(Partitioning::Everywhere);
        for definition in [
            by_hash(0).granule_bytes(3),
            by_hash(4).granule_bytes(3),
            by_hash(4).granule_bytes(0),
            by_range(&["", "horse"]).granule_bytes(3),
            by_range(&[""]).granule_bytes(KEY_BYTES_MAX + 1),
            everywhere().granule_bytes(2),
        ] {
            TableGranules::of(T, &definition, None).expect_err("it is refused");
        }
        for (definition, granule_bytes) in [
            (by_hash(0), usize::MAX),
            (by_hash(4), 4),
            (by_hash(4).granule_bytes(6), 6),
            (by_range(&["", "horse"]), 0),
            (by_range(&["", "horse"]).granule_bytes(5), 5),
            (everywhere(), 0),
        ] {
            let granules = TableGranules::of(T, &definition, None).expect("it can be");
            assert_eq!(granules, TableGranules { family: T, granule_bytes });
        }
    }

    #[test]
    fn a_family_is_divided_in_one_way() {
        let of = |definition: &TableDefinition, first: &TableDefinition| {
            TableGranules::of(TableId(1), definition, Some((T, first)))
        };
        let first = by_hash(2).granule_bytes(3);
        let same = TableGranules { family: T, granule_bytes: 3 };
        assert_eq!(of(&by_hash(2), &first), Ok(same));
        assert_eq!(of(&by_hash(2).granule_bytes(3), &first), Ok(same));
        of(&by_hash(2).granule_bytes(2), &first).expect_err("other granules");
        of(&by_hash(1), &first).expect_err("another partitioning");
        of(&by_hash(2), &by_hash(2).family("u")).expect_err("not the first table");
    }
}
