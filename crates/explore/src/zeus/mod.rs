//! A model of the protocols of Zeus (EuroSys'21): ownership, reliable commit, reads at replicas, recovery.
//!
//! | file | holds |
//! |---|---|
//! | `rules.rs` | the rules that can be switched off |
//! | `scenarios.rs` | what is explored |
//! | `data.rs`, `messages.rs`, `state.rs` | what a state consists of |
//! | `actions.rs` | what can happen, and the fair run that judges liveness |
//! | `step.rs` | how messages are sent and received |
//! | `ownership.rs` | requests, arbitration, moves |
//! | `commit.rs`, `read_only.rs` | transactions |
//! | `recovery.rs` | epochs, replay, the barrier |
//! | `checks.rs` | what must hold |
//!
//! Simplifications: a granule has one row; a row's value is the list of its writers; timers fire when no message is under
//! way, but for a few early ones; `Replayed` is an action instead of messages; the manager is always right about its own
//! epochs; owners hold granules for transactions of any age.

mod actions;
mod checks;
mod commit;
mod data;
mod messages;
mod ownership;
mod read_only;
mod recovery;
mod rules;
mod scenarios;
mod state;
mod step;

use crate::protocol::{Exploration, Protocol, ScenarioInfo, SearchMethod, SearchProgress, Switch};

/// Zeus, as `docs/zeus.md` describes it.
pub static PROTOCOL: Protocol = Protocol {
    name: "zeus",
    about: "ownership, reliable commit, reads at replicas, and recovery of Zeus",
    switches: rules::SWITCHES,
    scenarios: scenarios::SCENARIOS,
    explore,
};

fn explore(
    scenario: &'static ScenarioInfo,
    without: &[&'static Switch],
    method: SearchMethod,
    progress: &mut dyn FnMut(SearchProgress),
) -> Exploration {
    let rules = rules::Rules::without(without);
    let model = actions::Zeus { scenario: scenarios::named(scenario.name), rules };
    crate::protocol::search(&model, method, progress)
}

#[cfg(test)]
mod tests {
    use super::PROTOCOL;
    use crate::exhaustive::SearchBounds;
    use crate::protocol::{FoundBy, ScenarioSize, SearchMethod};
    use crate::random_walk::WalkBounds;
    use std::thread;

    #[test]
    fn no_rule_is_broken_in_small_scenarios() {
        for scenario in PROTOCOL.scenarios {
            if scenario.size == ScenarioSize::Small {
                let method = SearchMethod::Exhaustive(SearchBounds::default());
                let found = (PROTOCOL.explore)(scenario, &[], method, &mut |_| {});
                assert!(found.counterexample.is_none(), "{}: {found:#?}", scenario.name);
                assert!(found.is_complete && found.ends > 0, "{} has no end", scenario.name);
            }
        }
    }

    #[test]
    fn random_walks_break_no_rule() {
        for scenario in PROTOCOL.scenarios {
            if scenario.size == ScenarioSize::Unbounded {
                let bounds = WalkBounds { walks: 50, ..WalkBounds::default() };
                let method = SearchMethod::RandomWalks(bounds);
                let found = (PROTOCOL.explore)(scenario, &[], method, &mut |_| {});
                assert!(found.counterexample.is_none(), "{}: {found:#?}", scenario.name);
                assert!(found.ends > 0, "no walk through {} ends", scenario.name);
            }
        }
    }

    #[test]
    #[ignore = "takes a minute of two cores; ./check long runs it"]
    fn each_rule_is_needed() {
        let shown = PROTOCOL.switches.iter().filter(|switch| switch.found_by != FoundBy::Nothing);
        thread::scope(|scope| {
            for switch in shown {
                scope.spawn(|| {
                    let violation = PROTOCOL.violation_without(switch);
                    assert!(violation.is_some(), "nothing breaks without {}", switch.name);
                });
            }
        });
    }

    /// The printed protocol: the owner answers NACK, and no failure makes the arbiters replay.
    #[test]
    fn a_nack_of_the_owner_leaves_arbiters_invalid() {
        let switch = PROTOCOL.switch("owner-waits").expect("it is a rule");
        let violation = PROTOCOL.violation_without(switch).expect("it is found");
        assert_eq!(violation.rule, "liveness");
        assert!(violation.what.contains("invalid record"), "{violation}");
    }

    /// The printed protocol says that pending writes hold a granule back, and leaves reads to one word.
    #[test]
    fn a_granule_that_moves_while_a_pending_slot_has_read_it_breaks_serializability() {
        let switch = PROTOCOL.switch("wait-for-reads").expect("it is a rule");
        let violation = PROTOCOL.violation_without(switch).expect("it is found");
        assert_eq!(violation.rule, "strict serializability");
    }
}
