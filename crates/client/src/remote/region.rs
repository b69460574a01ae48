//! The region of a client, and its emulated distances to the nodes, from the topology.
//!
//! The client delays the frames of both directions by itself; nodes, and clients without a region, are not involved.
//! Connecting is not delayed.

use shoal_cluster::topology::Topology;
use shoal_net::client::ClientConnection;
use shoal_types::{DatacenterId, Distance, Random};
use std::sync::Arc;
use std::time::Duration;

/// A client's region.
#[derive(Debug, Clone)]
pub(super) struct ClientRegion {
    datacenter: DatacenterId,
    topology: Arc<Topology>,
    /// The source of jitter; forked, never advanced.
    random: Random,
}

impl ClientRegion {
    /// The region of this name.
    ///
    /// # Errors
    /// A sentence, where the topology has none of this name.
    pub(super) fn named(
        name: &str,
        topology: &Arc<Topology>,
        random: Random,
    ) -> Result<ClientRegion, String> {
        let datacenter = topology.datacenter(name).ok_or_else(|| {
            let known = topology.datacenters().iter().map(|datacenter| &*datacenter.name);
            let known: Vec<&str> = known.collect();
            format!("the cluster has no region '{name}'; its regions are {}", known.join(", "))
        })?;
        Ok(ClientRegion { datacenter, topology: Arc::clone(topology), random })
    }

    /// The datacenter in which the client is.
    pub(super) fn datacenter(&self) -> DatacenterId {
        self.datacenter
    }

    /// The distances to a datacenter, and back.
    fn ways(&self, datacenter: DatacenterId) -> (Distance, Distance) {
        let distances = self.topology.distances();
        (
            distances.between(self.datacenter, datacenter),
            distances.between(datacenter, self.datacenter),
        )
    }

    /// The longest round trip to a node.
    pub(super) fn round_trip_max(&self) -> Duration {
        let round_trips = self.topology.nodes().iter().map(|node| {
            let (there, back) = self.ways(node.datacenter);
            there.longest() + back.longest()
        });
        round_trips.max().unwrap_or_default()
    }

    /// The connection with the delays of its distance. A node that is not in the topology has none.
    pub(super) fn hold(&self, connection: ClientConnection) -> ClientConnection {
        let known = self.topology.node(connection.node);
        let (there, back) =
            known.map_or((Distance::NONE, Distance::NONE), |node| self.ways(node.datacenter));
        if there == Distance::NONE && back == Distance::NONE {
            return connection;
        }
        connection.at_distance(there, back, &self.random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::{DistanceMatrix, Way};

    #[test]
    fn a_region_is_a_datacenter_of_the_topology_and_each_way_counts() {
        let ms = Duration::from_millis;
        let mut distances = DistanceMatrix::none();
        for (from, to, delay) in [(0, 1, ms(10)), (1, 0, ms(30)), (1, 2, ms(5))] {
            let (from, to) = (DatacenterId(from), DatacenterId(to));
            distances.set(Way { from, to, distance: Distance { delay, jitter: ms(1) } });
        }
        let topology = Topology::compact(3, 1, 3, 0, 1).with_distances(&distances);
        let topology = Arc::new(topology.expect("a topology"));
        let region = |name| ClientRegion::named(name, &topology, Random::new(1));
        assert_eq!(region("dc0").expect("a region").round_trip_max(), ms(42));
        assert_eq!(region("dc2").expect("a region").round_trip_max(), ms(6));
        assert_eq!(
            region("mars").expect_err("no region"),
            "the cluster has no region 'mars'; its regions are dc0, dc1, dc2"
        );
    }
}
