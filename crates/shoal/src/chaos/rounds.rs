//! Many failures, one after the other, each on a cluster that has recovered from the one before.
//!
//! A round is: writers begin; the leader of a shard fails, and if asked that of another one soon after; each comes back; the cluster is whole again, which
//! is that every node answers under the same configuration, every shard is led and every replica votes; every
//! shard acknowledges writes that began after that. Then what was seen is judged.

use super::failure::{InjectedFailure, KilledNodes, PacketDirection, Victim};
use super::moves::{PlannedMove, ReplicaMoves};
use super::watch::{ChaosClients, ChaosObservations};
use crate::clock::now;
use crate::local::{ClusterFolder, wait_whole};
use crate::terminal::tables;
use shoal_client::Cluster;
use shoal_types::Random;
use shoal_workloads::history::Verdict;
use shoal_workloads::report::words;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Within this a cluster is whole again, and serves.
const PATIENCE: Duration = Duration::from_secs(120);

/// Writers pause for so long after a write: what is measured are outages, not throughput.
const PAUSE: Duration = Duration::from_millis(8);

/// So long a round is expected to take, with what its failure takes.
const EXPECTED: Duration = Duration::from_secs(10);

/// Pauses and partitions last at least and at most so many milliseconds: from less than a lease to much more.
const SPAN_MS: (u64, u64) = (100, 4000);

/// A way to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    Kill,
    KillMajority,
    KillAll,
    Pause,
    Partition,
    OneWay,
}

/// The result of a round.
#[derive(Debug)]
pub struct Round {
    /// How it failed.
    pub kind: FailureKind,
    /// The shards whose leaders fail.
    pub shards: Vec<u32>,
    /// What was seen.
    pub seen: ChaosObservations,
    /// From the failure until the cluster was whole again.
    pub whole: Duration,
    /// Whether a replica has moved meanwhile; `None` if none was to.
    pub moved: Option<bool>,
}

/// Runs rounds of failures against a cluster, one after the other.
pub struct Rounds {
    folder: ClusterFolder,
    cluster: Cluster,
    kinds: Vec<FailureKind>,
    /// The leader of another shard fails so long after the first, if any does.
    second_after: Option<Duration>,
    /// Moves a replica in each round, if one is to.
    moves: Option<ReplicaMoves>,
    random: Random,
    /// Of the first of them; every round has a number of its own, for what clients write.
    run: u32,
}

/// The results of all rounds of a kind.
#[derive(Debug, Default)]
struct KindSummary {
    outages: Vec<Duration>,
    others: Duration,
    whole: Duration,
    transactions: u64,
    unknown: u64,
    lost: u64,
    anomalies: u64,
    undecided: u64,
}

/// The results of all rounds.
#[derive(Debug, Default)]
pub struct RoundsSummary {
    kinds: BTreeMap<FailureKind, KindSummary>,
    /// Replicas that have moved, and moves that were refused.
    moved: u64,
    refused: u64,
}

impl FailureKind {
    fn name(self) -> &'static str {
        match self {
            FailureKind::Kill => "kill",
            FailureKind::KillMajority => "kill-majority",
            FailureKind::KillAll => "kill-all",
            FailureKind::Pause => "pause",
            FailureKind::Partition => "partition",
            FailureKind::OneWay => "one-way",
        }
    }

    fn draw(self, random: &mut Random) -> InjectedFailure {
        let mut span = || Duration::from_millis(random.range_inclusive(SPAN_MS.0, SPAN_MS.1));
        match self {
            FailureKind::Kill => InjectedFailure::Kill(KilledNodes::Leader),
            FailureKind::KillMajority => InjectedFailure::Kill(KilledNodes::Majority),
            FailureKind::KillAll => InjectedFailure::Kill(KilledNodes::All),
            FailureKind::Pause => InjectedFailure::Pause(span()),
            FailureKind::Partition => InjectedFailure::Partition(span()),
            FailureKind::OneWay => {
                let span = span();
                let way =
                    if random.chance(1, 2) { PacketDirection::In } else { PacketDirection::Out };
                InjectedFailure::OneWay { span, way }
            }
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Rounds {
    /// Rounds in the cluster of this folder, whose client is `cluster`. Which shards fail, and how, is drawn
    /// from `seed`; `run` is a number that no other run on this cluster has.
    pub fn new(
        folder: ClusterFolder,
        cluster: Cluster,
        kinds: Vec<FailureKind>,
        seed: u64,
        run: u32,
    ) -> Rounds {
        assert!(!kinds.is_empty(), "something has to fail");
        let random = Random::new(seed);
        Rounds { folder, cluster, kinds, second_after: None, moves: None, random, run }
    }

    /// In each round, a replica moves to another node.
    pub fn moving(self, moves: ReplicaMoves) -> Rounds {
        Rounds { moves: Some(moves), ..self }
    }

    /// In each round, the leader of another shard fails so long after the first.
    ///
    /// # Panics
    /// If there is only one shard.
    pub fn second_after(self, distance: Duration) -> Rounds {
        assert!(self.cluster.topology().shards() > 1, "no other shard can fail");
        Rounds { second_after: Some(distance), ..self }
    }

    /// Plays the next one.
    ///
    /// # Errors
    /// A sentence, if it could not be played to its end: the cluster is not whole again, or does not serve.
    pub async fn next(&mut self) -> Result<Round, String> {
        let mut shards: Vec<u32> = (0..self.cluster.topology().shards()).collect();
        self.random.shuffle(&mut shards);
        shards.truncate(1 + usize::from(self.second_after.is_some()));
        let kind = *self.random.pick(&self.kinds).expect("there are some");
        let failure = kind.draw(&mut self.random);
        let planned = match &self.moves {
            Some(moves) => moves.draw(&mut self.random).await?,
            None => None,
        };
        if let Some(node) = planned.as_ref().and_then(|planned| planned.restarts.as_deref()) {
            self.restart(node).await?;
        }
        self.run = self.run.wrapping_add(1);
        let words = format!("{kind} of the leader of {}", Round::words(&shards));
        let played = self.play(shards, kind, failure, planned).await;
        played.map_err(|error| format!("{words}: {error}"))
    }

    /// Kills the process of a node, and waits until the next one has all its replicas.
    async fn restart(&self, name: &str) -> Result<(), String> {
        let state = self.folder.read()?;
        let at = state.nodes.iter().position(|node| node.name == name);
        let victim = Victim::of(&state, at.ok_or_else(|| format!("there is no {name}"))?);
        InjectedFailure::Kill(KilledNodes::Leader).begin(&victim).await?;
        wait_whole(&self.folder, &[victim.node], PATIENCE).await
    }

    async fn play(
        &self,
        shards: Vec<u32>,
        kind: FailureKind,
        failure: InjectedFailure,
        planned: Option<PlannedMove>,
    ) -> Result<Round, String> {
        let expected = EXPECTED + failure.span() + self.second_after.unwrap_or_default();
        let watch = ChaosClients::start(&self.cluster, self.run, PAUSE, expected)?;
        watch.until_served(PATIENCE).await?;
        let state = self.folder.read()?;
        let (struck, began) = (watch.elapsed(), now());
        let strike = async |shard: u32, after: Duration| {
            tokio::time::sleep(after).await;
            let victims = failure.victims(&state, shard).await?;
            failure.play(&victims).await?;
            let killed = victims.into_iter().filter(|_| failure.kills());
            Ok::<Vec<_>, String>(killed.map(|victim| victim.node).collect())
        };
        let second = async {
            match (shards.get(1), self.second_after) {
                (Some(shard), Some(after)) => strike(*shard, after).await,
                _ => Ok(Vec::new()),
            }
        };
        let moved = async {
            match (&self.moves, &planned) {
                (Some(moves), Some(planned)) => moves.carry_out(planned).await.map(Some),
                _ => Ok(None),
            }
        };
        let (first, second, moved) = tokio::join!(strike(shards[0], Duration::ZERO), second, moved);
        let moved = moved?;
        let killed: Vec<_> = first?.into_iter().chain(second?).collect();
        wait_whole(&self.folder, &killed, PATIENCE).await?;
        let whole = began.elapsed();
        watch.until_served(PATIENCE).await?;
        let seen = watch.finish(struck).await?;
        Ok(Round { kind, shards, seen, whole, moved })
    }
}

impl Round {
    /// Shards, in words.
    pub fn words(shards: &[u32]) -> String {
        shards.iter().map(|shard| format!("S{shard}")).collect::<Vec<_>>().join(", then ")
    }
}

impl RoundsSummary {
    /// Adds a round.
    pub fn add(&mut self, round: &Round) {
        self.moved += u64::from(round.moved == Some(true));
        self.refused += u64::from(round.moved == Some(false));
        let row = self.kinds.entry(round.kind).or_default();
        let tally = &round.seen.tally;
        for shard in &tally.shards {
            let outage = shard.outage(tally.struck, tally.ended);
            if round.shards.contains(&shard.shard) {
                row.outages.push(outage);
            } else {
                row.others = row.others.max(outage);
            }
            row.unknown += shard.unknown;
            row.lost += shard.lost + shard.extra;
        }
        row.lost += tally.wrong.len() as u64;
        row.whole = row.whole.max(round.whole);
        row.transactions += round.seen.judged.transactions() as u64;
        row.anomalies += round.seen.judged.anomalies() as u64;
        row.undecided += u64::from(round.seen.judged.verdict() == Verdict::Undecided);
    }

    /// Lost writes, and those that were done twice, and anomalies.
    pub fn wrongs(&self) -> u64 {
        self.kinds.values().map(|row| row.lost + row.anomalies).sum()
    }

    /// Rounds whose history the checker could not decide within its bounds.
    pub fn undecided(&self) -> u64 {
        self.kinds.values().map(|row| row.undecided).sum()
    }

    /// As people read it.
    pub fn text(&self) -> String {
        let ms = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1000.0);
        let rows = self.kinds.iter().map(|(kind, row)| {
            let mut outages = row.outages.clone();
            outages.sort_unstable();
            let median = outages.get(outages.len() / 2).copied().unwrap_or_default();
            let max = outages.last().copied().unwrap_or_default();
            vec![
                kind.to_string(),
                words::count(outages.len() as u64),
                ms(median),
                ms(max),
                ms(row.others),
                format!("{:.1} s", row.whole.as_secs_f64()),
                words::count(row.transactions),
                words::count(row.unknown),
                words::count(row.lost),
                words::count(row.anomalies),
            ]
        });
        let heads = [
            "failure",
            "rounds",
            "median outage",
            "longest",
            "of other shards",
            "whole within",
            "transactions",
            "unknown",
            "lost",
            "anomalies",
        ];
        let mut text = tables(&heads, rows) + "\n";
        if self.moved + self.refused > 0 {
            let (moved, refused) = (words::count(self.moved), words::count(self.refused));
            text += &format!(
                "{moved} replicas moved to other nodes meanwhile; {refused} moves were refused.\n"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::histories::judge;
    use super::super::tally::{ShardTally, Tally};
    use super::*;
    use crate::terminal::COLUMNS_MAX;
    use shoal_types::ShardId;
    use shoal_workloads::history::{Recorder, Seen as Found};

    const MS: Duration = Duration::from_millis(1);

    /// A round in which the shard that failed was silent for so long, and a read saw what it should or not.
    fn round(kind: FailureKind, silent: u32, lost: u64, stale: bool) -> Round {
        let tally = |shard, acknowledged: [u32; 3]| ShardTally {
            acknowledged: acknowledged.map(|at| at * MS).into(),
            ..ShardTally::new(shard)
        };
        let failed = ShardTally { lost, ..tally(1, [90, 100 + silent, 990]) };
        let shards = vec![tally(0, [90, 150, 990]), failed];
        let tally = Tally { shards, struck: 100 * MS, ended: 1000 * MS, wrong: Vec::new() };
        let mut recorder = Recorder::new(1);
        recorder.begin(1);
        recorder.write("r", 1);
        recorder.committed(2);
        recorder.begin(3);
        recorder.read("r", if stale { Found::Absent } else { Found::Value(1) });
        recorder.committed(4);
        let judged = judge([recorder].into_iter(), |_| Some(ShardId(0))).expect("a history");
        let (seen, moved) = (ChaosObservations { tally, judged }, Some(stale));
        Round { kind, shards: vec![1], seen, whole: 3000 * MS, moved }
    }

    #[test]
    fn a_summary_counts_what_is_wrong_and_how_long_shards_were_silent() {
        let mut summary = RoundsSummary::default();
        for silent in [700, 500, 600] {
            summary.add(&round(FailureKind::Kill, silent, 0, false));
        }
        assert_eq!(summary.wrongs(), 0);
        let text = summary.text();
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("kill")).collect();
        let row = rows.join(" ") + " ";
        for cell in [" 3 ", "600 ms", "700 ms", "840 ms", "3.0 s", " 6 "] {
            assert!(row.contains(cell), "{cell} is not in {row}");
        }
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS_MAX, "too wide: {line}\n{text}");
        }
        summary.add(&round(FailureKind::Pause, 500, 2, false));
        summary.add(&round(FailureKind::Partition, 500, 0, true));
        assert_eq!(summary.wrongs(), 3);
        assert_eq!(summary.text().lines().filter(|line| line.contains("500 ms")).count(), 2);
        assert!(summary.text().contains("1 replicas moved to other nodes meanwhile; 4 moves"));
    }

    #[test]
    fn failures_are_drawn_from_the_seed() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [FailureKind::Kill, FailureKind::Pause, FailureKind::Partition]
                .map(|kind| kind.draw(&mut random))
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
        let spans = draw(5).map(|failure| failure.span());
        assert!(spans[0].is_zero() && spans[1..].iter().all(|span| *span >= 100 * MS));
    }
}
