//! The search for granules of a shard that lack their degree.

use crate::granule::GranuleId;

/// How far the granules of a shard were found to have their degree in this epoch: then they keep it until the next one.
#[derive(Debug, Default)]
pub(super) struct WholeSearch {
    /// All up to this one have it.
    pub(super) until: Option<GranuleId>,
    pub(super) is_over: bool,
}
