//! Unusual files, made of those of `cases/`.
//!
//! `PROPTEST_CASES=100000 cargo test --release -p shoal-server --test config random` tries many.

use crate::cases::files;
use crate::folder::Folder;
use proptest::prelude::*;
use shoal_server::NodeConfig;
use std::time::Duration;

/// What is done to a text.
#[derive(Debug, Clone)]
enum Twist {
    /// A byte becomes another one.
    Byte(prop::sample::Index, u8),
    /// All that follows is gone.
    Cut(prop::sample::Index),
    /// A line of any case is put in.
    Line(prop::sample::Index, prop::sample::Index),
    /// A line is gone.
    Drop(prop::sample::Index),
    /// The value of a line is another one.
    Value(prop::sample::Index, String),
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<f64>().prop_map(|number| format!("{number:?}").to_lowercase()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<bool>().prop_map(|truth| truth.to_string()),
        "\\PC{0,9}".prop_map(|text| format!("{text:?}")),
        "[a-c]".prop_map(|node| format!("{node:?}")),
        prop::collection::vec("[a-d]", 0..5).prop_map(|nodes| format!("{nodes:?}")),
        Just("\"empty\"".to_owned()),
        Just("\"bytes\"".to_owned()),
        Just("\"..\"".to_owned()),
        Just("\"/dev/null\"".to_owned()),
        Just("{}".to_owned()),
    ]
}

fn twist() -> impl Strategy<Value = Twist> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Twist::Byte(at, byte)),
        at().prop_map(Twist::Cut),
        (at(), at()).prop_map(|(at, line)| Twist::Line(at, line)),
        at().prop_map(Twist::Drop),
        (at(), value()).prop_map(|(at, value)| Twist::Value(at, value)),
    ]
}

fn twisted(bytes: &[u8], twist: &Twist, lines: &[String]) -> Vec<u8> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let mut own: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(Into::into).collect();
    match twist {
        Twist::Byte(at, byte) => {
            let mut other = bytes.to_vec();
            other[at.index(bytes.len())] = *byte;
            return other;
        }
        Twist::Cut(at) => return bytes[..at.index(bytes.len())].into(),
        Twist::Line(at, line) => {
            let place = at.index(own.len());
            own.insert(place, lines[line.index(lines.len())].clone().into());
        }
        Twist::Drop(at) => {
            let place = at.index(own.len());
            own.remove(place);
        }
        Twist::Value(at, value) => {
            let place = at.index(own.len());
            let line = &mut own[place];
            if let Some(equals) = line.iter().position(|byte| *byte == b'=') {
                line.truncate(equals + 1);
                line.extend_from_slice(value.as_bytes());
            }
        }
    }
    own.join(&b'\n')
}

/// What holds of every configuration that a node may start with.
pub fn assert_sound(config: &NodeConfig) {
    let nodes = config.topology.nodes();
    assert!(nodes.iter().any(|node| node.id == config.node), "{config:?}");
    assert!(nodes.iter().all(|node| node.address.is_some()), "{config:?}");
    let managers = &config.managers;
    assert!([0, 1, 3, 5].contains(&managers.len()), "{config:?}");
    assert!(managers.iter().all(|it| nodes.iter().any(|node| node.id == *it)), "{config:?}");
    let twice =
        managers.iter().filter(|it| managers.iter().filter(|other| other == it).count() > 1);
    assert_eq!(twice.count(), 0, "{config:?}");
    assert!(config.protocol.has_managers() || managers.is_empty(), "{config:?}");
    let minute = Duration::from_secs(60);
    assert!(config.distance.delay <= minute && config.distance.jitter <= minute, "{config:?}");
    assert!(!config.cluster.is_empty(), "{config:?}");
}

#[test]
fn any_file_is_a_configuration_or_is_told_what_is_wrong() {
    let folder = Folder::new();
    let texts: Vec<String> = files().into_iter().map(|(_, text)| text).collect();
    let lines: Vec<String> = texts.iter().flat_map(|text| text.lines()).map(Into::into).collect();
    let twists = prop::collection::vec(twist(), 1..6);
    proptest!(|(text in any::<prop::sample::Index>(), twists in twists)| {
        let mut bytes = texts[text.index(texts.len())].clone().into_bytes();
        for twist in &twists {
            bytes = twisted(&bytes, twist, &lines);
        }
        match folder.read(&bytes) {
            Ok(config) => assert_sound(&config),
            Err(error) => {
                let named = error.split(": ").next().unwrap_or_default();
                let named = named.strip_prefix("cannot read ").unwrap_or(named);
                prop_assert!(folder.file(named).exists(), "{error}");
            }
        }
    });
}
