//! The scenarios and switches of the registry.

use super::Tiga;
use super::rules::Rule;
use super::scenario::{Access, Scenario, Shape, Transaction};
use crate::protocol::{
    Exploration, FoundBy, Protocol, ScenarioInfo, ScenarioSize, SearchMethod, SearchProgress,
    Switch, search,
};
use crate::{SearchResult, WalkBounds};

/// Tiga: what can be explored of it.
pub static PROTOCOL: Protocol = Protocol {
    name: "tiga",
    about: "order by timestamps, agreement of leaders, votes, and recovery of one leader or several",
    switches: &SWITCHES,
    scenarios: &SCENARIOS,
    explore,
};

const fn scenario(name: &'static str, about: &'static str, size: ScenarioSize) -> ScenarioInfo {
    ScenarioInfo { name, about, size }
}

static SCENARIOS: [ScenarioInfo; 22] = [
    scenario("one-update", "one transaction of two shards, no crash", ScenarioSize::Small),
    scenario(
        "below-synced",
        "two transactions of one shard without conflict, its leader crashes",
        ScenarioSize::Small,
    ),
    scenario(
        "opposite-order",
        "three transactions that two leaders receive in opposite orders",
        ScenarioSize::Small,
    ),
    scenario(
        "one-update-crash",
        "one transaction of two shards, one leader crashes",
        ScenarioSize::Small,
    ),
    scenario(
        "leader-read",
        "a leader answers reads, and the other shard has released more",
        ScenarioSize::Small,
    ),
    scenario("two-updates", "two transactions of two shards, no crash", ScenarioSize::Large),
    scenario(
        "chain",
        "three transactions of one shard in a chain, its leader crashes",
        ScenarioSize::Large,
    ),
    scenario(
        "deposed",
        "transactions of two shards, one leader is replaced twice and lives",
        ScenarioSize::Unbounded,
    ),
    scenario(
        "import",
        "a transaction of two shards before one of a shard whose leader crashes",
        ScenarioSize::Large,
    ),
    scenario(
        "deposed-one",
        "two transactions of one shard whose leader is replaced twice and lives",
        ScenarioSize::Unbounded,
    ),
    scenario(
        "both-leaders",
        "followers of one of two shards miss a transaction, both leaders crash",
        ScenarioSize::Unbounded,
    ),
    scenario(
        "late",
        "followers miss a transaction of two shards; a later one goes to them with a lower timestamp",
        ScenarioSize::Unbounded,
    ),
    scenario(
        RANDOM,
        "two to five random transactions of two shards, up to three leaders replaced",
        ScenarioSize::Unbounded,
    ),
    scenario(
        DEPOSED,
        "the same, every leader replaced twice and most of them alive",
        ScenarioSize::Unbounded,
    ),
    scenario(
        "unreachable",
        "one shard recovers while the other has lost its majority",
        ScenarioSize::Unbounded,
    ),
    scenario(
        "restart",
        "a voter loses its memory, then the leader crashes",
        ScenarioSize::Unbounded,
    ),
    scenario(RESTART, "random, with voters that lose their memory", ScenarioSize::Unbounded),
    scenario(UNREACHABLE, "the same at random", ScenarioSize::Unbounded),
    scenario(
        DETECTIVE,
        "the same, with leaders that execute before they agree",
        ScenarioSize::Unbounded,
    ),
    scenario(
        WHOLE,
        "the same, with transactions that exchange what they read",
        ScenarioSize::Unbounded,
    ),
    scenario(THREE_SHARDS, "the same, over three shards", ScenarioSize::Unbounded),
    scenario(READS, "random, with reads that leaders answer", ScenarioSize::Unbounded),
];

const RANDOM: &str = "random";
const DEPOSED: &str = "random-deposed";
const RESTART: &str = "random-restart";
const UNREACHABLE: &str = "random-unreachable";
const DETECTIVE: &str = "random-detective";
const WHOLE: &str = "random-whole";
const THREE_SHARDS: &str = "random-three-shards";
const READS: &str = "random-reads";

/// The scenario in which a search breaks the rule, and which search does.
#[derive(Clone, Copy)]
struct Search {
    scenario: &'static str,
    found_by: FoundBy,
}

const fn switch(rule: Rule, named: &'static str, without: &'static str, search: Search) -> Switch {
    let Search { scenario, found_by } = search;
    Switch { name: rule.name(), rule: named, without, scenario, found_by }
}

const fn walks(scenario: &'static str, count: u64) -> Search {
    Search { scenario, found_by: FoundBy::RandomWalks(count) }
}

const fn every_state(scenario: &'static str) -> Search {
    Search { scenario, found_by: FoundBy::Exhaustive }
}

static SWITCHES: [Switch; Rule::ALL.len()] = [
    switch(
        Rule::ChainedDigests,
        "hole 1, T4",
        "digests are exclusive ors per key (appendix D)",
        every_state("chain"),
    ),
    switch(
        Rule::DigestsDecide,
        "hole 2, T7",
        "candidates below the last synced timestamp are dropped (§4, step 3b)",
        every_state("below-synced"),
    ),
    switch(
        Rule::ImportsBehind,
        "hole 3, T8",
        "a recovery sorts all that is known by timestamp (Algorithm 5)",
        every_state("import"),
    ),
    switch(
        Rule::VoteOverSynced,
        "hole 4, T5",
        "followers vote behind transactions of several shards that are not synced",
        walks(RANDOM, 20_000),
    ),
    switch(
        Rule::ProposeOnAcceptance,
        "hole 5",
        "leaders propose at the head of the queue (Algorithm 2)",
        every_state("opposite-order"),
    ),
    switch(
        Rule::E1,
        "E1, T19",
        "entries are kept behind a greater synced conflict: found where `t23` is off, too",
        Search { scenario: RANDOM, found_by: FoundBy::Nothing },
    ),
    switch(
        Rule::E2,
        "E2, T16",
        "fast commits of different ballots are joined",
        walks(RANDOM, 20_000),
    ),
    switch(
        Rule::E3,
        "E3, T18",
        "reads that are not stable leave a leader, and entries in front of them are kept",
        walks(WHOLE, 1000),
    ),
    switch(
        Rule::E4,
        "E4, T17",
        "a recovery asks and answers before its record is durable",
        walks(DEPOSED, 50_000),
    ),
    switch(
        Rule::E5,
        "E5, T17",
        "voters vote before they have the final record",
        walks("deposed-one", 1000),
    ),
    switch(Rule::E9, "E9, T20", "an answer leaves the older ballot current", walks(RANDOM, 1000)),
    switch(
        Rule::E11,
        "E11",
        "a leader's votes before it appends are not in its list",
        walks(DETECTIVE, 5000),
    ),
    switch(Rule::T1, "T1", "followers accept late transactions", walks(RANDOM, 20_000)),
    switch(Rule::T2Promise, "T2", "`Ready` promises nothing", walks(RANDOM, 5000)),
    switch(Rule::T2Wait, "T2", "leaders release before all are ready", walks(RANDOM, 1000)),
    switch(Rule::T4, "T4", "f + 1 votes are fast", walks(RANDOM, 1000)),
    switch(Rule::T6, "T6", "what the leader has is stable", walks(RANDOM, 1000)),
    switch(Rule::T7, "T7", "tentative lists are forgotten", walks(RANDOM, 1000)),
    switch(Rule::T9, "T9", "voters vote under a lower ballot than promised", walks(RANDOM, 5000)),
    switch(
        Rule::T11,
        "T11",
        "leaders answer reads of what they are ready to overwrite",
        every_state("leader-read"),
    ),
    switch(
        Rule::T23,
        "T23",
        "a recovery keeps all that was voted for in front of what it imports: a script",
        Search { scenario: "late", found_by: FoundBy::Nothing },
    ),
    switch(
        Rule::RestartBallot,
        "recovery",
        "a voter that has lost its memory joins the latest ballot",
        walks("restart", 1000),
    ),
    switch(
        Rule::CommitOverCommitted,
        "proposed",
        "transactions are committed behind others whose participants do not all have them",
        walks("unreachable", 10_000),
    ),
];

fn explore(
    scenario: &'static ScenarioInfo,
    without: &[&'static Switch],
    method: SearchMethod,
    progress: &mut dyn FnMut(SearchProgress),
) -> Exploration {
    let is_off = |rule: &Rule| without.iter().any(|switch| switch.name == rule.name());
    let without: Vec<Rule> = Rule::ALL.into_iter().filter(is_off).collect();
    let model = |mut scenario: Scenario| {
        scenario.without.clone_from(&without);
        Tiga::new(scenario)
    };
    match (random(scenario.name, 0), method) {
        (Some(_), SearchMethod::RandomWalks(bounds)) => {
            let drawn = |seed| model(random(scenario.name, seed).expect("is random"));
            walk_each(drawn, bounds, progress)
        }
        (Some(first), SearchMethod::Exhaustive(_)) => search(&model(first), method, progress),
        (None, _) => search(&model(fixed(scenario.name)), method, progress),
    }
}

/// One walk through each of many scenarios.
fn walk_each(
    model: impl Fn(u64) -> Tiga,
    bounds: WalkBounds,
    progress: &mut dyn FnMut(SearchProgress),
) -> Exploration {
    let mut total = SearchResult::new();
    for walk in 0..bounds.walks {
        let seed = bounds.first_seed + walk;
        let method = SearchMethod::RandomWalks(WalkBounds { first_seed: seed, walks: 1, ..bounds });
        let found: Exploration = search(&model(seed), method, &mut |_| {});
        total.states += found.states;
        total.transitions += found.transitions;
        total.ends += found.ends;
        total.depth = total.depth.max(found.depth);
        total.counterexample = found.counterexample;
        progress(SearchProgress { done: walk + 1, depth: 0 });
        if total.counterexample.is_some() {
            break;
        }
    }
    total
}

/// The scenario of a seed, if the name is one of those that are drawn.
pub(super) fn random(name: &str, seed: u64) -> Option<Scenario> {
    let two = || Scenario::random(seed, 2);
    match name {
        RANDOM => Some(two()),
        DEPOSED => Some(Scenario { appointments: [2, 2, 0], always_crash: false, ..two() }),
        RESTART => Some(Scenario { restarts: [1, 1, 0], ..two() }),
        UNREACHABLE => Some(Scenario {
            appointments: [1, 0, 0],
            crashes: [1, 0, 0],
            unreachable: Some(1),
            ..two()
        }),
        DETECTIVE => Some(Scenario { detective: true, ..two() }),
        WHOLE => Some(Scenario { shape: Shape::Whole, ..two() }),
        THREE_SHARDS => Some(Scenario::random(seed, 3)),
        READS => {
            let shape = if seed.is_multiple_of(2) { Shape::Pieces } else { Shape::Whole };
            Some(Scenario { shape, ..two().with_random_reads(seed) })
        }
        _ => None,
    }
}

/// The first and the second key of a shard.
const A: u8 = 1;
const B: u8 = 2;

/// A transaction that reads and writes keys of the first and the second shard.
fn update(x: u8, y: u8, t: u8) -> Transaction {
    let access = [Access::update(x), Access::update(y), Access::NONE];
    Transaction { access, t, is_read: false }
}

/// The scenario with this name.
///
/// # Panics
/// If there is none.
pub(super) fn fixed(name: &str) -> Scenario {
    match name {
        "one-update" => Scenario::new(vec![update(A, A, 1)]),
        "one-update-crash" => Scenario::new(vec![update(A, A, 1)]).crashing(&[0]),
        "two-updates" => Scenario::new(vec![update(A, A, 1), update(A, A, 2)]),
        "chain" => one_shard(vec![update(B, 0, 5), update(A | B, 0, 7), update(A, 0, 9)]),
        "below-synced" => one_shard(vec![update(A, 0, 1), update(B, 0, 2)]),
        "import" => Scenario::new(vec![update(A, A, 1), update(A, 0, 5)]).crashing(&[0]),
        "opposite-order" => {
            Scenario::new(vec![update(A, A | B, 1), update(A, A, 2), update(0, B, 3)]).only_slow()
        }
        "leader-read" => {
            let access = [Access::read(A), Access::NONE, Access::NONE];
            let read = Transaction { access, t: 0, is_read: true };
            Scenario::new(vec![update(A, A, 1), update(0, A, 2), read]).only_slow()
        }
        "both-leaders" => {
            let lost = vec![(0, 1, 1), (0, 1, 2)];
            Scenario {
                lost,
                ..Scenario::new(vec![update(A, A, 1), update(A, 0, 2)]).crashing(&[0, 1])
            }
        }
        "late" => {
            let transactions = vec![update(A, A, 2), update(A, 0, 1), update(0, A, 3)];
            let lost = vec![(0, 1, 0), (0, 2, 0)];
            Scenario { lost, ..Scenario::new(transactions).crashing(&[0]) }
        }
        "deposed" => {
            let transactions = vec![update(A, A, 1), update(A, 0, 2), update(0, A, 2)];
            Scenario { appointments: [2, 0, 0], ..Scenario::new(transactions).only_slow() }
        }
        "unreachable" => {
            let transactions = vec![update(A, A, 1), update(A, 0, 2), update(0, A, 2)];
            let scenario = Scenario::new(transactions).only_slow().crashing(&[0]);
            Scenario { unreachable: Some(1), ..scenario }
        }
        "restart" => {
            Scenario { restarts: [1, 0, 0], ..one_shard(vec![update(A, 0, 1), update(B, 0, 2)]) }
        }
        "deposed-one" => {
            let transactions = vec![update(A, 0, 1), update(A, 0, 2)];
            Scenario { appointments: [2, 0, 0], shards: 1, ..Scenario::new(transactions) }
        }
        _ => panic!("{name}: no such scenario"),
    }
}

/// The leader of the only shard crashes.
fn one_shard(transactions: Vec<Transaction>) -> Scenario {
    Scenario { shards: 1, ..Scenario::new(transactions).crashing(&[0]) }
}
