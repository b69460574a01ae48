//! Messages of `two_phase_commit` that no honest node sends.

use super::{
    Forge, answers, bytes, change, number, operations, refusal, relay, shard, small, twist_reply,
    twist_request,
};
use shoal_engine::TransactionId;
use shoal_replication::codec::StreamWrite;
use shoal_two_phase_commit::TwoPhaseCommit;
use shoal_types::{Clock, Epoch, NodeId, Random, TableId, WorkerId};

fn decision_home(random: &mut Random) -> shoal_two_phase_commit::message::DecisionHome {
    let leadership = Epoch(small(random));
    shoal_two_phase_commit::message::DecisionHome { shard: shard(random), leadership }
}

fn participant(random: &mut Random) -> shoal_two_phase_commit::message::Participant {
    let leadership = Epoch(small(random));
    shoal_two_phase_commit::message::Participant { shard: shard(random), leadership }
}

fn two_phase_request(
    random: &mut Random,
) -> shoal_two_phase_commit::message::TwoPhaseCommitRequest {
    use shoal_two_phase_commit::message::TwoPhaseCommitRequest;
    match random.below(8) {
        0 => TwoPhaseCommitRequest::Execute { operations: operations(random) },
        1 => TwoPhaseCommitRequest::Lock { operations: operations(random) },
        2 => TwoPhaseCommitRequest::Prepare {
            operations: operations(random),
            home: decision_home(random),
        },
        3 => TwoPhaseCommitRequest::Validate,
        4 => TwoPhaseCommitRequest::OnePhase {
            operations: operations(random),
            install: random.chance(1, 2),
        },
        5 => TwoPhaseCommitRequest::Commit,
        6 => TwoPhaseCommitRequest::DecideLast {
            participants: (0..random.below(3)).map(|_| shard(random)).collect(),
        },
        _ => TwoPhaseCommitRequest::Abort,
    }
}

fn two_phase_reply(random: &mut Random) -> shoal_two_phase_commit::message::TwoPhaseCommitReply {
    use shoal_two_phase_commit::message::TwoPhaseCommitReply;
    match random.below(6) {
        0 => TwoPhaseCommitReply::Executed { answers: answers(random) },
        1 => TwoPhaseCommitReply::Locked { clock: Clock(number(random)) },
        2 => TwoPhaseCommitReply::Validated,
        3 => TwoPhaseCommitReply::Committed {
            clock: random.chance(1, 2).then(|| Clock(number(random))),
        },
        4 => TwoPhaseCommitReply::Resolved,
        _ => TwoPhaseCommitReply::Refused { error: refusal() },
    }
}

/// A part of a copy, or the answer to one.
fn copy(random: &mut Random) -> shoal_two_phase_commit::TwoPhaseCommitMessage {
    use shoal_two_phase_commit::TwoPhaseCommitMessage;
    use shoal_two_phase_commit::message::{
        ChunkContents, SnapshotChunk, SnapshotRow, SnapshotWrite,
    };
    let (shard, copy, cut) = (shard(random), u64::from(small(random)), Clock(number(random)));
    if random.chance(1, 2) {
        let reached =
            random.chance(1, 2).then(|| (TableId(small(random) % 3), bytes(random).into()));
        return TwoPhaseCommitMessage::ChunkTaken { shard, copy, reached };
    }
    // The last table is that of the writes of transactions without an outcome.
    let table =
        |random: &mut Random| if random.chance(1, 4) { u32::MAX } else { small(random) % 3 };
    let mut place = || (TableId(table(random)), bytes(random).into());
    let (from, until) = (place(), Some(place()));
    let row = |random: &mut Random| SnapshotRow {
        table: TableId(small(random) % 3),
        clock: Clock(number(random)),
        key: bytes(random).into(),
        value: random.chance(3, 4).then(|| bytes(random).into()),
    };
    let rows = (0..random.below(3)).map(|_| row(random)).collect();
    let write = |random: &mut Random| {
        let (table, key) = (TableId(small(random) % 3), bytes(random).into());
        let change = change(random);
        let (node, worker) = (NodeId(small(random) % 4), WorkerId(0));
        let transaction = TransactionId { node, worker, sequence: number(random) };
        SnapshotWrite { transaction, write: StreamWrite { table, key, change } }
    };
    let writes = (0..random.below(2)).map(|_| write(random)).collect();
    let contents = ChunkContents { rows, writes };
    TwoPhaseCommitMessage::Chunk(SnapshotChunk { shard, copy, cut, from, until, contents })
}

impl Forge for TwoPhaseCommit {
    fn forge(
        random: &mut Random,
        real: &shoal_two_phase_commit::TwoPhaseCommitMessage,
    ) -> shoal_two_phase_commit::TwoPhaseCommitMessage {
        use shoal_two_phase_commit::TwoPhaseCommitMessage;
        match real.clone() {
            _ if random.chance(1, 10) => TwoPhaseCommitMessage::Relay(relay(random)),
            _ if random.chance(1, 10) => copy(random),
            TwoPhaseCommitMessage::Request { header, request } => {
                let (header, request) = twist_request(random, header, request, two_phase_request);
                TwoPhaseCommitMessage::Request { header, request }
            }
            TwoPhaseCommitMessage::Reply { transaction, shard, step, reply } => {
                let (step, reply) = twist_reply(random, step, reply, two_phase_reply);
                TwoPhaseCommitMessage::Reply { transaction, shard, step, reply }
            }
            TwoPhaseCommitMessage::Relay(_) => TwoPhaseCommitMessage::Relay(relay(random)),
            TwoPhaseCommitMessage::Inquiry { transaction, .. } => {
                let (home, participant) = (decision_home(random), participant(random));
                TwoPhaseCommitMessage::Inquiry { transaction, home, participant }
            }
            TwoPhaseCommitMessage::Decision { transaction, .. } => {
                let (home, participant) = (shard(random), participant(random));
                let committed = random.chance(1, 2);
                TwoPhaseCommitMessage::Decision { transaction, home, participant, committed }
            }
            TwoPhaseCommitMessage::Acknowledgement { transaction, .. } => {
                let (home, shard) = (shard(random), shard(random));
                TwoPhaseCommitMessage::Acknowledgement { transaction, home, shard }
            }
            TwoPhaseCommitMessage::Chunk(_) | TwoPhaseCommitMessage::ChunkTaken { .. } => {
                copy(random)
            }
        }
    }

    fn is_strange(
        message: &shoal_two_phase_commit::TwoPhaseCommitMessage,
        from: NodeId,
        leaders: &[NodeId],
    ) -> bool {
        match message {
            shoal_two_phase_commit::TwoPhaseCommitMessage::Request { header, .. } => {
                header.transaction.node != from
            }
            shoal_two_phase_commit::TwoPhaseCommitMessage::Reply { .. }
            | shoal_two_phase_commit::TwoPhaseCommitMessage::Relay(_)
            | shoal_two_phase_commit::TwoPhaseCommitMessage::Inquiry { .. }
            | shoal_two_phase_commit::TwoPhaseCommitMessage::ChunkTaken { .. } => true,
            // A leader is believed what its shard has.
            shoal_two_phase_commit::TwoPhaseCommitMessage::Chunk(part) => {
                leaders.get(part.shard.0 as usize) != Some(&from)
            }
            // From a leader they may be true.
            shoal_two_phase_commit::TwoPhaseCommitMessage::Decision { .. }
            | shoal_two_phase_commit::TwoPhaseCommitMessage::Acknowledgement { .. } => false,
        }
    }

    fn spoil(
        random: &mut Random,
        real: &shoal_two_phase_commit::TwoPhaseCommitMessage,
    ) -> Option<shoal_two_phase_commit::TwoPhaseCommitMessage> {
        use shoal_two_phase_commit::TwoPhaseCommitMessage;
        use shoal_two_phase_commit::message::TwoPhaseCommitReply;
        let mut spoilt = real.clone();
        match &mut spoilt {
            TwoPhaseCommitMessage::Request { header, .. } => match random.below(3) {
                0 => header.step = 0,
                1 => header.oldest = u64::MAX,
                _ => header.epoch = Epoch(9),
            },
            TwoPhaseCommitMessage::Reply { reply, .. } => {
                *reply = match reply {
                    TwoPhaseCommitReply::Refused { .. } => return None,
                    TwoPhaseCommitReply::Executed { .. } => TwoPhaseCommitReply::Validated,
                    TwoPhaseCommitReply::Locked { .. } => TwoPhaseCommitReply::Resolved,
                    TwoPhaseCommitReply::Committed { .. } => {
                        TwoPhaseCommitReply::Executed { answers: Vec::new() }
                    }
                    TwoPhaseCommitReply::Validated => TwoPhaseCommitReply::Resolved,
                    TwoPhaseCommitReply::Resolved => TwoPhaseCommitReply::Validated,
                };
            }
            TwoPhaseCommitMessage::Relay(_)
            | TwoPhaseCommitMessage::Inquiry { .. }
            | TwoPhaseCommitMessage::Decision { .. }
            | TwoPhaseCommitMessage::Acknowledgement { .. }
            | TwoPhaseCommitMessage::Chunk(_)
            | TwoPhaseCommitMessage::ChunkTaken { .. } => return None,
        }
        Some(spoilt)
    }
}
