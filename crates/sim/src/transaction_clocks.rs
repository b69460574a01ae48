//! The transaction clocks of nodes, over faulty system clocks: each has an offset and a drift, is set forward
//! and back during the run, and its kernel sometimes reports too small an error bound, or none.
//!
//! All of it is drawn from a separate random source, so that seeds keep their meaning for engines that use no
//! such clock.

use crate::draw::one_of;
use shoal_types::transaction_clock::{EventTimes, SystemReading, TransactionClock};
use shoal_types::{NodeId, Random, Time};
use std::time::Duration;

const MS: u64 = 1_000_000;

/// The time that all system clocks show at the start, but for their offsets: no offset leads below zero.
pub const BEGINNING_NS: u64 = 1_000_000 * 1_000 * MS;

/// The errors of system clocks.
#[derive(Debug, Clone, Copy)]
pub struct ClockErrors {
    /// The greatest offset, either way; also the greatest change when a clock is set.
    pub offset_ns_max: u64,
    /// The greatest drift, either way, in millionths.
    pub drift_ppm_max: u64,
    /// Readings before which the clock is set, of a thousand.
    pub set_permille: u64,
    /// Percentage of readings whose error bound is too small.
    pub lies_percent: u64,
    /// Percentage of readings without an error bound.
    pub unknown_percent: u64,
    /// How much more than its offset the error bound of a reading is that is not too small: from the first up to both, to
    /// which a quarter of the offset comes.
    bound_more_ns: (u64, u64),
}

/// The system clock of one node: the true time plus an offset, which changes.
#[derive(Debug, Clone)]
struct SimulatedSystemClock {
    /// The true time from which the offset holds.
    since: Time,
    offset_ns: i64,
    drift_ppm: i64,
}

#[derive(Debug, Clone)]
struct NodeTransactionClock {
    system: SimulatedSystemClock,
    /// The transaction clock of the node's process, and the number of that process.
    transaction: Option<(u32, TransactionClock)>,
    /// When the system clock was last read, on the node's local clock.
    observed: Time,
    random: Random,
}

/// The transaction clocks of a cluster.
#[derive(Debug)]
pub struct TransactionClocks {
    errors: ClockErrors,
    /// The interval between two readings of a system clock.
    observe_every: Duration,
    nodes: Vec<NodeTransactionClock>,
}

/// An event of a node: when it is taken, and when its frame arrived.
#[derive(Debug, Clone, Copy)]
pub struct EventInstant {
    /// The node whose clock shows the time of the event.
    pub node: NodeId,
    /// The number of the node's process.
    pub instance: u32,
    /// The true time at which it is taken.
    pub now: Time,
    /// The same on the node's local clock.
    pub local: Time,
    /// When the frame arrived, on the node's local clock.
    pub arrived: Time,
}

impl ClockErrors {
    fn draw(random: &mut Random) -> ClockErrors {
        ClockErrors {
            offset_ns_max: one_of(random, &[0, MS / 10, 5 * MS, 100 * MS, 5000 * MS]),
            drift_ppm_max: one_of(random, &[0, 20, 200, 1000]),
            set_permille: one_of(random, &[0, 0, 5, 50]),
            lies_percent: one_of(random, &[0, 0, 0, 2, 50]),
            unknown_percent: one_of(random, &[0, 0, 10, 100]),
            bound_more_ns: (0, MS),
        }
    }
}

/// A number from `-max` to `max`.
fn either_way(random: &mut Random, max: u64) -> i64 {
    random.below(2 * max + 1) as i64 - max as i64
}

impl TransactionClocks {
    /// Draws the clocks of `nodes` nodes.
    pub fn draw(nodes: usize, mut random: Random) -> TransactionClocks {
        let errors = ClockErrors::draw(&mut random);
        let observe_every = Duration::from_nanos(one_of(&mut random, &[MS, 10 * MS, 100 * MS]));
        let node = |number| {
            let mut random = random.fork(number);
            let offset_ns = either_way(&mut random, errors.offset_ns_max);
            let drift_ppm = either_way(&mut random, errors.drift_ppm_max);
            let system = SimulatedSystemClock { since: Time::ZERO, offset_ns, drift_ppm };
            NodeTransactionClock { system, transaction: None, observed: Time::ZERO, random }
        };
        TransactionClocks { observe_every, nodes: (0..nodes as u64).map(node).collect(), errors }
    }

    /// The errors that the clocks have, as drawn or since they were calmed.
    pub fn errors(&self) -> ClockErrors {
        self.errors
    }

    /// From now on no clock is set, and no error bound is too small. Offsets and drifts stay.
    pub fn calm(&mut self) {
        (self.errors.set_permille, self.errors.lies_percent) = (0, 0);
    }

    /// From now on two clocks differ by no more than so: none is set or drifts, and the error bounds contain the truth, also where a local
    /// clock drifts faster than transaction clocks allow for. Some bounds are larger, or not known.
    pub fn keep_within(&mut self, difference: Duration) {
        let largest = difference.as_nanos() as i64 / 8;
        for node in &mut self.nodes {
            node.system.offset_ns %= largest + 1;
            node.system.drift_ppm = 0;
        }
        self.errors = ClockErrors {
            offset_ns_max: largest as u64,
            drift_ppm_max: 0,
            set_permille: 0,
            lies_percent: 0,
            unknown_percent: self.errors.unknown_percent.min(2),
            bound_more_ns: (MS / 5, MS / 5),
        };
    }

    /// The times of an event on the node's transaction clock.
    pub fn times(&mut self, at: EventInstant) -> EventTimes {
        let TransactionClocks { errors, observe_every, nodes } = self;
        let node = &mut nodes[at.node.0 as usize];
        if node.transaction.as_ref().is_none_or(|(instance, _)| *instance != at.instance) {
            let reading = node.reading(errors, at);
            node.transaction = Some((at.instance, TransactionClock::new(reading)));
            node.observed = at.local;
        } else if at.local - node.observed >= *observe_every {
            let reading = node.reading(errors, at);
            let (_, transaction) = node.transaction.as_mut().expect("it has one");
            transaction.observe(reading);
            node.observed = at.local;
        }
        let (_, transaction) = node.transaction.as_mut().expect("it has one");
        let arrived = transaction.shown_at(at.arrived.min(at.local));
        EventTimes { now: transaction.read(at.local), arrived }
    }
}

impl NodeTransactionClock {
    /// A reading of the system clock, with the error bound that the kernel reports.
    fn reading(&mut self, errors: &ClockErrors, at: EventInstant) -> SystemReading {
        let random = &mut self.random;
        if random.chance(errors.set_permille, 1000) {
            let offset_ns = either_way(random, errors.offset_ns_max);
            let drift_ppm = either_way(random, errors.drift_ppm_max);
            self.system = SimulatedSystemClock { since: at.now, offset_ns, drift_ppm };
        }
        let offset_ns = self.system.offset_ns(at.now);
        let least = offset_ns.unsigned_abs();
        let error_bound_ns = match random.chance(errors.lies_percent, 100) {
            true => random.below(least + 1),
            false => {
                let (more, up_to) = errors.bound_more_ns;
                least + more + random.below(least / 4 + up_to)
            }
        };
        let is_unknown = random.chance(errors.unknown_percent, 100);
        SystemReading {
            at: at.local,
            time: Time((BEGINNING_NS + at.now.0).saturating_add_signed(offset_ns)),
            error_bound: (!is_unknown).then(|| Duration::from_nanos(error_bound_ns)),
        }
    }
}

impl SimulatedSystemClock {
    /// The offset from the true time.
    fn offset_ns(&self, now: Time) -> i64 {
        let passed = i128::from((now - self.since).as_nanos() as u64);
        self.offset_ns + (passed * i128::from(self.drift_ppm) / 1_000_000) as i64
    }
}
