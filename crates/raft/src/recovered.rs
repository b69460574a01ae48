//! A log that begins with a machine, and one member: what is left of a log whose majority of members is lost.
//!
//! It is another log, of another volume. Members of the former one find nothing in it that is theirs: what they ask the
//! lost volume is not answered, and the list that this log begins with is later than any of theirs, and without them.

use crate::code;
use crate::config::{LogId, Membership, RAFT_TERM_MAX, Vote};
use crate::member::{Member, Members};
use crate::storage::{Cell, Storage};
use crate::store::Image;
use consensus::manager::Machine;
use openraft::{CommittedLeaderId, SnapshotMeta, StoredMembership};
use std::collections::BTreeSet;
use std::io;
use types::wire;

/// Lists of members that the lost ones may have made after the last one that is known.
const VERSIONS_SKIPPED: u64 = 1 << 32;

/// Writes a log into empty storage: it begins with `machine`, and `member` is its only member. Returns that list, whose
/// version is later than `version`, the last one that is known of the former log, whose entries are no more than that.
///
/// # Errors
/// If it cannot be written, or no term is left.
///
/// # Panics
/// If the storage is not empty.
pub fn begin_with(
    storage: &impl Storage,
    member: Member,
    machine: &Machine,
    version: u64,
) -> io::Result<Members> {
    assert!(storage.last()?.is_none() && storage.cell(Cell::Volume)?.is_none(), "there is a log");
    let number = member.number();
    // The machine knows the last term that was taken, and takes none but later ones.
    let term = (machine.term().0 >> 32) + 1;
    let index = version.checked_add(VERSIONS_SKIPPED).filter(|_| term < RAFT_TERM_MAX);
    let Some(index) = index else {
        return Err(io::Error::other("its terms or versions are at their end"));
    };
    let last = LogId::new(CommittedLeaderId::new(term, number), index);
    let members = Membership::new(vec![BTreeSet::from([number])], ());
    let members = StoredMembership::new(Some(last), members);
    let listed = Members::of(&members);
    assert!(listed.version > version, "a list of the lost members would count as later");
    let snapshot_id = last.to_string();
    let meta = SnapshotMeta { last_log_id: Some(last), last_membership: members, snapshot_id };
    storage.set_cell(Cell::Volume, &wire::encode(&member.volume))?;
    storage.set_cell(Cell::Vote, &code::encode(&Vote::new(term, number)))?;
    storage.set_cell(Cell::Snapshot, &code::encode(&Image { meta, machine: machine.image() }))?;
    storage.set_cell(Cell::Purged, &code::encode(&last))?;
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;
    use crate::{Options, Transport, Unreachable, Volume};
    use bytes::Bytes;
    use consensus::manager::{self, Action, Command, Mailbox, Term};
    use consensus::topology::Topology;
    use types::{ClusterId, NodeId, Time};

    struct Alone;

    impl Transport for Alone {
        async fn call(&self, to: NodeId, _: Bytes) -> Result<Bytes, Unreachable> {
            Err(Unreachable { to })
        }

        fn now(&self) -> Time {
            Time::ZERO
        }
    }

    #[tokio::test(start_paused = true)]
    async fn its_only_member_leads_and_goes_on_from_the_machine() {
        let first = || {
            let topology = Topology::symmetric(3, 1, 1, 0, 1);
            Machine::new(topology.into(), manager::Options::default())
        };
        let mut machine = first();
        let drawn = ClusterId::new(5).expect("not 0");
        let (term, at) = (Term(7 << 32 | 2), Time(1));
        machine.apply(&Command { term, at, action: Action::Take { drawn } }, &mut Vec::new());
        let storage = MemoryStorage::new();
        let member = Member { node: NodeId(1), volume: Volume(3) };
        let listed = begin_with(&storage, member, &machine, 900).expect("memory");
        assert_eq!((&listed.voters[..], listed.version > 900), (&[member][..], true));

        let options = Options::default();
        let started = crate::start(NodeId(1), Volume(4), &options, first(), storage, Alone).await;
        let (mut replica, handle) = started.expect("it starts");
        assert_eq!(handle.me(), member);
        assert_eq!(handle.is_new().await, Ok(false), "it founds nothing");
        let mut mailbox = Mailbox::default();
        while mailbox.term.is_none() {
            replica.news().await;
            while replica.exchange(Time(9), &mut mailbox).expect("it runs") {}
        }
        assert!(mailbox.term > Some(machine.term()));
        assert_eq!(mailbox.restored.as_deref(), Some(&machine));
        assert_eq!(handle.members(), Some(listed));
    }
}
