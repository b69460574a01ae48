//! The one trait that every workload implements, for benchmarks, tests and simulation alike:
//! set up, run, check.

use shoal_types::{Database, Result};
use std::future::Future;

/// A workload over any [`Database`].
///
/// A value of this type holds the parameters and the ids of the tables it made; what changes from
/// transaction to transaction belongs to a [`Client`](Workload::Client).
pub trait Workload: Send + Sync {
    /// One client's state: its random source, its home warehouse, its buffers.
    type Client: Send;

    /// The workload's name, as on the command line: `tpcc`, `micro`, `ycsb-a`.
    fn name(&self) -> &'static str;

    /// The parameters that a result has to state, as (name, value).
    fn parameters(&self) -> Vec<(&'static str, String)>;

    /// The transaction types, in the order in which [`Done::kind`] counts them.
    fn kinds(&self) -> &'static [&'static str];

    /// Into how many parts the initial data can be loaded side by side.
    fn load_parts(&self) -> usize;

    /// Loads part `part` of the initial data and reports rows as they go in.
    fn load<D: Database>(
        &self,
        db: &D,
        part: usize,
        seed: u64,
        loaded: &mut dyn FnMut(u64),
    ) -> impl Future<Output = Result<()>>;

    /// How many rows all parts load together, for a progress bar; an estimate will do.
    fn rows(&self) -> u64;

    /// The state of client number `number`, which draws from `seed` alone.
    fn client(&self, number: usize, seed: u64) -> Self::Client;

    /// Runs the client's next transaction to its end.
    ///
    /// # Errors
    /// Those of the database that the workload did not ask for. A rollback that the workload's
    /// specification demands is not an error but a [`Done`] with `rolled_back` set.
    fn next<D: Database>(
        &self,
        db: &D,
        client: &mut Self::Client,
    ) -> impl Future<Output = Result<Done>>;

    /// Judges the data after a run, when no client is active.
    fn check<D: Database>(&self, db: &D) -> impl Future<Output = Result<Vec<Check>>>;
}

/// How transactions are requested, as a parameter of a result.
pub(crate) fn way(calls: bool) -> String {
    if calls { "calls of procedures" } else { "interactive" }.to_owned()
}

/// A transaction that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// The transaction's type, as an index into [`Workload::kinds`].
    pub kind: usize,
    /// How often the body ran before the last time: the conflicts it met.
    pub retries: u32,
    /// The workload itself rolled it back, as its specification demands.
    pub rolled_back: bool,
}

/// A condition on the data, and whether it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What must hold, with its source: `TPC-C 3.3.2.1: W_YTD = sum(D_YTD)`.
    pub name: String,
    /// `Err` describes where it does not hold, and with which values.
    pub verdict: std::result::Result<(), String>,
}

impl Check {
    /// The condition `name`, that two counts agree.
    pub fn equal(name: &str, found: u64, expected: u64) -> Check {
        let verdict = if found == expected {
            Ok(())
        } else {
            Err(format!("found {found}, expected {expected}"))
        };
        Check { name: name.to_owned(), verdict }
    }
}
