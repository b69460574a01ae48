//! A replicated log that exists only in a simulation: one order, delays, leaders that come and go,
//! outages; all from a seed.
//!
//! It does no more than [`ManagerLog`](super::ManagerLog) promises: proposals get lost, are committed long after,
//! overtake each other, and are sometimes committed in a later term than their own.

use super::command::{Command, Term};
use super::log::CarriedLog;
use shoal_types::{Random, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// A leader asks the others so often by itself.
const ASK_EVERY: Duration = Duration::from_millis(75);

/// How fast and how reliable the log is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPace {
    /// The shortest time from a proposal to its commitment, and from that to each replica.
    pub delay_min: Duration,
    /// The longest time for each of the two.
    pub delay_max: Duration,
    /// Proposals, in a hundred, that take ten times as long.
    pub late_percent: u64,
    /// Proposals that get lost, in a hundred.
    pub loss_percent: u64,
}

/// A replica of the log.
#[derive(Debug, Default)]
struct SimulatedReplica {
    /// When it learns of each command of the order.
    due: Vec<Time>,
    /// How many it knows.
    told: usize,
    leads: Option<Term>,
    /// What it will believe of its leading, and when.
    rumours: BTreeMap<Time, Option<Term>>,
    /// What it is about to learn: when, and at what time of its own it led; `None` if the others' word got lost.
    learns: Option<(Time, Option<Time>)>,
    /// When it asks next by itself whether it leads.
    asks: Time,
    /// Until then it is told nothing.
    cut_off: Time,
}

/// The log, and the way of each replica to it. Time is the simulation's.
#[derive(Debug)]
pub struct SimulatedLog {
    random: Random,
    pace: LogPace,
    /// No proposal is committed while it is out.
    is_out: bool,
    term: Term,
    leader: Option<usize>,
    order: Vec<Command>,
    /// Proposals on their way, by the time at which they are committed.
    proposals: BTreeMap<(Time, u64), Command>,
    proposed: u64,
    replicas: Vec<SimulatedReplica>,
}

impl LogPace {
    /// Always the same, and nothing gets lost.
    #[must_use]
    pub fn steady(delay: Duration) -> LogPace {
        LogPace { delay_min: delay, delay_max: delay, late_percent: 0, loss_percent: 0 }
    }
}

impl SimulatedLog {
    /// A log of so many replicas, none of which leads.
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

    /// What is committed, in order.
    #[must_use]
    pub fn order(&self) -> &[Command] {
        &self.order
    }

    /// Who leads in the newest term.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        self.leader
    }

    /// How fast it is from now on.
    pub fn set_pace(&mut self, pace: LogPace) {
        self.pace = pace;
    }

    /// Begins or ends an outage: what is proposed meanwhile is committed afterwards.
    pub fn set_out(&mut self, is_out: bool) {
        self.is_out = is_out;
    }

    /// A new term, led by this replica. It learns of it after a while, and the last leader some time
    /// before or after.
    pub fn elect(&mut self, now: Time, replica: usize) {
        self.term.0 += 1;
        let (soon, later) = (now + self.delay(), now + self.delay() * 4);
        if let Some(last) = self.leader.replace(replica).filter(|last| *last != replica) {
            let later = later.max(self.replicas[last].cut_off);
            self.replicas[last].rumours.insert(later, None);
        }
        // Older rumours would depose it again.
        self.replicas[replica].rumours.clear();
        self.replicas[replica].rumours.insert(soon, Some(self.term));
    }

    /// Tells a replica nothing until then. It may lead in its own eyes for so long, while another does.
    pub fn cut_off(&mut self, replica: usize, until: Time) {
        self.replicas[replica].cut_off = until;
    }

    /// The replica has restarted, with the order and without knowing that it led.
    pub fn restart(&mut self, now: Time, replica: usize) {
        let again = &mut self.replicas[replica];
        (again.told, again.leads, again.cut_off) = (0, None, now);
        again.rumours.clear();
        again.learns = None;
        again.due.iter_mut().for_each(|due| *due = (*due).min(now));
        if self.leader == Some(replica) {
            self.leader = None;
        }
    }

    /// Takes what the replica proposed, and puts what it knows by now. True if there is news for it. `own` is what its
    /// manager's clock reads.
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
        let before = (own.told, own.leads, mailbox.led);
        while let Some(rumour) = own.rumours.first_entry().filter(|rumour| *rumour.key() <= now) {
            own.leads = rumour.remove();
        }
        while own.due.get(own.told).is_some_and(|due| *due <= now) {
            mailbox.decided.push_back(self.order[own.told].clone());
            own.told += 1;
        }
        mailbox.term = own.leads;
        mailbox.led = mailbox.led.max(learnt);
        before != (own.told, own.leads, mailbox.led)
    }

    /// Who leads asks the others whether it does, one time after the other. What they answer is true of the time at
    /// which it was asked, however late it comes.
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

    /// The next time at which there will be something to exchange.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        let committed = self.proposals.keys().map(|(at, _)| *at).next().filter(|_| !self.is_out);
        let told = self.replicas.iter().filter_map(|own| own.due.get(own.told).copied());
        let rumoured = self.replicas.iter().filter_map(|own| own.rumours.keys().next().copied());
        let learnt = self.replicas.iter().filter_map(|own| own.learns.map(|(at, _)| at));
        let learnt = learnt.filter(|_| !self.is_out);
        told.chain(rumoured).chain(committed).chain(learnt).min()
    }

    fn commit(&mut self, now: Time) {
        while let Some(next) = self.proposals.first_entry().filter(|next| next.key().0 <= now) {
            if self.is_out {
                return;
            }
            let command = next.remove();
            // What a deposed leader proposed may make it, or not.
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
