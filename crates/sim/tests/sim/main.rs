//! The simulator, from outside: its frame, its checkers, seeds, planted bugs, and what it shows. One program, since
//! each takes long to build.

mod demonstrations;
mod frame;
mod planted;
mod recovery_rules;
mod rules;
mod seeds;
mod sizes;
