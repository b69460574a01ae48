//! Clusters of real nodes, threads and sockets, on loopback.

mod cluster;
mod failures;
mod http;
mod managers;
mod secured;
mod serving;
mod sizes;
