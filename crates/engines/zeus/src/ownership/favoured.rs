//! Whose turn is next, at a driver.
//!
//! A node that is no arbiter of a granule learns its record from refusals. Where a granule moves often, it would always ask as
//! of a record that is replaced before its request arrives. So a driver remembers the oldest requester that it has refused,
//! and refuses younger ones for its sake, for a while. This orders requests and decides nothing: no rule depends on it.

use crate::view::Member;
use shoal_types::Time;

/// The oldest requester of a granule that the driver has refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Favoured {
    pub by: Member,
    /// When its transaction was born, on the driver's clock.
    pub born: Time,
    pub until: Time,
}

impl Favoured {
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.until <= now
    }
}
