//! What goes in comes out; what was never put in is an error.

use super::{Foreign, RaftRequest, RaftResponse, decode, encode};
use crate::config::{Entry, LogId, Membership, RAFT_TERM_MAX, Vote};
use crate::member::{LogMember, Volume};
use crate::store::MachineSnapshot;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use openraft::{CommittedLeaderId, EntryPayload, SnapshotMeta, StoredMembership};
use proptest::collection::vec;
use proptest::prelude::*;
use shoal_cluster::manager::{
    Action, Ask, ClusterChange, Command, HeartbeatRecord, Incarnation, Revision, TableChange, Term,
};
use shoal_cluster::topology::Partitioning;
use shoal_types::wire::{self, Malformed};
use shoal_types::{ClusterId, NodeId, ShardId, Time};
use std::collections::BTreeSet;
use std::fmt::Debug;

fn drawn() -> ClusterId {
    ClusterId::new(9).expect("not 0")
}

/// A few; `shoal-log` and `shoal-cluster` test all of them.
fn commands() -> impl Strategy<Value = Command> {
    (0..3, any::<[u64; 3]>(), ".{0,20}").prop_map(|(variant, [term, at, number], name)| {
        let heartbeat = HeartbeatRecord {
            node: NodeId(1),
            incarnation: Incarnation(2),
            round: number,
            at: Time(4),
            known: Revision(5),
        };
        let splits = vec![(Box::default(), ShardId(0)), (Box::from(&b"m"[..]), ShardId(1))];
        let partitioning = Partitioning::Range { splits };
        let action = match variant {
            0 => Action::Take { drawn: drawn() },
            1 => Action::Tick { heartbeats: vec![heartbeat] },
            _ => {
                let change = ClusterChange::Table(TableChange::Create {
                    name,
                    definition: partitioning.into(),
                });
                Action::Change { ask: Ask(number), change }
            }
        };
        Command { term: Term(term), at: Time(at), action }
    })
}

fn log_ids() -> impl Strategy<Value = LogId> {
    (0..=RAFT_TERM_MAX, any::<u64>(), 0..u64::MAX)
        .prop_map(|(term, member, index)| LogId::new(CommittedLeaderId::new(term, member), index))
}

fn votes() -> impl Strategy<Value = Vote> {
    (log_ids(), any::<bool>())
        .prop_map(|(log_id, committed)| Vote { leader_id: log_id.leader_id, committed })
}

fn memberships() -> impl Strategy<Value = Membership> {
    let group = || proptest::collection::btree_set(0..9_u64, 1..4);
    (vec(group(), 1..3), group()).prop_map(|(groups, learners)| Membership::new(groups, learners))
}

fn entries() -> impl Strategy<Value = Entry> {
    let payload = prop_oneof![
        Just(EntryPayload::Blank),
        commands().prop_map(EntryPayload::Normal),
        memberships().prop_map(EntryPayload::Membership),
    ];
    (log_ids(), payload).prop_map(|(log_id, payload)| Entry { log_id, payload })
}

/// There and back is the same; without its end, or with more, it is nothing.
fn returns<T: Foreign + Debug + PartialEq>(value: &T) -> Result<(), TestCaseError> {
    let bytes = encode(value);
    prop_assert_eq!(&decode::<T>(&bytes).expect("what was encoded"), value);
    for length in 0..bytes.len() {
        prop_assert!(decode::<T>(&bytes[..length]).is_err(), "cut to {length}: {value:?}");
    }
    let longer = [&bytes[..], &[0]].concat();
    prop_assert!(decode::<T>(&longer).is_err(), "{value:?}");
    Ok(())
}

/// On any bytes it does not panic; what it accepts has one form.
fn withstands<T: Foreign>(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(value) = decode::<T>(bytes) {
        prop_assert_eq!(&encode(&value)[..], bytes);
    }
    Ok(())
}

/// An append that a leader could send: its entries follow each other.
fn appends() -> impl Strategy<Value = AppendEntriesRequest<crate::config::Types>> {
    let parts = (proptest::option::of(log_ids()), vec(entries(), 0..4), any::<bool>(), 0..5_u32);
    parts.prop_map(|(prev_log_id, mut entries, committed, ahead)| {
        let mut last = prev_log_id;
        for entry in &mut entries {
            let leader = last.map(|last| last.leader_id).unwrap_or_default();
            let index = last.map_or(0, |last| last.index.saturating_add(1).min(u64::MAX - 1));
            entry.log_id = LogId::new(leader, index);
            last = Some(entry.log_id);
        }
        let leader = last.map(|last| last.leader_id).unwrap_or_default();
        let term = (leader.term + u64::from(ahead)).min(RAFT_TERM_MAX);
        let vote = Vote { leader_id: CommittedLeaderId::new(term, leader.node_id), committed };
        AppendEntriesRequest { vote, prev_log_id, entries, leader_commit: prev_log_id }
    })
}

proptest! {
    #[test]
    fn what_replicas_keep_returns(entry in entries(), vote in votes()) {
        returns(&entry)?;
        returns(&vote)?;
        returns(&Some(entry.log_id))?;
    }

    #[test]
    fn snapshots_return(
        last in proptest::option::of(log_ids()),
        members in proptest::option::of((log_ids(), memberships())),
        machine in vec(any::<u8>(), 0..50),
        vote in votes(),
    ) {
        let members = members.map(|(made, members)| StoredMembership::new(Some(made), members));
        let meta = SnapshotMeta {
            last_log_id: last,
            last_membership: members.unwrap_or_default(),
            snapshot_id: last.map_or_else(String::new, |last| last.to_string()),
        };
        let image = MachineSnapshot { meta, machine: machine.into() };
        returns(&image)?;
        let request = RaftRequest::Snapshot(vote, image.clone());
        let again = decode::<(LogMember, RaftRequest)>(&encode(&(LogMember::numbered(3), request)));
        let Ok((_, RaftRequest::Snapshot(voted, sent))) = again else { panic!("not it: {again:?}") };
        prop_assert_eq!((voted, sent), (vote, image));
        let again = decode::<RaftResponse>(&encode(&RaftResponse::Snapshot(vote)));
        let Ok(RaftResponse::Snapshot(voted)) = again else { panic!("another: {again:?}") };
        prop_assert_eq!(voted, vote);
    }

    #[test]
    fn requests_return(to in any::<u64>(), append in appends()) {
        // The last index there is has none after it.
        prop_assume!(append.prev_log_id.is_none_or(|last| last.index < u64::MAX - 5));
        let bytes = encode(&(LogMember::numbered(to), RaftRequest::Append(append.clone())));
        let (member, again) = decode::<(LogMember, RaftRequest)>(&bytes).expect("what was encoded");
        let RaftRequest::Append(again) = again else { panic!("another request: {again:?}") };
        prop_assert_eq!(member.number(), to);
        prop_assert_eq!(format!("{again:?}"), format!("{append:?}"));
        prop_assert_eq!(again.entries, append.entries);
    }

    #[test]
    fn votes_are_asked_for_and_given(
        vote in votes(),
        last_log_id in proptest::option::of(log_ids()),
        vote_granted in any::<bool>(),
    ) {
        let bytes = encode(&(LogMember::numbered(3), RaftRequest::Vote(VoteRequest { vote, last_log_id })));
        let (_, again) = decode::<(LogMember, RaftRequest)>(&bytes).expect("what was encoded");
        let RaftRequest::Vote(again) = again else { panic!("another request: {again:?}") };
        prop_assert_eq!(again, VoteRequest { vote, last_log_id });

        let response = VoteResponse { vote, vote_granted, last_log_id };
        let again = decode::<RaftResponse>(&encode(&RaftResponse::Vote(response.clone())));
        let Ok(RaftResponse::Vote(again)) = again else { panic!("another response: {again:?}") };
        prop_assert_eq!(again, response);

        for response in [
            AppendEntriesResponse::Success,
            AppendEntriesResponse::PartialSuccess(last_log_id),
            AppendEntriesResponse::Conflict,
            AppendEntriesResponse::HigherVote(vote),
        ] {
            let shown = format!("{response:?}");
            let again = decode::<RaftResponse>(&encode(&RaftResponse::Append(response)));
            let Ok(RaftResponse::Append(again)) = again else { panic!("another response: {again:?}") };
            prop_assert_eq!(format!("{again:?}"), shown);
        }
    }

    #[test]
    fn any_bytes_are_withstood(bytes in vec(any::<u8>(), 0..200)) {
        withstands::<Entry>(&bytes)?;
        withstands::<Vote>(&bytes)?;
        withstands::<MachineSnapshot>(&bytes)?;
        withstands::<Membership>(&bytes)?;
        withstands::<(LogMember, RaftRequest)>(&bytes)?;
        withstands::<RaftResponse>(&bytes)?;
    }

    #[test]
    fn twisted_bytes_are_withstood(
        append in appends(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = encode(&(LogMember::numbered(1), RaftRequest::Append(append))).to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        withstands::<(LogMember, RaftRequest)>(&bytes)?;
    }
}

fn entry(term: u64, index: u64) -> Entry {
    let log_id = LogId::new(CommittedLeaderId::new(term, 1), index);
    Entry { log_id, payload: EntryPayload::Blank }
}

#[track_caller]
fn is_malformed<T: Foreign + Debug>(bytes: &[u8], what: &str) {
    let error = decode::<T>(bytes).expect_err(what);
    assert_eq!(error.what, what, "{error}");
}

#[test]
fn lengths_beyond_the_bytes_allocate_nothing() {
    is_malformed::<Vec<Entry>>(&u32::MAX.to_le_bytes(), "a length");
    is_malformed::<Vec<Entry>>(&[[2, 0, 0, 0].as_slice(), &[0; 49]].concat(), "a length");
    is_malformed::<Option<LogId>>(&[2, 0], "neither yes nor no");
}

/// Disks have these: a change of one gives it a new number.
#[test]
fn forms_stay_as_they_are() {
    let member = |node, volume| LogMember { node: NodeId(node), volume: Volume(volume) }.number();
    let log_id = LogId::new(CommittedLeaderId::new(3, member(1, 9)), 2);
    let place = [3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    let form = |payload| encode(&Entry { log_id, payload });
    assert_eq!(form(EntryPayload::Blank), [&place[..], &[0]].concat());
    let command = Command { term: Term(4), at: Time(5), action: Action::Take { drawn: drawn() } };
    let command_form = [4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9, 9, 0, 0, 0, 0, 0, 0, 0];
    let normal = form(EntryPayload::Normal(command));
    assert_eq!(normal, [&place[..], &[1], &command_form].concat());
    let voters = BTreeSet::from([member(1, 9), member(2, 8)]);
    let members = Membership::new(vec![voters], BTreeSet::from([member(2, 9)]));
    #[rustfmt::skip]
    let members_form = [
        1, 0, 0, 0, // one group of two
        2, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0,
        3, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, // all three
    ];
    let membership = form(EntryPayload::Membership(members));
    assert_eq!(membership, [&place[..], &[2], &members_form].concat());
    assert_eq!(encode(&Vote::new_committed(3, member(1, 9))), [&place[..16], &[1]].concat());
    assert_eq!(encode(&Some(log_id)), [&[1], &place[..]].concat());
    assert_eq!(encode(&None::<LogId>)[..], [0]);
}

#[test]
fn entries_out_of_order_are_refused() {
    let vote = Vote::new_committed(5, 1);
    let append = |prev_log_id, entries| {
        let append = AppendEntriesRequest { vote, prev_log_id, entries, leader_commit: None };
        decode::<(LogMember, RaftRequest)>(&encode(&(
            LogMember::numbered(1),
            RaftRequest::Append(append),
        )))
    };
    let prev = Some(entry(2, 7).log_id);
    assert!(append(prev, vec![entry(2, 8), entry(5, 9)]).is_ok());
    assert!(append(None, vec![entry(1, 0)]).is_ok());
    for (prev, entries) in [
        (prev, vec![entry(2, 9)]),
        (prev, vec![entry(2, 7)]),
        (prev, vec![entry(1, 8)]),
        (prev, vec![entry(6, 8)]),
        (prev, vec![entry(2, 8), entry(2, 10)]),
        (None, vec![entry(1, 1)]),
    ] {
        let error = append(prev, entries).expect_err("a gap");
        assert_eq!(error, Malformed { what: "entries out of order", ..error });
    }
}

#[test]
fn members_in_disorder_are_refused() {
    let members = |groups: &[&[u64]], all: &[u64]| {
        let some =
            |group: &[u64]| group.iter().copied().map(LogMember::numbered).collect::<Vec<_>>();
        let groups: Vec<_> = groups.iter().map(|group| some(group)).collect();
        decode::<Membership>(&wire::encode(&(groups, some(all))))
    };
    let good = members(&[&[1, 2, 3], &[2, 3, 4]], &[1, 2, 3, 4, 5]).expect("two groups");
    assert_eq!(good.learner_ids().collect::<BTreeSet<_>>(), BTreeSet::from([5]));
    for (groups, all) in [
        (&[][..], &[1][..]),
        (&[&[][..]], &[1]),
        (&[&[2, 1]], &[1, 2]),
        (&[&[1, 1]], &[1]),
        (&[&[1, 2]], &[1]),
    ] {
        assert!(members(groups, all).is_err(), "{groups:?} {all:?}");
    }
}

#[test]
fn a_term_that_never_was_is_refused() {
    let vote = Vote::new(RAFT_TERM_MAX + 1, 1);
    is_malformed::<Vote>(&encode(&vote), "a term above the greatest one");
}
