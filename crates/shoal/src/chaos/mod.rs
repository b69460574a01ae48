//! Failures of a local cluster, and what clients saw of them.
//!
//! | file | holds |
//! |---|---|
//! | `failure.rs` | what can fail, and how it is made to |
//! | `writers.rs`, `tally.rs` | counters of which every acknowledged addition has to be there; how long none was |
//! | `histories.rs` | transactions that are recorded and judged |
//! | `watch.rs` | both at once, while something fails |
//! | `moves.rs` | a replica that moves to another node meanwhile |
//! | `rounds.rs` | one failure after the other |
//! | `embedded.rs` | no cluster: a process with an embedded database that is killed over and over |

mod embedded;
mod failure;
mod histories;
mod moves;
mod rounds;
mod tally;
mod watch;
mod writers;

pub use embedded::{EmbeddedProcess, write_until_killed};
pub use failure::{InjectedFailure, KilledNodes, PacketDirection};
pub use moves::ReplicaMoves;
pub use rounds::{FailureKind, Round, Rounds, RoundsSummary};
pub use watch::ChaosClients;

use ring::rand::{SecureRandom, SystemRandom};

/// A number that no other run has.
///
/// # Errors
/// If the system has no randomness.
pub fn draw() -> std::io::Result<u32> {
    let mut bytes = [0; 4];
    let none = |_| std::io::Error::other("the system has no randomness");
    SystemRandom::new().fill(&mut bytes).map_err(none)?;
    Ok(u32::from_le_bytes(bytes))
}
