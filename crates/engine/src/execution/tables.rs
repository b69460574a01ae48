//! The tables that a worker knows: those of the configuration that it follows.
//!
//! A worker serves the tables that it knows, and no others: a request for a table that it has not learned of ends with
//! [`Conflict::TableNotKnown`], and is repeated until the configuration has come. What a stream or a snapshot brings is applied
//! whether or not the table is known: its leader knew it ([`shoal_store::Transaction::replicate`]). A table that is dropped
//! fails, with [`Rejected::TableDropped`], from the moment at which a worker of the node learns of it, and that worker frees its
//! rows in slices.

use super::limits::TURN;
use crate::planted_bugs::{PlantedBug, PlantedBugs};
use shoal_cluster::topology::{Home, Homes, TableMap, TableStanding};
use shoal_store::{Session, Store, WalkPlace};
use shoal_types::{Aborted, Conflict, Error, Rejected, Result, Scan, TableId};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::DerefMut;
use std::sync::Arc;
use std::time::Duration;

/// Where locks are in the way of all tables that are to be freed, they are tried again after this.
const BLOCKED_FOR: Duration = Duration::from_millis(10);

/// Records that a slice of freeing a dropped table looks at.
const SLICE: usize = 64;

/// Ids beyond those that were given for which a planted bug makes room.
const AHEAD: u32 = 4;

/// What a worker knows of tables.
#[derive(Debug)]
pub struct KnownTables {
    map: RefCell<Arc<TableMap>>,
    /// Whether that is of a configuration.
    is_configured: Cell<bool>,
    /// The dropped tables that this worker frees, and how far it is, by the place of the node's shard.
    freeing: RefCell<VecDeque<(usize, WalkPlace)>>,
    /// How many of these in a row were found with a lock in the way.
    blocked: Cell<usize>,
    faults: PlantedBugs,
}

impl KnownTables {
    /// The tables with which the cluster began.
    pub(crate) fn new(map: Arc<TableMap>, faults: PlantedBugs) -> KnownTables {
        KnownTables {
            map: RefCell::new(map),
            is_configured: Cell::new(false),
            freeing: RefCell::default(),
            blocked: Cell::new(0),
            faults,
        }
    }

    /// Takes over the tables of a configuration, for the stores of the shards of which the node has replicas, with their
    /// places, and whether the configuration gives that replica.
    pub(crate) fn follow<'s>(
        &self,
        tables: &Arc<TableMap>,
        stores: impl Iterator<Item = (usize, &'s Arc<Store>, bool)>,
    ) {
        let was_configured = self.is_configured.replace(true);
        let is_longer = tables.next() > self.map.borrow().next();
        if was_configured && !is_longer && self.faults.has(PlantedBug::ServeDroppedTables) {
            return;
        }
        let before = std::mem::replace(&mut *self.map.borrow_mut(), Arc::clone(tables));
        assert!(
            before.next() <= tables.next() || !was_configured,
            "ids of tables were taken back, up to {}",
            tables.next()
        );
        let is_changed =
            !was_configured || (before.next(), before.len()) != (tables.next(), tables.len());
        for (at, store, _) in stores.filter(|(_, _, is_new)| *is_new || is_changed) {
            for (table, is_live) in tables.ids() {
                self.follow_table(at, store, table, is_live);
            }
            if self.faults.has(PlantedBug::ServeUnknownTables) {
                (0..AHEAD).for_each(|more| open(store, TableId(tables.next().0 + more)));
            }
        }
    }

    fn follow_table(&self, at: usize, store: &Store, table: TableId, is_live: bool) {
        if is_live {
            assert!(!store.is_dropped(table), "{table} was dropped and is live again");
            return open(store, table);
        }
        // The worker that learns of it first frees the rows.
        if store.drop_table(table) {
            self.blocked.set(0);
            self.freeing.borrow_mut().push_back((at, WalkPlace { table, key: Vec::new() }));
        }
    }

    /// The node has no replica of the shard at this place any more: its rows go, as those of dropped tables do.
    pub(crate) fn release(&self, at: usize, store: &Store) {
        for table in store.open_tables() {
            if store.drop_table(table) {
                self.freeing.borrow_mut().push_back((at, WalkPlace { table, key: Vec::new() }));
            }
        }
    }

    /// The tables, as this worker knows them.
    pub(crate) fn map(&self) -> Arc<TableMap> {
        Arc::clone(&self.map.borrow())
    }

    /// The table of this name.
    pub(crate) fn named(&self, name: &str) -> Option<TableId> {
        self.map.borrow().named(name)
    }

    /// Checks that this worker knows the table.
    ///
    /// # Errors
    /// [`Rejected::TableDropped`] and [`Conflict::TableNotKnown`].
    pub fn check(&self, table: TableId) -> Result<()> {
        match self.map.borrow().standing(table) {
            TableStanding::Live => Ok(()),
            TableStanding::NotGiven if self.faults.has(PlantedBug::ServeUnknownTables) => Ok(()),
            standing => Err(lacking(table, standing)),
        }
    }

    /// The shard or shards of `key`.
    ///
    /// # Errors
    /// As for [`check`](KnownTables::check).
    #[inline]
    pub(crate) fn home(&self, table: TableId, key: &[u8]) -> Result<Home> {
        let map = self.map.borrow();
        let table = self.or_first(table, &map);
        map.home(table, key).ok_or_else(|| lacking(table, map.standing(table)))
    }

    /// How many leading bytes of a key of this table determine its shard by themselves; see [`TableMap::deciding_prefix`].
    pub(crate) fn deciding_prefix(&self, table: TableId) -> Option<usize> {
        self.map.borrow().deciding_prefix(table)
    }

    /// The shards that `scan` has to ask.
    ///
    /// # Errors
    /// As for [`check`](KnownTables::check).
    pub(crate) fn homes(&self, table: TableId, scan: &Scan<'_>) -> Result<Homes> {
        let map = self.map.borrow();
        let table = self.or_first(table, &map);
        map.homes(table, scan).ok_or_else(|| lacking(table, map.standing(table)))
    }

    /// The table; or, with a planted bug, the first one instead of a table that this worker does not know.
    #[inline]
    fn or_first(&self, table: TableId, map: &TableMap) -> TableId {
        let is_unknown = || map.standing(table) == TableStanding::NotGiven;
        match self.faults.has(PlantedBug::ServeUnknownTables) && is_unknown() {
            true => TableId(0),
            false => table,
        }
    }

    /// Of how many tables that are dropped this worker has rows to free.
    pub(crate) fn freeing(&self) -> usize {
        self.freeing.borrow().len()
    }

    /// After how long the next slice can be freed: a lock that is in the way of every table can be that of a branch in doubt,
    /// and last. `None` where there is nothing to free.
    pub(crate) fn next_slice(&self) -> Option<Duration> {
        let freeing = self.freeing();
        (freeing > 0).then(|| if self.blocked.get() < freeing { TURN } else { BLOCKED_FOR })
    }

    /// Frees a slice of the rows of a dropped table, with a session of the shard at a place. Returns false where there is
    /// nothing to do. Where a lock is in the way the table comes again after the others.
    pub(crate) fn free_some<S: DerefMut<Target = Session>>(
        &self,
        session: impl FnOnce(usize) -> Option<S>,
    ) -> bool {
        let Some((at, place)) = self.freeing.borrow_mut().pop_front() else { return false };
        let next = match session(at) {
            Some(mut session) => session.free_table(&place, SLICE),
            // All are in use.
            None => Some(place.clone()),
        };
        let is_blocked = next.as_ref() == Some(&place);
        self.blocked.set(if is_blocked { self.blocked.get() + 1 } else { 0 });
        if let Some(next) = next {
            self.freeing.borrow_mut().push_back((at, next));
        }
        true
    }
}

fn open(store: &Store, table: TableId) {
    store.open_table(table).expect("the topology keeps the limits");
}

#[cold]
fn lacking(table: TableId, standing: TableStanding) -> Error {
    match standing {
        TableStanding::Dropped => Rejected::TableDropped { table }.into(),
        TableStanding::NotGiven | TableStanding::Live => {
            Aborted::from(Conflict::TableNotKnown { table }).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::manager::{
        Action, Ask, ClusterChange, Command, ManagerOptions, StateMachine, TableChange, Term,
    };
    use shoal_cluster::topology::{Partitioning, Topology};
    use shoal_types::{ClusterId, Time};

    const HASH: Partitioning = Partitioning::Hash { prefix_bytes: 0 };

    /// The tables after one was created, and after it was dropped.
    fn maps() -> [Arc<TableMap>; 3] {
        let topology = Topology::symmetric(1, 1, 1, 0, 1).with_tables([("a", HASH)]);
        let topology = Arc::new(topology.expect("valid"));
        let mut machine = StateMachine::new(topology, ManagerOptions::default());
        let create = TableChange::Create { name: "b".to_owned(), definition: HASH.into() };
        let changes = [create, TableChange::Drop { table: TableId(1) }];
        let first = Arc::clone(machine.configuration().topology.tables());
        let take = Action::Take { drawn: ClusterId::new(1).expect("not 0") };
        let mut apply = |action| {
            let command = Command { term: Term(1), at: Time(1), action };
            machine.apply(&command, &mut Vec::new());
            Arc::clone(machine.configuration().topology.tables())
        };
        apply(take);
        let [created, dropped] = changes.map(|change| {
            apply(Action::Change { ask: Ask(1), change: ClusterChange::Table(change) })
        });
        [first, created, dropped]
    }

    #[test]
    fn a_table_is_served_once_it_is_known_and_until_its_drop_is() {
        let [first, created, dropped] = maps();
        let store = Arc::new(Store::new(shoal_store::Options::default()));
        let table = TableId(1);
        store.open_table(TableId(0)).expect("the first");
        let known = KnownTables::new(first, PlantedBugs::NONE);
        let not_known = Error::from(Aborted::from(Conflict::TableNotKnown { table }));
        assert_eq!(known.check(TableId(0)), Ok(()));
        assert_eq!(known.check(table), Err(not_known.clone()));
        assert_eq!(known.home(table, b"k"), Err(not_known));
        known.follow(&created, [(0, &store, false)].into_iter());
        assert_eq!((known.check(table), known.named("b")), (Ok(()), Some(table)));
        let mut session = store.session().expect("a session");
        let tx = session.begin();
        for number in 0..100_u32 {
            tx.put(table, &number.to_be_bytes(), b"v").expect("it is open");
        }
        tx.commit().expect("no rival");
        let mut other = store.session().expect("a session");
        let locked = other.begin();
        locked.put(table, &50_u32.to_be_bytes(), b"w").expect("it is open");
        let locked = locked.lock().expect("no rival");
        assert_eq!(known.next_slice(), None);
        known.follow(&dropped, [(0, &store, false)].into_iter());
        assert_eq!(known.check(table), Err(Rejected::TableDropped { table }.into()));
        assert!(store.is_dropped(table) && known.freeing() == 1);
        let mut waits = Vec::new();
        for _ in 0..3 {
            waits.push(known.next_slice());
            assert!(known.free_some(|_| Some(&mut session)));
        }
        waits.push(known.next_slice());
        let [turn, blocked] = [Some(TURN), Some(BLOCKED_FOR)];
        assert_eq!(waits, [turn, turn, blocked, blocked], "a worker does not spin at a lock");
        drop(locked);
        let mut slices = 0;
        while known.free_some(|_| Some(&mut session)) {
            slices += 1;
        }
        assert_eq!((slices, known.freeing()), (1, 0));
        known.follow(&dropped, [(0, &store, false)].into_iter());
        assert_eq!(known.freeing(), 0, "it is free");
    }

    /// A worker that has not learned of a creation, or of a drop that came with nothing else.
    fn what_is_not_known_is_not_served(faults: PlantedBugs) {
        let [first, created, dropped] = maps();
        let store = Arc::new(Store::new(shoal_store::Options::default()));
        let known = KnownTables::new(Arc::clone(&first), faults);
        known.follow(&first, [(0, &store, false)].into_iter());
        assert!(known.home(TableId(1), b"k").is_err(), "a table that is not known has a home");
        known.follow(&created, [(0, &store, false)].into_iter());
        known.follow(&dropped, [(0, &store, false)].into_iter());
        assert!(known.home(TableId(1), b"k").is_err(), "a table that is dropped has a home");
    }

    #[test]
    fn a_table_has_a_home_while_it_is_known() {
        what_is_not_known_is_not_served(PlantedBugs::NONE);
    }

    #[test]
    #[should_panic(expected = "a table that is not known has a home")]
    fn a_worker_that_serves_what_it_does_not_know_is_seen() {
        what_is_not_known_is_not_served(PlantedBugs::only(PlantedBug::ServeUnknownTables));
    }

    #[test]
    #[should_panic(expected = "a table that is dropped has a home")]
    fn a_worker_that_passes_over_a_drop_is_seen() {
        what_is_not_known_is_not_served(PlantedBugs::only(PlantedBug::ServeDroppedTables));
    }
}
