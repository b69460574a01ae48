//! The log of slow transactions: a line for each, and not too many of them.

use shoal_engine::WorkerPlace;
use shoal_engine::slow::{Kind, Slow};
use shoal_types::Time;
use std::time::Duration;

/// Most lines that a worker writes in a [`SPAN`]; the others are counted.
const LINES_MAX: u32 = 10;

/// See [`LINES_MAX`].
const SPAN: Duration = Duration::from_secs(1);

/// The limiter of a worker's lines on slow transactions.
#[derive(Debug, Default)]
pub(crate) struct SlowLog {
    /// When the next span begins.
    next: Time,
    lines: u32,
    /// Slow transactions since the last line that had none.
    untold: u64,
}

impl SlowLog {
    /// Logs a slow transaction of this worker, if the limit allows.
    pub(crate) fn tell(&mut self, now: Time, here: WorkerPlace, slow: &Slow) {
        let Some(untold) = self.may(now) else { return };
        let Slow { kind, transaction, attempts, shards, operations, took, client, outcome } = slow;
        let (kind, procedure) = match kind {
            Kind::Call(procedure) => ("call", Some(&**procedure)),
            Kind::Interactive => ("interactive", None),
            Kind::Task => ("task", None),
        };
        let shards: Vec<String> = shards.iter().map(ToString::to_string).collect();
        tracing::warn!(
            target: "shoal::slow",
            %here,
            transaction = transaction.map(|id| id.to_string()),
            kind,
            procedure,
            outcome,
            took_ms = took.as_micros() as f64 / 1000.0,
            client_ms = client.as_micros() as f64 / 1000.0,
            attempts,
            operations,
            shards = shards.join(" "),
            untold,
            "a slow transaction"
        );
    }

    /// Whether another line may be written; if so, how many were omitted since the last.
    fn may(&mut self, now: Time) -> Option<u64> {
        if now >= self.next {
            (self.next, self.lines) = (now + SPAN, 0);
        }
        if self.lines == LINES_MAX {
            self.untold += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_in_a_moment_only_the_first_have_lines_and_the_others_a_number() {
        let mut log = SlowLog::default();
        let told: Vec<_> = (0..15).map(|_| log.may(Time(1000))).collect();
        assert_eq!(told[..10], [Some(0); 10]);
        assert_eq!(told[10..], [None; 5]);
        assert_eq!(log.may(Time(1000) + SPAN), Some(5));
        assert_eq!(log.may(Time(1000) + SPAN), Some(0));
    }
}
