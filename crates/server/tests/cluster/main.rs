//! Clusters of real nodes, threads and sockets, on loopback.

mod cluster;
mod failures;
mod http;
mod secured;
mod serving;
