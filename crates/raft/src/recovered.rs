//! A new log with a given state and one member, after a majority of a log's members was lost.
//!
//! It is another log, of another volume. Members of the former log take no part in it: requests for the lost
//! volumes are not answered, and the member list with which this log begins is later than any of theirs, and
//! without them. Lists and generations are ordered alike: the first entry of such a log has the number of its
//! generation.
//! generations come in the same order: the first entry of such a log has the number of its generation.

use crate::code;
use crate::config::{LogId, Membership, RAFT_TERM_MAX, Vote};
use crate::member::{LogMember, LogMembers};
use crate::storage::{Cell, RaftStorage};
use crate::store::MachineSnapshot;
use openraft::{CommittedLeaderId, SnapshotMeta, StoredMembership};
use shoal_cluster::manager::StateMachine;
use shoal_types::wire;
use std::collections::BTreeSet;
use std::io;

/// Writes a log into empty storage, which begins with `machine` and has `member` as its only member. Returns
/// its member list, whose version is that of the machine's generation. That is later than `version`, the last
/// one known of the former logs, whose entries are no more than that.
///
/// # Errors
/// If the storage cannot be written, if no term is left, or if the generation is not later than `version`.
///
/// # Panics
/// If the storage is not empty.
pub fn begin_with(
    storage: &impl RaftStorage,
    member: LogMember,
    machine: &StateMachine,
    version: u64,
) -> io::Result<LogMembers> {
    assert!(storage.last()?.is_none() && storage.cell(Cell::Volume)?.is_none(), "there is a log");
    let number = member.number();
    // The machine has the last term that a manager took, and accepts only later ones.
    let term = (machine.term().0 >> 32) + 1;
    if term >= RAFT_TERM_MAX {
        return Err(io::Error::other("its terms are at their end"));
    }
    let index = machine.configuration().generation.0;
    if index <= version {
        return Err(io::Error::other("nodes know of later managers; ask again"));
    }
    let last = LogId::new(CommittedLeaderId::new(term, number), index);
    let members = Membership::new(vec![BTreeSet::from([number])], ());
    let members = StoredMembership::new(Some(last), members);
    let listed = LogMembers::of(&members);
    assert!(listed.version > version, "a list of the lost members would count as later");
    let snapshot_id = last.to_string();
    let meta = SnapshotMeta { last_log_id: Some(last), last_membership: members, snapshot_id };
    storage.set_cell(Cell::Volume, &wire::encode(&member.volume))?;
    storage.set_cell(Cell::Vote, &code::encode(&Vote::new(term, number)))?;
    storage.set_cell(
        Cell::Snapshot,
        &code::encode(&MachineSnapshot { meta, machine: machine.image() }),
    )?;
    storage.set_cell(Cell::Purged, &code::encode(&last))?;
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::InMemoryDisk;
    use crate::{RaftOptions, Transport, Unreachable, Volume};
    use bytes::Bytes;
    use shoal_cluster::manager::{
        self, Action, CarriedLog, Command, Generation, Incarnation, KnownEpochs, ProcessInstance,
        Recollection, Term,
    };
    use shoal_cluster::topology::Topology;
    use shoal_types::{ClusterId, NodeId, Time};
    use std::sync::Arc;

    struct SoleMember;

    impl Transport for SoleMember {
        async fn call(&self, to: NodeId, _: Bytes) -> Result<Bytes, Unreachable> {
            Err(Unreachable { to })
        }

        fn now(&self) -> Time {
            Time::ZERO
        }
    }

    #[tokio::test(start_paused = true)]
    async fn its_only_member_leads_and_goes_on_from_the_machine() {
        let generation = Generation(0).next(NodeId(4));
        let first = || {
            let topology = Topology::symmetric(3, 1, 1, 0, 1);
            StateMachine::new(topology.into(), manager::ManagerOptions::default())
        };
        let mut machine = first();
        let drawn = ClusterId::new(5).expect("not 0");
        let (term, at) = (Term(7 << 32 | 2), Time(1));
        machine.apply(&Command { term, at, action: Action::Take { drawn } }, &mut Vec::new());
        let node = NodeId(0);
        let (instance, after, lost, last_heartbeat) =
            (ProcessInstance(1), Incarnation(0), true, at);
        let action = Action::Join { node, instance, after, lost, last_heartbeat };
        machine.apply(&Command { term, at, action }, &mut Vec::new());
        let recovered = |generation: Generation| {
            let recollection = Recollection {
                instance,
                incarnation: Incarnation(1),
                pledged: generation,
                configuration: Some(Arc::clone(machine.configuration())),
                epochs: KnownEpochs::default(),
            };
            machine.recover(generation, &[(node, recollection)].into()).expect("recovered")
        };
        let member = LogMember { node: NodeId(1), volume: Volume(3) };
        let (other, machine) = (recovered(generation), recovered(generation.next(node)));
        let before = begin_with(&InMemoryDisk::new(), member, &other, 900_000).expect("memory");
        let storage = InMemoryDisk::new();
        let late = begin_with(&storage, member, &machine, u64::MAX).expect_err("too late");
        assert!(late.to_string().contains("later managers"), "{late}");
        // The managers of a later generation may know fewer entries.
        let listed = begin_with(&storage, member, &machine, 900).expect("memory");
        assert_eq!(listed.voters, [member]);
        assert!(listed.version > before.version && before.version > 900_000);

        let options = RaftOptions::default();
        let started =
            crate::start(NodeId(1), Volume(4), &options, first(), storage, SoleMember).await;
        let (mut replica, handle) = started.expect("it starts");
        assert_eq!(handle.me(), member);
        assert_eq!(handle.is_new().await, Ok(false), "it founds nothing");
        let mut mailbox = CarriedLog::default();
        while mailbox.term.is_none() {
            replica.news().await;
            while replica.exchange(Time(9), &mut mailbox).expect("it runs") {}
        }
        assert!(mailbox.term > Some(machine.term()));
        assert_eq!(mailbox.restored.as_deref(), Some(&machine));
        assert_eq!(handle.members(), Some(listed));
    }
}
