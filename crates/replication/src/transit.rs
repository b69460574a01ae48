//! The time of transactions in a stream: in the open batch, and from the append until the entry is decided.

use shoal_engine::metrics::TransitTimes;
use shoal_types::Time;
use std::collections::VecDeque;

/// Measures how long transactions wait in open batches, and how long batches replicate. Of one stream, at its leader.
#[derive(Debug, Default)]
pub struct Transit {
    /// Transactions in the open batch.
    gathered: u64,
    /// The sum of their times in it up to `then`, in nanoseconds.
    gathered_ns: u64,
    then: Time,
    /// For each entry that is not decided: the time of its append, the number of its transactions, and the sum of their times in
    /// the batch.
    under_way: VecDeque<(Time, u64, u64)>,
    /// Not taken yet.
    done: TransitTimes,
}

impl Transit {
    /// Adds a transaction to the open batch.
    pub fn gather(&mut self, now: Time) {
        self.pass(now);
        self.gathered += 1;
    }

    /// Appends the batch.
    pub fn append(&mut self, now: Time) {
        self.pass(now);
        self.under_way.push_back((now, self.gathered, self.gathered_ns));
        (self.gathered, self.gathered_ns) = (0, 0);
    }

    /// `entries` more entries are decided.
    pub fn decide(&mut self, now: Time, entries: usize) {
        for (appended, transactions, gathered_ns) in
            self.under_way.drain(..entries.min(self.under_way.len()))
        {
            self.done.replicated += transactions;
            self.done.batching_ns += gathered_ns;
            self.done.replicating_ns += transactions * (now - appended).as_nanos() as u64;
        }
    }

    /// Takes the sums since the last call.
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
    fn transactions_wait_in_the_batch_and_then_in_the_stream() {
        let mut transit = Transit::default();
        transit.gather(Time(10));
        transit.gather(Time(14));
        transit.append(Time(20));
        transit.append(Time(21));
        transit.gather(Time(30));
        transit.decide(Time(50), 2);
        let done = transit.take();
        assert_eq!((done.replicated, done.batching_ns, done.replicating_ns), (2, 10 + 6, 30 + 30));
        assert_eq!(transit.take(), TransitTimes::default());
    }
}
