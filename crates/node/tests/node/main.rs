//! The workers of nodes, driven by hand: alone, several on a network that loses and delays, and with nodes that fail.
//! One program, since each takes long to build.

mod busy;
mod cluster;
mod common;
mod incarnations;
mod late_calls;
mod nonsense;
mod recovery;
mod scripts;
mod timers;
mod wire;
