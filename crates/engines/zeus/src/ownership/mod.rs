//! The ownership protocol: which node owns a granule, and how it changes (Zeus, EuroSys'21, §4).
//!
//! ```text
//!  requester           driver (directory)      other arbiters        owner
//!     │ Request             │                       │                  │
//!     ├────────────────────►│ Inv                   │                  │
//!     │                     ├──────────────────────►│                  │
//!     │                     ├───────────────────────┼─────────────────►│ waits for its pending slots
//!     │◄────────────────────┴── Ack ────────────────┤                  │
//!     │◄────────────────────────────────────────────┼── Ack, rows ─────┤
//!     │ applies             │                       │                  │
//!     ├── Val ─────────────►├──────────────────────►├─────────────────►│
//! ```
//! The arbiters are the live directory nodes and the owner. A requester that has all acknowledgements applies first and then
//! notifies the arbiters (rule Z2): so at any time at most one node believes that it owns the granule (rule Z1). Contending
//! drivers are ordered by the timestamps of their records: an arbiter acknowledges a greater one after a lesser one, never
//! the other way round.
//!
//! | file | holds |
//! |---|---|
//! | `holding.rs` | what a node knows of a granule |
//! | `wants.rs` | what its transactions need |
//! | `requester.rs` | requests, and the collection of acknowledgements |
//! | `parts.rs` | the rows of a granule that moves |
//! | `driver.rs` | a directory node that grants requests |
//! | `favoured.rs` | whose turn is next |
//! | `arbiter.rs` | invalidation, acknowledgement, validation, replay |
//! | `degree.rs`, `corrections.rs`, `whole_search.rs` | how many readers a granule has, and how many are corrected at a time |
//! | `restore.rs` | what is recorded of granules, and a restart |
//! | `open.rs` | what is pending or requested, and when it is due |

mod arbiter;
mod corrections;
mod degree;
mod driver;
mod favoured;
mod holding;
mod open;
mod parts;
mod requester;
mod restore;
mod wants;
mod whole_search;

use corrections::{Corrections, LOOKED_AT_AFTER};
use favoured::Favoured;
pub use holding::{Holding, OpenRequest, PendingInv};
use open::OpenGranules;
pub use wants::{Ticket, Want, Wants};
use whole_search::WholeSearch;

use crate::granule::GranuleId;
use crate::granule_map::GranuleMap;
use crate::message::OwnershipAck;
use crate::record::{Level, OwnershipRecord, OwnershipTs};
use crate::scope::Scope;
use bytes::Bytes;
use shoal_types::{Backoff, Clock, NodeId, Random, ShardId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a node can say of its pending slots: while one has read or written a granule, the granule does not move (rule Z4).
pub(crate) trait PendingSlots {
    /// Whether a pending slot of this node has read or written the granule.
    fn touches(&self, granule: &GranuleId) -> bool;

    /// Whether a pending slot of this node has written the granule.
    fn writes(&self, granule: &GranuleId) -> bool;
}

/// How often things have happened at a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnershipCounters {
    /// Granules that this node has become the owner of.
    pub moves: u64,
    /// Granules that this node has become a reader of.
    pub reads_gained: u64,
    /// Requests that were refused.
    pub nacks: u64,
    /// Invalidations that were sent again.
    pub replays: u64,
    /// Parts of granules that came after the first.
    pub parts: u64,
    /// Readers that were dropped at this node's request.
    pub readers_dropped: u64,
}

/// The acknowledgements for one invalidation, at the requester or at a node that replays.
#[derive(Debug, Clone)]
struct Collected {
    /// The first of them; the rows of any of them, as far as they have come.
    ack: OwnershipAck,
    from: BTreeSet<NodeId>,
    needed: BTreeSet<NodeId>,
    /// The node that gives the rows.
    sender: Option<NodeId>,
    /// When an acknowledgement, or a part of the rows, came last.
    changed: Time,
    /// When the next part of the rows is requested again.
    part_due: Option<Time>,
    /// The waits before that.
    part_repeats: Backoff,
}

/// A node's part of the ownership protocol.
#[derive(Debug)]
pub struct Ownership {
    granules: GranuleMap<Holding>,
    /// Records of granules that were forgotten in this epoch. An acknowledgement that comes late, or twice, is for an older
    /// record, and without these a node would take what it has given up.
    forgotten: BTreeMap<GranuleId, OwnershipRecord>,
    open: OpenGranules,
    collected: BTreeMap<(GranuleId, OwnershipTs), Collected>,
    /// When acknowledgements that are not completed are looked at next, if there are any.
    collected_due: Option<Time>,
    /// When parts are requested again, if some are awaited.
    parts_due: Option<Time>,
    wants: Wants,
    /// Granules of which something has changed since the transactions that wait were looked at.
    changed: BTreeSet<GranuleId>,
    /// At a driver, whose turn is next.
    favoured: BTreeMap<GranuleId, Favoured>,
    /// Granules of this node that may have too few or too many readers.
    uneven: BTreeSet<GranuleId>,
    /// Those of them that are being corrected.
    corrections: Corrections,
    /// The last of those that were looked at, if there are more.
    corrected: Option<GranuleId>,
    recruit_at: Time,
    /// When granules without an owner are taken.
    adopt_at: Time,
    /// How far the granules of shards were found to have their degree.
    whole: BTreeMap<ShardId, WholeSearch>,
    /// Granules of tables that are dropped wait for their slots, and are freed then.
    has_dropped: bool,
    /// The number of the request made last.
    requests: u64,
    random: Random,
    counters: OwnershipCounters,
}

impl Ownership {
    /// A node that knows nothing.
    pub(crate) fn new(seed: u64) -> Ownership {
        Ownership {
            granules: GranuleMap::default(),
            forgotten: BTreeMap::new(),
            open: OpenGranules::default(),
            collected: BTreeMap::new(),
            collected_due: None,
            parts_due: None,
            wants: Wants::default(),
            changed: BTreeSet::new(),
            favoured: BTreeMap::new(),
            uneven: BTreeSet::new(),
            corrections: Corrections::default(),
            corrected: None,
            recruit_at: Time::ZERO,
            adopt_at: Time::ZERO,
            whole: BTreeMap::new(),
            has_dropped: false,
            requests: 0,
            random: Random::new(seed),
            counters: OwnershipCounters::default(),
        }
    }

    /// What the node knows of a granule; `None` if it knows nothing.
    #[must_use]
    pub fn holding(&self, granule: &GranuleId) -> Option<&Holding> {
        self.granules.get(granule)
    }

    /// All granules of which the node knows something, ascending.
    pub fn holdings(&self) -> impl Iterator<Item = (&GranuleId, &Holding)> {
        self.granules.iter()
    }

    /// Those after this one.
    pub(crate) fn holdings_after(
        &self,
        after: Option<&GranuleId>,
    ) -> impl Iterator<Item = (&GranuleId, &Holding)> {
        self.granules.iter_after(after)
    }

    /// What the node's transactions need.
    #[must_use]
    pub fn wants(&self) -> &Wants {
        &self.wants
    }

    /// What has happened so far.
    #[must_use]
    pub fn counters(&self) -> OwnershipCounters {
        self.counters
    }

    /// How many granules have something pending or requested.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// For how many invalidations there are acknowledgements that are not complete.
    #[must_use]
    pub fn collected(&self) -> usize {
        self.collected.len()
    }

    /// How many granules the node has given up in this epoch, whose records it keeps.
    #[must_use]
    pub fn forgotten(&self) -> usize {
        self.forgotten.len()
    }

    /// The level at which the node may use the granule now.
    #[must_use]
    pub fn level(&self, node: NodeId, granule: &GranuleId) -> Level {
        self.granules.get(granule).map_or(Level::None, |holding| holding.level(node))
    }

    /// The granule's clock, as far as the node has it.
    pub(crate) fn clock(&self, granule: &GranuleId) -> Clock {
        self.granules.get(granule).map_or(Clock::ZERO, |holding| holding.clock)
    }

    /// A version with this clock was installed.
    pub(crate) fn raise_clock(&mut self, granule: &GranuleId, clock: Clock) {
        if let Some(holding) = self.granules.get_mut(granule) {
            holding.clock = holding.clock.max(clock);
        }
    }

    /// Whether the node has a copy of the granule, to which writes are applied.
    pub(crate) fn is_replica(&self, granule: &GranuleId) -> bool {
        self.granules.get(granule).is_some_and(|holding| holding.is_replica)
    }

    /// The readers to which a write of the granule goes.
    pub(crate) fn readers(&self, granule: &GranuleId) -> impl Iterator<Item = NodeId> {
        let holding = self.granules.get(granule);
        holding.into_iter().flat_map(|holding| holding.record.readers.iter().copied())
    }

    /// Whether a transaction born then may write the granule, or read it for a write (rule Z9): the node owns it, and no
    /// move of it is pending for which it does not hold the granule.
    pub(crate) fn may_write(
        &self,
        node: NodeId,
        now: Time,
        hold: Duration,
        granule: &GranuleId,
        born: Time,
    ) -> bool {
        let Some(holding) = self.granules.get(granule) else { return false };
        let owns = holding.level(node) == Level::Owner;
        owns && holding.pending.as_ref().is_none_or(|pending| pending.yields_to(now, hold, born))
    }

    /// Something has changed about a granule: transactions may need it anew; it is open or not, and forgotten if nothing of
    /// it is here.
    fn note(&mut self, scope: &mut Scope<'_>, granule: &GranuleId) {
        self.request_needed(scope, granule);
        self.has_dropped |= scope.placement.layout.is_dropped(granule.family);
        self.changed.insert(granule.clone());
        scope.rows.change(granule);
        scope.redo.touch(granule);
        self.schedule(scope, granule);
        let o_ts = self.known_o_ts(granule);
        if self.corrections.look_at(granule, o_ts, scope.now) {
            self.recruit_at = self.recruit_at.min(scope.now + LOOKED_AT_AFTER);
        }
        let Some(holding) = self.granules.get(granule) else { return };
        if holding.is_forgettable()
            && !scope.is_directory_node(granule)
            && let Some(holding) = self.granules.remove(granule)
        {
            self.forgotten.insert(granule.clone(), holding.record);
        }
    }

    /// Something may have changed of what the granule waits for: it is due at another time, or not open any more.
    fn schedule(&mut self, scope: &Scope<'_>, granule: &GranuleId) {
        let holding = self.granules.get(granule);
        match holding.and_then(|holding| holding.due_at(scope.now, scope.options.hold)) {
            Some(at) => self.open.set(granule, at),
            None => self.open.close(granule),
        }
    }

    /// The timestamp of the newest record of the granule that is validated here.
    fn known_o_ts(&self, granule: &GranuleId) -> OwnershipTs {
        self.granules.get(granule).map(|holding| holding.record.o_ts).unwrap_or_default()
    }

    fn holding_mut(&mut self, granule: &GranuleId) -> &mut Holding {
        let Ownership { granules, forgotten, .. } = self;
        granules.get_or_insert_with(granule, || {
            let record = forgotten.remove(granule).unwrap_or_default();
            Holding { record, ..Holding::default() }
        })
    }

    /// Tables may have been dropped.
    pub(crate) fn note_dropped(&mut self) {
        self.has_dropped = true;
    }

    /// Frees what the node has of the granules of tables that are dropped. Those with rows that are not validated wait: their slots are
    /// under way.
    pub(crate) fn free_dropped(&mut self, scope: &mut Scope<'_>) {
        if !self.has_dropped {
            return;
        }
        let mut held = Vec::new();
        for family in scope.placement.layout.dropped() {
            let first = GranuleId { family, prefix: Bytes::new() };
            let others = self.granules.iter_after(Some(&first)).map(|(granule, _)| granule);
            held.extend(others.take_while(|granule| granule.family == family).cloned());
            held.extend(self.granules.get(&first).map(|_| first));
        }
        let is_valid =
            |granule: &GranuleId| scope.rows.granule(granule).is_none_or(|rows| rows.is_valid());
        let (dropped, waiting): (BTreeSet<_>, BTreeSet<_>) = held.into_iter().partition(is_valid);
        self.has_dropped = !waiting.is_empty();
        if dropped.is_empty() {
            return;
        }
        self.collected.retain(|(granule, _), _| !dropped.contains(granule));
        for granule in dropped {
            self.granules.remove(&granule);
            scope.rows.discard(&granule);
            scope.rows.change_whole(&granule);
            scope.redo.touch(&granule);
            scope.redo.discard_rows(&granule);
            self.open.close(&granule);
            self.uneven.remove(&granule);
            self.favoured.remove(&granule);
            self.forgotten.remove(&granule);
            self.corrections.end(&granule, scope.now);
            self.changed.insert(granule);
        }
    }

    /// Looks at what is due: holds that are over, and what has to be sent again.
    pub(crate) fn tick(&mut self, scope: &mut Scope<'_>, slots: &impl PendingSlots) {
        self.favoured.retain(|_, favoured| !favoured.is_over(scope.now));
        self.drop_old_collected(scope);
        self.repeat_part_requests(scope);
        for granule in self.open.due(scope.now) {
            self.acknowledge(scope, slots, &granule);
            self.replay_if_due(scope, &granule);
            self.repeat_if_due(scope, &granule);
            self.note(scope, &granule);
        }
    }

    /// Acknowledges what no longer has to wait: of these granules slots were validated, or an older transaction has gone.
    pub(crate) fn settle<'g>(
        &mut self,
        scope: &mut Scope<'_>,
        slots: &impl PendingSlots,
        granules: impl IntoIterator<Item = &'g GranuleId>,
    ) {
        granules.into_iter().for_each(|granule| self.acknowledge(scope, slots, granule));
    }

    /// The barrier was passed: acknowledges and completes what has waited for it.
    pub(crate) fn pass_barrier(&mut self, scope: &mut Scope<'_>, slots: &impl PendingSlots) {
        self.settle(scope, slots, &self.open.all());
        let collected: Vec<_> = self.collected.keys().cloned().collect();
        collected.iter().for_each(|(granule, o_ts)| self.complete(scope, granule, *o_ts));
    }

    /// When something has to be looked at again, at the latest.
    pub(crate) fn wakes_at(&self) -> Option<Time> {
        let uneven = (!self.uneven.is_empty()).then_some(self.recruit_at);
        let others = [uneven, self.collected_due, self.parts_due];
        self.open.next().into_iter().chain(others.into_iter().flatten()).min()
    }

    /// In a new epoch: the dead are in no record, invalidation or collection, and acknowledgements of the old epoch are
    /// discarded (rule Z10).
    pub(crate) fn enter_epoch(
        &mut self,
        scope: &mut Scope<'_>,
        is_dead: impl Fn(NodeId) -> bool + Copy,
    ) {
        self.collected.clear();
        (self.collected_due, self.parts_due) = (None, None);
        // No acknowledgement of an earlier epoch is taken.
        self.forgotten.clear();
        self.favoured.clear();
        self.corrections = Corrections::default();
        self.whole.clear();
        self.recruit_at = scope.now;
        let mut has_lost_owner = false;
        for (granule, holding) in self.granules.iter_mut() {
            scope.rows.change_whole(granule);
            let had_owner = holding.record.owner.is_some();
            holding.record.strip(is_dead);
            has_lost_owner |= had_owner && holding.record.owner.is_none();
            holding.address_anew(scope, is_dead);
            let is_arbiter = scope.is_directory_node(granule) || holding.pending.is_some();
            if !is_arbiter && holding.record.level_of(scope.node) == Level::None {
                // What it knows may be old: that the nodes which it names are dead does not mean that the granule is lost.
                holding.record = OwnershipRecord::default();
            }
            // A directory that is rebuilt may begin at an older record than one that this node has learned of: as of that, a
            // request would be granted twice (rule Z5).
            holding.hint = holding.record.o_ts;
            let owner = holding.record.owner;
            let is_ownerless = owner.is_none() && scope.is_directory_node(granule);
            if owner == Some(scope.node) || is_ownerless {
                self.uneven.insert(granule.clone());
            }
            if let Some(request) = &mut holding.request {
                request.repeat_at = scope.now;
                request.repeats.reset();
            }
        }
        if has_lost_owner {
            // Transactions that need a granule come first. Epochs in which no owner was lost do not put that off: where they
            // follow each other quickly, no granule would be adopted.
            self.adopt_at = scope.now + scope.options.adopt_after();
        }
        self.open.all().iter().for_each(|granule| self.schedule(scope, granule));
    }
}

impl PendingInv {
    /// An owner holds the granule for a transaction of its own that was born then: it is older than what the granule is
    /// wanted for elsewhere, and the bound on holds is not reached.
    fn yields_to(&self, now: Time, hold: Duration, born: Time) -> bool {
        let other = Time(self.arrived.0.saturating_sub(self.inv.waited.as_nanos() as u64));
        now - self.arrived < hold && born < other
    }
}
