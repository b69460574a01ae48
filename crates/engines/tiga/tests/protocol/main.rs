//! Nodes alone: messages are delivered by hand, and logs are lists.

mod cluster;
mod recovery;
mod scripts;
