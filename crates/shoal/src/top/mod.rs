//! A cluster while it runs, in numbers per second: what `shoal top` shows.
//!
//! `sample.rs` asks all workers of all nodes, `figures.rs` makes rates of two samples, and `screen.rs` draws them.

mod figures;
mod sample;
mod screen;

pub use figures::Figures;
pub use sample::TopSample;
pub use screen::{History, draw, text};
