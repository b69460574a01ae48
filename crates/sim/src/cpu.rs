//! What a step costs: a worker that works is busy, and what reaches it meanwhile waits.
//!
//! Where correctness is looked for, everything costs nothing, so that many things happen at once. Where
//! speed is looked for, every engine pays the same prices.

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
}

impl Cpu {
    /// Everything costs nothing.
    pub const FREE: Cpu =
        Cpu { event: Duration::ZERO, message: Duration::ZERO, operation: Duration::ZERO };

    /// What a step costs that sent so many messages and worked on so many records, on a node that is
    /// so many hundredths slower than it could be.
    #[inline]
    pub fn cost_ns(&self, messages: u64, operations: u64, slowdown_percent: u64) -> u64 {
        let full = self.event.as_nanos() as u64
            + messages * self.message.as_nanos() as u64
            + operations * self.operation.as_nanos() as u64;
        full * slowdown_percent / 100
    }
}
