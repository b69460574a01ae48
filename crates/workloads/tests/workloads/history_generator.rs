//! Generated clients against a database that aborts, keeps silent about outcomes, and, where a
//! bug is planted, breaks its promises.

use bytes::Bytes;
use shoal_types::{
    Aborted, Call, Conflict, Database, Error, Random, RequestId, Result, TableId, Unknown,
};
use shoal_workloads::history::generator::{Generator, Parameters};
use shoal_workloads::history::{AnomalyKind, History, Outcome, Report, check};
use shoal_workloads::model::{Model, ModelTransaction};
use std::cell::Cell;
use std::sync::{Arc, Mutex};

/// What the database does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// A history without an anomaly.
    None,
    /// A transaction that is reported as aborted takes effect.
    AbortsWithEffect,
    /// A transaction that is reported as committed does not take effect.
    CommitsWithout,
}

/// A serial database whose transactions often meet conflicts, and whose answers get lost.
#[derive(Debug, Clone)]
struct Flaky {
    inner: Model,
    random: Arc<Mutex<Random>>,
    bug: Bug,
}

const CONFLICT: Error =
    Error::Aborted(Aborted::Conflict(Conflict::RangeChanged { table: TableId(0) }));

impl Database for Flaky {
    type Transaction<'db> = ModelTransaction;

    fn table(&self, name: &str) -> Result<TableId> {
        self.inner.table(name)
    }

    async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&Self::Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        loop {
            let luck = self.random.lock().expect("no panic").below(100);
            let (conflict, gives_up, silent) = (luck < 30, luck < 5, (30..40).contains(&luck));
            let lost_silently = (30..35).contains(&luck);
            let takes_effect = match self.bug {
                Bug::None => !conflict && !lost_silently,
                Bug::AbortsWithEffect => !lost_silently,
                Bug::CommitsWithout => !conflict && !lost_silently && luck < 95,
            };
            let mut value = None;
            let ran = self.inner.transact(async |tx| {
                value = Some(body(tx).await?);
                if takes_effect { Ok(()) } else { Err(CONFLICT) }
            });
            match (ran.await, value) {
                (Err(error), None) => return Err(error),
                _ if gives_up => return Err(CONFLICT),
                _ if conflict => {}
                _ if silent => {
                    return Err(Unknown::NoAnswer { request: RequestId::default() }.into());
                }
                (_, Some(value)) => return Ok(value),
                (Ok(()), None) => unreachable!("what succeeds has a value"),
            }
        }
    }

    async fn call(&self, call: &Call<'_>) -> Result<Bytes> {
        self.inner.call(call).await
    }
}

fn run(bug: Bug, seed: u64) -> (History, Report) {
    let random = Arc::new(Mutex::new(Random::new(seed)));
    let db = Flaky { inner: Model::new(), random, bug };
    let parameters = Parameters { scans_percent: 15, ..Parameters::default() };
    let generator = Generator::new(&db, parameters, 3).expect("two tables");
    let mut clients: Vec<_> = (0..3).map(|number| generator.client(number, seed)).collect();
    let now = Cell::new(0);
    let clock = || now.replace(now.get() + 1);
    for _ in 0..100 {
        for client in &mut clients {
            futures_executor::block_on(client.next(&db, &clock)).expect("nothing is rejected");
        }
    }
    let recorders = clients.into_iter().map(|client| client.into_recorder());
    let history = History::merge(recorders).expect("well formed");
    let report = check(&history);
    (history, report)
}

#[test]
fn aborts_retries_and_unknown_outcomes_are_recorded_as_what_they_are() {
    for seed in 0..20 {
        let (history, report) = run(Bug::None, seed);
        assert!(report.is_clean(), "seed {seed}: {report}");
        let count = |outcome| history.attempts().iter().filter(|a| a.outcome == outcome).count();
        assert!(count(Outcome::Aborted) > 50, "seed {seed}: {report}");
        assert!(count(Outcome::Unknown) > 10, "seed {seed}: {report}");
        assert!(report.committed_unknown > 0, "seed {seed}: {report}");
        let ended = history.attempts().len() - count(Outcome::Aborted);
        assert!((250..=300).contains(&ended), "each transaction ends once: {report}");
    }
}

#[test]
fn a_database_that_commits_what_it_aborts_is_caught() {
    for seed in 0..20 {
        let (_, report) = run(Bug::AbortsWithEffect, seed);
        assert!(report.found.contains_key(&AnomalyKind::G1a), "seed {seed}: {report}");
    }
}

#[test]
fn a_database_that_forgets_commits_is_caught() {
    for seed in 0..20 {
        let (_, report) = run(Bug::CommitsWithout, seed);
        assert!(!report.is_clean(), "seed {seed}: {report}");
    }
}

#[test]
fn a_last_look_shows_what_was_written_last_and_is_lost() {
    let db = Model::new();
    let parameters = Parameters { reads_percent: 0, scans_percent: 0, ..Parameters::default() };
    let parameters = Parameters { first_generation: 7, ..parameters };
    let run = |db: &Model, look: bool| {
        let generator = Generator::new(db, parameters.clone(), 2).expect("two tables");
        let (mut writer, mut last) = (generator.client(0, 1), generator.client(1, 1));
        let now = Cell::new(0);
        let clock = || now.replace(now.get() + 1);
        assert_eq!(writer.generation(), 7);
        for _ in 0..40 {
            futures_executor::block_on(writer.next(db, &clock)).expect("nothing is rejected");
        }
        assert_eq!(writer.generation(), 9);
        // Another database, in which nothing is.
        let read = if look { Model::new() } else { db.clone() };
        let own = Generator::new(&read, parameters.clone(), 2);
        own.expect("two tables");
        for generation in 7..=writer.generation() {
            let looked = last.look_at(&read, &clock, generation);
            futures_executor::block_on(looked).expect("nothing is rejected");
        }
        let recorders = [writer, last].map(|client| client.into_recorder());
        let history = History::merge(recorders).expect("well formed");
        assert_eq!(history.attempts().len(), 43);
        check(&history)
    };
    assert!(run(&db, false).is_clean());
    let lost = run(&Model::new(), true);
    assert!(lost.found.contains_key(&AnomalyKind::GSingleRealtime), "{lost}");
}

#[test]
fn the_same_seed_makes_the_same_history() {
    let (first, _) = run(Bug::None, 3);
    let (second, _) = run(Bug::None, 3);
    assert_eq!(first.attempts(), second.attempts());
}
