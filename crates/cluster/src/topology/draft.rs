//! A topology file as it was read, before validation. Values keep their places in the text for error messages.

use super::error::{Complaint, NOWHERE};
use super::granules::TableDefinition;
use super::key;
use super::partitioning::{Partitioning, Splits};
use serde::Deserialize;
use shoal_types::ShardId;
use std::ops::Range;
use toml::{Spanned, Value};

/// A topology as it is written, or as a builder collects it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Draft {
    pub(super) workers: Option<Spanned<u32>>,
    pub(super) durability: Option<Spanned<String>>,
    #[serde(default, rename = "datacenter")]
    pub(super) datacenters: Vec<DatacenterDraft>,
    #[serde(default, rename = "distance")]
    pub(super) distances: Vec<DistanceDraft>,
    #[serde(default, rename = "node")]
    pub(super) nodes: Vec<NodeDraft>,
    #[serde(default, rename = "shard")]
    pub(super) shards: Vec<ShardDraft>,
    #[serde(default, rename = "table")]
    pub(super) tables: Vec<TableDraft>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DatacenterDraft {
    pub(super) name: Spanned<String>,
}

/// Names the datacenters by `between`, for both ways, or by `from` and `to`, for one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DistanceDraft {
    pub(super) between: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) from: Option<Spanned<String>>,
    pub(super) to: Option<Spanned<String>>,
    pub(super) one_way_ms: Spanned<f64>,
    pub(super) jitter_ms: Option<Spanned<f64>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeDraft {
    pub(super) name: Spanned<String>,
    pub(super) datacenter: Spanned<String>,
    pub(super) address: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) removed: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShardDraft {
    pub(super) leader: Spanned<String>,
    pub(super) voters: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pub(super) learners: Vec<Spanned<String>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableDraft {
    name: Spanned<String>,
    partitioning: Spanned<String>,
    prefix_bytes: Option<Spanned<usize>>,
    ranges: Option<Spanned<Vec<Spanned<RangeDraft>>>>,
    granule_bytes: Option<Spanned<usize>>,
    family: Option<Spanned<String>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeDraft {
    from: Option<Spanned<Value>>,
    shard: u32,
}

/// A table to be validated: from a file, with the places of its parts; or from code, without.
#[derive(Debug, Clone)]
pub(super) struct TablePlan {
    pub(super) name: Spanned<String>,
    pub(super) definition: TableDefinition,
    /// The place in the text of the table's partitioning.
    pub(super) span: Range<usize>,
    /// The place in the text of what is said of its granules, or else of its partitioning.
    pub(super) granules: Range<usize>,
    /// The place in the text of each range.
    pub(super) ranges: Vec<Range<usize>>,
}

/// A value without a place in a text.
pub(super) fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(NOWHERE, value)
}

impl TablePlan {
    pub(super) fn unplaced(
        name: impl Into<String>,
        definition: impl Into<TableDefinition>,
    ) -> TablePlan {
        let (name, definition) = (unplaced(name.into()), definition.into());
        TablePlan { name, definition, span: NOWHERE, granules: NOWHERE, ranges: Vec::new() }
    }

    /// The place in the text of range number `range`.
    pub(super) fn range_span(&self, range: usize) -> Range<usize> {
        self.ranges.get(range).unwrap_or(&self.span).clone()
    }
}

impl TableDraft {
    pub(super) fn plan(self) -> Result<TablePlan, Complaint> {
        let how = self.partitioning.get_ref().as_str();
        if let Some(bytes) = &self.prefix_bytes
            && how != "hash"
        {
            let what = "prefix_bytes is for hash partitioning only; take it away, \
                        or write partitioning = \"hash\"";
            return Complaint::about(bytes.span(), what);
        }
        if let Some(ranges) = &self.ranges
            && how != "range"
        {
            let what = "ranges are for range partitioning only; take them away, \
                        or write partitioning = \"range\"";
            return Complaint::about(ranges.span(), what);
        }
        let mut span = self.partitioning.span();
        let mut places = Vec::new();
        let partitioning = match (how, self.ranges) {
            ("hash", _) => {
                let prefix_bytes = self.prefix_bytes.unwrap_or(Spanned::new(span.clone(), 0));
                span = prefix_bytes.span();
                Partitioning::Hash { prefix_bytes: prefix_bytes.into_inner() }
            }
            ("range", Some(ranges)) => {
                span = ranges.span();
                places = ranges.get_ref().iter().map(Spanned::span).collect();
                Partitioning::Range { splits: splits(ranges.into_inner())? }
            }
            ("range", None) => {
                let what = "a range-partitioned table needs its ranges; \
                            add ranges = [{ shard = 0 }, { from = \"m\", shard = 1 }]";
                return Complaint::about(span, what);
            }
            ("everywhere", _) => Partitioning::Everywhere,
            (_, _) => {
                let what = format!(
                    "there is no partitioning {how:?}; write \"hash\", \"range\" or \"everywhere\""
                );
                return Complaint::about(span, what);
            }
        };
        let family = self.family.as_ref().map(Spanned::span);
        let granules = self.granule_bytes.as_ref().map(Spanned::span).or(family);
        let granules = granules.unwrap_or_else(|| span.clone());
        let definition = TableDefinition {
            partitioning,
            granule_bytes: self.granule_bytes.map(Spanned::into_inner),
            family: self.family.map(Spanned::into_inner),
        };
        Ok(TablePlan { name: self.name, definition, span, granules, ranges: places })
    }
}

fn splits(ranges: Vec<Spanned<RangeDraft>>) -> Result<Splits, Complaint> {
    let mut splits = Splits::with_capacity(ranges.len());
    for range in ranges {
        let span = range.span();
        let RangeDraft { from, shard } = range.into_inner();
        let from = match &from {
            Some(from) => key::read(from)?,
            None if splits.is_empty() => Box::default(),
            None => {
                let what = "only the first range begins at the least key; \
                            say with `from` where this one does";
                return Complaint::about(span, what);
            }
        };
        splits.push((from, ShardId(shard)));
    }
    Ok(splits)
}
