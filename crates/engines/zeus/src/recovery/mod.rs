//! Recovery: what a node does in a new epoch, beside the replay of records (`ownership/arbiter.rs`) and of dead coordinators'
//! slots (`commit/replays.rs`).
//!
//! ```text
//!  epoch begins ── strip the dead ── send pending slots again ── replay dead coordinators' slots ── Replayed ── barrier
//!                                                                                                     │
//!                       a directory node that is new copies the directory                              └ granules without
//!                                                                                                        an owner move
//! ```
//! `barrier.rs` has the barrier, `directory_copy.rs` the copies of the directory.

mod barrier;
mod directory_copy;

pub(crate) use barrier::Barrier;
pub(crate) use directory_copy::DirectoryCopies;
