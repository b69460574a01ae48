//! How long what is appended to a stream is on its way: in the open batch, and in the stream until it is decided.

use crate::metrics::TransitTimes;
use shoal_types::Time;
use std::collections::VecDeque;

/// Measures how long pieces gather in a batch, and how long batches replicate. Of one stream, at its leader.
#[derive(Debug, Default)]
pub struct Transit {
    /// Pieces in the open batch.
    gathered: u64,
    /// Their time in it up to then, nanoseconds, all added up.
    gathered_ns: u64,
    then: Time,
    /// For each entry that is not decided: when it was appended, how many pieces it has, and how long they
    /// had gathered.
    under_way: VecDeque<(Time, u64, u64)>,
    /// Not taken yet.
    done: TransitTimes,
}

impl Transit {
    /// The batch gets a piece.
    pub fn gather(&mut self, now: Time) {
        self.pass(now);
        self.gathered += 1;
    }

    /// The batch is appended.
    pub fn append(&mut self, now: Time) {
        self.pass(now);
        self.under_way.push_back((now, self.gathered, self.gathered_ns));
        (self.gathered, self.gathered_ns) = (0, 0);
    }

    /// So many more entries are decided.
    pub fn decide(&mut self, now: Time, entries: usize) {
        for (appended, pieces, gathered_ns) in
            self.under_way.drain(..entries.min(self.under_way.len()))
        {
            self.done.pieces += pieces;
            self.done.batching_ns += gathered_ns;
            self.done.replicating_ns += pieces * (now - appended).as_nanos() as u64;
        }
    }

    /// What there was since this was asked last.
    pub fn take(&mut self) -> TransitTimes {
        std::mem::take(&mut self.done)
    }

    fn pass(&mut self, now: Time) {
        self.gathered_ns += self.gathered * (now - self.then).as_nanos() as u64;
        self.then = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_wait_in_the_batch_and_then_in_the_stream() {
        let mut transit = Transit::default();
        transit.gather(Time(10));
        transit.gather(Time(14));
        transit.append(Time(20));
        transit.append(Time(21));
        transit.gather(Time(30));
        transit.decide(Time(50), 2);
        let done = transit.take();
        assert_eq!((done.pieces, done.batching_ns, done.replicating_ns), (2, 10 + 6, 30 + 30));
        assert_eq!(transit.take(), TransitTimes::default());
    }
}
