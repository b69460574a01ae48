//! The members of a stream change: learners under one ballot, voters with the next; and the survivors of a
//! lost majority become the voters.

use crate::cluster::{Cluster, ballot};
use bytes::Bytes;
use shoal_log::{StreamEvent, StreamMembers, StreamOptions, StreamPlantedBugs};
use shoal_types::NodeId;

const ONE: NodeId = NodeId(1);

fn nodes(ids: &[u32]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

fn members(voters: &[u32], learners: &[u32]) -> StreamMembers {
    StreamMembers { voters: nodes(voters), learners: nodes(learners), ..StreamMembers::default() }
}

impl Cluster {
    /// Reports the new members to all nodes.
    fn follow(&mut self, members: &StreamMembers) -> Result<(), String> {
        self.members = members.clone();
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.step(id, StreamEvent::Members { members: members.clone() })?;
        }
        Ok(())
    }

    fn lead(&mut self, id: NodeId, epoch: u32) -> Result<(), String> {
        self.step(id, StreamEvent::Lead { ballot: ballot(epoch, id), continues: false })
    }

    fn propose(&mut self, id: NodeId, entry: &'static str) -> Result<(), String> {
        self.step(id, StreamEvent::Propose { entry: Bytes::from_static(entry.as_bytes()) })
    }

    /// Delivers only messages among these nodes.
    fn settle_among(&mut self, ids: &[u32]) -> Result<(), String> {
        while let Some(delivery) = (!self.deliveries.is_empty()).then(|| self.deliveries.remove(0))
        {
            if ids.contains(&delivery.from.0) && ids.contains(&delivery.to.0) {
                self.deliver(delivery)?;
            }
        }
        Ok(())
    }

    fn decided(&self, id: u32) -> u64 {
        self.up(NodeId(id)).expect("up").decided().0
    }
}

#[test]
fn learners_come_and_go_under_one_ballot() -> Result<(), String> {
    let mut cluster =
        Cluster::new(members(&[1, 2, 3], &[]), &nodes(&[4]), StreamOptions::default(), false);
    cluster.lead(ONE, 1)?;
    cluster.settle()?;
    cluster.propose(ONE, "a")?;
    cluster.settle()?;
    assert_eq!(cluster.decided(4), 0);
    cluster.follow(&members(&[3, 2, 1], &[4]))?;
    cluster.settle()?;
    assert_eq!(cluster.decided(4), 1, "it learns what was decided before it came");
    cluster.follow(&members(&[1, 2, 3], &[]))?;
    cluster.propose(ONE, "b")?;
    cluster.settle()?;
    assert_eq!((cluster.decided(2), cluster.decided(4)), (2, 1));
    let everywhere = cluster.up(ONE).expect("up").replicated_everywhere();
    assert_eq!(everywhere.0, 2, "the one that went holds nothing back");
    Ok(())
}

/// A leader of former voters does not count their votes among the new ones; its queued entries are appended
/// under the ballot of its next appointment.
#[test]
fn other_voters_need_another_ballot() -> Result<(), String> {
    let options = StreamOptions { window_entries: 1, ..StreamOptions::default() };
    let mut cluster = Cluster::new(members(&[1, 2, 3], &[]), &nodes(&[4, 5]), options, false);
    cluster.lead(ONE, 1)?;
    cluster.settle()?;
    cluster.propose(ONE, "a")?;
    cluster.propose(ONE, "b")?;
    cluster.follow(&members(&[1, 4, 5], &[]))?;
    cluster.settle()?;
    assert_eq!(cluster.decided(1), 0, "2 and 3 vote no more");
    cluster.step(ONE, StreamEvent::Lead { ballot: ballot(2, ONE), continues: true })?;
    cluster.settle()?;
    assert_eq!((cluster.decided(1), cluster.decided(4), cluster.decided(5)), (2, 2, 2));
    Ok(())
}

/// Of five voters 4 and 5 are left, of which only 5 knows what was decided with the lost ones.
fn survive(faults: StreamPlantedBugs) -> Result<(), String> {
    let options = StreamOptions { faults, ..StreamOptions::default() };
    let mut cluster = Cluster::new(members(&[1, 2, 3, 4, 5], &[]), &[], options, false);
    cluster.lead(ONE, 1)?;
    cluster.settle()?;
    cluster.propose(ONE, "a")?;
    cluster.settle_among(&[1, 2, 3, 5])?;
    assert_eq!(cluster.decided(1), 1);
    nodes(&[1, 2]).into_iter().for_each(|id| cluster.crash(id));
    // With 3, which knows it as well and does not answer.
    cluster.follow(&StreamMembers { all_promise: true, ..members(&[3, 4, 5], &[]) })?;
    cluster.lead(NodeId(4), 2)?;
    cluster.settle_among(&[3, 4])?;
    assert!(!cluster.up(NodeId(4)).expect("up").is_leading(), "5 has not promised");
    cluster.follow(&StreamMembers { all_promise: true, ..members(&[4, 5], &[]) })?;
    cluster.lead(NodeId(4), 3)?;
    cluster.settle_among(&[4, 5])?;
    assert_eq!((cluster.decided(4), cluster.decided(5)), (1, 1));
    Ok(())
}

#[test]
fn survivors_are_prepared_all_of_them() {
    survive(StreamPlantedBugs::default()).expect("what one of them knows is kept");
}

#[test]
#[should_panic(expected = "5 has not promised")]
fn survivors_that_are_prepared_by_a_majority_are_seen() {
    let _ =
        survive(StreamPlantedBugs { prepare_at_majority: true, ..StreamPlantedBugs::default() });
}

/// Until a leader that was added has persisted what it inherited, the voter that it replaces may be the only one that has it
/// for good.
#[test]
fn a_leader_has_caught_up_when_it_has_persisted_what_it_inherited() -> Result<(), String> {
    const TWO: NodeId = NodeId(2);
    let mut cluster =
        Cluster::new(members(&[1], &[]), &nodes(&[2]), StreamOptions::default(), true);
    cluster.lead(ONE, 1)?;
    cluster.persist(ONE, usize::MAX)?;
    cluster.propose(ONE, "a")?;
    cluster.persist(ONE, usize::MAX)?;
    assert_eq!(cluster.decided(1), 1);
    cluster.follow(&members(&[1, 2], &[]))?;
    cluster.lead(TWO, 2)?;
    // The promises.
    cluster.persist(TWO, usize::MAX)?;
    cluster.settle()?;
    cluster.persist(ONE, usize::MAX)?;
    cluster.settle()?;
    let has_caught_up = |cluster: &Cluster| {
        let stream = cluster.up(TWO).expect("up");
        assert!(stream.is_leading());
        stream.has_caught_up(TWO)
    };
    assert!(!has_caught_up(&cluster), "its own acceptance is not persisted");
    cluster.persist(TWO, usize::MAX)?;
    assert!(has_caught_up(&cluster));
    Ok(())
}
