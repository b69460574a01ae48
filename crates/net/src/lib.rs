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
//! | `outbox.rs` | what happens to a core, and what it wants done |
//! | `mailbox.rs` | [`Handle`]: how other threads reach a loop |
//! | `passed_frames.rs` | what the workers of a node pass to each other |
//! | `config.rs` | what a node is told of itself, its peers and its limits |
//! | `frame.rs`, `queue.rs` | frames: cutting what arrives, laying out what leaves |
//! | `handshake.rs`, `secret.rs`, `tls.rs`, `cluster_id.rs` | who is there, of which cluster, and the proof of it |
//! | `listener.rs`, `dial.rs`, `stream.rs` | accepting connections and making them |
//! | `connection_queue.rs`, `loop_state.rs`, `connection.rs` | what waits on a connection; what a loop's tasks share; a connection's task |
//! | `peer_link.rs`, `loop_connections.rs` | connections to peers; all of a loop, and which it admits |
//! | `distance.rs` | the emulated wide area; cutting and slowing ways while all runs |
//! | `clock.rs`, `loop_timer.rs` | the time, and being woken on time |
//! | `system_time.rs`, `transaction_clock.rs` | real time with its error bound; the clock of transactions, which follows it |
//! | `reason.rs`, `counters.rs`, `log.rs` | why things ended, how much was done |
//! | `client.rs` | a client's end |
//!
//! What always holds:
//!
//! - No frame reaches a core whose sender has not proved that it knows the secret of its role.
//! - Frames of one connection arrive in order, each once, or the connection ends. Frames to peers may get
//!   lost with it; then the core is told that the peer is down.
//! - Nothing from outside panics, or makes us keep more than a limit allows. All that ends a connection or
//!   drops a frame has a reason that is counted.
//! - When nothing happens, nothing runs; what is queued in a turn of the loop leaves in one system call,
//!   and nothing is held back to wait for more.

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
pub use transaction_clock::NodeTransactionClock;
