//! Arguments and results of procedures, read from their bytes.

use shoal_types::wire::{Coded, Input};
use shoal_types::{Error, Result};

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
