//! Reads the log from its beginning and holds each command to the rules, knowing the state before
//! and after it.

use crate::world::{World, epoch_end};
use shoal_cluster::manager::{
    Action, Applied, Assignment, Configuration, EpochEnd, FinalEnds, Incarnation, LeaderCandidates,
    LeadershipClaim, NodeStanding, StateMachine,
};
use shoal_cluster::topology::TableStanding;
use shoal_types::{Epoch, NodeId, ShardId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What has happened in a run, so that we know that it did.
pub type Coverage = BTreeMap<&'static str, u64>;

pub struct Judge<'a> {
    before: Arc<Configuration>,
    after: Arc<Configuration>,
    finals: BTreeMap<Epoch, FinalEnds>,
    /// How shards have ended epochs.
    ends: BTreeMap<(Epoch, ShardId), EpochEnd>,
    /// Epochs in which shards were out.
    out: BTreeSet<(Epoch, ShardId)>,
    /// The shards that are out of the open epoch.
    now_out: BTreeSet<ShardId>,
    membership_epochs: bool,
    leader_candidates: LeaderCandidates,
    coverage: &'a mut Coverage,
}

/// Complaints about the whole log of a world.
pub fn judge(world: &World, coverage: &mut Coverage) -> Result<(), String> {
    let mut machine = StateMachine::new(Arc::clone(&world.topology), world.options.clone());
    let first = Arc::clone(machine.configuration());
    let mut judge = Judge {
        before: Arc::clone(&first),
        after: first,
        finals: BTreeMap::new(),
        ends: BTreeMap::new(),
        out: BTreeSet::new(),
        now_out: BTreeSet::new(),
        membership_epochs: world.options.membership_epochs,
        leader_candidates: world.options.leader_candidates,
        coverage,
    };
    let mut reported = world.applied.iter();
    for (place, command) in world.log.order().iter().enumerate() {
        let mut effects = Vec::new();
        machine.apply(command, &mut effects);
        judge.before = std::mem::replace(&mut judge.after, Arc::clone(machine.configuration()));
        for effect in &effects {
            // Managers may not have come that far.
            if let Some(other) = reported.next()
                && other != effect
            {
                return Err(format!("command {place} did {effect:?}, managers say {other:?}"));
            }
            judge
                .effect(&command.action, effect)
                .map_err(|why| format!("command {place}: {why}"))?;
        }
        let changes = judge.before.cluster.is_some() && judge.after.cluster != judge.before.cluster;
        if changes {
            return Err(format!("command {place}: the cluster is another"));
        }
        judge.configuration().map_err(|why| format!("command {place}: {why}"))?;
    }
    Ok(())
}

fn shard(configuration: &Configuration, shard: ShardId) -> &Assignment {
    configuration.shard(shard).expect("a shard of the topology")
}

impl Judge<'_> {
    fn reach(&mut self, reach: &'static str) {
        *self.coverage.entry(reach).or_default() += 1;
    }

    fn effect(&mut self, action: &Action, effect: &Applied) -> Result<(), String> {
        match effect {
            Applied::Appointed { shard, ballot } => self.appointed(*shard, ballot.node),
            Applied::Reported { claim, epoch } => self.reported(claim, *epoch),
            Applied::Ended { shard, epoch, end } => self.ended(*shard, *epoch, end),
            Applied::Out { shard, epoch, since } => {
                match since {
                    Some(_) => {
                        self.reach("out");
                        self.now_out.insert(*shard);
                        self.out.insert((*epoch, *shard));
                    }
                    None => {
                        self.reach("in again");
                        self.now_out.remove(shard);
                        self.out.remove(&(*epoch, *shard));
                    }
                }
                Ok(())
            }
            Applied::Final(last) => self.is_final(last),
            Applied::CaughtUp { shard, replica, .. } => self.caught_up(action, *shard, *replica),
            Applied::Founded(cluster) => {
                self.reach("founded");
                let is_first = self.before.cluster.is_none();
                is_first.then_some(()).ok_or(format!("{cluster} is founded in another"))
            }
            Applied::Took(_) => {
                self.reach("took");
                Ok(())
            }
            Applied::Died(_) => {
                self.reach("died");
                Ok(())
            }
            Applied::Revived(_) => {
                self.reach("revived");
                Ok(())
            }
            Applied::Joined { incarnation, .. } => {
                if *incarnation > Incarnation(1) {
                    self.reach("joined again");
                }
                Ok(())
            }
            Applied::Raised(epoch) => {
                // One command may begin several epochs: configurations do not show them all.
                self.out.extend(self.now_out.iter().map(|shard| (*epoch, *shard)));
                if self.after.closing().count() > 1 {
                    self.reach("raised while closing");
                }
                Ok(())
            }
            Applied::TableCreated { table, name, .. } => {
                let (before, after) = (&self.before.topology, &self.after.topology);
                let is_next = before.tables().next() == *table && after.tables().next() > *table;
                match is_next && before.table(name).is_none() && after.table(name) == Some(*table) {
                    true => Ok(()),
                    false => Err(format!("{table} is not the next table: {name:?}")),
                }
            }
            Applied::TableDropped { table } => {
                let was = self.before.topology.tables().standing(*table);
                let is = self.after.topology.tables().standing(*table);
                match (was, is) {
                    (TableStanding::Live, TableStanding::Dropped) => Ok(()),
                    _ => Err(format!("{table} was {was:?}, is dropped, and is {is:?}")),
                }
            }
            Applied::NodeAdded { node } => {
                self.reach("node added");
                let (before, after) = (self.before.nodes.len(), self.after.nodes.len());
                let standing = self.after.nodes[node.0 as usize];
                let holds = self.after.shards.iter().any(|shard| shard.holds(*node));
                match node.0 as usize == before && after == before + 1 && !standing.alive && !holds
                {
                    true => Ok(()),
                    false => Err(format!("{node} is not the next node, or not a new one")),
                }
            }
            Applied::NodeRemoved { node } => {
                self.reach("node removed");
                let was = self.before.nodes[node.0 as usize];
                let held = self.before.shards.iter().any(|shard| shard.holds(*node));
                match was.alive || held {
                    true => Err(format!("{node} lives or holds a replica, and is removed")),
                    false => Ok(()),
                }
            }
            Applied::Answered { .. } | Applied::Loss { .. } | Applied::Changed(_) => Ok(()),
        }
    }

    /// A leader lives, holds the shard, remembers, and votes where only voters may lead.
    fn appointed(&mut self, id: ShardId, node: NodeId) -> Result<(), String> {
        let (old, new) = (shard(&self.before, id), shard(&self.after, id));
        let standing = self.after.nodes[node.0 as usize];
        if !new.holds(node) || !standing.alive || standing.incarnation == Incarnation(0) {
            return Err(format!("{node} cannot lead {id}"));
        }
        // A learner that leads may become a voter meanwhile: without a vote yet, but not without memory.
        let moved = (old.leader, old.incarnation) != (new.leader, new.incarnation);
        let is_empty = old.empty.contains_key(&node) || new.empty.contains_key(&node);
        if moved && is_empty {
            return Err(format!("{node} leads {id} without memory"));
        }
        if !may_lead(self.leader_candidates, new, node) {
            return Err(format!("{node} leads {id}, and does not vote"));
        }
        let is_up = |node: &NodeId| self.after.nodes[node.0 as usize].alive;
        let mut learners = new.learners.iter().filter(|node| !new.empty.contains_key(node));
        let has_learner = learners.any(is_up);
        let votes = new.voters.contains(&node);
        if moved && has_learner && self.leader_candidates == LeaderCandidates::VotersOnly {
            self.reach("passed over a learner");
        }
        self.reach(match (moved, votes) {
            (true, true) => "appointed a voter",
            (true, false) => "appointed a learner",
            (false, _) => "appointed again",
        });
        Ok(())
    }

    /// Only leaders of the newest configuration report for their shards.
    fn reported(&mut self, claim: &LeadershipClaim, epoch: Epoch) -> Result<(), String> {
        let Assignment { leader, incarnation, ballot, .. } = *shard(&self.before, claim.shard);
        if (claim.node, claim.incarnation, claim.ballot) != (leader, incarnation, ballot) {
            return Err(format!("a deposed leader reported: {claim:?}"));
        }
        if epoch >= self.before.epoch {
            return Err(format!("{epoch} was not closed"));
        }
        Ok(())
    }

    /// What the leader of the newest configuration found, once and for ever.
    fn ended(&mut self, id: ShardId, epoch: Epoch, found: &EpochEnd) -> Result<(), String> {
        let ballot = shard(&self.before, id).ballot;
        let wanted = epoch_end(id, epoch, ballot);
        if *found != wanted {
            return Err(format!("{epoch} ended at {found:?} on {id}, {ballot} found {wanted:?}"));
        }
        if let Some(before) = self.ends.insert((epoch, id), found.clone()) {
            return Err(format!("M12: {epoch} ended at {before:?} on {id}, and at {found:?}"));
        }
        Ok(())
    }

    /// How an epoch ended on a shard, as far as it has said so, or was out.
    fn end(&self, epoch: Epoch, id: ShardId) -> Option<EpochEnd> {
        let out = self.out.contains(&(epoch, id)).then_some(EpochEnd::Whole);
        out.or_else(|| self.ends.get(&(epoch, id)).cloned())
    }

    /// The ends of all shards, for ever.
    fn is_final(&mut self, found: &FinalEnds) -> Result<(), String> {
        let epoch = found.epoch();
        if let Some(before) = self.finals.insert(epoch, found.clone())
            && before != *found
        {
            return Err(format!("M9: FVW({epoch}) was {before:?}, is {found:?}"));
        }
        for id in (0..self.after.shards.len() as u32).map(ShardId) {
            let (wanted, got) = (self.end(epoch, id), found.of(id));
            if wanted.as_ref() != Some(got) {
                return Err(format!(
                    "M12: FVW({epoch}) of {id} is {got:?}, it ended at {wanted:?}"
                ));
            }
        }
        if self.after.closing().any(|other| other < epoch) {
            self.reach("final before one before");
        }
        self.reach("final");
        Ok(())
    }

    /// A voter gets its vote back under a ballot that knows what it forgot.
    fn caught_up(&mut self, action: &Action, id: ShardId, node: NodeId) -> Result<(), String> {
        let it = shard(&self.before, id);
        let since = it.catching_up().find(|it| it.node == node).ok_or("it was full")?.after;
        let Action::CaughtUp { claim, .. } = action else {
            return Err(format!("{action:?} filled a replica"));
        };
        if claim.ballot != it.ballot {
            return Err("a deposed leader filled a replica".to_owned());
        }
        if it.voters.contains(&node) && claim.ballot.epoch <= since {
            return Err(format!("{node} votes for {id} again, and has forgotten its promises"));
        }
        self.reach("caught up");
        Ok(())
    }

    /// A membership keeps the epoch in which it began, and only the first of a node counts as the first; where deaths and
    /// returns begin epochs, none is in two of them.
    fn memberships(&mut self, before: &Configuration, after: &Configuration) -> Result<(), String> {
        for (node, (old, new)) in (0..).map(NodeId).zip(before.nodes.iter().zip(&after.nodes)) {
            let is_same = stays(old, new);
            if is_same && old.since != new.since {
                return Err(format!("{node} is in since {}, then since {}", old.since, new.since));
            }
            let returns = new.alive && !is_same && old.incarnation != Incarnation(0);
            if new.is_first && (!old.is_first || returns) {
                return Err(format!("{node} was out, and counts as never out: {old:?}, {new:?}"));
            }
            if !self.membership_epochs {
                continue;
            }
            let changes = old.alive != new.alive || (new.alive && !is_same);
            let begins = new.alive && !is_same;
            if changes && before.epoch == after.epoch || begins && new.since <= before.epoch {
                return Err(format!("{node} changes from {old:?} to {new:?} in {}", after.epoch));
            }
            if new.alive && new.since > after.epoch {
                return Err(format!("{node} is in since the future: {new:?} in {}", after.epoch));
            }
            if changes {
                self.reach("a membership began or ended with an epoch");
            }
            let is_back = !old.alive && new.alive && old.incarnation == new.incarnation;
            let mut held = after.shards.iter().filter(|shard| shard.holds(node));
            if is_back && old.incarnation != Incarnation(0) {
                if !held.all(|shard| shard.empty.contains_key(&node)) {
                    return Err(format!("{node} has forgotten what it had, and counts as full"));
                }
                self.reach("a node returned without memory");
            }
        }
        Ok(())
    }

    fn configuration(&mut self) -> Result<(), String> {
        let (before, after) = (Arc::clone(&self.before), Arc::clone(&self.after));
        if before == after {
            return Ok(());
        }
        let grows = before.revision < after.revision
            && before.epoch <= after.epoch
            && before.settled <= after.settled;
        if !grows {
            return Err("the configuration went back".to_owned());
        }
        self.memberships(&before, &after)?;
        let mut replaced = 0;
        for (old, new) in before.shards.iter().zip(&after.shards) {
            let moved = (old.leader, old.incarnation) != (new.leader, new.incarnation);
            // A leader that hands over, to which no process belongs until another is appointed.
            let hands_over = old.leader == new.leader && new.incarnation == Incarnation(0);
            if hands_over && moved {
                self.reach("handed over");
            }
            if moved && !hands_over && new.ballot.epoch <= before.epoch {
                return Err(format!("led by another under an old ballot: {new:?}"));
            }
            if usual_voters(old) != usual_voters(new) {
                return Err(format!("the number of voters changed: {new:?}"));
            }
            replaced += u64::from(old.voters != new.voters);
            check_majorities(old, new)?;
        }
        if replaced > 0 {
            self.reach("replaced a voter");
        }
        for (id, it) in (0..).map(ShardId).zip(&after.shards) {
            if it.out.is_some() != self.now_out.contains(&id) {
                return Err(format!("M12: {id} was not said to be out, or in again: {it:?}"));
            }
        }
        for (epoch, ends) in &self.after.ends {
            for (id, reported) in (0..).map(ShardId).zip(ends) {
                if *reported != self.end(*epoch, id) {
                    let known = self.end(*epoch, id);
                    return Err(format!(
                        "M12: {epoch} ended at {known:?} on {id}, not {reported:?}"
                    ));
                }
            }
        }
        if after.forgotten < before.forgotten {
            return Err(format!("M9: forgot up to {}, then {}", before.forgotten, after.forgotten));
        }
        let kept = |it: &&FinalEnds| after.finals.contains(it);
        let reported =
            self.finals.values().filter(|it| it.epoch() > after.forgotten && !it.is_whole());
        if let Some(lost) = reported.filter(|it| it.epoch() < after.epoch).find(|it| !kept(it)) {
            return Err(format!("M9: the configuration lacks {lost:?}"));
        }
        for found in &self.after.finals {
            if self.finals.get(&found.epoch()) != Some(found) {
                return Err(format!("M9: the configuration tells another FVW: {found:?}"));
            }
        }
        Ok(())
    }
}

/// Whether a replica of the shard may lead it.
pub fn may_lead(candidates: LeaderCandidates, assignment: &Assignment, node: NodeId) -> bool {
    match candidates {
        LeaderCandidates::LearnersFirst => assignment.holds(node),
        LeaderCandidates::VotersOnly => assignment.voters.contains(&node),
    }
}

/// Whether the node is in without interruption from one configuration to the next.
fn stays(old: &NodeStanding, new: &NodeStanding) -> bool {
    old.alive && new.alive && (old.incarnation == new.incarnation || old.incarnation.0 == 0)
}

/// The number of voters without one that was added for a time.
fn usual_voters(assignment: &Assignment) -> usize {
    assignment.voters.len() - usize::from(assignment.added.is_some())
}

/// Voters come and leave one at a time, one leaves when the one in its place has caught up, and those that remember stay a
/// majority.
fn check_majorities(old: &Assignment, new: &Assignment) -> Result<(), String> {
    let come = new.voters.iter().filter(|node| !old.voters.contains(node)).count();
    let left = old.voters.iter().filter(|node| !new.voters.contains(node)).count();
    let changed = come + left > 0;
    if come + left > 1 {
        return Err(format!("two voters changed at once: {old:?}, then {new:?}"));
    }
    let is_early = old.added.is_some_and(|added| {
        let has_left = !new.voters.contains(&added.in_place_of);
        has_left && old.catching_up().any(|it| it.node == added.node)
    });
    if left > 0 && is_early {
        return Err(format!("a voter left before the added one had caught up: {old:?}"));
    }
    if changed && new.full_voters().count() <= new.voters.len() / 2 {
        return Err(format!("replaced a voter that was needed: {new:?}"));
    }
    if changed && new.ballot.epoch <= old.ballot.epoch {
        return Err(format!("other voters under the same ballot: {new:?}"));
    }
    Ok(())
}
