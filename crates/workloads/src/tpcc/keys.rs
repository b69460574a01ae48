//! The primary and index keys, as fixed arrays whose byte order is the order of their columns:
//! every column big-endian, one after another.
//!
//! An ordered index compares the first eight bytes of a key in one step, so keys are kept that
//! short where they can be: warehouses and customers take two bytes, orders four, districts and
//! order lines one. Nothing here allocates.
//!
//! | table | columns | bytes |
//! |---|---|---|
//! | warehouse | w | 2 |
//! | district | w d | 3 |
//! | customer | w d c | 5 |
//! | history | w d c payment | 9 |
//! | new_order, order | w d o | 7 |
//! | order_line | w d o line | 8 |
//! | item | i | 4 |
//! | stock | w i | 6 |
//! | customer_by_name | w d last first c | 37 |
//! | order_by_customer | w d c o | 9 |

use super::schema::Text;

/// Bytes of a last or first name within a key; shorter names are padded with zeros, which sorts
/// them before longer ones as it should.
const NAME: usize = 16;

/// A district, as clause 1.3 of the specification identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DistrictId {
    /// D_W_ID, the district's warehouse.
    pub warehouse: u16,
    /// D_ID, counted from 1 in each warehouse.
    pub district: u8,
}

/// An order, as clause 1.3 of the specification identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OrderId {
    /// O_W_ID, the order's warehouse.
    pub(super) warehouse: u16,
    /// O_D_ID, the order's district.
    pub(super) district: u8,
    /// O_ID, counted from 1 in each district.
    pub(super) order: u32,
}

/// W_ID: a warehouse.
pub fn warehouse(w: u16) -> [u8; 2] {
    w.to_be_bytes()
}

/// D_W_ID, D_ID: a district; also the prefix of everything that belongs to one.
pub fn district(w: u16, d: u8) -> [u8; 3] {
    let [w0, w1] = w.to_be_bytes();
    [w0, w1, d]
}

/// C_W_ID, C_D_ID, C_ID: a customer; also the prefix of the customer's history and orders.
pub fn customer(w: u16, d: u8, c: u16) -> [u8; 5] {
    let ([w0, w1], [c0, c1]) = (w.to_be_bytes(), c.to_be_bytes());
    [w0, w1, d, c0, c1]
}

/// A payment of a customer. The specification gives HISTORY no primary key; the customer and
/// which of the customer's payments it is (C_PAYMENT_CNT) name a row for good, from any writer.
pub fn history(w: u16, d: u8, c: u16, payment: u32) -> [u8; 9] {
    let [w0, w1, d, c0, c1] = customer(w, d, c);
    let [p0, p1, p2, p3] = payment.to_be_bytes();
    [w0, w1, d, c0, c1, p0, p1, p2, p3]
}

/// O_W_ID, O_D_ID, O_ID: an order, a new order; also the prefix of an order's lines.
pub fn order(w: u16, d: u8, o: u32) -> [u8; 7] {
    let ([w0, w1], [o0, o1, o2, o3]) = (w.to_be_bytes(), o.to_be_bytes());
    [w0, w1, d, o0, o1, o2, o3]
}

/// OL_W_ID, OL_D_ID, OL_O_ID, OL_NUMBER: a line of an order.
pub fn order_line(w: u16, d: u8, o: u32, line: u8) -> [u8; 8] {
    let number = u64::from(w) << 48 | u64::from(d) << 40 | u64::from(o) << 8 | u64::from(line);
    number.to_be_bytes()
}

/// I_ID: an item.
pub fn item(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

/// S_W_ID, S_I_ID: the stock of an item in a warehouse.
pub fn stock(w: u16, i: u32) -> [u8; 6] {
    let ([w0, w1], [i0, i1, i2, i3]) = (w.to_be_bytes(), i.to_be_bytes());
    [w0, w1, i0, i1, i2, i3]
}

/// C_W_ID, C_D_ID, C_LAST: the prefix that all customers of one last name share in the index
/// whose full keys [`customer_by_name`] makes.
pub fn last_name(w: u16, d: u8, last: &Text<NAME>) -> [u8; 3 + NAME] {
    let mut key = [0; 3 + NAME];
    key[..3].copy_from_slice(&district(w, d));
    key[3..].copy_from_slice(&last.0);
    key
}

/// C_W_ID, C_D_ID, C_LAST, C_FIRST, C_ID: customers by name.
pub fn customer_by_name(
    w: u16,
    d: u8,
    last: &Text<NAME>,
    first: &Text<NAME>,
    c: u16,
) -> [u8; 5 + 2 * NAME] {
    let mut key = [0; 5 + 2 * NAME];
    key[..3 + NAME].copy_from_slice(&last_name(w, d, last));
    key[3 + NAME..3 + 2 * NAME].copy_from_slice(&first.0);
    key[3 + 2 * NAME..].copy_from_slice(&c.to_be_bytes());
    key
}

/// O_W_ID, O_D_ID, O_C_ID, O_ID: orders by customer.
pub fn order_by_customer(w: u16, d: u8, c: u16, o: u32) -> [u8; 9] {
    history(w, d, c, o)
}

/// The order id in a key of `new_order`, `order` or `order_line`.
pub fn order_id(key: &[u8]) -> Option<u32> {
    key.get(3..).and_then(<[u8]>::first_chunk).map(|id| u32::from_be_bytes(*id))
}

/// The order id at the end of a key of `order_by_customer`.
pub fn last_order_id(key: &[u8]) -> Option<u32> {
    key.last_chunk().map(|id| u32::from_be_bytes(*id))
}

/// The customer id at the end of a key of `customer_by_name`, or of `customer`.
pub fn last_customer_id(key: &[u8]) -> Option<u16> {
    key.last_chunk().map(|id| u16::from_be_bytes(*id))
}

/// The customer id within a key of `history` or `order_by_customer`.
pub fn customer_id(key: &[u8]) -> Option<u16> {
    key.get(3..).and_then(<[u8]>::first_chunk).map(|id| u16::from_be_bytes(*id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_sort_as_their_columns_do(
            a in any::<(u16, u8, u32, u8)>(),
            b in any::<(u16, u8, u32, u8)>(),
        ) {
            let line = |(w, d, o, l)| order_line(w, d, o, l);
            prop_assert_eq!(line(a).cmp(&line(b)), a.cmp(&b));
            prop_assert!(line(a).starts_with(&order(a.0, a.1, a.2)));
            prop_assert_eq!(order_id(&line(a)), Some(a.2));
            let by_customer = |(w, d, o, _): (u16, u8, u32, u8)| order_by_customer(w, d, 7, o);
            prop_assert_eq!(by_customer(a).cmp(&by_customer(b)), (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)));
            prop_assert_eq!(last_order_id(&by_customer(a)), Some(a.2));
            prop_assert_eq!(customer_id(&by_customer(a)), Some(7));
        }

        #[test]
        fn names_sort_as_text(a in "[A-Z]{1,16}", b in "[A-Z]{1,16}", c in any::<u16>()) {
            let key = |name: &str| customer_by_name(1, 2, &Text::new(name), &Text::new("x"), c);
            prop_assert_eq!(key(&a).cmp(&key(&b)), a.cmp(&b));
            prop_assert!(key(&a).starts_with(&last_name(1, 2, &Text::new(&a))));
            prop_assert_eq!(last_customer_id(&key(&a)), Some(c));
        }
    }
}
