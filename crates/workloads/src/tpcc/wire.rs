//! The encoding of rows in the result of a procedure: their images in the table. Not derived, so that a row is copied as a
//! whole.

use super::schema::{Address, Customer};
use shoal_types::wire::{BytesMut, Coded, Input, Malformed};
use zerocopy::{FromBytes, IntoBytes};

/// Encodes rows as their image in a table.
macro_rules! coded_images {
    ($($row:ident),*) => {$(
        impl Coded for $row {
            const BYTES_MIN: usize = size_of::<$row>();

            fn put(&self, out: &mut BytesMut) {
                out.extend_from_slice(self.as_bytes());
            }

            fn take(input: &mut Input<'_>) -> Result<$row, Malformed> {
                let image = input.slice(size_of::<$row>())?;
                Ok($row::read_from_bytes(image).expect("as many bytes as the row has"))
            }
        }
    )*};
}
coded_images!(Address, Customer);
