//! What an engine declares that it measures, and the numbers, by their names.

use crate::engine::Engine;
use crate::hot_keys::{HotKey, KeyUse};
use crate::latency::{COMMON_STAGES, LatencyHistogram, Outcome};
use crate::metrics::{
    COMMIT_STAGES_MAX, CommitStage, Counters, EngineCounters, Metric, MetricKind, RuntimeCounters,
    ShardMetric,
};
use shoal_types::ShardId;
use std::collections::BTreeSet;

/// All that an engine declares, for code that does not know which engine it is.
#[derive(Debug, Clone)]
pub struct Declarations {
    /// What its workers count, in order.
    pub counters: Vec<Metric>,
    /// What they report of each shard, in order.
    pub shards: &'static [ShardMetric],
}

impl Declarations {
    /// The declarations of the engine `E`.
    pub fn of<E: Engine>() -> Declarations {
        Declarations { counters: declared::<E>().collect(), shards: E::SHARD_METRICS }
    }
}

/// What the workers of an engine count, in order.
fn declared<E: Engine>() -> impl Iterator<Item = Metric> {
    let stage = |stage: &CommitStage| Metric {
        name: stage.name,
        kind: MetricKind::Counter,
        help: stage.help,
    };
    let own = E::Counters::DECLARED.iter().copied();
    RuntimeCounters::DECLARED.iter().copied().chain(E::STAGES.iter().map(stage)).chain(own)
}

/// What a worker has counted, each number with its declaration.
pub fn counted<E: Engine>(engine: &E) -> impl Iterator<Item = (Metric, u64)> {
    let EngineCounters { runtime, stages_ns, own } = engine.counters();
    let stages = stages_ns.into_iter().take(E::STAGES.len());
    let values: Vec<u64> = runtime.values().into_iter().chain(stages).chain(own.values()).collect();
    declared::<E>().zip(values)
}

/// How long the transactions took that a worker coordinated, for each outcome.
pub fn outcome_latencies<E: Engine>(
    engine: &E,
) -> impl Iterator<Item = (&'static str, LatencyHistogram)> {
    Outcome::ALL.map(Outcome::name).into_iter().zip(engine.local().latencies().outcomes)
}

/// How long those of them that wrote and committed were in each stage.
pub fn stage_latencies<E: Engine>(
    engine: &E,
) -> impl Iterator<Item = (&'static str, LatencyHistogram)> {
    let own = E::STAGES.iter().map(|stage| stage.name.trim_end_matches("_ns"));
    COMMON_STAGES.into_iter().chain(own).zip(engine.local().latencies().stages)
}

/// The keys that transactions use most that a worker coordinated, for each use.
pub fn hot_keys<E: Engine>(engine: &E) -> impl Iterator<Item = (&'static str, Vec<HotKey>)> {
    KeyUse::ALL.map(KeyUse::name).into_iter().zip(engine.local().hot_keys())
}

/// What a worker knows of a shard, each number with its declaration; without those that it does not know.
pub fn shard_metrics<E: Engine>(
    engine: &E,
    shard: ShardId,
) -> impl Iterator<Item = (&'static ShardMetric, u64)> {
    let values = engine.shard_values(shard);
    assert_eq!(values.len(), E::SHARD_METRICS.len(), "a value for each that is declared");
    let known = E::SHARD_METRICS.iter().zip(values);
    known.filter_map(|(metric, value)| Some((metric, value?)))
}

/// Asserts that names and sentences of what an engine declares are as they should be: for the engine's tests.
///
/// # Panics
/// If one of them is not: says which.
pub fn assert_declarations<E: Engine>() {
    assert!(E::STAGES.len() <= COMMIT_STAGES_MAX, "{} stages", E::STAGES.len());
    let shards = E::SHARD_METRICS.iter().map(|metric| (metric.name, metric.help));
    assert_names(declared::<E>().map(|metric| (metric.name, metric.help)));
    assert_names(shards);
    for column in E::NODE_COLUMNS {
        let is_declared = declared::<E>().any(|metric| metric.name == column.counter);
        assert!(is_declared, "no counter is named {:?}", column.counter);
    }
    let is_time = |stage: &CommitStage| stage.name.ends_with("_ns") && !stage.label.is_empty();
    assert!(E::STAGES.iter().all(is_time), "{:?}", E::STAGES);
}

fn assert_names(declared: impl Iterator<Item = (&'static str, &'static str)>) {
    let mut seen = BTreeSet::new();
    for (name, help) in declared {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(is_plain && !name.is_empty(), "{name:?} is no name of a metric");
        assert!(help.ends_with('.') && !help.contains('\n'), "{name}: {help:?} is no sentence");
        assert!(seen.insert(name), "{name} is declared twice");
    }
}
