//! A node's configuration: every mistake in its file is named, with what to do, and no file makes it panic.

mod cases;
mod folder;
mod fuzz_target;
mod random;
