//! How names that are part of the code are encoded: as their places in a table. Not derived: `&'static str` has no encoding,
//! since no decoder can make one.

/// The encoding of the names of a table. A name that the table lacks is encoded as the first; tests and simulations panic
/// then. A new name is added at the end; none is removed.
macro_rules! names {
    ($($table:ident: $what:literal [$($name:literal),* $(,)?])*) => {$(
        pub(crate) mod $table {
            use crate::wire::{Coded, Input, Malformed};
            use bytes::BytesMut;

            pub(crate) const NAMES: &[&str] = &[$($name),*];

            pub(crate) fn put(name: &&'static str, out: &mut BytesMut) {
                let place = NAMES.iter().position(|known| known == name);
                debug_assert!(place.is_some(), "add {name:?} to the table of {}", $what);
                (place.unwrap_or(0) as u8).put(out);
            }

            pub(crate) fn take(input: &mut Input<'_>) -> Result<&'static str, Malformed> {
                let name = NAMES.get(usize::from(input.byte()?)).copied();
                name.ok_or_else(|| input.wrong(concat!("no name of ", $what)))
            }
        }
    )*};
}

names! {
    limit_name: "limits" ["a limit of that node", "open_max", "queue_max", "sessions_max"]
    operation_name: "operations" ["that operation", "add"]
}
