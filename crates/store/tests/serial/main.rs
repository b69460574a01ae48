//! Histories of random transactions on few keys, judged for strict serializability.
//!
//! | module | shows |
//! |---|---|
//! | `checker` | the properties of a correct history |
//! | `programs` | transactions on a store, a step at a time |
//! | `scenarios` | a few transactions of two or three sessions: what random ones rarely come to |
//! | `stepped` | histories whose steps a seed interleaves: they repeat; planted bugs are caught |
//! | `threads` | histories of real threads |
#![cfg(not(feature = "model"))]

mod checker;
mod programs;
mod scenarios;
mod stepped;
mod threads;
