//! The speed of the core alone: three voters in one thread, messages handed over in memory.
//!
//! `cargo test --release -p shoal-log --test stream -- --ignored --nocapture speed`

#![allow(clippy::disallowed_methods)] // Measures real time.

use bytes::Bytes;
use shoal_log::{MemoryStorage, Stream, StreamEffect, StreamEvent, StreamMembers, StreamOptions};
use shoal_types::{Ballot, Epoch, NodeId, Time};
use std::collections::VecDeque;
use std::time::Instant;

struct Trio {
    streams: Vec<Stream>,
    deliveries: VecDeque<(NodeId, NodeId, shoal_log::StreamMessage)>,
    effects: Vec<StreamEffect>,
}

impl Trio {
    fn new() -> Trio {
        let ids = [NodeId(0), NodeId(1), NodeId(2)];
        let members = StreamMembers {
            voters: ids.to_vec(),
            learners: Vec::new(),
            ..StreamMembers::default()
        };
        let stream =
            |id| Stream::new(id, members.clone(), StreamOptions::default(), MemoryStorage::new());
        let streams = ids.into_iter().map(stream).collect();
        let mut trio = Trio { streams, deliveries: VecDeque::new(), effects: Vec::new() };
        trio.step(
            0,
            StreamEvent::Lead {
                ballot: Ballot { epoch: Epoch(1), node: NodeId(0) },
                continues: true,
            },
        );
        trio.settle();
        trio
    }

    fn step(&mut self, place: usize, event: StreamEvent) {
        self.streams[place].step(Time::ZERO, event, &mut self.effects);
        for effect in self.effects.drain(..) {
            if let StreamEffect::Send { to, message } = effect {
                self.deliveries.push_back((NodeId(place as u32), to, message));
            }
        }
    }

    fn settle(&mut self) {
        while let Some((from, to, message)) = self.deliveries.pop_front() {
            self.step(to.0 as usize, StreamEvent::Received { from, message });
        }
    }
}

#[test]
#[ignore = "a measurement; say --ignored --nocapture, and --release"]
fn speed_of_rounds() {
    for (name, flight) in [("one at a time", 1), ("64 in flight", 64), ("1024 in flight", 1024)] {
        let mut trio = Trio::new();
        let entry = Bytes::from(vec![7; 100]);
        let rounds = 1_000_000 / flight;
        let began = Instant::now();
        for round in 0..rounds {
            for _ in 0..flight {
                trio.step(0, StreamEvent::Propose { entry: entry.clone() });
            }
            trio.settle();
            if round % 64 == 0 {
                for place in 0..3 {
                    let before = trio.streams[place].replicated_everywhere();
                    trio.step(place, StreamEvent::Trim { before });
                }
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let decided = trio.streams[0].decided().0;
        assert_eq!(decided, rounds * flight);
        println!("{name}: {:.0} entries/s decided by three voters", decided as f64 / seconds);
    }
}
