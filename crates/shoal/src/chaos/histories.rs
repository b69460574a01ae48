//! Clients whose transactions are recorded, for the checker of strict serializability.
//!
//! They read and write few keys, which are spread over the shards, so that most transactions have several
//! participants. What has an unknown outcome is recorded as that. When all is over, every key is read
//! once more: what was acknowledged and is lost shows even where it was not read since.
//!
//! Each client keeps to a pace, by which a history has an end: see [`TRANSACTIONS_MAX`].

use crate::clock::now;
use shoal_client::{Cluster, Error, TableId};
use shoal_types::{Rejected, ShardId};
use shoal_workloads::history::generator::{Client, Generator, Parameters};
use shoal_workloads::history::{Attempt, History, Outcome, Recorder, Report, Verdict, check};
use shoal_workloads::report::words;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Clients at work.
const CLIENTS: u64 = 6;

/// Most transactions of a history, in all: a minute of judging at worst.
const TRANSACTIONS_MAX: u32 = 100_000;

/// Each client begins a transaction once in this time, or less often.
const PACE: Duration = Duration::from_millis(8);

/// Generations of one run begin so far from those of another.
const RUN_GENERATIONS: u64 = 1 << 24;

/// After so long a transaction is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Clients at work, on the local tasks of the caller.
pub struct RecordedClients {
    cluster: Cluster,
    generator: Generator,
    seed: u64,
    began: Instant,
    stop: Arc<AtomicBool>,
    clients: JoinSet<Result<Client, Error>>,
}

/// The verdict of the checker.
#[derive(Debug)]
pub struct Judged {
    history: History,
    report: Report,
    /// Transactions that touched several shards and have not aborted.
    spread: usize,
}

impl RecordedClients {
    /// Starts clients, which draw from `seed`, for about so long. `run` is a number that no other run on this
    /// cluster has.
    ///
    /// # Errors
    /// If the tables for them cannot be created.
    pub fn start(
        cluster: &Cluster,
        run: u32,
        seed: u64,
        expected: Duration,
    ) -> Result<RecordedClients, Error> {
        let cluster = cluster.with_deadline(PATIENCE);
        let parameters = Parameters {
            operations_max: 6,
            first_generation: u64::from(run) * RUN_GENERATIONS,
            ..Parameters::default()
        };
        // One more looks at all of it in the end.
        let generator = Generator::new(&cluster, parameters, CLIENTS + 1)?;
        let (began, stop) = (now(), Arc::new(AtomicBool::new(false)));
        let pace = pace(expected);
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let client = generator.client(number, seed);
            let (cluster, stop) = (cluster.clone(), Arc::clone(&stop));
            clients.spawn_local(work(client, cluster, began, pace, stop));
        }
        Ok(RecordedClients { cluster, generator, seed, began, stop, clients })
    }

    /// Ends them, looks at all keys, and judges what was seen.
    ///
    /// # Errors
    /// A sentence, if a client met what no transaction should: that is a failure of the database.
    pub async fn finish(mut self) -> Result<Judged, String> {
        self.stop.store(true, Ordering::Relaxed);
        let wrong = |error: Error| format!("a client of the history met: {error}");
        let mut clients = Vec::new();
        while let Some(client) = self.clients.join_next().await {
            clients.push(client.expect("clients do not panic").map_err(wrong)?);
        }
        let mut last = self.generator.client(CLIENTS, self.seed);
        let generations = clients.iter().map(Client::generation);
        let clock = clock(self.began);
        for generation in last.generation()..=generations.max().unwrap_or_default() {
            last.look_at(&self.cluster, &clock, generation).await.map_err(wrong)?;
        }
        clients.push(last);
        let homes = KeyHomes::new(&self.cluster).map_err(wrong)?;
        judge(clients.into_iter().map(Client::into_recorder), |key| homes.of(key))
    }
}

/// How often each client begins a transaction, so that in the time expected all of them do not begin more
/// than [`TRANSACTIONS_MAX`].
fn pace(expected: Duration) -> Duration {
    PACE.max(expected * CLIENTS as u32 / TRANSACTIONS_MAX)
}

fn clock(began: Instant) -> impl Fn() -> u64 {
    move || u64::try_from((now() - began).as_nanos()).unwrap_or(u64::MAX)
}

async fn work(
    mut client: Client,
    cluster: Cluster,
    began: Instant,
    pace: Duration,
    stop: Arc<AtomicBool>,
) -> Result<Client, Error> {
    let clock = clock(began);
    let mut beat = tokio::time::interval(pace);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !stop.load(Ordering::Relaxed) {
        beat.tick().await;
        match client.next(&cluster, &clock).await {
            // Too late to begin: it has not happened.
            Ok(()) | Err(Error::Aborted(_)) => {}
            // An engine that moves granules refuses scans of several; they have not happened.
            Err(Error::Rejected(Rejected::ScanTooWide { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(client)
}

/// Where keys live.
struct KeyHomes {
    cluster: Cluster,
    lists: TableId,
    registers: TableId,
}

impl KeyHomes {
    fn new(cluster: &Cluster) -> Result<KeyHomes, Error> {
        let (lists, registers) =
            (cluster.table("history-lists")?, cluster.table("history-registers")?);
        Ok(KeyHomes { cluster: cluster.clone(), lists, registers })
    }

    fn of(&self, key: &str) -> Option<ShardId> {
        let table = if key.starts_with('l') { self.lists } else { self.registers };
        self.cluster.home(table, key.as_bytes()).ok()
    }
}

/// Judges what was recorded of keys that live there.
///
/// # Errors
/// A sentence, if it is no history.
pub(super) fn judge(
    recorders: impl Iterator<Item = Recorder>,
    home: impl Fn(&str) -> Option<ShardId>,
) -> Result<Judged, String> {
    let history = History::merge(recorders);
    let history = history.map_err(|error| format!("what was recorded is no history: {error}"))?;
    let report = check(&history);
    let mut known: BTreeMap<String, Option<ShardId>> = BTreeMap::new();
    let mut is_spread = |attempt: &&Attempt| {
        let mut homes = attempt.operations.iter().map(|operation| {
            let key = operation.key();
            *known.entry(key.to_owned()).or_insert_with(|| home(key))
        });
        let first = homes.next();
        homes.any(|home| Some(home) != first) && attempt.outcome != Outcome::Aborted
    };
    let spread = history.attempts().iter().filter(&mut is_spread).count();
    Ok(Judged { history, report, spread })
}

impl Judged {
    /// Whether one order explains all that was seen.
    pub fn verdict(&self) -> Verdict {
        self.report.verdict
    }

    /// How many anomalies were found.
    pub fn anomalies(&self) -> usize {
        self.report.found.values().sum()
    }

    /// Transactions that have not aborted.
    pub fn transactions(&self) -> usize {
        self.report.attempts - self.report.aborted
    }

    /// Writes the history to a file, for `shoal check`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        self.history.write(std::fs::File::create(path)?)
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |number: usize| words::count(number as u64);
        let (all, spread) = (count(self.transactions()), count(self.spread));
        match self.verdict() {
            Verdict::Violated => {
                writeln!(f, "THE HISTORY of {all} transactions IS NOT STRICTLY SERIALIZABLE:")?;
                return write!(f, "{}", self.report);
            }
            Verdict::Undecided => {
                writeln!(f, "THE HISTORY of {all} transactions IS UNDECIDED:")?;
                return write!(f, "{}", self.report);
            }
            Verdict::Consistent => {}
        }
        let unknown = self.report.attempts
            - self.report.aborted
            - (self.report.committed - self.report.committed_unknown);
        writeln!(
            f,
            "The history of {all} transactions is strictly serializable; {spread} of them touch several \
             shards, {} have an unknown outcome.",
            count(unknown)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_workloads::history::Seen;

    fn home(key: &str) -> Option<ShardId> {
        key.strip_prefix('l').and_then(|number| number.parse().ok()).map(ShardId)
    }

    #[test]
    fn a_history_is_judged_and_what_it_touches_is_counted() {
        let mut recorder = Recorder::new(1);
        recorder.begin(1);
        recorder.append("l0", 1);
        recorder.append("l1", 2);
        recorder.committed(2);
        recorder.begin(3);
        recorder.read("l1", Seen::List(vec![2]));
        recorder.read("l1", Seen::List(vec![2]));
        recorder.unknown();
        let judged = judge([recorder].into_iter(), home).expect("a history");
        assert_eq!(judged.verdict(), Verdict::Consistent);
        let text = judged.to_string();
        assert!(text.contains("history of 2 transactions is strictly serializable"), "{text}");
        assert!(text.contains("; 1 of them touch several") && text.contains("1 have an"), "{text}");
    }

    #[test]
    fn what_was_acknowledged_and_is_lost_is_an_anomaly_that_is_named() {
        let mut recorder = Recorder::new(1);
        recorder.begin(1);
        recorder.append("l0", 1);
        recorder.committed(2);
        recorder.begin(3);
        recorder.read("l0", Seen::Absent);
        recorder.committed(4);
        let judged = judge([recorder].into_iter(), home).expect("a history");
        assert_eq!((judged.verdict(), judged.anomalies()), (Verdict::Violated, 1));
        let text = judged.to_string();
        assert!(text.contains("NOT STRICTLY") && text.contains("G-single-realtime"), "{text}");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history.jsonl");
        judged.write(&path).expect("written");
        let again = shoal_workloads::history::check_file(&path).expect("read");
        assert!(!again.is_clean());
    }

    #[test]
    fn long_failures_are_recorded_at_a_slower_pace() {
        assert_eq!(pace(Duration::from_secs(10)), PACE);
        let hour = Duration::from_secs(3600);
        let all = hour.as_nanos() / pace(hour).as_nanos() * u128::from(CLIENTS);
        assert!(all <= u128::from(TRANSACTIONS_MAX), "{all}");
    }
}
