//! A simulated replicated log: one order of commands, with delays, changes of the leader, and outages, all
//! drawn from a seed.
//!
//! It gives no guarantee beyond those of [`ManagerLog`](super::ManagerLog): proposals are lost, committed
//! long after, reordered, and sometimes committed in a later term than their own.

use super::command::Command;
use super::ids::Term;
use super::log::CarriedLog;
use shoal_types::{Random, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// The interval in which a leader asks the others on its own.
const ASK_EVERY: Duration = Duration::from_millis(75);

/// The speed and the reliability of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPace {
    /// The shortest time from a proposal to its commitment, and from that to each replica.
    pub delay_min: Duration,
    /// The longest time for each of the two.
    pub delay_max: Duration,
    /// Percentage of proposals that take ten times as long.
    pub late_percent: u64,
    /// Percentage of proposals that are lost.
    pub loss_percent: u64,
}

/// A replica of the log.
#[derive(Debug, Default)]
struct SimulatedReplica {
    /// When it learns of each command in the order.
    due: Vec<Time>,
    /// The number of commands it has received.
    delivered: usize,
    leads: Option<Term>,
    /// What it will learn about its lead, and when.
    rumours: BTreeMap<Time, Option<Term>>,
    /// When it learns the answers to its last question, and at which of its own times it led by these; `None`
    /// if they were lost.
    learns: Option<(Time, Option<Time>)>,
    /// When it next asks on its own whether it leads.
    asks: Time,
    /// The time until which it receives nothing.
    cut_off: Time,
}

/// The log and the connection of each replica to it, in the simulation's time.
#[derive(Debug)]
pub struct SimulatedLog {
    random: Random,
    pace: LogPace,
    /// Whether there is an outage: then no proposal is committed.
    is_out: bool,
    term: Term,
    leader: Option<usize>,
    order: Vec<Command>,
    /// Proposals in flight, by the time at which they are committed.
    proposals: BTreeMap<(Time, u64), Command>,
    proposed: u64,
    replicas: Vec<SimulatedReplica>,
}

impl LogPace {
    /// A pace with a constant delay and without losses.
    #[must_use]
    pub fn steady(delay: Duration) -> LogPace {
        LogPace { delay_min: delay, delay_max: delay, late_percent: 0, loss_percent: 0 }
    }
}

impl SimulatedLog {
    /// A log of `replicas` replicas, none of which leads.
    #[must_use]
    pub fn new(replicas: usize, pace: LogPace, random: Random) -> SimulatedLog {
        SimulatedLog {
            random,
            pace,
            is_out: false,
            term: Term(0),
            leader: None,
            order: Vec::new(),
            proposals: BTreeMap::new(),
            proposed: 0,
            replicas: (0..replicas).map(|_| SimulatedReplica::default()).collect(),
        }
    }

    /// The committed commands, in order.
    #[must_use]
    pub fn order(&self) -> &[Command] {
        &self.order
    }

    /// The leader of the newest term.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        self.leader
    }

    /// Changes the log's pace.
    pub fn set_pace(&mut self, pace: LogPace) {
        self.pace = pace;
    }

    /// Begins or ends an outage: proposals made meanwhile are committed afterwards.
    pub fn set_out(&mut self, is_out: bool) {
        self.is_out = is_out;
    }

    /// Begins a new term, led by this replica. It learns so after a while, and the last leader some time
    /// before or after.
    pub fn elect(&mut self, now: Time, replica: usize) {
        self.term.0 += 1;
        let (soon, later) = (now + self.delay(), now + self.delay() * 4);
        if let Some(last) = self.leader.replace(replica).filter(|last| *last != replica) {
            let later = later.max(self.replicas[last].cut_off);
            self.replicas[last].rumours.insert(later, None);
        }
        // Older news would depose it again.
        self.replicas[replica].rumours.clear();
        self.replicas[replica].rumours.insert(soon, Some(self.term));
    }

    /// Cuts a replica off until a time. It may take itself for the leader for so long, while another leads.
    pub fn cut_off(&mut self, replica: usize, until: Time) {
        self.replicas[replica].cut_off = until;
    }

    /// The replica has restarted: it has the order, and does not know that it led.
    pub fn restart(&mut self, now: Time, replica: usize) {
        let again = &mut self.replicas[replica];
        (again.delivered, again.leads, again.cut_off) = (0, None, now);
        again.rumours.clear();
        again.learns = None;
        again.due.iter_mut().for_each(|due| *due = (*due).min(now));
        if self.leader == Some(replica) {
            self.leader = None;
        }
    }

    /// Takes the replica's proposals, and puts what it has learned by now. Returns true if there is news for
    /// it. `own` is its manager's clock.
    pub fn exchange(
        &mut self,
        now: Time,
        own: Time,
        replica: usize,
        mailbox: &mut CarriedLog,
    ) -> bool {
        while let Some(command) = mailbox.proposed.pop_front() {
            if self.random.below(100) >= self.pace.loss_percent {
                self.proposed += 1;
                let late = self.random.below(100) < self.pace.late_percent;
                let at = now + self.delay() * if late { 10 } else { 1 };
                self.proposals.insert((at, self.proposed), command);
            }
        }
        self.commit(now);
        let asks = std::mem::take(&mut mailbox.asks);
        let learnt = self.learn(now, own, replica, asks);
        let own = &mut self.replicas[replica];
        let before = (own.delivered, own.leads, mailbox.led);
        while let Some(rumour) = own.rumours.first_entry().filter(|rumour| *rumour.key() <= now) {
            own.leads = rumour.remove();
        }
        while own.due.get(own.delivered).is_some_and(|due| *due <= now) {
            mailbox.decided.push_back(self.order[own.delivered].clone());
            own.delivered += 1;
        }
        mailbox.term = own.leads;
        mailbox.led = mailbox.led.max(learnt);
        before != (own.delivered, own.leads, mailbox.led)
    }

    /// A leader asks the others whether it leads, one question at a time. The answers are about the time at
    /// which it asked, however late they arrive.
    fn learn(&mut self, now: Time, own: Time, replica: usize, asks: bool) -> Option<Time> {
        let is_due = |(at, _): &(Time, Option<Time>)| *at <= now && !self.is_out;
        let learnt = self.replicas[replica].learns.take_if(|learns| is_due(learns));
        let leads = self.leader == Some(replica) && self.replicas[replica].leads == Some(self.term);
        let asks = asks || self.replicas[replica].asks <= now;
        if leads && asks && self.replicas[replica].learns.is_none() {
            let is_lost = self.random.below(100) < self.pace.loss_percent;
            let is_late = self.random.below(100) < self.pace.late_percent;
            let at = now + self.delay() * if is_late || is_lost { 10 } else { 2 };
            let asking = &mut self.replicas[replica];
            (asking.learns, asking.asks) = (Some((at, (!is_lost).then_some(own))), now + ASK_EVERY);
        }
        learnt.and_then(|(_, led)| led)
    }

    /// The next time at which there is something to exchange.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        let committed = self.proposals.keys().map(|(at, _)| *at).next().filter(|_| !self.is_out);
        let delivered = self.replicas.iter().filter_map(|own| own.due.get(own.delivered).copied());
        let rumoured = self.replicas.iter().filter_map(|own| own.rumours.keys().next().copied());
        let learnt = self.replicas.iter().filter_map(|own| own.learns.map(|(at, _)| at));
        let learnt = learnt.filter(|_| !self.is_out);
        delivered.chain(rumoured).chain(committed).chain(learnt).min()
    }

    fn commit(&mut self, now: Time) {
        while let Some(next) = self.proposals.first_entry().filter(|next| next.key().0 <= now) {
            if self.is_out {
                return;
            }
            let command = next.remove();
            // A deposed leader's proposal is committed or not.
            if command.term < self.term && self.random.chance(1, 2) {
                continue;
            }
            self.order.push(command);
            for replica in 0..self.replicas.len() {
                let at = (now + self.delay()).max(self.replicas[replica].cut_off);
                let due = &mut self.replicas[replica].due;
                let at = due.last().map_or(at, |last| at.max(*last));
                due.push(at);
            }
        }
    }

    fn delay(&mut self) -> Duration {
        let span = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let (min, max) = (span(self.pace.delay_min), span(self.pace.delay_max));
        Duration::from_nanos(self.random.range_inclusive(min, max))
    }
}
