//! Logs and checkpoints on virtual disks: every crash of small ones, damage, faults, and the bytes of the format.

mod checkpoints;
mod crashes;
mod damage;
mod faults;
mod format;
mod testbed;
