//! The delivery transaction (clause 2.7): in each district of a warehouse the oldest order that is
//! not delivered is. All ten districts are one database transaction, which clause 2.7.2.2 leaves
//! open; a district without such an order is skipped.

use super::keys;
use super::procedure::Procedure;
use super::random::uniform_u8;
use super::scale::DISTRICTS;
use super::schema::{
    CustomerImage, Order, OrderLine, Tables, as_customer, as_row, read_for_update, unexpected,
};
use types::{Random, Result, Scan, Transaction};
use zerocopy::IntoBytes;

/// Where, by whom and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// W_ID.
    pub warehouse: u16,
    /// O_CARRIER_ID.
    pub carrier: u8,
    /// OL_DELIVERY_D.
    pub date: u64,
}

impl Input {
    /// A delivery at the warehouse, as clause 2.7.1 draws it.
    pub fn draw(random: &mut Random, warehouse: u16, date: u64) -> Input {
        Input { warehouse, carrier: uniform_u8(random, 1..=10), date }
    }
}

/// What goes into the result file (clause 2.7.2.3): by district, the order delivered.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// Of districts 1 to 10; `None` where every order was delivered before.
    pub delivered: [Option<Delivered>; DISTRICTS as usize],
}

/// An order that was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// O_ID.
    pub order: u32,
    /// O_C_ID.
    pub customer: u16,
    /// The sum of OL_AMOUNT, which the customer now owes.
    pub amount: i64,
}

impl Output {
    /// How many districts had nothing to deliver.
    pub fn skipped(&self) -> usize {
        self.delivered.iter().filter(|district| district.is_none()).count()
    }
}

impl Procedure for Input {
    type Output = Output;

    async fn run<X: Transaction>(
        &self,
        tx: &X,
        tables: &Tables,
        output: &mut Output,
    ) -> Result<()> {
        for (d, delivered) in (1..).zip(&mut output.delivered) {
            *delivered = deliver(tx, tables, self, d).await?;
        }
        Ok(())
    }
}

async fn deliver<X: Transaction>(
    tx: &X,
    tables: &Tables,
    input: &Input,
    d: u8,
) -> Result<Option<Delivered>> {
    let w = input.warehouse;
    let prefix = keys::district(w, d);
    let oldest = tx.scan(tables.new_order, Scan::prefix(&prefix).limit(1)).await?;
    let Some((key, _)) = oldest.first().copied() else { return Ok(None) };
    let o = keys::order_id(key).ok_or_else(|| unexpected(None, tables.new_order, key))?;
    tx.delete(tables.new_order, key)?;

    let order: &Order = read_for_update(tx, tables.order, key).await?;
    let customer = order.customer.get();
    let order = Order { carrier: input.carrier, ..*order };
    tx.put(tables.order, key, order.as_bytes())?;

    let mut amount = 0;
    for (key, row) in tx.scan(tables.order_line, Scan::prefix(key)).await? {
        let line: &OrderLine = as_row(Some(row), tables.order_line, key)?;
        amount += i64::from(line.amount.get());
        let line = OrderLine { delivery_date: input.date.into(), ..*line };
        tx.put(tables.order_line, key, line.as_bytes())?;
    }

    let key = keys::customer(w, d, customer);
    let row = tx.get_for_update(tables.customer, &key).await?;
    owe(tx, tables, &key, row, amount)?;
    Ok(Some(Delivered { order: o, customer, amount }))
}

/// Adds the amount to what the customer owes.
fn owe<X: Transaction>(
    tx: &X,
    tables: &Tables,
    key: &[u8],
    row: Option<&[u8]>,
    amount: i64,
) -> Result<()> {
    let (customer, data) = as_customer(row, tables.customer, key)?;
    let mut after = *customer;
    after.balance += amount;
    after.deliveries += 1;
    tx.put(tables.customer, key, CustomerImage::new(&after, data).as_bytes())
}
