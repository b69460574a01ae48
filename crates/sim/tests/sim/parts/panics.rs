//! The message and the place of a panic are noted.

use shoal_sim::panics::note;
use std::panic;

#[test]
fn the_first_panic_is_noted() {
    let (ended, said) = note(|| panic::catch_unwind(|| panic!("seven {}", 7)));
    assert!(ended.is_err());
    assert!(said.starts_with("seven 7 (") && said.contains(file!()), "{said}");
    let (value, said) = note(|| 3);
    assert_eq!((value, said.as_str()), (3, ""));
}
