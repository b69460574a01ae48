//! The steps of a worker: each file adds to [`Mako`](crate::Mako) the methods of one responsibility.
//!
//! A file here imports the types of the state beside this folder, whose fields are theirs alone, and nothing of its
//! neighbours; no type of the state imports [`Mako`](crate::Mako). So there are no import circles, and what a step can change of a
//! part of the state is what that part's methods say.
//!
//! | file | holds | rules |
//! |---|---|---|
//! | `coordinator.rs`, `reveal.rs` | from execution to certification; what is covered is revealed | M1, M5 |
//! | `participant.rs` | branches of other nodes' transactions | M2 |
//! | `slices.rs`, `install.rs` | what is too large for one step | M2, M3 |
//! | `watermark.rs` | what is durable, and which nodes receive it | M4 |
//! | `replay.rs` | what is decided by others is replayed | M6 |
//! | `leadership.rs` | taking over, recovering, leaving | M7, M9 |
//! | `epoch_change.rs` | epochs open, close and are settled | M3, M8, M9 |
//! | `rollback.rs` | what was rolled back leaves the stores | M9 |
//! | `trim.rs` | overwritten versions are freed | M10 |
//! | `snapshot.rs` | how a replica gets what streams have no more | M10 |
//! | `unanswered.rs`, `silence.rs` | waits for other shards have a bound; nodes that hold up a shard and are gone | M3, M11 |
//! | `undecided.rs`, `loss.rs` | what only a lost shard can decide; a shard whose majority is lost for good | M9, M12 |
//! | `due.rs`, `status.rs` | what a step goes on with, and when the next one is due; what a worker reports of itself | |

mod coordinator;
mod due;
mod epoch_change;
mod install;
mod leadership;
mod loss;
mod participant;
mod replay;
mod reveal;
mod rollback;
mod silence;
mod slices;
mod snapshot;
mod status;
mod trim;
mod unanswered;
mod undecided;
mod watermark;
