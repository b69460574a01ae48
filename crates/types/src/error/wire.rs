//! How excerpts of keys are encoded, and names that are part of the code: as their places in a table.

use super::KeyExcerpt;
use crate::wire::{Coded, Input, Malformed, Short};
use bytes::BytesMut;

/// The length of the whole key, and as much of it as is kept.
impl Coded for KeyExcerpt {
    const BYTES_MIN: usize = 1;

    fn put(&self, out: &mut BytesMut) {
        self.length.put_short(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn take(input: &mut Input<'_>) -> Result<KeyExcerpt, Malformed> {
        let length = u16::take_short(input)?;
        let kept = input.slice(usize::from(length).min(KeyExcerpt::BYTES_MAX))?;
        Ok(KeyExcerpt { length, ..KeyExcerpt::new(kept) })
    }
}

/// The form of names in a table. The first is what others read where our own table lacks a name, which
/// it does not: tests and simulations panic then. A new name is added at the end; none goes.
macro_rules! names {
    ($($table:ident: $what:literal [$($name:literal),* $(,)?])*) => {$(
        pub(crate) mod $table {
            use super::{BytesMut, Coded, Input, Malformed};

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
