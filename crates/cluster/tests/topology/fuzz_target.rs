//! Fuzz target: topologies in TOML.

use shoal_cluster::topology::Topology;

#[test]
fn any_bytes_are_a_topology_that_can_be_written_or_an_error() {
    shoal_fuzz::fuzz!("topology", |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        match Topology::parse(&text) {
            Ok(topology) => assert_eq!(Topology::parse(&topology.to_toml()), Ok(topology)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}
