//! The shape of a cluster: datacenters, nodes, shards, tables.
