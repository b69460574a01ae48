//! One worker of a node: an engine and the streams it leads and follows, as one state machine.

mod worker;

pub use worker::{Effect, Effects, Event, Message, Worker};
