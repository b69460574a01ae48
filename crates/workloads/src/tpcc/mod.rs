//! TPC-C, the order-entry benchmark of the Transaction Processing Performance Council, to its
//! Standard Specification, revision 5.11. Clause numbers in this folder are that document's.
//!
//! Read in this order:
//! - [`scale`]: how many rows of everything, and the little versions tests use;
//! - [`schema`] and [`keys`]: the nine tables, their two secondary indexes, rows, keys;
//! - [`random`]: the specification's distributions; [`population`]: the initial data;
//! - the five transactions, each an `Input` that is a [`profile`] and an `Output`: [`new_order`],
//!   [`payment`], [`order_status`], [`delivery`], [`stock_level`]; [`customer`] is how two of them
//!   find a customer;
//! - [`client`]: issues them, in a mix; [`facts`] and [`consistency`]: what must hold
//!   afterwards;
//! - [`benchmark`]: all of it as a [`Workload`](crate::workload::Workload).
//!
//! Transactions do all the work the specification asks for, down to what a terminal would show,
//! and nothing on behalf of terminals: no keying and think times (clause 5.2.5). A user that wants
//! them waits between two calls of [`Workload::next`](crate::workload::Workload::next), the kind
//! of the last transaction being in its answer.
//!
//! No clock is read. A date is a number that each client counts up with its transactions.

pub mod benchmark;
mod bounded;
pub mod client;
pub mod consistency;
pub mod customer;
pub mod delivery;
pub mod facts;
pub mod keys;
pub mod new_order;
pub mod order_status;
pub mod payment;
pub mod population;
pub mod profile;
pub mod random;
pub mod scale;
pub mod schema;
pub mod stock_level;
mod wire;

pub use benchmark::TpcC;
pub use client::{Client, Kind};
pub use profile::{Called, Profile};
pub use scale::Scale;
