//! What the transactions of a node want, and since when.
//!
//! A transaction asks for all granules that it misses together, and its retries keep the age of its first attempt. Of two
//! that want the same granule the older one goes first: an owner holds a granule for an older transaction of its own, for
//! a bounded time.

use crate::granule::GranuleId;
use crate::record::Level;
use shoal_types::Time;
use std::collections::BTreeMap;

/// A transaction of this node, as its driver names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What a transaction needs, all at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Each granule once, with the least level that does.
    pub granules: BTreeMap<GranuleId, Level>,
    /// When its first attempt began.
    pub born: Time,
}

/// What a transaction needs of one granule.
#[derive(Debug, Clone, Copy)]
struct Needed {
    level: Level,
    born: Time,
    /// It had all that it wants at some time: it does not ask again for what it loses before it says so.
    was_ready: bool,
}

/// What a transaction wants, and what it waits for.
#[derive(Debug)]
struct Wanted {
    want: Want,
    /// A granule that the node lacked when it was looked at last: until that changes, it cannot have all.
    stopped_by: Option<GranuleId>,
}

/// The wants of all transactions of a node.
#[derive(Debug, Default)]
pub struct Wants {
    by_ticket: BTreeMap<Ticket, Wanted>,
    by_granule: BTreeMap<GranuleId, BTreeMap<Ticket, Needed>>,
}

impl Wants {
    /// Adds what a transaction needs, or replaces it.
    pub(super) fn insert(&mut self, ticket: Ticket, want: Want) {
        self.remove(ticket);
        for (granule, level) in &want.granules {
            let needed = Needed { level: *level, born: want.born, was_ready: false };
            self.by_granule.entry(granule.clone()).or_default().insert(ticket, needed);
        }
        self.by_ticket.insert(ticket, Wanted { want, stopped_by: None });
    }

    /// The transaction needs nothing any more.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Want> {
        let want = self.by_ticket.remove(&ticket)?.want;
        for granule in want.granules.keys() {
            if let Some(needed) = self.by_granule.get_mut(granule) {
                needed.remove(&ticket);
                if needed.is_empty() {
                    self.by_granule.remove(granule);
                }
            }
        }
        Some(want)
    }

    /// The transaction has all that it wants.
    pub(super) fn set_ready(&mut self, ticket: Ticket) {
        let Some(Wanted { want, .. }) = self.by_ticket.get(&ticket) else { return };
        for granule in want.granules.keys() {
            let needed =
                self.by_granule.get_mut(granule).and_then(|needed| needed.get_mut(&ticket));
            needed.expect("each granule of a want is indexed").was_ready = true;
        }
    }

    /// Whether the transaction wants something, and has not had all of it.
    #[must_use]
    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        let first = self.get(ticket).and_then(|want| want.granules.keys().next());
        first.is_some_and(|granule| self.waiting(granule).any(|other| other == ticket))
    }

    /// The transactions that may have all they want now that the granule has changed.
    pub(super) fn stopped_by(&self, granule: &GranuleId) -> impl Iterator<Item = Ticket> {
        self.waiting(granule).filter(move |ticket| {
            let stopped_by = self.by_ticket.get(ticket).and_then(|it| it.stopped_by.as_ref());
            stopped_by.is_none_or(|stopped_by| stopped_by == granule)
        })
    }

    /// The node lacks this granule of those that the transaction wants.
    pub(super) fn stop(&mut self, ticket: Ticket, by: GranuleId) {
        if let Some(wanted) = self.by_ticket.get_mut(&ticket) {
            wanted.stopped_by = Some(by);
        }
    }

    /// The transactions that want the granule and have not had all they want.
    fn waiting(&self, granule: &GranuleId) -> impl Iterator<Item = Ticket> {
        let needed = self.by_granule.get(granule).into_iter().flatten();
        needed.filter(|(_, needed)| !needed.was_ready).map(|(ticket, _)| *ticket)
    }

    /// What a transaction needs; `None` if it has said nothing.
    #[must_use]
    pub fn get(&self, ticket: Ticket) -> Option<&Want> {
        self.by_ticket.get(&ticket).map(|wanted| &wanted.want)
    }

    /// The highest level that transactions wait for of the granule, and since when.
    pub(super) fn needed(&self, granule: &GranuleId) -> Option<(Level, Time)> {
        let needed = self.by_granule.get(granule)?.values().filter(|needed| !needed.was_ready);
        let needed = needed.map(|needed| (needed.level, needed.born));
        needed.reduce(|(level, born), (other, at)| (level.max(other), born.min(at)))
    }

    /// When the oldest transaction that needs to write the granule was born.
    pub(super) fn oldest_writer(&self, granule: &GranuleId) -> Option<Time> {
        let needed = self.by_granule.get(granule)?.values();
        let writers = needed.filter(|needed| needed.level == Level::Owner);
        writers.map(|needed| needed.born).min()
    }

    /// How many transactions want something.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_ticket.len()
    }

    /// Whether no transaction wants anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_ticket.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shoal_types::TableId;

    fn granule(prefix: &'static str) -> GranuleId {
        GranuleId { family: TableId(0), prefix: Bytes::from_static(prefix.as_bytes()) }
    }

    fn want(granules: &[(&'static str, Level)], born: u64) -> Want {
        let granules = granules.iter().map(|(prefix, level)| (granule(prefix), *level)).collect();
        Want { granules, born: Time(born) }
    }

    #[test]
    fn the_highest_level_and_the_oldest_count() {
        let mut wants = Wants::default();
        wants.insert(Ticket(1), want(&[("a", Level::Reader), ("b", Level::Owner)], 5));
        wants.insert(Ticket(2), want(&[("a", Level::Owner)], 9));
        assert_eq!(wants.needed(&granule("a")), Some((Level::Owner, Time(5))));
        assert_eq!(wants.oldest_writer(&granule("a")), Some(Time(9)));
        wants.insert(Ticket(2), want(&[("b", Level::Reader)], 9));
        assert_eq!(wants.needed(&granule("a")), Some((Level::Reader, Time(5))));
        assert_eq!(wants.oldest_writer(&granule("a")), None);
        assert_eq!(
            wants.remove(Ticket(1)),
            Some(want(&[("a", Level::Reader), ("b", Level::Owner)], 5))
        );
        assert_eq!(wants.remove(Ticket(1)), None);
        assert_eq!((wants.needed(&granule("a")), wants.len()), (None, 1));
        wants.remove(Ticket(2));
        assert!(wants.is_empty() && wants.by_granule.is_empty());
    }
}
