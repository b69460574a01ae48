//! A node takes up and lays down the lead of shards as the configuration says (design §5, "Failure"; rules
//! M7 and M9).
//!
//! ```text
//!            appointed      stream prepared      all inherited     own end of each    applied, or
//!  follows ──────────► waits ─────────► recovers ─────► is decided ─► epoch durable ─► undecided ─► serves
//!     ▲                                                                                              │
//!     └────────────────────── another is appointed, or leads the stream ─────────────────────────────┘
//! ```
//! Each worker recovers its own stream; a shard is served when all have. Requests for it wait meanwhile,
//! in a queue that is bounded in time and size. Other shards are not waited for: what was inherited and depends on
//! one that has not said how an epoch ended becomes a version that is undecided (`undecided.rs`, rule M12).

use super::followed::publish;
use super::led::Office;
use super::piece::ENDS_MAX;
use super::{Effects, Mako, Message};
use crate::execution::branches::Header;
use crate::mako::message::Request;
use crate::observation::Observation;
use consensus::manager::{Configuration, Incarnation};
use types::{Ballot, Clock, Epoch, NodeId, ShardId, Time};

/// A request to a shard that is being recovered.
pub(super) struct Parked {
    from: NodeId,
    header: Header,
    request: Request,
    pub(super) until: Time,
}

impl Mako {
    /// The configuration has changed.
    pub(super) fn configured(
        &mut self,
        configuration: &Configuration,
        incarnation: Incarnation,
        effects: &mut Effects,
    ) {
        if self.reigns.is_empty() {
            self.desk.hub.sequences.borrow_mut().begin_life(incarnation);
        }
        self.desk.hub.incarnation.set(incarnation);
        self.silence.configured(configuration);
        let node = self.desk.hub.place.node;
        let moved = self.desk.hub.follow(configuration);
        self.reigns.clear();
        for at in 0..self.led.len() {
            let assignment = configuration.shard(self.led[at].lead.shard);
            let own = assignment.filter(|it| (it.leader, it.incarnation) == (node, incarnation));
            let since = own.map(|assignment| assignment.since);
            self.reigns.push(since);
            if self.led[at].office.as_ref().map(|office| office.since) != since {
                self.step_down(at, effects);
            }
        }
        self.open_epoch(configuration.epoch, effects);
        self.hear_losses(configuration, effects);
        self.hear_ends(configuration, effects);
        self.end_orphans(effects);
        for shard in moved {
            self.lose_participant(shard, effects);
        }
        self.gossip.aim(&self.desk.hub);
    }

    /// This worker's stream of `shard` is prepared under `ballot`.
    pub(super) fn lead(
        &mut self,
        shard: ShardId,
        ballot: Ballot,
        length: u64,
        effects: &mut Effects,
    ) {
        let at = self.place_of(shard).expect("a stream that is held");
        let Some(since) = self.reigns[at] else { return }; // It was deposed since.
        effects.observe(|| Observation::Led { shard, ballot, length });
        let led = &mut self.led[at];
        led.ever_led = true;
        match &mut led.office {
            Some(office) => {
                // Appointed again: all is said again under the new ballot.
                (office.ballot, office.recovered, office.held) = (ballot, false, false);
                let ends: Vec<(Epoch, Clock)> = self.followed[at]
                    .extent
                    .ends
                    .iter()
                    .map(|(epoch, clock)| (*epoch, *clock))
                    .collect();
                if office.closed {
                    for end in ends {
                        self.ended((shard, ballot), end, effects);
                    }
                }
            }
            None => {
                led.office = Some(Office {
                    ballot,
                    since,
                    inherited: length,
                    held: false,
                    closed: false,
                    recovered: false,
                    serves: false,
                });
            }
        }
    }

    /// Another leads the stream.
    pub(super) fn deposed(&mut self, shard: ShardId, effects: &mut Effects) {
        let at = self.place_of(shard).expect("a stream that is held");
        self.step_down(at, effects);
    }

    /// This worker's stream has promised the ballot of another. Where the node was appointed before that, other workers of it
    /// may lead their streams still; what this one comes to from now on is not their reign's, whether it ever led or not.
    pub(super) fn promised(&self, shard: ShardId, ballot: Ballot) {
        let before = Epoch(ballot.epoch.0.saturating_sub(1));
        self.shared.replica(shard).expect("held").end_reign(before);
    }

    /// Lays down the lead of a shard: what has been certified and is not durable may be lost. What was
    /// not certified is.
    fn step_down(&mut self, at: usize, effects: &mut Effects) {
        let Some(office) = &self.led[at].office else { return };
        let shard = self.led[at].lead.shard;
        self.shared.replica(shard).expect("held").end_reign(office.since);
        self.desk.hub.serve(at, false);
        self.end_branches(at, self.desk.hub.epoch.get(), effects);
        self.led[at].resign();
        self.parked.retain(|parked| parked.header.shard != shard);
    }

    /// Goes on with recovering every shard that this node has been appointed to lead.
    pub(super) fn recover_all(&mut self, effects: &mut Effects) {
        for at in 0..self.led.len() {
            self.recover(at, effects);
        }
    }

    /// Goes on with recovering the shard at this place, as far as it can be now.
    fn recover(&mut self, at: usize, effects: &mut Effects) {
        let Some(office) = &self.led[at].office else { return };
        if office.recovered && office.serves {
            return;
        }
        if !office.closed && self.followed[at].extent.length >= office.inherited {
            match self.is_losing(self.led[at].lead.shard) {
                true => self.tell_held(at, effects),
                false => self.close_former(at, effects),
            }
        }
        let knows_ends = self.knows_former_ends(at);
        let (shard, Some(office)) = (self.led[at].lead.shard, &mut self.led[at].office) else {
            return;
        };
        let through = self.followed[at].is_through();
        // What a former lead left locked here is free.
        let is_free = self.desk.hub.own[at].sessions.ending() == 0;
        if !office.recovered && office.closed && knows_ends && through && is_free {
            office.recovered = true;
            let ballot = office.ballot;
            self.keep_undecided(at);
            let replica = self.shared.replica(shard).expect("held");
            if replica.recover(ballot) {
                self.install_undecided(at, effects);
                self.shared.replica(shard).expect("held").install(ballot);
            }
            self.desk.nudge_others(effects);
        }
        let replica = self.shared.replica(shard).expect("held");
        let Some(office) = &mut self.led[at].office else { return };
        if office.recovered && !office.serves && replica.is_recovered(office.ballot) {
            office.serves = true;
            let ballot = office.ballot;
            publish(&self.followed[at], replica, self.desk.hub.place.worker);
            self.desk.hub.serve(at, true);
            effects.observe(|| Observation::Serves { shard, ballot });
        }
    }

    /// Are the ends of the shard at this place durable of all epochs before the reign?
    fn knows_former_ends(&self, at: usize) -> bool {
        let (shard, Some(office)) = (self.led[at].lead.shard, &self.led[at].office) else {
            return false;
        };
        let mut former = self.live.iter().filter(|live| live.epoch() < office.since);
        former.all(|live| live.watermark.has_ended(shard))
    }

    /// All that was inherited is decided: nothing of the epochs before this reign follows in this worker's
    /// stream, and the stream says so.
    fn close_former(&mut self, at: usize, effects: &mut Effects) {
        let shard = self.led[at].lead.shard;
        let replica = self.shared.replica(shard).expect("held");
        let extent = &self.followed[at].extent;
        let (safe, ended, finals) = (extent.safe, extent.ended, extent.finals);
        // What is drawn from now on comes after all that the streams have.
        replica.store.raise_clock(extent.greatest.max(self.lost_clock(shard)));
        let office = self.led[at].office.as_mut().expect("it leads");
        office.closed = true;
        let (ballot, since) = (office.ballot, office.since);
        let settled = self.desk.hub.watermarks.borrow().settled();
        // Of some the end is known though the streams lack it: the shard was out.
        let end = |epoch| {
            let known = self.desk.hub.watermarks.borrow().end_of(epoch, shard);
            let live = self.live(epoch).map(|at| &self.live[at].watermark);
            let live = live.filter(|live| live.has_ended(shard)).map(|live| live.of(shard));
            (epoch, known.or(live).unwrap_or(safe))
        };
        let former: Vec<(Epoch, Clock)> =
            (ended.max(settled).0 + 1..since.0).map(|epoch| end(Epoch(epoch))).collect();
        let before: Vec<(Epoch, Clock)> =
            extent.ends.iter().map(|(epoch, clock)| (*epoch, *clock)).collect();
        self.led[at].begin(extent.length, safe, ended.max(settled), finals);
        for end in before {
            self.ended((shard, ballot), end, effects);
        }
        let now = self.desk.hub.now.get();
        for ends in former.chunks(ENDS_MAX) {
            let closed = {
                let watermarks = self.desk.hub.watermarks.borrow();
                let options = &self.shared.setup.options;
                self.led[at].close_with((now, safe), ends.to_vec(), &watermarks, options)
            };
            self.propose(at, closed, effects);
        }
    }

    /// Keeps a request until the shard is recovered; no longer than a transaction may wait, and no more
    /// of them than may wait.
    pub(super) fn park(&mut self, from: NodeId, header: &Header, request: Request) {
        let limits = &self.desk.hub.limits;
        if self.parked.len() >= limits.queue_max {
            self.desk.counters.dropped += 1; // Its coordinator asks again.
            return;
        }
        let until = self.desk.hub.now.get() + limits.queue_wait_max;
        self.parked.push_back(Parked { from, header: *header, request, until });
    }

    /// Serves the requests whose shards have been recovered, and drops those that have waited too long.
    pub(super) fn unpark(&mut self, now: Time, effects: &mut Effects) {
        if self.parked.is_empty() {
            return;
        }
        for parked in std::mem::take(&mut self.parked) {
            if self.desk.hub.own(parked.header.shard).is_some() {
                self.serve(parked.from, &parked.header, parked.request, effects);
            } else if parked.until > now {
                self.parked.push_back(parked);
            } else {
                self.desk.counters.dropped += 1;
            }
        }
    }

    /// The place of a shard of which this node has a replica.
    pub(super) fn place_of(&self, shard: ShardId) -> Option<usize> {
        self.led.iter().position(|led| led.lead.shard == shard)
    }

    /// Asserts that this node holds its lease while it acts as the leader of a shard (rule M7).
    pub(super) fn act_as_leader(&mut self, at: usize, effects: &mut Effects) {
        let now = self.desk.hub.now.get();
        assert!(
            self.holds_lease(now),
            "M7: {} acts as a leader at {now}, and its lease ended at {}",
            self.desk.hub.place,
            self.lease_end
        );
        let (shard, ballot) = (self.led[at].lead.shard, self.led[at].ballot());
        effects.observe(|| Observation::Acted { shard, ballot });
    }
}

impl Message {
    /// Does it only say what is so, and ask nothing of a leader?
    pub(super) fn is_fact(&self) -> bool {
        match self {
            Message::Gossip { .. } | Message::Part(_) | Message::PartTaken { .. } => true,
            Message::Request { .. } | Message::Reply { .. } | Message::Relay(_) => false,
        }
    }
}
