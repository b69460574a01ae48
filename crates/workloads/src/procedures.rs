//! The workloads' transactions as procedures, for databases that know them by name.

use crate::micro::{self, Touch};
use crate::tpcc::{self, Profile};
use crate::ycsb;
use shoal_types::wire::{Coded, Input};
use shoal_types::{Error, Procedures, Result};

/// Adds the procedures of all workloads.
#[must_use]
pub fn register(procedures: Procedures) -> Procedures {
    procedures
        .with(micro::TOUCH, Touch)
        .with(ycsb::OPERATION, ycsb::KeyOperation)
        .with(tpcc::new_order::Input::NAME, tpcc::Called::<tpcc::new_order::Input>::new())
        .with(tpcc::payment::Input::NAME, tpcc::Called::<tpcc::payment::Input>::new())
        .with(tpcc::order_status::Input::NAME, tpcc::Called::<tpcc::order_status::Input>::new())
        .with(tpcc::delivery::Input::NAME, tpcc::Called::<tpcc::delivery::Input>::new())
        .with(tpcc::stock_level::Input::NAME, tpcc::Called::<tpcc::stock_level::Input>::new())
}

/// What a procedure was called with, or has returned.
///
/// # Errors
/// A rejection where the bytes are something else.
pub(crate) fn decode<T: Coded>(bytes: &[u8]) -> Result<T> {
    let mut input = Input::borrowed(bytes);
    let value = T::take(&mut input);
    let value = value.and_then(|value| input.end().map(|()| value));
    value.map_err(|malformed| {
        Error::reject(format!("arguments or a result of a procedure: {malformed}"))
    })
}
