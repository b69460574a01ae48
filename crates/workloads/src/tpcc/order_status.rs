//! The order-status transaction (clause 2.6): what became of a customer's last order. It only
//! reads.

use super::bounded::Bounded;
use super::customer::{Selection, find};
use super::keys::{self, DistrictId};
use super::profile::Profile;
use super::random::uniform_u8;
use super::scale::{DISTRICTS, LINES_MAX, Scale};
use super::schema::{Order, OrderLine, Tables, Text, as_customer, as_row, read, unexpected};
use shoal_types::procedure::Access;
use shoal_types::wire::Coded;
use shoal_types::{Footprint, Random, Result, Scan, Transaction};

/// The customer whose last order is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Input {
    /// W_ID.
    pub warehouse: u16,
    /// D_ID.
    pub district: u8,
    /// The customer, by C_ID or by last name.
    pub customer: Selection,
}

impl Input {
    /// A question at the warehouse, as clause 2.6.1 draws it.
    pub fn draw(random: &mut Random, scale: Scale, warehouse: u16) -> Input {
        let district = uniform_u8(random, 1..=DISTRICTS);
        Input { warehouse, district, customer: Selection::draw(random, scale) }
    }
}

/// What the terminal shows (clause 2.6.3.3), beside what was asked for.
#[derive(Debug, Clone, Default, Coded)]
pub struct Output {
    /// C_ID.
    pub id: u16,
    /// C_FIRST.
    pub first: Text<16>,
    /// C_MIDDLE.
    pub middle: Text<2>,
    /// C_LAST.
    pub last: Text<16>,
    /// C_BALANCE.
    pub balance: i64,
    /// O_ID.
    pub order: u32,
    /// O_ENTRY_D.
    pub entry_date: u64,
    /// O_CARRIER_ID, or [`NULL_CARRIER`](super::schema::NULL_CARRIER).
    pub carrier: u8,
    lines: Bounded<Line, { LINES_MAX as usize }>,
}

/// A line of the order.
#[derive(Debug, Clone, Copy, Default, Coded)]
pub struct Line {
    /// OL_I_ID.
    pub item: u32,
    /// OL_SUPPLY_W_ID.
    pub supplier: u16,
    /// OL_QUANTITY.
    pub quantity: u8,
    /// OL_AMOUNT.
    pub amount: u32,
    /// OL_DELIVERY_D, or [`NULL_DATE`](super::schema::NULL_DATE).
    pub delivery_date: u64,
}

impl Output {
    /// The lines of the customer's last order, ascending by number.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
}

impl Profile for Input {
    const NAME: &'static str = "tpcc.order_status";
    type Output = Output;

    fn warehouse(&self) -> u16 {
        self.warehouse
    }

    fn is_multi_shot(&self) -> bool {
        true
    }

    /// Any order of the district may be the customer's last one; by last name, any customer may be the one that is found.
    fn footprint(&self, tables: &Tables) -> Footprint {
        let (w, d) = (self.warehouse, self.district);
        let of_district = keys::district(w, d);
        let mut footprint = Footprint::whole();
        let mut reads = |table, prefix: &[u8]| {
            footprint.range(table, &Scan::prefix(prefix), Access::Read);
        };
        match &self.customer {
            Selection::Id(c) => reads(tables.customer, &keys::customer(w, d, *c)),
            Selection::LastName(last) => {
                reads(tables.customer_by_name, &keys::last_name(w, d, last));
                reads(tables.customer, &of_district);
            }
        }
        for table in [tables.order_by_customer, tables.order, tables.order_line] {
            reads(table, &of_district);
        }
        footprint
    }

    async fn run<X: Transaction>(
        &self,
        tx: &X,
        tables: &Tables,
        output: &mut Output,
    ) -> Result<()> {
        let (w, d) = (self.warehouse, self.district);
        let id = find(tx, tables, DistrictId { warehouse: w, district: d }, &self.customer).await?;
        let key = keys::customer(w, d, id);
        let (customer, _) =
            as_customer(tx.get(tables.customer, &key).await?, tables.customer, &key)?;
        output.id = id;
        output.first = customer.first;
        output.middle = customer.middle;
        output.last = customer.last;
        output.balance = customer.balance.get();

        let newest = Scan::prefix(&key).reverse().limit(1);
        let newest = tx.scan(tables.order_by_customer, newest).await?;
        let o = newest.first().and_then(|(key, _)| keys::last_order_id(key));
        let o = o.ok_or_else(|| unexpected(None, tables.order_by_customer, &key))?;
        let key = keys::order(w, d, o);
        let order: &Order = read(tx, tables.order, &key).await?;
        output.order = o;
        output.entry_date = order.entry_date.get();
        output.carrier = order.carrier;

        let rows = tx.scan(tables.order_line, Scan::prefix(&key)).await?;
        output.lines = Bounded::of(rows.len().min(usize::from(LINES_MAX)));
        for ((key, row), shown) in rows.into_iter().zip(output.lines.iter_mut()) {
            let line: &OrderLine = as_row(Some(row), tables.order_line, key)?;
            *shown = Line {
                item: line.item.get(),
                supplier: line.supplier.get(),
                quantity: line.quantity,
                amount: line.amount.get(),
                delivery_date: line.delivery_date.get(),
            };
        }
        Ok(())
    }
}
