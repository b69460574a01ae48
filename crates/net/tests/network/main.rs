//! Real nodes on loopback: what passes between them, and what must not.

mod clients;
mod common;
mod distances;
mod hostile;
mod passed;
mod peers;
mod secured;
