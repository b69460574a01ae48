//! Fuzz target: a node's configuration.

use crate::folder::Folder;
use crate::random::assert_sound;

#[test]
fn any_bytes_are_a_configuration_or_are_told_what_is_wrong() {
    let folder = Folder::new();
    shoal_fuzz::fuzz!("configuration", |bytes: &[u8]| match folder.read(bytes) {
        Ok(config) => assert_sound(&config),
        Err(error) => assert!(!error.is_empty()),
    });
}
