//! Tests of the replicated sequence as a whole: scenarios, random runs, planted bugs, speed.
//!
//! [`cluster`] has the nodes, the network and the checks. [`scripts`] runs the folder `stream_scripts/`,
//! whose files are scenarios with their traces. [`random`] draws everything from a seed, and plants bugs.
//! [`members`] changes the members. [`nonsense`] sends messages that no correct node sends.

mod cluster;
mod members;
mod nonsense;
mod random;
mod scripts;
mod speed;
