//! Fuzz targets for the files that a log and its checkpoints consist of, and for what workers and embedded databases keep in them.
//!
//! | file | its targets read |
//! |---|---|
//! | `fuzz_wal.rs` | bytes as a segment, and as a checkpoint: `shoal-wal` |
//! | `fuzz_worker.rs` | records and blocks as those of a worker: `shoal-node`, `shoal-log` |
//! | `fuzz_embedded.rs` | records and blocks as those of an embedded database: `shoal-client`, `shoal-store` |
//! | `bounds.rs` | files too large for a corpus, and how much memory their readers take |
//! | `contents.rs` | what kept inputs hold: formats that are read stay the same |
//! | `corpus.rs` | makes the kept inputs, and checks that they are what their names say |
//! | `parts.rs` | files out of a list of records and blocks |
//!
//! No target covers what engines read of their own parts and records: they panic where those are malformed, since checksums and
//! heads were checked before.

mod bounds;
mod contents;
mod corpus;
mod fuzz_embedded;
mod fuzz_wal;
mod fuzz_worker;
mod parts;
