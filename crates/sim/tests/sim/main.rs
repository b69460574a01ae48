//! Tests of the simulator: its parts, its event loop, its checkers, seeds, planted bugs, and the
//! demonstrations. One binary, since each takes long to link; and none in the library, which would be compiled once more for
//! them.

mod demonstrations;
mod frame;
mod parts;
mod planted;
mod recovery_rules;
mod rules;
mod seeds;
mod sizes;
mod slow_disk;
mod two_phase_commit_rules;
mod zeus_rules;
