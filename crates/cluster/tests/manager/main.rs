//! The configuration manager from outside: scenarios, random runs, planted bugs.
//!
//! [`world`] has nodes, managers, clocks and a network in true time, and watches leases as it goes;
//! [`judge`] reads the log afterwards and holds every command to the rules. [`scripts`] runs the
//! folder `manager_scripts/`, whose files are scenarios with their traces. [`random`] draws everything
//! from a seed, and plants bugs. [`leases`] is about what one manager renews, [`terms`] about one after the other,
//! [`member`] about one node, [`memberships`] about epochs that begin with deaths and returns, [`losses`] about a shard whose
//! majority is lost, [`recovery`] about a majority of the managers that is. [`nonsense`] says what no correct process says.

mod client;
mod finals;
mod judge;
mod leases;
mod losses;
mod memberships;
mod nonsense;
mod random;
mod recovery;
mod scripts;
mod tables;
mod terms;
mod world;
