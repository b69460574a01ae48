//! A fixed selection of seeds has to keep all rules.

use shoal_mako::Mako;
use shoal_sim::coverage::Coverage;
use shoal_sim::{RunOptions, RunReport, SimulatedRegions, Subject, run};
use shoal_tiga::Tiga;
use shoal_two_phase_commit::TwoPhaseCommit;
use shoal_zeus::Zeus;

/// Seeds that once found a bug: docs/simulation.md describes them.
const FOUND: [u64; 46] = [
    224,
    449,
    568,
    711,
    905,
    1_015,
    1_561,
    1_761,
    4_359,
    10_578,
    11_106,
    12_166,
    13_730,
    13_771,
    14_094,
    18_229,
    20_021,
    20_037,
    21_374,
    26_547,
    29_662,
    35_586,
    37_921,
    40_386,
    62_490,
    100_160,
    100_438,
    100_902,
    101_632,
    200_611,
    200_783,
    202_133,
    401_500,
    1_000_087,
    2_008_403,
    3_017_708,
    3_019_396,
    3_020_559,
    6_003_150,
    7_710_241,
    10_005_908,
    10_006_065,
    33_561_433,
    67_409_724,
    538_873_381,
    383_991_997_815,
];

/// Seeds that found one while `two_phase_commit` ran.
const FOUND_IN_TWO_PHASE_COMMIT: [u64; 16] = [
    420,
    2_297,
    2_347,
    2_801_730,
    8_394_378,
    33_554_594,
    33_554_807,
    33_554_966,
    33_561_433,
    33_764_882,
    33_865_351,
    134_217_728,
    268_745_670,
    538_872_012,
    807_307_627,
    1_058_966_411,
];

/// Seeds that found one while `zeus` ran.
const FOUND_IN_ZEUS: [u64; 10] =
    [15, 32, 45, 1_900_332, 8_389_005, 8_449_632, 8_600_072, 8_600_099, 807_309_673, 807_311_122];

/// Seeds that found one while `tiga` ran.
const FOUND_IN_TIGA: [u64; 7] =
    [70, 50_059, 700_018, 710_123, 33_614_604, 134_257_813, 538_871_941];

/// From this seed on some have very unequal distances.
const UNEQUAL: u64 = 1 << 24;

fn seeds_keep_the_rules<E: Subject>(seeds: impl IntoIterator<Item = u64>) -> Coverage {
    seeds_keep_the_rules_in::<E>(None, seeds)
}

fn seeds_keep_the_rules_in<E: Subject>(
    regions: Option<SimulatedRegions>,
    seeds: impl IntoIterator<Item = u64>,
) -> Coverage {
    let mut coverage = Coverage::default();
    for seed in seeds {
        let twice = seed < 8 && seed % 4 == 0;
        coverage +=
            kept::<E>(seed, RunOptions { regions, twice, ..RunOptions::default() }).coverage;
    }
    coverage
}

/// Runs a seed, which has to keep every rule.
fn kept<E: Subject>(seed: u64, options: RunOptions) -> RunReport {
    let report = run::<E>(seed, RunOptions { trace_lines: 60, ..options });
    if let Some(failure) = &report.failure {
        let trace = failure.trace.join("\n");
        panic!("seed {seed} ({}): {}\n{trace}", report.scenario, failure.violation);
    }
    report
}

#[test]
fn seeds_keep_the_rules_of_mako() {
    // Of the first seeds, which `./check sim` runs all, those that are quick.
    let coverage = seeds_keep_the_rules::<Mako>([1, 3, 4, 6, 7]);
    assert!(coverage.settled > 0 && coverage.led > 0, "no epoch ended, or no leader was replaced");
}

/// They draw other schedules than when they found something, unless that was lately.
#[test]
#[ignore = "takes minutes; ./check long runs it"]
fn seeds_that_found_something_keep_the_rules() {
    seeds_keep_the_rules::<Mako>(FOUND);
    seeds_keep_the_rules::<TwoPhaseCommit>(FOUND_IN_TWO_PHASE_COMMIT);
}

#[test]
fn seeds_keep_the_rules_of_two_phase_commit() {
    // In the last one, a follower waits for a stream while others have much to replay.
    seeds_keep_the_rules::<TwoPhaseCommit>([1, 4, 6, 7, 807_307_627]);
}

#[test]
fn seeds_keep_the_rules_of_zeus() {
    seeds_keep_the_rules::<Zeus>((0..2).chain(FOUND_IN_ZEUS));
}

#[test]
fn seeds_keep_the_rules_of_tiga() {
    seeds_keep_the_rules::<Tiga>((0..2).chain(FOUND_IN_TIGA));
}

#[test]
fn seeds_keep_the_rules_over_unequal_distances_and_between_regions() {
    seeds_keep_the_rules::<Mako>(UNEQUAL..UNEQUAL + 2);
    seeds_keep_the_rules_in::<Mako>(Some(SimulatedRegions::Tiga), 0..1);
    seeds_keep_the_rules_in::<TwoPhaseCommit>(Some(SimulatedRegions::Three), 0..1);
}

/// From this seed on, streams are on disks where nodes fail, and at times all nodes lose power at once.
fn seeds_on_disks_keep_the_rules<E: Subject>() -> u64 {
    let mut reached = [0; 4];
    // Of the others some have nodes that end between a snapshot and the checkpoint that has its rows; in the last one a leader appends
    // while it goes on with the next shard of its checkpoint.
    let others = [536_870_962, 536_870_927, 536_870_936, 536_870_937, 536_870_938, 536_870_944];
    for seed in ((1 << 29)..(1 << 29) + 8).chain(others) {
        let work = kept::<E>(seed, RunOptions::default()).metrics.work;
        let counts =
            [work.power_lost, work.checkpoints, work.restarts_from_checkpoints, work.void_streams];
        reached.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let [power_lost, checkpoints, restarts, void_streams] = reached;
    assert!(
        power_lost > 0 && checkpoints > 0 && restarts > 0,
        "losses of power, checkpoints, restarts from these: {reached:?}"
    );
    void_streams
}

/// From the first seed on, these disks are full at times, and fail, and are damaged; from the second one on, older images of them
/// are put back.
fn seeds_on_bad_disks_keep_the_rules<E: Subject>() {
    let mut reached = [0; 5];
    let older = [1_006_632_965, 1_006_632_971, 1_006_632_976, 1_006_632_982, 1_006_632_983];
    let unreadable = (63 << 24) + 9..(63 << 24) + 15;
    // In the last one a checkpoint ends that was given up, since the disk is full.
    let seeds = ((7 << 27)..(7 << 27) + 5).chain(older).chain(unreadable).chain([939_525_331]);
    for seed in seeds {
        let work = kept::<E>(seed, RunOptions::default()).metrics.work;
        let counts = [
            work.full_disks,
            work.failed_disks,
            work.damaged_disks,
            work.disks_put_back,
            work.unreadable_disks,
        ];
        reached.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let all = reached.iter().all(|count| *count > 0);
    assert!(all, "full, failed, damaged, older and unreadable disks: {reached:?}");
}

/// From the first seed on, a majority of a shard's voters loses power, an operator accepts that, and it returns with its disks. With
/// `join-before-begun`, in the two after those a node is asked what it knows of the shard while one of its workers reads its checkpoint.
/// In the last one a leader learned how epochs had ended within the step in which it recovered.
#[test]
fn seeds_with_an_accepted_loss_on_disks_keep_the_rules_of_mako() {
    let mut returned = 0;
    for seed in ((1 << 30)..(1 << 30) + 4).chain([1_073_741_938, 1_073_741_948, 1_075_745_351]) {
        returned += kept::<Mako>(seed, RunOptions::default()).metrics.work.majorities_returned;
    }
    assert!(returned > 2, "majorities returned: {returned}");
}

#[test]
fn seeds_on_bad_disks_keep_the_rules_of_mako() {
    seeds_on_bad_disks_keep_the_rules::<Mako>();
}

#[test]
fn seeds_on_bad_disks_keep_the_rules_of_two_phase_commit() {
    seeds_on_bad_disks_keep_the_rules::<TwoPhaseCommit>();
}

#[test]
fn seeds_on_disks_keep_the_rules_of_mako() {
    let void_streams = seeds_on_disks_keep_the_rules::<Mako>();
    assert!(void_streams > 0, "all processes lived until a checkpoint had the rows of a snapshot");
}

#[test]
fn seeds_on_disks_keep_the_rules_of_tiga() {
    seeds_on_disks_keep_the_rules::<Tiga>();
    seeds_on_bad_disks_keep_the_rules::<Tiga>();
}

#[test]
fn seeds_on_disks_keep_the_rules_of_zeus() {
    seeds_on_disks_keep_the_rules::<Zeus>();
    // Its disks are damaged, or put back, in few restarts: other nodes have to have all that the node has. In the last two that is so.
    // In the last one another node goes on before it is found that the disk is older.
    let mut reached = 0;
    for seed in ((7 << 27)..(7 << 27) + 8).chain([1_006_634_357, 1_008_635_189]) {
        let work = kept::<Zeus>(seed, RunOptions::default()).metrics.work;
        reached += work.damaged_disks + work.disks_put_back;
    }
    assert!(reached > 0, "no disk was damaged or put back");
}

#[test]
fn seeds_on_disks_keep_the_rules_of_two_phase_commit() {
    seeds_on_disks_keep_the_rules::<TwoPhaseCommit>();
}

/// From this seed on, in one of four a node without replicas coordinates.
fn seeds_with_a_coordinator_without_replicas_keep_the_rules<E: Subject>() {
    let mut coordinated = 0;
    for seed in 10_000_000..10_000_006 {
        let report = kept::<E>(seed, RunOptions::default());
        coordinated += u32::from(report.scenario.contains("coordinators without replicas"));
    }
    assert!(coordinated > 0, "no seed had one");
}

#[test]
fn seeds_with_a_coordinator_without_replicas_keep_the_rules_of_mako() {
    seeds_with_a_coordinator_without_replicas_keep_the_rules::<Mako>();
}

#[test]
fn seeds_with_a_coordinator_without_replicas_keep_the_rules_of_two_phase_commit() {
    seeds_with_a_coordinator_without_replicas_keep_the_rules::<TwoPhaseCommit>();
}
