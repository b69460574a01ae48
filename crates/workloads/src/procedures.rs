//! The workloads' transactions as procedures, for databases that know them by name.

use crate::increments::{self, KEYS_INCREMENTED};
use crate::micro::{self, KEYS_PER_TRANSACTION, Touch};
use crate::tpcc::{self, Profile};
use crate::ycsb;
use shoal_types::Procedures;

/// Adds the procedures of all workloads.
#[must_use]
pub fn register(procedures: Procedures) -> Procedures {
    procedures
        .with(micro::TOUCH, Touch::<KEYS_PER_TRANSACTION>)
        .with(increments::INCREMENT, Touch::<KEYS_INCREMENTED>)
        .with(ycsb::OPERATION, ycsb::KeyOperation)
        .with(tpcc::new_order::Input::NAME, tpcc::Called::<tpcc::new_order::Input>::new())
        .with(tpcc::payment::Input::NAME, tpcc::Called::<tpcc::payment::Input>::new())
        .with(tpcc::order_status::Input::NAME, tpcc::Called::<tpcc::order_status::Input>::new())
        .with(tpcc::delivery::Input::NAME, tpcc::Called::<tpcc::delivery::Input>::new())
        .with(tpcc::stock_level::Input::NAME, tpcc::Called::<tpcc::stock_level::Input>::new())
}
