//! The granules of which something is pending or requested, and when each has to be looked at again.
//!
//! A load asks for hundreds of granules at once, and each of them is answered by several messages: a step looks at what it is
//! about, and at what is due, never at all that is open.

use crate::granule::GranuleId;
use shoal_types::Time;
use std::collections::{BTreeMap, BTreeSet};

/// So many open granules make a node wait once longer before it sends something again.
const OPEN_PER_WAIT: usize = 16;

/// The most by which waits are multiplied.
const WAITS_MAX: u32 = 128;

/// The open granules of a node, each with the time at which it is due.
#[derive(Debug, Default)]
pub(super) struct OpenGranules {
    at: BTreeMap<GranuleId, Time>,
    due: BTreeSet<(Time, GranuleId)>,
    /// So many may be opened by this step.
    pub(super) coming: usize,
}

impl OpenGranules {
    /// The granule is open, and has to be looked at then; an earlier time is replaced.
    pub(super) fn set(&mut self, granule: &GranuleId, at: Time) {
        match self.at.get_mut(granule) {
            Some(before) if *before == at => return,
            Some(before) => {
                self.due.remove(&(*before, granule.clone()));
                *before = at;
            }
            None => drop(self.at.insert(granule.clone(), at)),
        }
        self.due.insert((at, granule.clone()));
    }

    /// Nothing of the granule is pending or requested any more.
    pub(super) fn close(&mut self, granule: &GranuleId) {
        if let Some(at) = self.at.remove(granule) {
            self.due.remove(&(at, granule.clone()));
        }
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.at.len()
    }

    /// All of them, ascending.
    pub(super) fn all(&self) -> Vec<GranuleId> {
        self.at.keys().cloned().collect()
    }

    /// Those that are due, ascending by time.
    pub(super) fn due(&self, now: Time) -> Vec<GranuleId> {
        self.due
            .iter()
            .take_while(|(at, _)| *at <= now)
            .map(|(_, granule)| granule.clone())
            .collect()
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// By how much waits for answers are to be multiplied: what is asked for last is answered after all the rest.
    pub(super) fn waits(&self) -> u32 {
        let longer = u32::try_from((self.len() + self.coming) / OPEN_PER_WAIT).unwrap_or(u32::MAX);
        longer.saturating_add(1).min(WAITS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shoal_types::TableId;

    fn granule(number: usize) -> GranuleId {
        let prefix = Bytes::copy_from_slice(&(number as u32).to_be_bytes());
        GranuleId { family: TableId(0), prefix }
    }

    #[test]
    fn a_granule_is_due_once_at_the_time_said_last() {
        let mut open = OpenGranules::default();
        open.set(&granule(1), Time(5));
        open.set(&granule(2), Time(3));
        open.set(&granule(1), Time(7));
        assert_eq!(
            (open.next(), open.due(Time(5)), open.len()),
            (Some(Time(3)), vec![granule(2)], 2)
        );
        open.close(&granule(2));
        open.close(&granule(2));
        assert_eq!((open.due(Time(7)), open.all()), (vec![granule(1)], vec![granule(1)]));
        open.close(&granule(1));
        assert_eq!((open.next(), open.len()), (None, 0));
    }

    #[test]
    fn waits_grow_with_what_is_open() {
        let mut open = OpenGranules::default();
        assert_eq!(open.waits(), 1);
        (0..3 * OPEN_PER_WAIT).for_each(|number| open.set(&granule(number), Time(1)));
        assert_eq!(open.waits(), 4);
        (0..WAITS_MAX as usize * OPEN_PER_WAIT)
            .for_each(|number| open.set(&granule(number), Time(1)));
        assert_eq!(open.waits(), WAITS_MAX);
    }
}
