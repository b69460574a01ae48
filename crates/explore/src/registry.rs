//! The explored protocols, each under its name.

use crate::protocol::Protocol;

/// The protocols that the command `explore` knows.
pub static PROTOCOLS: &[&Protocol] = &[&crate::tiga::PROTOCOL, &crate::zeus::PROTOCOL];

/// The protocol with this name.
pub fn protocol(name: &str) -> Option<&'static Protocol> {
    PROTOCOLS.iter().copied().find(|protocol| protocol.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_switches_name_scenarios() {
        let mut names = BTreeSet::new();
        for protocol in PROTOCOLS {
            assert!(names.insert(protocol.name), "{} twice", protocol.name);
            let (mut switches, mut scenarios) = (BTreeSet::new(), BTreeSet::new());
            for scenario in protocol.scenarios {
                assert!(scenarios.insert(scenario.name), "{} twice", scenario.name);
            }
            for switch in protocol.switches {
                assert!(switches.insert(switch.name), "{} twice", switch.name);
                assert!(scenarios.contains(switch.scenario), "{switch:?}");
            }
        }
    }
}
