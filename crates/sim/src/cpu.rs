//! What a step costs: a worker that works is busy, and events that reach it meanwhile wait.
//!
//! Runs that search for bugs charge nothing, so that many events coincide. Runs that measure speed charge
//! every engine the same prices.
//!
//! Engines count the operations on records that they perform for other nodes and for replicas. Operations
//! that the code of a client on a worker performs on the worker's own records are known to that code only: it
//! reports them by [`charge`], and the step in which it runs pays.

use std::cell::Cell;
use std::time::Duration;

/// The prices of a worker's actions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Price of taking an event.
    pub event: Duration,
    /// Price of sending a message or a reply.
    pub message: Duration,
    /// Price of an operation on a record.
    pub operation: Duration,
    /// Price of a byte that is appended to a stream, sent, received or replayed. Zero where the prices of
    /// operations were measured with whole transactions, whose bytes they include.
    pub byte: Duration,
    /// Price of a key that is locked, installed or rolled back, and of sixteen reads that are validated. Zero
    /// in the same case as `byte`.
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
    /// Keys that it locked, installed and rolled back, plus a sixteenth of the reads that it validated.
    pub keys: u64,
}

thread_local! {
    /// Operations charged in the step that is under way. A simulation is one thread, and a step is paid for
    /// as soon as it ends, so this never belongs to another step.
    static CHARGED: Cell<u64> = const { Cell::new(0) };
}

/// Charges the step that is under way for this many operations beyond those that its engine counts.
#[inline]
pub fn charge(operations: u64) {
    CHARGED.set(CHARGED.get() + operations);
}

impl Cpu {
    /// Steps take no time, so that workers are never busy.
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
    /// event and a message cost is estimated, not measured: the price of a system call that several
    /// messages share.
    pub const MEASURED: Cpu = Cpu {
        event: Duration::from_nanos(500),
        message: Duration::from_nanos(1000),
        operation: Duration::from_nanos(250),
        byte: Duration::ZERO,
        key: Duration::ZERO,
    };

    /// The same prices, and a price for a byte: about that of copying it once to memory that is not mapped
    /// yet.
    #[must_use]
    pub fn with_bytes(self) -> Cpu {
        Cpu { byte: Duration::from_nanos(1), ..self }
    }

    /// The same prices, and a price for a key that is locked or installed: about that of inserting a new one
    /// into the index.
    #[must_use]
    pub fn with_keys(self) -> Cpu {
        Cpu { key: Duration::from_nanos(500), ..self }
    }

    /// The same prices on a processor that is `times` times slower.
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

    /// The cost of the step that has just ended, which did this work and what was charged, on a node that
    /// needs `slowdown_percent` percent of the time.
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
