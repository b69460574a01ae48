//! `shoal chaos`: injects failures into a local cluster, and reports the results.

use super::{CommandError, CommandOutcome, print};
use crate::chaos::{
    ChaosClients, EmbeddedProcess, FailureKind, InjectedFailure, KilledNodes, PacketDirection,
    ReplicaMoves, Round, Rounds, RoundsSummary, draw, write_until_killed,
};
use crate::duration;
use crate::local::{ClusterFolder, LocalCluster, join, wait_whole};
use crate::progress::RoundsBar;
use crate::terminal::table;
use clap::{Args, Subcommand, ValueEnum, value_parser};
use shoal_client::{Cluster, ClusterOptions};
use shoal_net::Secret;
use shoal_net::client::{Access, Role};
use shoal_types::Random;
use shoal_workloads::report::words;
use std::iter::{once, repeat};
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::LocalSet;

/// The writers are at work so long before anything fails.
const BEFORE: Duration = Duration::from_secs(2);

/// After it is over, every shard is to serve within this.
const PATIENCE: Duration = Duration::from_secs(60);

/// And so long the writers go on when all of them do.
const AFTER: Duration = Duration::from_secs(3);

/// Let something fail in a local cluster, and see what it costs
///
/// Writers are at work on every shard meanwhile, and count what is acknowledged: afterwards all of it has to
/// be there, once. Others record a history of transactions on several shards, which then has to be strictly
/// serializable. A node that is killed is started again by `shoal local`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal chaos kill-leader 0
  shoal chaos kill-all
  shoal chaos pause 1 --for 5s
  shoal chaos partition 2
  shoal chaos one-way 0 --lost in
  shoal chaos loop --rounds 200
  shoal chaos embedded --rounds 100

Exit codes: 0 every acknowledged write is there and the history is strictly serializable, 1 not so,
2 there is no such cluster, 3 the checker could not decide a history within its bounds")]
pub struct Chaos {
    #[command(subcommand)]
    what: What,
    /// The folder of the cluster
    #[arg(long, global = true, value_name = "FOLDER", default_value = "shoal-local")]
    local: PathBuf,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// Kill the process of a shard's leader
    #[command(after_help = "Example:\n  shoal chaos kill-leader 0")]
    KillLeader {
        /// Number of the shard
        shard: u32,
    },
    /// Kill the processes of a majority of a shard's voters at once, the leader's among them. Needs a cluster that keeps logs on
    /// disk: `shoal local --durability fsync`
    #[command(after_help = "Example:\n  shoal chaos kill-majority 0")]
    KillMajority {
        /// Number of the shard
        shard: u32,
    },
    /// Kill the processes of all nodes at once. Needs such a cluster
    #[command(after_help = "Example:\n  shoal chaos kill-all")]
    KillAll,
    /// Stop the process of a shard's leader for a while
    #[command(after_help = "Example:\n  shoal chaos pause 0 --for 5s")]
    Pause {
        /// Number of the shard
        shard: u32,
        /// How long
        #[arg(long = "for", default_value = "3s", value_parser = duration::parse_positive)]
        span: Duration,
    },
    /// Cut a shard's leader off from all other nodes for a while; clients still reach it
    #[command(after_help = "Example:\n  shoal chaos partition 0 --for 5s")]
    Partition {
        /// Number of the shard
        shard: u32,
        /// How long
        #[arg(long = "for", default_value = "3s", value_parser = duration::parse_positive)]
        span: Duration,
    },
    /// Let all packets get lost for a while that other nodes send to a shard's leader, or that it sends to them;
    /// clients still reach it. Needs a cluster of `shoal local --namespaces`
    #[command(after_help = "Example:\n  shoal chaos one-way 0 --lost in --for 5s")]
    OneWay {
        /// Number of the shard
        shard: u32,
        /// Which packets are lost
        #[arg(long, value_enum, default_value_t)]
        lost: Lost,
        /// How long
        #[arg(long = "for", default_value = "3s", value_parser = duration::parse_positive)]
        span: Duration,
    },
    /// Let one leader after the other fail, for many rounds, and judge each of them
    ///
    /// Each round waits until the cluster is whole again: every node answers, every shard is led, and every
    /// replica votes, also that of the node that was killed. Shards, ways to fail and how long they last are
    /// drawn from the seed.
    #[command(after_help = "\
Examples:
  shoal chaos loop --rounds 200
  shoal chaos loop --rounds 50 --fault partition --seed 7
  shoal chaos loop --rounds 50 --fault kill --second-after 2s
  shoal chaos loop --rounds 1000 --fault kill-all
  shoal chaos loop --rounds 200 --replacements")]
    Loop(Loop),
    /// Kill a process with an embedded database over and over, as if its machine lost power
    ///
    /// No cluster is needed. What the process has not flushed is lost with it. Started again in the same folder, it has to have
    /// all that was acknowledged, and exactly the transactions up to one clock.
    #[command(after_help = "Example:\n  shoal chaos embedded --rounds 1000")]
    Embedded(EmbeddedLoop),
    /// Write into an embedded database until the process is killed: `shoal chaos embedded` starts it
    #[command(hide = true)]
    EmbeddedWriter {
        /// The folder of the database
        #[arg(long)]
        folder: PathBuf,
        /// How many writers
        #[arg(long)]
        writers: u32,
    },
    /// Let all go on that was paused or cut off
    #[command(after_help = "Example:\n  shoal chaos heal")]
    Heal,
}

#[derive(Debug, Clone, Args)]
struct Loop {
    /// How many rounds
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u32).range(1..))]
    rounds: u32,
    /// How leaders fail
    #[arg(long, value_enum, default_value_t)]
    fault: Fault,
    /// What shards, failures and their lengths are drawn from; by default another one each time
    #[arg(long)]
    seed: Option<u64>,
    /// In each round, the leader of another shard fails in the same way so long after the first; not where several nodes are
    /// killed at once
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    second_after: Option<Duration>,
    /// In each round, a replica of any shard moves to a node that has none of it. If that has had one, it begins anew first
    #[arg(long)]
    replacements: bool,
    /// Show no progress bar
    #[arg(long)]
    no_progress: bool,
}

#[derive(Debug, Clone, Args)]
struct EmbeddedLoop {
    /// How many rounds
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u32).range(1..))]
    rounds: u32,
    /// How many threads write
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(1..=64))]
    writers: u32,
    /// What the lengths of rounds are drawn from; by default another one each time
    #[arg(long)]
    seed: Option<u64>,
    /// The folder of the database, which stays
    #[arg(long, value_name = "FOLDER", default_value = "shoal-embedded")]
    folder: PathBuf,
    /// Show no progress bar
    #[arg(long)]
    no_progress: bool,
}

/// A way to fail, by its name on the command line.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Fault {
    /// The process is killed
    Kill,
    /// The processes of a majority of the shard's voters are killed at once; needs `shoal local --durability fsync`
    KillMajority,
    /// The processes of all nodes are killed at once; needs the same
    KillAll,
    /// The process is stopped for a while
    Pause,
    /// The node is cut off from the others for a while
    Partition,
    /// Packets of the node to others are lost for a while, or packets of others to it; needs `shoal local --namespaces`
    OneWay,
    /// Now this, now that
    #[default]
    Any,
}

/// Which packets are lost, by its name on the command line.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Lost {
    /// Packets that the others send
    In,
    /// Packets that the node sends
    #[default]
    Out,
}

impl From<Lost> for PacketDirection {
    fn from(lost: Lost) -> PacketDirection {
        match lost {
            Lost::In => PacketDirection::In,
            Lost::Out => PacketDirection::Out,
        }
    }
}

impl Fault {
    fn kinds(self, cluster: &LocalCluster) -> Vec<FailureKind> {
        match self {
            Fault::Kill => vec![FailureKind::Kill],
            Fault::KillMajority => vec![FailureKind::KillMajority],
            Fault::KillAll => vec![FailureKind::KillAll],
            Fault::Pause => vec![FailureKind::Pause],
            Fault::Partition => vec![FailureKind::Partition],
            Fault::OneWay => vec![FailureKind::OneWay],
            Fault::Any if cluster.namespaces => {
                vec![
                    FailureKind::Kill,
                    FailureKind::Pause,
                    FailureKind::Partition,
                    FailureKind::OneWay,
                ]
            }
            Fault::Any => vec![FailureKind::Kill, FailureKind::Pause, FailureKind::Partition],
        }
    }
}

impl Chaos {
    pub(super) fn run(&self) -> Result<CommandOutcome, CommandError> {
        match &self.what {
            What::Embedded(rounds) => return rounds.play(),
            What::EmbeddedWriter { folder, writers } => {
                let written = write_until_killed(folder, *writers);
                return written.map(|()| CommandOutcome::Holds).map_err(CommandError::Database);
            }
            _ => {}
        }
        let folder = ClusterFolder(self.local.clone());
        let cluster = folder.read().map_err(CommandError::Usage)?;
        join(&cluster).map_err(CommandError::Usage)?;
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| CommandError::Usage(error.to_string()))?;
        let strike = |shard, failure| strike(&folder, &cluster, shard, failure);
        LocalSet::new().block_on(&runtime, async {
            match &self.what {
                What::KillLeader { shard } => {
                    strike(*shard, InjectedFailure::Kill(KilledNodes::Leader)).await
                }
                What::KillMajority { shard } => {
                    strike(*shard, InjectedFailure::Kill(KilledNodes::Majority)).await
                }
                What::KillAll => strike(0, InjectedFailure::Kill(KilledNodes::All)).await,
                What::Pause { shard, span } => strike(*shard, InjectedFailure::Pause(*span)).await,
                What::Partition { shard, span } => {
                    strike(*shard, InjectedFailure::Partition(*span)).await
                }
                What::OneWay { shard, lost, span } => {
                    let way = PacketDirection::from(*lost);
                    strike(*shard, InjectedFailure::OneWay { span: *span, way }).await
                }
                What::Loop(rounds) => rounds.play(&folder, &cluster).await,
                What::Heal => heal(&cluster).await,
                What::Embedded(_) | What::EmbeddedWriter { .. } => unreachable!("no cluster"),
            }
        })
    }
}

/// Connects to the cluster.
async fn client(cluster: &LocalCluster) -> Result<Cluster, CommandError> {
    let options = ClusterOptions { access: cluster.access.clone(), ..ClusterOptions::default() };
    let db = Cluster::connect_with(&cluster.addresses(), options).await;
    db.map_err(|error| CommandError::Database(error.to_string()))
}

/// What moves replicas of the cluster in this folder.
fn moves(folder: &ClusterFolder, cluster: &LocalCluster) -> Result<ReplicaMoves, CommandError> {
    let secret = Secret::read(&folder.file("secret"));
    let secret = secret.map_err(|error| CommandError::Usage(error.to_string()))?;
    let access = cluster.access.clone();
    let operator = Access { role: Role::Operator, secret, ..access.clone() };
    Ok(ReplicaMoves { addresses: cluster.addresses(), access, operator, within: 2 * PATIENCE })
}

async fn strike(
    folder: &ClusterFolder,
    cluster: &LocalCluster,
    shard: u32,
    failure: InjectedFailure,
) -> Result<CommandOutcome, CommandError> {
    let db = client(cluster).await?;
    let run = draw().map_err(|error| CommandError::Usage(error.to_string()))?;
    let expected = BEFORE + failure.span() + AFTER;
    let which = once(format!(", which leads S{shard}")).chain(repeat(String::new()));
    let watch =
        ChaosClients::start(&db, run, Duration::ZERO, expected).map_err(CommandError::Database)?;
    tokio::time::sleep(BEFORE).await;
    let victims = failure.victims(cluster, shard).await.map_err(CommandError::Usage)?;
    let struck = watch.elapsed();
    for (victim, which) in victims.iter().zip(which) {
        print(&format!("{} {}{which}\n", victim.node.name, failure.words()))?;
    }
    failure.play(&victims).await.map_err(CommandError::Usage)?;
    let served = watch.until_served(PATIENCE).await;
    tokio::time::sleep(AFTER).await;
    let mut seen = watch.finish(struck).await.map_err(CommandError::Database)?;
    seen.tally.wrong.extend(served.err());
    print(&format!("\n{}{}", seen.tally.text(), seen.judged))?;
    let path = folder.file("history.jsonl");
    let written = seen.judged.write(&path);
    written.map_err(|error| CommandError::file("write", &path, error))?;
    print(&format!("It stands in {}.\n", path.display()))?;
    Ok(if seen.tally.holds() {
        CommandOutcome::of(seen.judged.verdict())
    } else {
        CommandOutcome::Fails
    })
}

impl Loop {
    async fn play(
        &self,
        folder: &ClusterFolder,
        cluster: &LocalCluster,
    ) -> Result<CommandOutcome, CommandError> {
        let drawn = || draw().map_err(|error| CommandError::Usage(error.to_string()));
        let seed = self.seed.map_or_else(|| drawn().map(u64::from), Ok)?;
        wait_whole(folder, &[], PATIENCE).await.map_err(CommandError::Usage)?;
        let db = client(cluster).await?;
        print(&format!("{} rounds from seed {seed}\n", self.rounds))?;
        let shards = db.topology().shards();
        let mut rounds = Rounds::new(folder.clone(), db, self.fault.kinds(cluster), seed, drawn()?);
        if let Some(distance) = self.second_after {
            if matches!(self.fault, Fault::KillMajority | Fault::KillAll) {
                let several =
                    "--second-after: several nodes are killed at once already; leave it out";
                return Err(CommandError::Usage(several.to_owned()));
            }
            if shards < 2 {
                let one = "--second-after takes a cluster with two shards at least";
                return Err(CommandError::Usage(one.to_owned()));
            }
            rounds = rounds.second_after(distance);
        }
        if self.replacements {
            rounds = rounds.moving(moves(folder, cluster)?);
        }
        let mut summary = RoundsSummary::default();
        let bar = RoundsBar::new(self.rounds, !self.no_progress);
        let mut ended = Ok(());
        for number in 1..=self.rounds {
            let round = match rounds.next().await {
                Ok(round) => round,
                Err(error) => {
                    ended = Err(CommandError::Database(format!("round {number}: {error}")));
                    break;
                }
            };
            summary.add(&round);
            bar.show(
                number,
                summary.wrongs(),
                &format!("{} in {}", round.kind, Round::words(&round.shards)),
            );
            if !round.seen.holds() {
                let path = folder.file(format!("history-{number}.jsonl"));
                let written = round.seen.judged.write(&path);
                written.map_err(|error| CommandError::file("write", &path, error))?;
                let said = format!("{}{}", round.seen.tally.text(), round.seen.judged);
                let place = format!("round {number} ({}), {}", round.kind, path.display());
                bar.aside(|| print(&format!("\n{place}:\n{said}\n")))?;
            }
        }
        bar.finish();
        print(&format!("\n{}", summary.text()))?;
        ended?;
        if summary.wrongs() > 0 {
            return Ok(CommandOutcome::Fails);
        }
        if summary.undecided() > 0 {
            print(&format!(
                "Every acknowledged write is there, once; the checker could not decide {} of the histories, \
                 which stand in {}.\n",
                summary.undecided(),
                folder.0.display()
            ))?;
            return Ok(CommandOutcome::Undecided);
        }
        print(
            "Every acknowledged write is there, once; every history is strictly serializable.\n",
        )?;
        Ok(CommandOutcome::Holds)
    }
}

impl EmbeddedLoop {
    /// Rounds of up to so many transactions.
    const WRITES_MAX: u64 = 400;

    fn play(&self) -> Result<CommandOutcome, CommandError> {
        let failed = |error: std::io::Error| CommandError::Usage(error.to_string());
        let seed = self.seed.map_or_else(|| draw().map(u64::from), Ok).map_err(failed)?;
        let mut random = Random::new(seed);
        print(&format!("{} rounds from seed {seed}\n", self.rounds))?;
        let mut process = EmbeddedProcess::new(self.writers);
        let bar = RoundsBar::new(self.rounds, !self.no_progress);
        let (mut acknowledged, mut kept, mut wrong) = (0, 0, 0);
        for number in 1..=self.rounds {
            let writes = 1 + random.below(EmbeddedLoop::WRITES_MAX);
            let round = process.round(&self.folder, writes).map_err(failed)?;
            acknowledged += round.acknowledged;
            kept += round.kept_unacknowledged;
            wrong += round.wrong.len() as u64;
            bar.show(number, wrong, &format!("killed after {} transactions", round.acknowledged));
            for what in &round.wrong {
                bar.aside(|| print(&format!("round {number}: {what}\n")))?;
            }
        }
        bar.finish();
        let rows = [
            ("rounds", words::count(self.rounds.into())),
            ("transactions acknowledged", words::count(acknowledged)),
            ("not acknowledged, and there", words::count(kept)),
            ("wrong", words::count(wrong)),
        ];
        let rows = rows.into_iter().map(|(what, count)| [what.to_owned(), count]);
        print(&format!("\n{}\n", table(["", "count"], rows)))?;
        if wrong > 0 {
            return Ok(CommandOutcome::Fails);
        }
        print(
            "Every acknowledged transaction was there, and each time exactly those up to one clock.\n",
        )?;
        Ok(CommandOutcome::Holds)
    }
}

async fn heal(cluster: &LocalCluster) -> Result<CommandOutcome, CommandError> {
    for at in 0..cluster.nodes.len() {
        cluster.heal(at).await.map_err(CommandError::Usage)?;
    }
    print("all nodes go on, and reach each other\n")?;
    Ok(CommandOutcome::Holds)
}
