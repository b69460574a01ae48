//! Topologies from a text or from a caller's values, after validation.

use super::cluster::Topology;
use super::draft::{Draft, TablePlan};
use super::error::{Complaint, TopologyError};
use super::granules::TableDefinition;
use super::{distances, validate};
use shoal_types::{DistanceMatrix, TableId};

impl Topology {
    /// The topology that `text`, in TOML, describes; the [module](super) shows how.
    ///
    /// # Errors
    /// Where the text is no TOML, or what it describes is no cluster.
    pub fn parse(text: &str) -> Result<Topology, TopologyError> {
        let parsed = toml::from_str::<Draft>(text).map_err(|error| Complaint::of(&error));
        parsed
            .and_then(|mut draft| {
                let tables = std::mem::take(&mut draft.tables);
                let topology = validate::cluster(draft)?;
                let plans = tables.into_iter().map(|table| table.plan());
                topology.with_plans(plans.collect::<Result<_, _>>()?)
            })
            .map_err(|complaint| TopologyError::within(text, complaint))
    }

    /// The same cluster with these tables, numbered in this order, instead of those it has.
    ///
    /// # Errors
    /// If one of them is invalid.
    pub fn with_tables<N: Into<String>, D: Into<TableDefinition>>(
        self,
        tables: impl IntoIterator<Item = (N, D)>,
    ) -> Result<Topology, TopologyError> {
        let plan = |(name, definition)| TablePlan::unplaced(name, definition);
        let plans = tables.into_iter().map(plan).collect();
        self.with_plans(plans).map_err(TopologyError::nowhere)
    }

    /// The same cluster with the tables of these plans, numbered in this order.
    pub(super) fn with_plans(self, plans: Vec<TablePlan>) -> Result<Topology, Complaint> {
        let next = TableId(plans.len() as u32);
        let tables = validate::tables((0..).map(TableId).zip(plans).collect(), next, self.shards());
        Ok(self.set_tables(tables?))
    }

    /// The same cluster with tables of these ids instead of those it has, of which `next` is the one that was not given yet.
    ///
    /// # Errors
    /// Where one of them could not stand in a topology's text, or the ids do not ascend below `next`.
    pub(crate) fn with_numbered_tables(
        self,
        tables: Vec<(TableId, (String, TableDefinition))>,
        next: TableId,
    ) -> Result<Topology, TopologyError> {
        let plans = tables
            .into_iter()
            .map(|(id, (name, definition))| (id, TablePlan::unplaced(name, definition)));
        let tables = validate::tables(plans.collect(), next, self.shards());
        Ok(self.set_tables(tables.map_err(TopologyError::nowhere)?))
    }

    /// The same cluster with these distances between its datacenters, instead of those it has.
    ///
    /// # Errors
    /// If one of them is invalid.
    pub fn with_distances(self, distances: &DistanceMatrix) -> Result<Topology, TopologyError> {
        let count = self.datacenters().len() as u32;
        let distances = distances.spelled_out(count);
        distances::check(&distances, count).map_err(TopologyError::nowhere)?;
        Ok(self.set_distances(distances))
    }
}
