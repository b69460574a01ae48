//! Messages that no correct node sends, among correct ones: no message from outside stops a node. What is
//! decided may then be wrong: ballots are trusted.

use crate::cluster::{Cluster, Delivery, ballot};
use bytes::Bytes;
use shoal_log::{LogLength, Stream, StreamEvent, StreamMembers, StreamMessage, StreamOptions};
use shoal_types::{Ballot, NodeId, Random};
use std::time::Duration;

/// Small numbers, so that they collide; sometimes one beyond all bounds.
fn length(random: &mut Random) -> LogLength {
    let bound = if random.chance(1, 50) { u64::MAX / 4 } else { 8 };
    LogLength(random.below(bound))
}

fn any_ballot(random: &mut Random) -> Ballot {
    ballot(random.below(4) as u32, NodeId(random.range_inclusive(1, 4) as u32))
}

fn entries(random: &mut Random) -> Vec<Bytes> {
    (0..random.below(4)).map(|_| Bytes::from(vec![b'z'; random.below(5) as usize])).collect()
}

fn nonsense(random: &mut Random, ballot: Ballot) -> StreamMessage {
    let (decided, everywhere) = (length(random), length(random));
    let (accepted_ballot, accepted) = (any_ballot(random), length(random));
    let from = if random.chance(1, 50) { LogLength(u64::MAX) } else { length(random) };
    let votes = random.chance(1, 2);
    match random.below(8) {
        0 => StreamMessage::Prepare { ballot, accepted_ballot, accepted, decided },
        1 => {
            let entries = entries(random);
            StreamMessage::Promise {
                ballot,
                accepted_ballot,
                accepted,
                decided,
                from,
                entries,
                votes,
            }
        }
        2 => {
            let messages = random.next_u64() >> random.below(64);
            StreamMessage::Fetch { ballot, accepted_ballot, from, messages }
        }
        3 => {
            let (adopted, base, entries) = (accepted_ballot, accepted, entries(random));
            StreamMessage::Append {
                ballot,
                adopted,
                base,
                prev: from,
                entries,
                decided,
                everywhere,
                round: 0,
            }
        }
        4 => {
            let (next, until) = (length(random), length(random));
            StreamMessage::Accepted {
                ballot,
                length: accepted,
                next,
                until,
                decided,
                round: random.below(3),
                votes,
            }
        }
        5 => StreamMessage::Decide { ballot, decided, everywhere },
        6 => StreamMessage::Snapshot { ballot, length: accepted, state: Bytes::new() },
        _ => StreamMessage::Rejected { ballot, promised: accepted_ballot },
    }
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let voters = (1..=3).map(NodeId).collect();
    let members = StreamMembers { voters, learners: vec![NodeId(4)], ..StreamMembers::default() };
    let options =
        StreamOptions { window_entries: 4, message_bytes_max: 4, ..StreamOptions::default() };
    let mut cluster = Cluster::new(members, &[], options, false);
    for _ in 0..300 {
        let id = NodeId(random.range_inclusive(1, 4) as u32);
        // Checks may report errors: decisions are forged here.
        let _error = match random.below(10) {
            0 => {
                let epoch = random.below(4) as u32;
                cluster.step(id, StreamEvent::Lead { ballot: ballot(epoch, id), continues: true })
            }
            1 => cluster.step(id, StreamEvent::Propose { entry: Bytes::from_static(b"x") }),
            2 => cluster.wait(Duration::from_millis(random.below(300))),
            3 => cluster.step(id, StreamEvent::Trim { before: length(&mut random) }),
            4..7 if !cluster.deliveries.is_empty() => {
                let place = random.below(cluster.deliveries.len() as u64) as usize;
                let delivery = cluster.deliveries.swap_remove(place);
                cluster.deliver(delivery)
            }
            _ => {
                // Mostly from the ballot's node, or as an answer to it; others are ignored.
                let known = cluster.up(id).map(Stream::ballot).unwrap_or_default();
                let forged = any_ballot(&mut random);
                let ballot = if random.chance(1, 2) { known } else { forged };
                let from =
                    if random.chance(2, 3) { ballot.node } else { any_ballot(&mut random).node };
                let message = nonsense(&mut random, ballot);
                cluster.deliver(Delivery { from, to: id, message })
            }
        };
    }
}

#[test]
fn nonsense_stops_no_node() {
    for seed in 0..2000 {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}
