//! Small bounds, and for each rule what happens without it. The large bounds are for the command.

use super::scenarios::{PROTOCOL, fixed, random};
use super::*;
use crate::{
    Exploration, FoundBy, ScenarioSize, SearchBounds, SearchMethod, Switch, WalkBounds, random_walk,
};

/// How the tests find what a rule prevents: the scenario and, where scenarios or walks are drawn, the seed. Where T23 holds, no
/// walk was found that needs E1: so that is looked for without both.
const FOUND: [(Rule, &str, u64, &str); 16] = [
    (Rule::VoteOverSynced, "random", 11_324, "T7"),
    (Rule::E1, "random", 7011, "serializable"),
    (Rule::E2, "random", 13_980, "T7"),
    (Rule::E3, "random-whole", 219, "T18"),
    (Rule::E5, "deposed-one", 512, "T7"),
    (Rule::E9, "random", 312, "progress"),
    (Rule::E11, "random-detective", 2145, "T7"),
    (Rule::T1, "random", 18_336, "T7"),
    (Rule::T2Promise, "random", 3251, "serializable"),
    (Rule::T2Wait, "random", 755, "serializable"),
    (Rule::T4, "random", 441, "T7"),
    (Rule::T6, "random", 64, "T7"),
    (Rule::T7, "random", 521, "T7"),
    (Rule::T9, "random", 4281, "T7"),
    (Rule::RestartBallot, "random-restart", 674, "T6"),
    (Rule::CommitOverCommitted, "unreachable", 393, "serializable"),
];

/// One walk through the scenario, or through the one drawn from the seed.
fn walk(scenario: Scenario, seed: u64) -> Option<Violation> {
    let bounds = WalkBounds { first_seed: seed, walks: 1, ..WalkBounds::default() };
    let found = random_walk(&Tiga::new(scenario), bounds, |_| {});
    found.counterexample.map(|found| found.violation)
}

fn explore(name: &str, method: SearchMethod) -> Exploration {
    let scenario = PROTOCOL.scenario(name).expect("is a scenario");
    (PROTOCOL.explore)(scenario, &[], method, &mut |_| {})
}

#[test]
fn without_a_rule_a_walk_breaks_another() {
    for (rule, name, seed, broken) in FOUND {
        let scenario = || random(name, seed).unwrap_or_else(|| fixed(name));
        let mut without = scenario().without(rule);
        if rule == Rule::E1 {
            without = without.without(Rule::T23);
        }
        let found = walk(without, seed);
        let found = found.unwrap_or_else(|| panic!("nothing is found without {rule:?}"));
        assert_eq!(found.rule, broken, "without {rule:?}: {found}");
        assert_eq!(walk(scenario(), seed), None, "with {rule:?}");
    }
}

#[test]
fn without_a_rule_a_search_of_all_states_breaks_another() {
    let exhaustive = |switch: &&Switch| switch.found_by == FoundBy::Exhaustive;
    for switch in PROTOCOL.switches.iter().filter(exhaustive) {
        assert!(
            PROTOCOL.violation_without(switch).is_some(),
            "nothing is found without {switch:?}"
        );
    }
}

#[test]
fn with_all_rules_all_states_of_small_scenarios_are_sound() {
    let is_small = |scenario: &&crate::ScenarioInfo| scenario.size == ScenarioSize::Small;
    for scenario in PROTOCOL.scenarios.iter().filter(is_small) {
        let found = explore(scenario.name, SearchMethod::Exhaustive(SearchBounds::default()));
        assert!(found.is_complete && found.ends > 0, "{}: {found:?}", scenario.name);
    }
}

#[test]
fn with_all_rules_random_walks_find_nothing() {
    let is_large = |scenario: &&crate::ScenarioInfo| scenario.size != ScenarioSize::Small;
    for scenario in PROTOCOL.scenarios.iter().filter(is_large) {
        let bounds = WalkBounds { walks: 500, ..WalkBounds::default() };
        let found = explore(scenario.name, SearchMethod::RandomWalks(bounds));
        assert_eq!(found.ends, 500, "{}: {:?}", scenario.name, found.counterexample);
    }
}

/// Plays these actions, each of which has to be possible.
fn play(model: &Tiga, script: &[Action]) -> Result<State, Violation> {
    let mut state = model.initial();
    for action in script {
        let mut possible = Vec::new();
        model.actions(&state, &mut possible);
        assert!(possible.contains(action), "{action} is not possible, but {possible:?}");
        state = model.apply(&state, action)?;
    }
    model.check_end(&state)?;
    Ok(state)
}

const fn deliver(shard: usize, replica: usize, id: u8) -> Action {
    Action::Deliver { shard, replica, id }
}

/// Hole 4: T1 is fast on shard 0 behind T0, which only the leader of shard 1 has. Both leaders crash. T0 cannot be kept, and
/// so T1 cannot.
#[test]
fn a_vote_behind_an_unsynced_transaction_of_two_shards_is_lost_with_both_leaders() {
    let script = [
        deliver(0, 0, 0),
        Action::Receive { shard: 1, replica: 0, id: 0, from: 0, ballot: 0, t: 1 },
        Action::Ready { shard: 0, replica: 0, id: 0 },
        Action::Ready { shard: 1, replica: 0, id: 0 },
        Action::Release { shard: 0, replica: 0, id: 0 },
        deliver(0, 0, 1),
        deliver(0, 1, 0),
        deliver(0, 2, 0),
        deliver(0, 1, 1),
        deliver(0, 2, 1),
        Action::Appoint { shard: 0, replica: 1, old_crashes: true },
        Action::Promise { shard: 0, replica: 2 },
        Action::Appoint { shard: 1, replica: 1, old_crashes: true },
        Action::Promise { shard: 1, replica: 2 },
        Action::Accept { shard: 0, replica: 2, ballot: 1, is_final: false },
        Action::Accept { shard: 1, replica: 2, ballot: 1, is_final: false },
        Action::Answer { shard: 0, other: 1 },
        Action::Finish { shard: 0, replica: 1 },
    ];
    let without = Tiga::new(fixed("both-leaders").without(Rule::VoteOverSynced));
    assert_eq!(play(&without, &script).expect_err("T1 is lost").rule, "T7");
    let with = play(&Tiga::new(fixed("both-leaders")), &script);
    assert_eq!(with.expect_err("only the end is missing").rule, "progress");
}

/// Shard 0 is ready for T0, which shard 1 releases at `t`, and T2 behind it, which a majority of that shard has.
const fn released_by_shard_1(t: u8) -> [Action; 8] {
    [
        deliver(0, 0, 0),
        Action::Receive { shard: 1, replica: 0, id: 0, from: 0, ballot: 0, t },
        Action::Ready { shard: 0, replica: 0, id: 0 },
        Action::Ready { shard: 1, replica: 0, id: 0 },
        Action::Release { shard: 1, replica: 0, id: 0 },
        deliver(1, 0, 2),
        Action::Sync { shard: 1, replica: 1 },
        Action::Sync { shard: 1, replica: 1 },
    ]
}

/// Recovery without the answer of a shard that has lost its majority. Shard 0 was ready for T0, shard 1 released it and T2
/// behind it, and no list of shard 0 shows T0. T2 is committed before T1 begins, and T0 is imported behind T1.
#[test]
fn without_an_answer_a_recovered_shard_serves_in_front_of_what_it_cannot_know() {
    let mut script = released_by_shard_1(1).to_vec();
    script.extend([
        Action::Sync { shard: 1, replica: 2 },
        Action::Sync { shard: 1, replica: 2 },
        Action::Appoint { shard: 0, replica: 1, old_crashes: true },
        Action::Promise { shard: 0, replica: 2 },
        Action::Accept { shard: 0, replica: 2, ballot: 1, is_final: false },
        Action::Finish { shard: 0, replica: 1 },
        deliver(0, 1, 1),
        Action::ImportLate { shard: 0, replica: 1 },
        Action::Release { shard: 0, replica: 1, id: 0 },
        Action::Accept { shard: 0, replica: 2, ballot: 1, is_final: true },
        Action::Sync { shard: 0, replica: 2 },
        Action::Sync { shard: 0, replica: 2 },
    ]);
    let without = Tiga::new(fixed("unreachable").without(Rule::CommitOverCommitted));
    assert_eq!(play(&without, &script).expect_err("a cycle").rule, "serializable");
    let state = play(&Tiga::new(fixed("unreachable")), &script).expect("keeps the rules");
    assert_eq!(state.committed_before, [Some(0); 3], "T2 was not committed when T1 began");
}

/// T23: shard 0 was ready for T0, which shard 1 has released, and T2 behind it, which is committed. Then T1 begins below T0 on shard
/// 0, whose followers vote for it, and whose leader crashes.
#[test]
fn nothing_is_kept_in_front_of_an_import_that_the_lost_leader_would_not_have_released_there() {
    let mut script = released_by_shard_1(2).to_vec();
    script.extend([
        deliver(0, 1, 1),
        deliver(0, 2, 1),
        Action::Appoint { shard: 0, replica: 1, old_crashes: true },
        Action::Promise { shard: 0, replica: 2 },
        Action::Accept { shard: 0, replica: 2, ballot: 1, is_final: false },
        Action::Answer { shard: 0, other: 1 },
        Action::Finish { shard: 0, replica: 1 },
        Action::Release { shard: 0, replica: 1, id: 1 },
        Action::Release { shard: 0, replica: 1, id: 0 },
        Action::Accept { shard: 0, replica: 2, ballot: 1, is_final: true },
        Action::Sync { shard: 0, replica: 2 },
        Action::Sync { shard: 0, replica: 2 },
    ]);
    let without = Tiga::new(fixed("late").without(Rule::T23));
    assert_eq!(play(&without, &script).expect_err("a cycle").rule, "serializable");
    let model = Tiga::new(fixed("late"));
    let state = script[..15].iter().fold(model.initial(), |state, action| {
        model.apply(&state, action).expect("keeps the rules")
    });
    let mut possible = Vec::new();
    model.actions(&state, &mut possible);
    assert!(!possible.contains(&script[15]), "T1 is not kept");
}

/// E4: a leader decides from a record that no other voter has, releases T0 with the other shard, and is replaced. Its
/// successor adopts the log of the leader before, which did not stop: T1 stands there, and T0 is imported behind it. T2 is
/// behind T0 on the other shard, and was committed before T1 began.
#[test]
fn without_a_durable_start_record_an_answer_is_used_that_a_later_recovery_contradicts() {
    let script = [
        Action::Appoint { shard: 0, replica: 1, old_crashes: false },
        Action::Promise { shard: 0, replica: 2 },
        Action::Answer { shard: 0, other: 1 },
        Action::Finish { shard: 0, replica: 1 },
        deliver(0, 1, 0),
        Action::Receive { shard: 1, replica: 0, id: 0, from: 0, ballot: 1, t: 1 },
        Action::Ready { shard: 0, replica: 1, id: 0 },
        Action::Ready { shard: 1, replica: 0, id: 0 },
        Action::Release { shard: 1, replica: 0, id: 0 },
        deliver(1, 0, 2),
        Action::Sync { shard: 1, replica: 1 },
        Action::Sync { shard: 1, replica: 1 },
        deliver(0, 0, 1),
        Action::Appoint { shard: 0, replica: 2, old_crashes: false },
        Action::Promise { shard: 0, replica: 0 },
        Action::Answer { shard: 0, other: 1 },
        Action::Finish { shard: 0, replica: 2 },
        Action::Release { shard: 0, replica: 2, id: 0 },
        Action::Accept { shard: 0, replica: 0, ballot: 2, is_final: true },
        Action::Sync { shard: 0, replica: 0 },
        Action::Sync { shard: 1, replica: 2 },
    ];
    let model = Tiga::new(fixed("deposed").without(Rule::E4));
    let broken = play(&model, &script).expect_err("a cycle");
    assert_eq!(broken.rule, "serializable");
    let model = Tiga::new(fixed("deposed"));
    let before = play(&model, &script[..2]);
    assert!(before.is_err_and(|broken| broken.rule == "progress"), "only the end is missing");
    let state = script[..2].iter().fold(model.initial(), |state, action| {
        model.apply(&state, action).expect("keeps the rules")
    });
    let mut possible = Vec::new();
    model.actions(&state, &mut possible);
    assert!(!possible.contains(&script[2]), "the start record is not at a majority");
}
