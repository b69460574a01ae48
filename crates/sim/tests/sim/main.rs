//! Integration tests of the simulator: its event loop, its checkers, seeds, planted bugs, and the
//! demonstrations. One binary, since each takes long to link.

mod demonstrations;
mod frame;
mod planted;
mod recovery_rules;
mod rules;
mod seeds;
mod sizes;
