//! What a step costs: a worker that works is busy, and what reaches it meanwhile waits.
//!
//! Where correctness is looked for, everything costs nothing, so that many things happen at once. Where
//! speed is looked for, every engine pays the same prices.
//!
//! Engines count what they do to records on behalf of others: for other nodes, for the replicas. What
//! the code of a client that lives on a worker does to the worker's own records, only that code knows:
//! it says so by [`charge`], and the step that it runs in pays.

use std::cell::Cell;
use std::time::Duration;

/// Prices; see the module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Of taking an event.
    pub event: Duration,
    /// Of sending a message or a reply.
    pub message: Duration,
    /// Of an operation on a record.
    pub operation: Duration,
    /// Of a byte that is appended to a stream, sent, received or replayed. Where prices of operations are those of
    /// whole transactions, their bytes are in them, and this is zero.
    pub byte: Duration,
    /// Of a key that is locked, installed or rolled back, and of sixteen reads that are validated. As with bytes.
    pub key: Duration,
}

/// What a step has done, to be paid for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepWork {
    /// Messages and replies that it sent.
    pub messages: u64,
    /// Operations on records, but for those that are [charged](charge).
    pub operations: u64,
    /// Bytes that it appended, sent, received and replayed.
    pub bytes: u64,
    /// Keys that it locked, installed and rolled back, and a sixteenth of the reads that it validated.
    pub keys: u64,
}

thread_local! {
    /// Charged in the step that is under way. A simulation is one thread, and a step is paid for as
    /// soon as it is over, so this never says anything about another step.
    static CHARGED: Cell<u64> = const { Cell::new(0) };
}

/// The step that is under way worked on so many records more than its engine counts.
#[inline]
pub fn charge(operations: u64) {
    CHARGED.set(CHARGED.get() + operations);
}

impl Cpu {
    /// Everything costs nothing.
    pub const FREE: Cpu = Cpu {
        event: Duration::ZERO,
        message: Duration::ZERO,
        operation: Duration::ZERO,
        byte: Duration::ZERO,
        key: Duration::ZERO,
    };

    /// The prices that go with the rates in `docs/performance.md`. One worker runs 772,699 transactions
    /// of the micro-benchmark a second, which have 6 operations on average, and 87,208 of TPC-C, which
    /// have about 50: 0.22 and 0.23 µs for an operation, its share of the commit included. What an
    /// event and a message cost is not measured, since there are no sockets yet: these are the prices
    /// of system calls that several messages share.
    pub const MEASURED: Cpu = Cpu {
        event: Duration::from_nanos(500),
        message: Duration::from_nanos(1000),
        operation: Duration::from_nanos(250),
        byte: Duration::ZERO,
        key: Duration::ZERO,
    };

    /// The same, and a byte has a price: about that of copying it once to where no memory is mapped yet.
    #[must_use]
    pub fn with_bytes(self) -> Cpu {
        Cpu { byte: Duration::from_nanos(1), ..self }
    }

    /// The same, and a key that is locked or installed has a price: about that of putting a new one into the index.
    #[must_use]
    pub fn with_keys(self) -> Cpu {
        Cpu { key: Duration::from_nanos(500), ..self }
    }

    /// The same work on a processor that is so many times slower.
    #[must_use]
    pub fn slower(self, times: u32) -> Cpu {
        let Cpu { event, message, operation, byte, key } = self;
        Cpu {
            event: event * times,
            message: message * times,
            operation: operation * times,
            byte: byte * times,
            key: key * times,
        }
    }

    /// What the step that is just over costs, which has done this work and what was charged, on a node that is so many
    /// hundredths slower than it could be.
    #[inline]
    pub fn cost_ns(&self, work: StepWork, slowdown_percent: u64) -> u64 {
        let StepWork { messages, operations, bytes, keys } = work;
        let operations = operations + CHARGED.take();
        let full = self.event.as_nanos() as u64
            + messages * self.message.as_nanos() as u64
            + operations * self.operation.as_nanos() as u64
            + bytes * self.byte.as_nanos() as u64
            + keys * self.key.as_nanos() as u64;
        full * slowdown_percent / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_pays_for_all_it_did_and_once() {
        let cpu = Cpu::MEASURED.with_bytes().with_keys().slower(2);
        let work = |messages, operations, bytes| StepWork { messages, operations, bytes, keys: 0 };
        assert_eq!(cpu.cost_ns(StepWork { keys: 3, ..work(0, 0, 0) }, 100), 1000 + 3 * 1000);
        assert_eq!(cpu.cost_ns(work(2, 4, 0), 100), 1000 + 2 * 2000 + 4 * 500);
        assert_eq!(cpu.cost_ns(work(0, 0, 7), 100), 1000 + 7 * 2);
        charge(1);
        charge(2);
        assert_eq!(cpu.cost_ns(work(0, 1, 0), 1000), 10 * (1000 + 4 * 500));
        assert_eq!(cpu.cost_ns(work(0, 0, 0), 100), 1000);
        assert_eq!(Cpu::FREE.cost_ns(work(5, 5, 5), 1000), 0);
    }
}
