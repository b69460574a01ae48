//! The delivery transaction (clause 2.7): in each district of a warehouse the oldest order that is
//! not delivered is. All ten districts are one database transaction, which clause 2.7.2.2 leaves
//! open; a district without such an order is skipped.

use super::keys::{self, DistrictId};
use super::profile::Profile;
use super::random::uniform_u8;
use super::scale::DISTRICTS;
use super::schema::{
    CustomerImage, Order, OrderLine, Tables, as_customer, as_row, read_for_update, unexpected,
};
use shoal_types::procedure::Access;
use shoal_types::wire::Coded;
use shoal_types::{Footprint, Random, Result, Scan, Transaction};
use zerocopy::IntoBytes;

/// The warehouse, the carrier and the time.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
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
#[derive(Debug, Clone, Default, Coded)]
pub struct Output {
    /// Of districts 1 to 10; `None` where every order was delivered before.
    pub delivered: [Option<Delivered>; DISTRICTS as usize],
}

/// An order that was delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Coded)]
pub struct Delivered {
    /// O_ID.
    pub order: u32,
    /// O_C_ID.
    pub customer: u16,
    /// The sum of OL_AMOUNT, which the customer now owes.
    pub amount: i64,
}

impl Output {
    /// The number of districts without an order to deliver.
    pub fn skipped(&self) -> usize {
        self.delivered.iter().filter(|district| district.is_none()).count()
    }

    /// `key` of every district and its order; a skipped one counts as order 0 of no customer.
    fn of_each_district<K>(&self, key: impl Fn(u8, Delivered) -> K) -> [K; DISTRICTS as usize] {
        std::array::from_fn(|at| key(at as u8 + 1, self.delivered[at].unwrap_or_default()))
    }
}

impl Profile for Input {
    const NAME: &'static str = "tpcc.delivery";
    type Output = Output;

    fn warehouse(&self) -> u16 {
        self.warehouse
    }

    /// Which orders and which customers is known only once the oldest new orders are read.
    fn footprint(&self, tables: &Tables) -> Footprint {
        let mut footprint = Footprint::whole();
        for d in 1..=DISTRICTS {
            let district = keys::district(self.warehouse, d);
            for table in [tables.new_order, tables.order, tables.order_line, tables.customer] {
                footprint.range(table, &Scan::prefix(&district), Access::ReadWrite);
            }
        }
        footprint
    }

    async fn run<X: Transaction>(
        &self,
        tx: &X,
        tables: &Tables,
        output: &mut Output,
    ) -> Result<()> {
        // Step by step through all districts, so that each step can announce what the next will read.
        for (d, delivered) in (1..).zip(&mut output.delivered) {
            *delivered =
                oldest(tx, tables, DistrictId { warehouse: self.warehouse, district: d }).await?;
        }
        self.prefetch_orders(tx, tables, output);
        for (d, delivered) in (1..).zip(&mut output.delivered) {
            let Some(delivered) = delivered else { continue };
            self.deliver(tx, tables, d, delivered).await?;
        }
        self.prefetch_customers(tx, tables, output);
        for (d, delivered) in (1..).zip(&output.delivered) {
            let Some(delivered) = delivered else { continue };
            let key = keys::customer(self.warehouse, d, delivered.customer);
            let row = tx.get_for_update(tables.customer, &key).await?;
            owe(tx, tables, &key, row, delivered.amount)?;
        }
        Ok(())
    }
}

/// The oldest order of a district that is not delivered, no longer a new order after this.
async fn oldest<X: Transaction>(
    tx: &X,
    tables: &Tables,
    district: DistrictId,
) -> Result<Option<Delivered>> {
    let prefix = keys::district(district.warehouse, district.district);
    let oldest = tx.scan(tables.new_order, Scan::prefix(&prefix).limit(1)).await?;
    let Some((key, _)) = oldest.first().copied() else { return Ok(None) };
    let order = keys::order_id(key).ok_or_else(|| unexpected(None, tables.new_order, key))?;
    tx.delete(tables.new_order, key)?;
    Ok(Some(Delivered { order, customer: 0, amount: 0 }))
}

impl Input {
    /// Sets the order's carrier and its lines' dates; finds out the customer and the amount.
    async fn deliver<X: Transaction>(
        &self,
        tx: &X,
        tables: &Tables,
        d: u8,
        delivered: &mut Delivered,
    ) -> Result<()> {
        let key = keys::order(self.warehouse, d, delivered.order);
        let order: &Order = read_for_update(tx, tables.order, &key).await?;
        delivered.customer = order.customer.get();
        let order = Order { carrier: self.carrier, ..*order };
        tx.put(tables.order, &key, order.as_bytes())?;
        for (key, row) in tx.scan(tables.order_line, Scan::prefix(&key)).await? {
            let line: &OrderLine = as_row(Some(row), tables.order_line, key)?;
            delivered.amount = delivered.amount.wrapping_add(line.amount.get().into());
            let line = OrderLine { delivery_date: self.date.into(), ..*line };
            tx.put(tables.order_line, key, line.as_bytes())?;
        }
        Ok(())
    }

    /// Brings the orders and their first lines near.
    fn prefetch_orders<X: Transaction>(&self, tx: &X, tables: &Tables, output: &Output) {
        let keys = output.of_each_district(|d, delivered| {
            let order = keys::order(self.warehouse, d, delivered.order);
            (order, keys::order_line(self.warehouse, d, delivered.order, 1))
        });
        tx.prefetch(&keys.each_ref().map(|(order, _)| (tables.order, &order[..])));
        tx.prefetch(&keys.each_ref().map(|(_, line)| (tables.order_line, &line[..])));
    }

    /// Looks up the customers of the delivered orders side by side.
    fn prefetch_customers<X: Transaction>(&self, tx: &X, tables: &Tables, output: &Output) {
        let keys = output
            .of_each_district(|d, delivered| keys::customer(self.warehouse, d, delivered.customer));
        tx.prefetch(&keys.each_ref().map(|key| (tables.customer, &key[..])));
    }
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
    after.balance = after.balance.get().wrapping_add(amount).into();
    after.deliveries = after.deliveries.get().wrapping_add(1).into();
    tx.put(tables.customer, key, CustomerImage::new(&after, data).as_bytes())
}
