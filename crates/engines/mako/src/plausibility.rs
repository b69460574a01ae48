//! What a message may say. It comes from outside: what does not fit is counted and dropped before it
//! changes anything, and an honest node says it again.
//!
//! Two kinds of checks: is it the answer to what was asked, or the next request of a branch in this
//! state; and can its clocks be true. What a leader says of its own shard is its own word, and believed.

use super::branch::MakoBranch;
use super::message::{MakoMessage, MakoReply, MakoRequest};
use super::options::ENTRIES_MAX;
use shoal_engine::execution::participant_table::BranchHeader;
use shoal_engine::execution::runtime::answers_fit;
use shoal_types::{Clock, Epoch, ShardId, Stamp};

/// No shard gets that far. Clocks above are nonsense, and would overflow what is counted on from them.
pub(super) const CLOCK_MAX: Clock = Clock(1 << 62);

/// Can a shard, or a floor, have come so far?
pub(super) fn clock(clock: Clock) -> bool {
    clock <= CLOCK_MAX
}

/// Can this be a stamp of `epoch` that `own` keeps, in a cluster of so many shards?
pub(super) fn stamp(stamp: &Stamp, epoch: Epoch, own: ShardId, shards: u32) -> bool {
    let remote = stamp.as_ref().remote;
    stamp.epoch == epoch
        && clock(stamp.clock)
        && remote.iter().all(|entry| {
            let known = entry.shard.0 < shards || entry.shard == ShardId::EVERY;
            known && entry.shard != own && clock(entry.clock)
        })
}

/// Is the request legal of a branch in this state?
pub(super) fn branch(
    context: Option<&MakoBranch>,
    request: &MakoRequest,
    header: &BranchHeader,
    shards: u32,
) -> bool {
    match (context, request) {
        (_, MakoRequest::Abort) => true,
        (None | Some(MakoBranch::Open { .. }), MakoRequest::Install { .. }) => false,
        (None | Some(MakoBranch::Open { .. }), _) => true,
        (Some(MakoBranch::Locked { clock, .. }), MakoRequest::Install { stamp: installed }) => {
            // M2: it is installed as it was drawn.
            installed.clock == *clock
                && stamp(installed, header.epoch, header.shard, shards)
                && installed.as_ref().remote.len() <= ENTRIES_MAX
        }
        (Some(MakoBranch::Locked { .. }), MakoRequest::Validate { last }) => !last,
        (Some(MakoBranch::Locked { .. } | MakoBranch::Slicing(_)), _) => false,
    }
}

/// Is this an answer of `shard` to what was asked of it?
pub(super) fn reply(asked: &MakoMessage, reply: &MakoReply, shard: ShardId, shards: u32) -> bool {
    let MakoMessage::Request { header: BranchHeader { epoch, .. }, request } = asked else {
        return false;
    };
    match (request, reply) {
        (MakoRequest::Execute { operations }, MakoReply::Executed { answers, dependencies }) => {
            answers_fit(operations, answers) && stamp(dependencies, *epoch, shard, shards)
        }
        (MakoRequest::Lock { .. }, MakoReply::Locked { clock: drawn, dependencies }) => {
            *drawn > Clock::ZERO && clock(*drawn) && stamp(dependencies, *epoch, shard, shards)
        }
        (MakoRequest::Validate { .. }, MakoReply::Validated) => true,
        (MakoRequest::Commit { .. }, MakoReply::Certified { stamp: certified }) => {
            stamp(certified, *epoch, shard, shards)
        }
        (MakoRequest::Install { .. } | MakoRequest::Abort, reply) => *reply == MakoReply::Resolved,
        (_, MakoReply::Refused { .. }) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_engine::transaction_id::TransactionId;
    use shoal_types::{NodeId, WorkerId};

    const S: [ShardId; 3] = [ShardId(0), ShardId(1), ShardId(9)];
    const SHARDS: u32 = 3;

    fn made(clock: u64, shard: ShardId, remote: u64) -> Stamp {
        let mut stamp = Stamp::local(Epoch(1), Clock(clock));
        // Kept by a shard that is not there, so that any other can be named.
        stamp.push(ShardId(77), shard, Clock(remote));
        stamp
    }

    #[test]
    fn a_stamp_names_what_can_be() {
        assert!(stamp(&made(5, S[1], 6), Epoch(1), S[0], SHARDS));
        assert!(stamp(&made(5, ShardId::EVERY, 6), Epoch(1), S[0], SHARDS));
        assert!(!stamp(&made(5, S[2], 6), Epoch(1), S[0], SHARDS), "an unknown shard");
        assert!(!stamp(&made(5, S[0], 6), Epoch(1), S[0], SHARDS), "its own shard twice");
        assert!(!stamp(&made(5, S[1], u64::MAX), Epoch(1), S[0], SHARDS), "beyond all clocks");
        assert!(!stamp(&made((1 << 62) + 1, S[1], 6), Epoch(1), S[0], SHARDS), "beyond all clocks");
        assert!(!stamp(&Stamp::local(Epoch(2), Clock(1)), Epoch(1), S[0], SHARDS), "another epoch");
    }

    #[test]
    fn an_answer_is_to_what_was_asked() {
        let transaction = TransactionId { node: NodeId(0), worker: WorkerId(0), sequence: 1 };
        let header = BranchHeader {
            transaction,
            shard: S[1],
            step: 1,
            oldest: 0,
            epoch: Epoch(1),
            leadership: Epoch(1),
        };
        let fits = |request: MakoRequest, answer: MakoReply| {
            reply(&MakoMessage::Request { header, request }, &answer, S[1], SHARDS)
        };
        let execute = || MakoRequest::Execute { operations: Vec::new() };
        let dependencies = || Stamp::local(Epoch(1), Clock(3));
        let executed = || MakoReply::Executed { answers: Vec::new(), dependencies: dependencies() };
        let locked =
            |clock| MakoReply::Locked { clock: Clock(clock), dependencies: dependencies() };
        let lock = || MakoRequest::Lock { operations: Vec::new(), validate: false };
        assert!(fits(execute(), executed()));
        assert!(fits(lock(), locked(4)));
        assert!(!fits(lock(), locked(0)));
        assert!(!fits(lock(), locked(u64::MAX)));
        assert!(!fits(lock(), executed()));
        for wrong in [MakoReply::Validated, MakoReply::Resolved, locked(4)] {
            assert!(!fits(execute(), wrong));
        }
        assert!(fits(MakoRequest::Abort, MakoReply::Resolved));
        assert!(!fits(MakoRequest::Abort, MakoReply::Validated));
    }
}
