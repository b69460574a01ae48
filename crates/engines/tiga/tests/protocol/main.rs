//! Nodes alone: messages are delivered by hand, and logs are lists.

mod clocks;
mod cluster;
mod distances;
mod planted;
mod recovery;
mod scripts;
mod snapshot;
mod vote_log;
mod whole;
mod window;
