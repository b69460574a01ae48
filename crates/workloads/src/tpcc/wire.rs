//! Rows and texts as bytes, where they are part of what a procedure returns.

use super::customer::Selection;
use super::schema::{Address, Customer, Tables, Text};
use shoal_types::wire::{BytesMut, Coded, Input, Malformed};
use shoal_types::{TableId, coded_enum, coded_struct};
use zerocopy::{FromBytes, IntoBytes};

impl<const N: usize> Coded for Text<N> {
    const BYTES_MIN: usize = N;

    fn put(&self, out: &mut BytesMut) {
        self.0.put(out);
    }

    fn take(input: &mut Input<'_>) -> Result<Text<N>, Malformed> {
        Ok(Text(<[u8; N]>::take(input)?))
    }
}

/// The form of rows: their image.
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

coded_struct!(Tables {
    warehouse: TableId as short,
    district: TableId as short,
    customer: TableId as short,
    history: TableId as short,
    new_order: TableId as short,
    order: TableId as short,
    order_line: TableId as short,
    item: TableId as short,
    stock: TableId as short,
    customer_by_name: TableId as short,
    order_by_customer: TableId as short,
});

coded_enum!(Selection { 0 => Id(id), 1 => LastName(name) });
