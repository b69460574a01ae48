//! Figures 10, 11 and 12 of the Zeus paper: moves of objects, by themselves, beside transactions that move nothing, and how long
//! one takes.

use super::experiment::{
    About, Chart, Curve, Experiment, ExperimentRow, Percentile, Plots, PublishedNumber, Quantity,
    add,
};
use super::run::ExperimentRun;
use super::scale::{REPLICAS, cores};
use crate::local::ClusterPlan;
use shoal_bench::{BenchLoad, HomesLoad};
use shoal_server::Protocol;
use shoal_workloads::locality::VoterMoves;
use shoal_workloads::report::words;

/// As many as the paper has for Voter, and twice as many.
const NODES: [u32; 2] = [3, 6];

/// Voters of a node that vote, and do not move: few enough to have come to their node before anything is measured.
const VOTERS: u32 = 1_000;

/// Rows that are updated.
const UPDATED: u32 = 10_000;

/// Voters that move, of all nodes together.
const MOVING: u32 = 60_000;

/// Voters that move together, but for figure 10.
const TOGETHER: u32 = 64;

/// Clients in each node that vote.
const VOTING: u32 = 64;

/// Clients in each node that take voters, in figure 10.
const TAKING: u32 = 8;

/// The moves of a CPU second of a worker: what the paper's have, and our target.
const MOVES_OF_PAPER: f64 = 25_000.0;

/// The kinds of transactions of the workload.
const VOTE: &str = "vote";
const MOVE: &str = "move";

const LATENCY_MEAN: Quantity = Quantity::MeanLatency(MOVE);
const LATENCY_TAIL: Quantity = Quantity::Latency(Percentile::P99_9, MOVE);

/// Clients that take so many voters in a transaction, so many clients of each home.
fn taking(clients: u32, together: u32) -> VoterMoves {
    VoterMoves { clients, voters: MOVING, together, rolls_back: false }
}

fn votes(objects: u32, moves: VoterMoves) -> BenchLoad {
    BenchLoad::Voter(HomesLoad { objects, remote_ppm: 0 }, Some(moves))
}

/// So many nodes that hold replicas of several shards, with so many workers and clients each.
fn run(nodes: u32, workers: u32, clients: u32, moves: VoterMoves) -> ExperimentRun {
    let engine = Protocol::Zeus.options();
    let plan =
        ClusterPlan { engine, workers, shares_nodes: true, ..ClusterPlan::new(nodes, REPLICAS) };
    let run = ExperimentRun::on(plan, votes(VOTERS, moves), (nodes * clients) as usize);
    run.called(format!("{nodes} nodes"))
}

/// A curve for each number of nodes.
fn by_nodes(mut rows: impl FnMut(u32) -> Vec<ExperimentRow>) -> Vec<Curve> {
    let curve = |nodes| Curve { name: format!("zeus, {nodes} nodes"), base: 0, rows: rows(nodes) };
    NODES.map(curve).into()
}

/// Three replicas in processes of their own, and clients inside that of this number.
fn run_apart(here: usize, workers: u32, load: BenchLoad, clients: u32) -> ExperimentRun {
    let engine = Protocol::Zeus.options();
    let plan = ClusterPlan { engine, workers, ..ClusterPlan::new(1, REPLICAS) };
    ExperimentRun::apart(plan, here, load, clients as usize)
}

/// How moves are scaled where all nodes take voters.
fn scaled() -> Vec<String> {
    let (voters, moving) = (words::count(VOTERS.into()), words::count(MOVING.into()));
    vec![
        cores(),
        format!("3 and 6 nodes in one process; {voters} voters of each vote, and {moving} more move, instead of a million."),
        "Each node takes voters of the next one without pause, instead of once in a while: so a worker that takes also \
         gives, and arbitrates what others take."
            .to_owned(),
    ]
}

/// Figure 10: moves by themselves.
pub fn in_bulk() -> Experiment {
    let mut runs = Vec::new();
    let moves = Quantity::MovesPerRequesterSecond(MOVE);
    let curves = by_nodes(|nodes| {
        let rows = [1, 16, TOGETHER, 256].map(|together| {
            let run = run(nodes, 1, TAKING, taking(TAKING, together));
            let words = format!("{}, {together} together", run.words);
            let row = ExperimentRow::at(together).run(add(&mut runs, run.called(words)));
            match together {
                TOGETHER => ExperimentRow { least: vec![(moves, MOVES_OF_PAPER)], ..row }
                    .published(moves, PublishedNumber::Absolute(MOVES_OF_PAPER)),
                _ => row,
            }
        });
        rows.into()
    });
    let chart = Chart {
        title: "Moves of voters, over how many a transaction takes",
        axis: "voters together",
        unit: "",
        quantities: vec![Quantity::Moves, moves, Quantity::Throughput],
        plots: Plots::AlongAxisAndTime,
        curves,
        notes: vec![
            "A transaction writes one row of its client, and so has to own the voters that it reads. The paper says that a \
             thread moves 25,000 objects a second."
                .to_owned(),
        ],
    };
    let mut scaled = scaled();
    scaled.push(format!("{TAKING} clients in each node take voters, and none votes."));
    Experiment {
        about: About {
            name: "zeus-fig10",
            title: "Zeus, figure 10: moving voters in bulk",
            paper: "3 nodes, 1 M voters. All of them move to another node, at 2 s and at 7 s, in 4 s each: 25,000 objects a \
                    second for each of ten threads.",
            scaled,
        },
        runs,
        charts: vec![chart],
    }
}

/// Figure 11: moves beside votes.
pub fn beside_votes() -> Experiment {
    let mut runs = Vec::new();
    let vote_rate = Quantity::PerKindSecond(VOTE);
    let curves = by_nodes(|nodes| {
        let rows = [0, 1, 4].map(|requesters| {
            let run = run(nodes, 2, VOTING + requesters, taking(requesters, TOGETHER));
            let words = format!("{}, {requesters} clients of each take voters", run.words);
            let row = ExperimentRow::at(requesters).run(add(&mut runs, run.called(words)));
            match requesters {
                0 => row,
                _ => ExperimentRow { kept_min: Some((vote_rate, 0.95)), ..row },
            }
        });
        rows.into()
    });
    let chart = Chart {
        title: "Votes and moves, over the clients of a node that take voters",
        axis: "take voters",
        unit: "",
        quantities: vec![
            Quantity::Throughput,
            vote_rate,
            Quantity::Moves,
            Quantity::MovesPerRequesterSecond(MOVE),
        ],
        plots: Plots::AlongAxisAndTime,
        curves,
        notes: vec![
            "A node votes on one worker and takes voters on another: votes are counted by the time of their own workers. The \
             paper says that 25,000 objects a second move at one thread, and that the votes of the others are not affected."
                .to_owned(),
        ],
    };
    let mut scaled = scaled();
    scaled.push(format!(
        "Nodes of two workers: {VOTING} clients of one vote, and those of the other take {TOGETHER} voters together."
    ));
    Experiment {
        about: About {
            name: "zeus-fig11",
            title: "Zeus, figure 11: votes while other voters move",
            paper: "3 nodes. The 100,000 voters of a popular contestant move to another node at 2 s, 6 s and 10 s, in 4 s each, \
                    while all others vote 5.3 M times a second.",
            scaled,
        },
        runs,
        charts: vec![chart],
    }
}

/// Figure 12: how long a move takes; and what a commit costs that moves nothing.
pub fn latency() -> Experiment {
    let mut runs = Vec::new();
    let one = VoterMoves { rolls_back: true, ..taking(1, 1) };
    let unloaded = run_apart(1, 1, votes(VOTERS, one), 1).called("moves, no other load");
    let loaded = run_apart(1, 2, votes(VOTERS, one), 1 + VOTING / 4).called("moves beside votes");
    let papers = |row: ExperimentRow, mean, tail| {
        row.published(LATENCY_MEAN, PublishedNumber::Absolute(mean))
            .published(LATENCY_TAIL, PublishedNumber::Absolute(tail))
    };
    let most = vec![(LATENCY_MEAN, 0.15), (LATENCY_TAIL, 0.5)];
    let row = |number, name: &str| ExperimentRow::named(number, name);
    let rows = vec![
        ExperimentRow { most, ..row(0, "no other load").run(add(&mut runs, unloaded)) },
        row(1, "beside votes").run(add(&mut runs, loaded)),
        papers(row(2, "the paper: figure 10"), 0.017, 0.036),
        papers(row(3, "the paper: figure 11"), 0.029, 0.083),
    ];
    let percentiles =
        [Percentile::P50, Percentile::P90, Percentile::P99, Percentile::P99_9].into_iter();
    let percentiles = percentiles.map(|percentile| Quantity::Latency(percentile, MOVE));
    let moves = Chart {
        title: "Latency of a move",
        axis: "",
        unit: "",
        quantities: [LATENCY_MEAN].into_iter().chain(percentiles).collect(),
        plots: Plots::Percentiles,
        curves: vec![Curve { name: String::new(), base: 0, rows }],
        notes: vec![
            "From the first operation of a transaction that needs the voter until it has read it: the request, the driver's \
             invalidation, the owner's acknowledgement with the rows."
                .to_owned(),
        ],
    };
    let homes = HomesLoad { objects: UPDATED, remote_ppm: 0 };
    let updates = run_apart(0, 1, BenchLoad::Updates(homes), VOTING).called("updates");
    let row = ExperimentRow::at(VOTING).run(add(&mut runs, updates));
    let row = ExperimentRow { least: vec![(Quantity::PerLeaderSecond, 400_000.0)], ..row };
    let updates = Chart {
        title: "Updates of one row of 400 bytes, by clients inside its owner",
        axis: "clients",
        unit: "",
        quantities: vec![Quantity::Throughput, Quantity::PerLeaderSecond],
        plots: Plots::AlongAxis,
        curves: vec![Curve { name: "zeus".to_owned(), base: 0, rows: vec![row] }],
        notes: vec![
            "Not in the paper. Nothing moves; a CPU second is one of the owner's worker, and its two followers are elsewhere."
                .to_owned(),
        ],
    };
    Experiment {
        about: About {
            name: "zeus-fig12",
            title: "Zeus, figure 12: the latency of a move",
            paper: "While voters move in bulk, 17 µs on average and 36 µs for 99.9 %; beside votes, 29 µs and 83 µs. 40 Gbps \
                    between six machines, and threads that poll.",
            scaled: vec![
                cores(),
                format!("{REPLICAS} replicas in processes of their own, over loopback; clients inside the one that takes."),
                "One client takes voters one by one, each once, from a node that drives and owns; each transaction is rolled \
                 back when it has read."
                    .to_owned(),
                format!("Beside it, {} clients vote on another worker of the same node.", VOTING / 4),
            ],
        },
        runs,
        charts: vec![moves, updates],
    }
}
