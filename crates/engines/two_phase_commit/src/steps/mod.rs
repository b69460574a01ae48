//! The steps of a worker: each file adds to [`TwoPhaseCommit`](crate::TwoPhaseCommit) the methods of one responsibility.
//!
//! A file here imports the types of the state beside this folder, whose fields are theirs alone; no type of the state imports
//! [`TwoPhaseCommit`](crate::TwoPhaseCommit). So there are no import circles, and what a step can change of a part of the state
//! is what that part's methods say.
//!
//! | file | holds | rules |
//! |---|---|---|
//! | `coordinator.rs` | from execution to the outcome | P1, P3, P4, P8 |
//! | `last_agent.rs` | decisions that a participant keeps | P8, P9 |
//! | `failures.rs` | a coordinator's transactions when leaders fail | P8 |
//! | `participant.rs` | branches of other nodes' transactions | P2, P4, P6 |
//! | `slices.rs`, `installing.rs` | what is too large for one step | P1, P4 |
//! | `orphans.rs` | branches whose coordinators are gone or silent | P8 |
//! | `replay.rs` | what is committed in streams is applied | P2, P4 |
//! | `leadership.rs` | taking over, recovering, leaving | P6, P7 |
//! | `in_doubt.rs` | prepared branches without a coordinator | P7 |
//! | `decisions.rs` | decisions at their home shard, and what is sent again | P8, P9 |
//! | `snapshot.rs` | copies for replicas that lack what streams have no more | P10 |
//! | `due.rs`, `status.rs` | what a step goes on with, and when the next one is due; what a worker reports of itself | |

mod coordinator;
mod decisions;
mod due;
mod failures;
mod in_doubt;
mod installing;
mod last_agent;
mod leadership;
mod orphans;
mod participant;
mod replay;
mod slices;
mod snapshot;
mod status;
