//! Counters of a worker's loop.
//!
//! Only the worker's thread writes its counters, so an addition is a load and a store; any thread may read them. Totals
//! are summed on demand.

use crate::reason::{CloseReason, DropReason};
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that one thread increments and all may read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// REQUIRES: only ever called on one thread.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.store(self.get().wrapping_add(more), Ordering::Relaxed);
    }

    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one worker.
        #[derive(Debug)]
        pub(crate) struct LoopCounters {
            $(pub $name: Counter,)*
            closes: Vec<Counter>,
            drops: Vec<Counter>,
        }

        /// The values of all counters at one moment.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct CounterTotals {
            $($(#[$doc])* pub $name: u64,)*
            closes: Vec<u64>,
            drops: Vec<u64>,
        }

        impl LoopCounters {
            pub fn new() -> LoopCounters {
                LoopCounters {
                    $($name: Counter::default(),)*
                    closes: CloseReason::ALL.iter().map(|_| Counter::default()).collect(),
                    drops: DropReason::ALL.iter().map(|_| Counter::default()).collect(),
                }
            }

            pub fn totals(&self) -> CounterTotals {
                CounterTotals {
                    $($name: self.$name.get(),)*
                    closes: self.closes.iter().map(Counter::get).collect(),
                    drops: self.drops.iter().map(Counter::get).collect(),
                }
            }
        }

        impl CounterTotals {
            /// The counters without reasons, with their names in metrics.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }

        impl AddAssign<&CounterTotals> for CounterTotals {
            fn add_assign(&mut self, other: &CounterTotals) {
                $(self.$name += other.$name;)*
                self.closes.iter_mut().zip(&other.closes).for_each(|(sum, more)| *sum += more);
                self.drops.iter_mut().zip(&other.drops).for_each(|(sum, more)| *sum += more);
            }
        }
    };
}

counters! {
    /// Frames received from peers and clients.
    frames_in,
    /// Frames given to sockets, or queued for them.
    frames_out,
    /// Bytes received.
    bytes_in,
    /// Bytes written to sockets.
    bytes_out,
    /// Reads of sockets that returned bytes or the end.
    reads,
    /// Writes to sockets that wrote something.
    writes,
    /// Turns of the event loop that had something to do.
    turns,
    /// How often the timer fired.
    timer_fires,
    /// Connections accepted at the listener, before authentication.
    accepted,
    /// Peers and clients that were authenticated.
    admitted,
    /// Connections to peers that were established.
    connects,
    /// Connections to peers that were not the first to that peer.
    reconnects,
    /// Clients that disconnected or were closed.
    clients_gone,
}

impl LoopCounters {
    pub fn close(&self, reason: CloseReason) {
        self.closes[usize::from(reason.code())].add(1);
    }

    pub fn drop_frames(&self, reason: DropReason, frames: usize) {
        self.drops[usize::from(reason.code())].add(frames as u64);
    }
}

impl CounterTotals {
    /// All counters at zero.
    pub fn zero() -> CounterTotals {
        LoopCounters::new().totals()
    }

    /// How many connections ended, or were refused, for this reason.
    pub fn closes(&self, reason: CloseReason) -> u64 {
        self.closes[usize::from(reason.code())]
    }

    /// How many frames were dropped for this reason.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[usize::from(reason.code())]
    }

    /// Reads and writes of sockets for each frame that came or went; none where none did.
    pub fn system_calls_per_frame(&self) -> f64 {
        let frames = self.frames_in + self.frames_out;
        if frames == 0 { 0.0 } else { (self.reads + self.writes) as f64 / frames as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_summed_by_reason() {
        let (one, two) = (LoopCounters::new(), LoopCounters::new());
        one.frames_in.add(3);
        two.frames_in.add(4);
        one.reads.add(7);
        one.close(CloseReason::TooLong);
        two.close(CloseReason::TooLong);
        two.drop_frames(DropReason::Cut, 5);
        let mut sum = CounterTotals::zero();
        sum += &one.totals();
        sum += &two.totals();
        assert_eq!((sum.frames_in, sum.closes(CloseReason::TooLong)), (7, 2));
        assert_eq!((sum.drops(DropReason::Cut), sum.closes(CloseReason::Left)), (5, 0));
        assert_eq!(sum.named()[0], ("frames_in", 7));
        assert_eq!(sum.system_calls_per_frame(), 1.0);
    }
}
