//! Frames that the workers of a node pass to each other: their own messages, and frames that arrive on a connection of
//! one worker and are for another.
//!
//! There is one queue for each receiving worker, which all others fill. A frame that finds it full is dropped, as if it had
//! been lost on the way between nodes.
//!
//! Invariant: no more wait than the limits allow, in frames and in bytes.

use crate::config::NetworkLimits;
use bytes::Bytes;
use shoal_types::{Time, WorkerPlace};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A frame for another worker of this node.
#[derive(Debug)]
pub(crate) struct PassedFrame {
    /// The sender, here or on another node.
    pub from: WorkerPlace,
    pub payload: Bytes,
    /// When it was read from a socket, or was passed on where it comes from this node.
    pub arrived: Time,
}

/// What a frame takes of the limit on bytes beside its payload: it keeps a place in the queue.
const PLACE_BYTES: usize = size_of::<PassedFrame>();

#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<PassedFrame>,
    bytes: usize,
}

/// Frames that wait for one worker.
#[derive(Debug)]
pub(crate) struct PassedFrames {
    frames_max: usize,
    bytes_max: usize,
    /// Whether there may be some: read without the lock.
    has_some: AtomicBool,
    waiting: Mutex<Waiting>,
}

impl PassedFrames {
    pub fn new(limits: &NetworkLimits) -> PassedFrames {
        PassedFrames {
            frames_max: limits.passed_frames_max,
            bytes_max: limits.passed_bytes_max,
            has_some: AtomicBool::new(false),
            waiting: Mutex::default(),
        }
    }

    /// The contents are consistent whenever the queue is not locked, panics or not.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a frame, and returns whether the receiver has to be woken for it. `None` if there is no room.
    pub fn push(&self, frame: PassedFrame) -> Option<bool> {
        let mut waiting = self.waiting();
        let bytes = waiting.bytes + PLACE_BYTES + frame.payload.len();
        if waiting.frames.len() >= self.frames_max || bytes > self.bytes_max {
            return None;
        }
        waiting.bytes = bytes;
        waiting.frames.push_back(frame);
        drop(waiting);
        Some(!self.has_some.swap(true, Ordering::AcqRel))
    }

    /// Takes up to so many frames, the oldest first. Only the receiver calls this.
    pub fn take(&self, most: usize) -> VecDeque<PassedFrame> {
        if !self.has_some.load(Ordering::Relaxed) {
            return VecDeque::new();
        }
        // Before the queue is looked at: a frame that comes after that sets it again.
        self.has_some.swap(false, Ordering::AcqRel);
        let mut waiting = self.waiting();
        let taken = most.min(waiting.frames.len());
        let rest = waiting.frames.split_off(taken);
        let taken = std::mem::replace(&mut waiting.frames, rest);
        let bytes: usize = taken.iter().map(|frame| PLACE_BYTES + frame.payload.len()).sum();
        waiting.bytes -= bytes;
        if !waiting.frames.is_empty() {
            self.has_some.store(true, Ordering::Release);
        }
        taken
    }

    /// Whether there may be some.
    pub fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::{NodeId, WorkerId};

    fn frame(bytes: usize) -> PassedFrame {
        let from = WorkerPlace { node: NodeId(1), worker: WorkerId(2) };
        PassedFrame { from, payload: Bytes::from(vec![0; bytes]), arrived: Time::ZERO }
    }

    fn queue(passed_frames_max: usize, payload_bytes_max: usize) -> PassedFrames {
        let passed_bytes_max = payload_bytes_max + passed_frames_max * PLACE_BYTES;
        let limits = NetworkLimits { passed_frames_max, passed_bytes_max, ..Default::default() };
        PassedFrames::new(&limits)
    }

    #[test]
    fn frames_keep_their_order_and_wake_the_receiver_once() {
        let queue = queue(10, 1000);
        assert!(queue.take(9).is_empty() && !queue.has_some());
        assert_eq!(
            [1, 2, 3].map(|size| queue.push(frame(size))),
            [Some(true), Some(false), Some(false)]
        );
        let sizes = |taken: VecDeque<PassedFrame>| -> Vec<usize> {
            taken.iter().map(|frame| frame.payload.len()).collect()
        };
        assert_eq!(sizes(queue.take(2)), [1, 2]);
        assert!(queue.has_some());
        assert_eq!(sizes(queue.take(2)), [3]);
        assert!(!queue.has_some());
        assert_eq!(queue.push(frame(4)), Some(true));
    }

    #[test]
    fn there_is_no_room_beyond_either_limit_until_some_are_taken() {
        let frames = queue(2, 1000);
        assert_eq!([(); 3].map(|()| frames.push(frame(0)).is_some()), [true, true, false]);
        frames.take(1);
        assert!(frames.push(frame(0)).is_some());
        let bytes = queue(3, 100 - PLACE_BYTES);
        assert_eq!([60, 41, 40].map(|size| bytes.push(frame(size)).is_some()), [true, false, true]);
        let bytes = queue(1, 100);
        assert_eq!(bytes.push(frame(101)), None);
        assert_eq!(bytes.push(frame(100)), Some(true));
        bytes.take(1);
        assert_eq!(bytes.waiting().bytes, 0);
    }
}
