//! The encodings of votes, entries, and the requests of Raft.
//!
//! A request names the replica that it is for, since addresses may be reused, and volumes may be lost: a node ignores a
//! request for another replica. The first byte is the version of the encoding.

use super::Foreign;
use crate::config::{self, Entry, LogId, Membership, Vote};
use crate::member::{LogMember, Number};
use crate::store::MachineSnapshot;
use bytes::{BufMut, Bytes, BytesMut};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use openraft::{CommittedLeaderId, EntryPayload, SnapshotMeta, StoredMembership};
use shoal_cluster::manager::Command;
use shoal_types::wire::{Coded, Input, Malformed, put_count};
use std::collections::BTreeSet;

/// The version of all encodings of this file.
const VERSION: u8 = 4;

/// From one replica to another.
#[derive(Debug, Clone)]
pub enum RaftRequest {
    /// Entries for a follower, or none: then it is a heartbeat.
    Append(AppendEntriesRequest<config::Types>),
    /// A candidate requests a vote.
    Vote(VoteRequest<Number>),
    /// A snapshot, for a follower that lacks entries which the leader has truncated.
    Snapshot(Vote, MachineSnapshot),
}

/// The answer to a [`RaftRequest`].
#[derive(Debug)]
pub enum RaftResponse {
    /// To `Append`: whether the follower has the entries, or refuses the leader.
    Append(AppendEntriesResponse<Number>),
    /// To `Vote`: whether the vote is granted, and how long the voter's log is.
    Vote(VoteResponse<Number>),
    /// To `Snapshot`: the leader that the follower follows.
    Snapshot(Vote),
}

impl Foreign for (LogMember, RaftRequest) {
    fn put(&self, out: &mut BytesMut) {
        VERSION.put(out);
        self.0.put(out);
        match &self.1 {
            RaftRequest::Append(append) => {
                out.put_u8(0);
                append.vote.put(out);
                append.prev_log_id.put(out);
                append.leader_commit.put(out);
                append.entries.put(out);
            }
            RaftRequest::Vote(vote) => {
                out.put_u8(1);
                vote.vote.put(out);
                vote.last_log_id.put(out);
            }
            RaftRequest::Snapshot(vote, image) => {
                out.put_u8(2);
                vote.put(out);
                image.put(out);
            }
        }
    }

    fn take(input: &mut Input<'_>) -> Result<(LogMember, RaftRequest), Malformed> {
        if u8::take(input)? != VERSION {
            return Err(input.wrong("an unknown version"));
        }
        let to = LogMember::take(input)?;
        let request = match u8::take(input)? {
            0 => RaftRequest::Append(take_append(input)?),
            1 => RaftRequest::Vote(VoteRequest {
                vote: Foreign::take(input)?,
                last_log_id: Foreign::take(input)?,
            }),
            2 => RaftRequest::Snapshot(Foreign::take(input)?, Foreign::take(input)?),
            _ => return Err(input.wrong("no such request")),
        };
        Ok((to, request))
    }
}

/// Entries without a gap, none from after the leader's own term: the library relies on that.
fn take_append(input: &mut Input<'_>) -> Result<AppendEntriesRequest<config::Types>, Malformed> {
    let vote = Vote::take(input)?;
    let prev_log_id: Option<LogId> = Foreign::take(input)?;
    let leader_commit = Foreign::take(input)?;
    let entries = Vec::<Entry>::take(input)?;
    let mut last = prev_log_id;
    for entry in &entries {
        let follows = last.map_or(entry.log_id.index == 0, |last| {
            entry.log_id.index.checked_sub(1) == Some(last.index)
                && entry.log_id.leader_id >= last.leader_id
        });
        if !follows || entry.log_id.leader_id.term > vote.leader_id.term {
            return Err(input.wrong("entries out of order"));
        }
        last = Some(entry.log_id);
    }
    Ok(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
}

impl Foreign for RaftResponse {
    fn put(&self, out: &mut BytesMut) {
        VERSION.put(out);
        match self {
            RaftResponse::Append(AppendEntriesResponse::Success) => out.put_u8(0),
            RaftResponse::Append(AppendEntriesResponse::PartialSuccess(matching)) => {
                out.put_u8(1);
                matching.put(out);
            }
            RaftResponse::Append(AppendEntriesResponse::Conflict) => out.put_u8(2),
            RaftResponse::Append(AppendEntriesResponse::HigherVote(vote)) => {
                out.put_u8(3);
                vote.put(out);
            }
            RaftResponse::Vote(response) => {
                out.put_u8(4);
                response.vote.put(out);
                response.vote_granted.put(out);
                response.last_log_id.put(out);
            }
            RaftResponse::Snapshot(vote) => {
                out.put_u8(5);
                vote.put(out);
            }
        }
    }

    fn take(input: &mut Input<'_>) -> Result<RaftResponse, Malformed> {
        if u8::take(input)? != VERSION {
            return Err(input.wrong("an unknown version"));
        }
        Ok(match u8::take(input)? {
            0 => RaftResponse::Append(AppendEntriesResponse::Success),
            1 => RaftResponse::Append(AppendEntriesResponse::PartialSuccess(Foreign::take(input)?)),
            2 => RaftResponse::Append(AppendEntriesResponse::Conflict),
            3 => RaftResponse::Append(AppendEntriesResponse::HigherVote(Foreign::take(input)?)),
            4 => RaftResponse::Vote(VoteResponse {
                vote: Foreign::take(input)?,
                vote_granted: bool::take(input)?,
                last_log_id: Foreign::take(input)?,
            }),
            5 => RaftResponse::Snapshot(Foreign::take(input)?),
            _ => return Err(input.wrong("no such response")),
        })
    }
}

/// The leader or the candidate: the term and the member. No correct replica has a term above `RAFT_TERM_MAX`.
fn take_leader(input: &mut Input<'_>) -> Result<CommittedLeaderId<Number>, Malformed> {
    let term = u64::take(input)?;
    if term > config::RAFT_TERM_MAX {
        return Err(input.wrong("a term above the greatest one"));
    }
    Ok(CommittedLeaderId::new(term, LogMember::take(input)?.number()))
}

fn put_leader(leader: &CommittedLeaderId<Number>, out: &mut BytesMut) {
    leader.term.put(out);
    LogMember::numbered(leader.node_id).put(out);
}

impl Foreign for Vote {
    fn put(&self, out: &mut BytesMut) {
        put_leader(&self.leader_id, out);
        self.committed.put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<Vote, Malformed> {
        Ok(Vote { leader_id: take_leader(input)?, committed: bool::take(input)? })
    }
}

impl Foreign for LogId {
    fn put(&self, out: &mut BytesMut) {
        put_leader(&self.leader_id, out);
        self.index.put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<LogId, Malformed> {
        Ok(LogId::new(take_leader(input)?, u64::take(input)?))
    }
}

/// Bytes of the shortest entry: its place, and which kind it is.
const ENTRY_BYTES_MIN: usize = 25;

impl Foreign for Vec<Entry> {
    fn put(&self, out: &mut BytesMut) {
        put_count(self.len(), out);
        self.iter().for_each(|entry| entry.put(out));
    }

    fn take(input: &mut Input<'_>) -> Result<Vec<Entry>, Malformed> {
        let count = input.count(ENTRY_BYTES_MIN)?;
        (0..count).map(|_| Entry::take(input)).collect()
    }
}

impl Foreign for Entry {
    fn put(&self, out: &mut BytesMut) {
        self.log_id.put(out);
        match &self.payload {
            EntryPayload::Blank => out.put_u8(0),
            EntryPayload::Normal(command) => {
                out.put_u8(1);
                command.put(out);
            }
            EntryPayload::Membership(membership) => {
                out.put_u8(2);
                membership.put(out);
            }
        }
    }

    fn take(input: &mut Input<'_>) -> Result<Entry, Malformed> {
        let log_id = LogId::take(input)?;
        if log_id.index == u64::MAX {
            return Err(input.wrong("an entry that has no next"));
        }
        let payload = match u8::take(input)? {
            0 => EntryPayload::Blank,
            1 => EntryPayload::Normal(Command::take(input)?),
            2 => EntryPayload::Membership(Membership::take(input)?),
            _ => return Err(input.wrong("no such entry")),
        };
        Ok(Entry { log_id, payload })
    }
}

/// The place of the last entry in it, the members and the place of the entry that made them so, the machine.
impl Foreign for MachineSnapshot {
    fn put(&self, out: &mut BytesMut) {
        let MachineSnapshot { meta, machine } = self;
        let SnapshotMeta { last_log_id, last_membership, snapshot_id } = meta;
        last_log_id.put(out);
        last_membership.log_id().put(out);
        let members = Some(last_membership.membership().clone());
        members.filter(|members| members.nodes().next().is_some()).put(out);
        Coded::put(snapshot_id, out);
        Coded::put(machine, out);
    }

    fn take(input: &mut Input<'_>) -> Result<MachineSnapshot, Malformed> {
        let last_log_id = Foreign::take(input)?;
        let made = Foreign::take(input)?;
        let members: Option<Membership> = Foreign::take(input)?;
        let meta = SnapshotMeta {
            last_log_id,
            last_membership: StoredMembership::new(made, members.unwrap_or_default()),
            snapshot_id: Coded::take(input)?,
        };
        Ok(MachineSnapshot { meta, machine: <Bytes as Coded>::take(input)? })
    }
}

/// The voters, in one group or, while that changes, in two; then all members.
impl Foreign for Membership {
    fn put(&self, out: &mut BytesMut) {
        let group = |group: &BTreeSet<Number>| {
            group.iter().map(|number| LogMember::numbered(*number)).collect::<Vec<_>>()
        };
        let voters: Vec<_> = self.get_joint_config().iter().map(group).collect();
        voters.put(out);
        let all: Vec<_> = self.nodes().map(|(number, ())| LogMember::numbered(*number)).collect();
        all.put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<Membership, Malformed> {
        let groups = Vec::<Vec<LogMember>>::take(input)?;
        let all = Vec::<LogMember>::take(input)?;
        let ascend = groups
            .iter()
            .chain([&all])
            .all(|group| !group.is_empty() && group.is_sorted_by(|one, two| one < two));
        let known = groups.iter().flatten().all(|voter| all.binary_search(voter).is_ok());
        if groups.is_empty() || !ascend || !known {
            return Err(input.wrong("members in disorder"));
        }
        let set = |group: Vec<LogMember>| group.into_iter().map(LogMember::number).collect();
        let groups: Vec<BTreeSet<Number>> = groups.into_iter().map(set).collect();
        let all: BTreeSet<Number> = set(all);
        Ok(Membership::new(groups, all))
    }
}
