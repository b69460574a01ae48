//! The nine tables of clause 1.3, their two secondary indexes, and their rows.
//!
//! A row is a byte image of fixed layout: it is looked at where it lies, field by field, and a
//! read-modify-write copies it once, patches fields and writes the copy. Numbers are little-endian
//! and unaligned, text is padded with zeros, which none of the benchmark's strings contain. What
//! transactions touch most comes first, so that it shares a cache line. Columns that are part of
//! the key are not repeated in the row.
//!
//! Money is in cents. Taxes and discounts are in [`RATE_ONE`]ths. A date is a positive number;
//! [`NULL_DATE`] and [`NULL_CARRIER`] stand for null.

use shoal_types::wire::Coded;
use shoal_types::{Database, Error, KeyExcerpt, Result, TableId, Transaction};
use std::fmt;
use zerocopy::little_endian::{I16, I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A unit of money, in cents.
pub const UNIT: u32 = 100;

/// What taxes and discounts are fractions of.
pub const RATE_ONE: i64 = 10_000;

/// OL_DELIVERY_D of a line that is not delivered.
pub const NULL_DATE: u64 = 0;

/// O_CARRIER_ID of an order that is not delivered.
pub const NULL_CARRIER: u8 = 0;

/// The tables and indexes, as one database numbers them.
#[derive(Debug, Clone, Copy, Coded)]
pub struct Tables {
    /// [`Warehouse`] by [`keys::warehouse`](super::keys::warehouse).
    #[coded(short)]
    pub warehouse: TableId,
    /// [`District`] by [`keys::district`](super::keys::district).
    #[coded(short)]
    pub district: TableId,
    /// [`Customer`] and C_DATA by [`keys::customer`](super::keys::customer).
    #[coded(short)]
    pub customer: TableId,
    /// [`History`] by [`keys::history`](super::keys::history).
    #[coded(short)]
    pub history: TableId,
    /// Nothing, by [`keys::order`](super::keys::order): all its columns are in the key.
    #[coded(short)]
    pub new_order: TableId,
    /// [`Order`] by [`keys::order`](super::keys::order).
    #[coded(short)]
    pub order: TableId,
    /// [`OrderLine`] by [`keys::order_line`](super::keys::order_line).
    #[coded(short)]
    pub order_line: TableId,
    /// [`Item`] by [`keys::item`](super::keys::item).
    #[coded(short)]
    pub item: TableId,
    /// [`Stock`] by [`keys::stock`](super::keys::stock).
    #[coded(short)]
    pub stock: TableId,
    /// Nothing, by [`keys::customer_by_name`](super::keys::customer_by_name).
    #[coded(short)]
    pub customer_by_name: TableId,
    /// Nothing, by [`keys::order_by_customer`](super::keys::order_by_customer).
    #[coded(short)]
    pub order_by_customer: TableId,
}

impl Tables {
    /// Opens the tables in `db`, and makes those it does not have.
    ///
    /// # Errors
    /// Those of [`Database::table`].
    pub fn open<D: Database>(db: &D) -> Result<Tables> {
        Ok(Tables {
            warehouse: db.table("tpcc.warehouse")?,
            district: db.table("tpcc.district")?,
            customer: db.table("tpcc.customer")?,
            history: db.table("tpcc.history")?,
            new_order: db.table("tpcc.new_order")?,
            order: db.table("tpcc.order")?,
            order_line: db.table("tpcc.order_line")?,
            item: db.table("tpcc.item")?,
            stock: db.table("tpcc.stock")?,
            customer_by_name: db.table("tpcc.customer_by_name")?,
            order_by_customer: db.table("tpcc.order_by_customer")?,
        })
    }
}

/// Text of up to `N` bytes, padded with zeros.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Coded, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(transparent)]
pub struct Text<const N: usize>(pub [u8; N]);

impl<const N: usize> Text<N> {
    /// The text `text`, which must fit.
    ///
    /// # Panics
    /// If it does not.
    pub fn new(text: &str) -> Text<N> {
        let mut bytes = [0; N];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Text(bytes)
    }

    /// The text without its padding.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0[..self.0.iter().position(|byte| *byte == 0).unwrap_or(N)]
    }

    /// Whether the text contains `ORIGINAL`, which makes goods brand goods (clause 2.4.2.2).
    pub fn is_original(&self) -> bool {
        let wanted = u64::from_ne_bytes(*b"ORIGINAL");
        let at = |place: &[u8]| {
            place.first_chunk().is_some_and(|eight| u64::from_ne_bytes(*eight) == wanted)
        };
        self.0.windows(8).any(at)
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Text<N> {
        Text([0; N])
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{self}'")
    }
}

/// Declares row types: plain bytes without padding, readable at any address.
macro_rules! rows {
    ($($(#[$doc:meta])* pub struct $name:ident { $($(#[$field_doc:meta])* pub $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
    )*};
}

rows! {
    /// An address: W_STREET_1 to W_ZIP, and the corresponding columns of districts and customers.
    pub struct Address {
        /// The first line of the street.
        pub street_1: Text<20>,
        /// The second line of the street.
        pub street_2: Text<20>,
        /// The city, of up to 20 letters.
        pub city: Text<20>,
        /// The state, as two letters.
        pub state: Text<2>,
        /// Four random digits and `11111`.
        pub zip: Text<9>,
    }

    /// A row of WAREHOUSE.
    pub struct Warehouse {
        /// W_YTD: paid so far, in cents.
        pub ytd: I64,
        /// W_TAX.
        pub tax: U16,
        /// W_NAME.
        pub name: Text<10>,
        /// W_STREET_1 to W_ZIP.
        pub address: Address,
    }

    /// A row of DISTRICT.
    pub struct District {
        /// D_NEXT_O_ID: the next order's id.
        pub next_order: U32,
        /// D_TAX.
        pub tax: U16,
        /// D_YTD: paid so far, in cents.
        pub ytd: I64,
        /// D_NAME.
        pub name: Text<10>,
        /// D_STREET_1 to D_ZIP.
        pub address: Address,
    }

    /// A row of CUSTOMER but for C_DATA, which follows it.
    pub struct Customer {
        /// C_BALANCE, in cents.
        pub balance: I64,
        /// C_YTD_PAYMENT, in cents.
        pub ytd_payment: I64,
        /// C_PAYMENT_CNT.
        pub payments: U32,
        /// C_DELIVERY_CNT.
        pub deliveries: U32,
        /// C_DISCOUNT.
        pub discount: U16,
        /// C_CREDIT: `GC` is good, `BC` is bad.
        pub credit: Text<2>,
        /// C_LAST.
        pub last: Text<16>,
        /// C_MIDDLE.
        pub middle: Text<2>,
        /// C_FIRST.
        pub first: Text<16>,
        /// C_CREDIT_LIM, in cents.
        pub credit_limit: I64,
        /// C_SINCE.
        pub since: U64,
        /// C_PHONE.
        pub phone: Text<16>,
        /// C_STREET_1 to C_ZIP.
        pub address: Address,
    }

    /// A row of HISTORY.
    pub struct History {
        /// H_D_ID: where it was paid.
        pub district: u8,
        /// H_W_ID: where it was paid.
        pub warehouse: U16,
        /// H_DATE.
        pub date: U64,
        /// H_AMOUNT, in cents.
        pub amount: U32,
        /// H_DATA.
        pub data: Text<24>,
    }

    /// A row of ORDER.
    pub struct Order {
        /// O_C_ID.
        pub customer: U16,
        /// O_CARRIER_ID, or [`NULL_CARRIER`].
        pub carrier: u8,
        /// O_OL_CNT.
        pub lines: u8,
        /// O_ALL_LOCAL: 1 if every line's supplier is the order's own warehouse, 0 otherwise.
        pub all_local: u8,
        /// O_ENTRY_D.
        pub entry_date: U64,
    }

    /// A row of ORDER-LINE.
    pub struct OrderLine {
        /// OL_I_ID.
        pub item: U32,
        /// OL_AMOUNT, in cents.
        pub amount: U32,
        /// OL_DELIVERY_D, or [`NULL_DATE`].
        pub delivery_date: U64,
        /// OL_SUPPLY_W_ID.
        pub supplier: U16,
        /// OL_QUANTITY.
        pub quantity: u8,
        /// OL_DIST_INFO.
        pub district_info: Text<24>,
    }

    /// A row of ITEM.
    pub struct Item {
        /// I_PRICE, in cents.
        pub price: U32,
        /// I_IM_ID.
        pub image: U16,
        /// I_NAME.
        pub name: Text<24>,
        /// I_DATA.
        pub data: Text<50>,
    }

    /// A row of STOCK.
    pub struct Stock {
        /// S_QUANTITY.
        pub quantity: I16,
        /// S_YTD.
        pub ytd: U32,
        /// S_ORDER_CNT.
        pub orders: U32,
        /// S_REMOTE_CNT.
        pub remote_orders: U32,
        /// S_DATA.
        pub data: Text<50>,
        /// S_DIST_01 to S_DIST_10.
        pub district_info: [Text<24>; 10],
    }
}

/// Most bytes of C_DATA.
pub const CUSTOMER_DATA_MAX: usize = 500;

impl Customer {
    /// Whether C_CREDIT marks bad credit.
    pub fn has_bad_credit(&self) -> bool {
        self.credit.0 == *b"BC"
    }
}

/// A copy of a customer's whole row, to patch and write back.
#[derive(Debug)]
pub struct CustomerImage {
    bytes: [u8; CustomerImage::BYTES_MAX],
    length: usize,
}

impl CustomerImage {
    const FIXED: usize = size_of::<Customer>();
    const BYTES_MAX: usize = Self::FIXED + CUSTOMER_DATA_MAX;

    /// The image of a customer; of `data`, what fits into C_DATA.
    pub fn new(customer: &Customer, data: &[u8]) -> CustomerImage {
        let data = &data[..data.len().min(CUSTOMER_DATA_MAX)];
        let mut bytes = [0; Self::BYTES_MAX];
        bytes[..Self::FIXED].copy_from_slice(customer.as_bytes());
        bytes[Self::FIXED..][..data.len()].copy_from_slice(data);
        CustomerImage { bytes, length: Self::FIXED + data.len() }
    }

    /// The whole row, as it is put into the database.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A type that a row's bytes can be seen as.
pub trait Row: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned {}
impl<R: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned> Row for R {}

/// The row under `key`.
///
/// # Errors
/// Those of the database, and a rejection if there is no such row or it has another size.
#[inline]
pub async fn read<'t, R: Row + 't, X: Transaction>(
    tx: &'t X,
    table: TableId,
    key: &[u8],
) -> Result<&'t R> {
    as_row(tx.get(table, key).await?, table, key)
}

/// [`read`], of a row that will be written.
///
/// # Errors
/// Those of [`read`].
#[inline]
pub async fn read_for_update<'t, R: Row + 't, X: Transaction>(
    tx: &'t X,
    table: TableId,
    key: &[u8],
) -> Result<&'t R> {
    as_row(tx.get_for_update(table, key).await?, table, key)
}

/// The row that `value` holds, `value` being what was found under `key`.
///
/// # Errors
/// A rejection if nothing was found, or something of another size.
#[inline]
pub fn as_row<'t, R: Row>(value: Option<&'t [u8]>, table: TableId, key: &[u8]) -> Result<&'t R> {
    value
        .and_then(|bytes| R::ref_from_bytes(bytes).ok())
        .ok_or_else(|| unexpected(value, table, key))
}

/// The customer's row and C_DATA that `value` holds, `value` being what was found under `key`.
///
/// # Errors
/// A rejection if nothing was found, or something too short.
#[inline]
pub fn as_customer<'t>(
    value: Option<&'t [u8]>,
    table: TableId,
    key: &[u8],
) -> Result<(&'t Customer, &'t [u8])> {
    value
        .and_then(|bytes| Customer::ref_from_prefix(bytes).ok())
        .ok_or_else(|| unexpected(value, table, key))
}

/// The rejection for a row that is not there, or not of its table's shape.
#[cold]
pub fn unexpected(value: Option<&[u8]>, table: TableId, key: &[u8]) -> Error {
    let key = KeyExcerpt::new(key);
    Error::reject(match value {
        None => format!("TPC-C misses {table} {key}; load the initial population first"),
        Some(bytes) => format!("{table} {key} is no TPC-C row: it has {} bytes", bytes.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn originals_are_recognised_wherever_they_stand() {
        for at in 0..=42 {
            let mut text = Text([b'O'; 50]);
            assert!(!text.is_original());
            text.0[at..at + 8].copy_from_slice(b"ORIGINAL");
            assert!(text.is_original());
        }
    }

    #[test]
    fn rows_of_the_wrong_size_are_rejected() {
        let read = |value| as_row::<Order>(value, TableId(4), b"k").map(|_| ());
        let order = Order::default();
        assert!(read(Some(order.as_bytes())).is_ok());
        let error = read(Some(b"short")).unwrap_err().to_string();
        assert!(error.contains("t4 'k' is no TPC-C row: it has 5 bytes"), "{error}");
        assert!(read(None).unwrap_err().to_string().contains("misses t4 'k'"));
        assert!(as_customer(Some(b"short"), TableId(4), b"k").is_err());
    }

    #[test]
    fn customer_data_is_cut_to_its_column() {
        let image = CustomerImage::new(&Customer::default(), &[b'x'; 600]);
        let (_, data) = as_customer(Some(image.as_bytes()), TableId(0), b"k").unwrap();
        assert_eq!(data.len(), CUSTOMER_DATA_MAX);
    }
}
