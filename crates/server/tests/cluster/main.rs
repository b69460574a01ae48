//! Clusters of real nodes, threads and sockets, on loopback.

mod cluster;
mod durable;
mod failures;
mod founding;
mod growing;
mod http;
mod losses;
mod managers;
mod outages;
mod owners;
mod reconnaissance;
mod recovery;
mod replacing;
mod secured;
mod serving;
mod sizes;
