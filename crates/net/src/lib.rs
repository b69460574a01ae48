//! Sockets, event loops, real clocks and emulated distance. Knows no protocol: it moves opaque frames
//! between workers of nodes, and between clients and workers.
//!
//! Two nodes have connections between workers of the same number. A frame for another worker names it, and is passed on
//! by the loop that has read it; workers of one node pass frames to each other in the same way. So any worker reaches any
//! other, with as few connections as there are workers.
//!
//! ```text
//!  other nodes, clients            one thread for each worker
//!  ────────────────────     ┌──────────────────────────────────────────┐
//!   TCP or TLS ──► listener ──► │ connections ─► inbox ─► Core::step       │
//!                           │ connections ◄─ queues ◄─ Outbox          │ ◄── Handle: nudges, commands,
//!   TCP or TLS ◄── links ◄──│ links ◄─ distance (held frames)          │     peers, link faults, counters
//!                           └──────────────────────────────────────────┘
//! ```
//! | file | holds |
//! |---|---|
//! | `event_loop.rs` | [`Core`], and the thread that drives one; [`Network`], a node's threads |
//! | `outbox.rs` | the inputs of a core, and its outputs |
//! | `mailbox.rs` | [`Handle`]: how other threads reach a loop |
//! | `passed_frames.rs` | what the workers of a node pass to each other |
//! | `config.rs` | the configuration of a node's network |
//! | `frame.rs`, `queue.rs` | frames: cutting what arrives, laying out what leaves |
//! | `handshake.rs`, `secret.rs`, `tls.rs`, `cluster_id.rs` | authentication of nodes and clients, and of which cluster they are |
//! | `listener.rs`, `dial.rs`, `stream.rs` | accepting connections and making them |
//! | `connection_queue.rs`, `loop_state.rs`, `connection.rs` | what waits on a connection; what a loop's tasks share; a connection's task |
//! | `peer_link.rs`, `loop_connections.rs` | connections to peers; all of a loop, and which it admits |
//! | `distance.rs` | the emulated wide-area network; link faults |
//! | `clock.rs`, `loop_timer.rs` | the time, and being woken on time |
//! | `system_time.rs`, `transaction_clock.rs` | real time with its error bound; the clock of transactions, which follows it |
//! | `reason.rs`, `counters.rs`, `log.rs` | why connections and frames ended; counters; the limit on log lines |
//! | `client.rs` | a client's end |
//!
//! What always holds:
//!
//! - No frame reaches a core unless its sender has proved that it knows the secret of its role.
//! - Frames of one connection arrive in order, each once, or the connection ends. Frames to peers may be lost with it;
//!   then the core receives `PeerDown`.
//! - Nothing that is received causes a panic, or takes more memory than a limit allows. Every end of a connection and
//!   every dropped frame has a reason, which is counted.
//! - An idle loop does not run; frames that are queued in a turn leave in one system call, and none is delayed to wait
//!   for more.

pub mod client;
mod clock;
mod cluster_id;
mod config;
mod connection;
mod connection_queue;
mod counters;
mod dial;
mod direct_writes;
mod distance;
mod event_loop;
mod frame;
#[cfg(test)]
mod fuzz_targets;
mod handshake;
mod listener;
mod log;
mod loop_connections;
mod loop_state;
mod loop_timer;
mod mailbox;
mod outbox;
mod passed_frames;
mod peer_link;
mod queue;
mod reason;
mod secret;
mod stream;
mod system_time;
pub mod tls;
mod transaction_clock;

pub use clock::SystemClock;
pub use cluster_id::{CLUSTER_BYTES_MAX, SharedClusterId};
pub use config::{NetworkConfig, NetworkConfigError, NetworkLimits, PeerConfig};
pub use counters::CounterTotals;
pub use distance::LinkFaults;
pub use event_loop::{Core, Network, Panicked, StartError, listen};
pub use frame::{Frame, FrameError, FrameHeader, FrameKind, FrameReader, HEADER_BYTES};
pub use handshake::VERSION;
pub use mailbox::{Handle, UndeliveredCommand};
pub use outbox::{ConnectedClient, CoreInput, CoreOutput, Outbox};
pub use reason::{CloseReason, DropReason};
pub use secret::{SECRET_BYTES_MIN, Secret, SecretError};
pub use transaction_clock::{ClockError, NodeTransactionClock};
