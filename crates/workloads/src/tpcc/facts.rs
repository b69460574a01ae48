//! The values that the consistency conditions compare, collected from the tables: sums, counts and ids,
//! a district at a time, so that a large database need not fit in here.

use super::keys::{self, DistrictId};
use super::schema::{
    Customer, District, History, NULL_CARRIER, NULL_DATE, Order, OrderLine, Row, Tables,
    as_customer, as_row, read, unexpected,
};
use crate::rows::for_each_with_prefix;
use shoal_types::{Database, Result, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// The sums of H_AMOUNT by (H_W_ID, H_D_ID): where it was paid.
pub type Paid = BTreeMap<(u16, u8), i64>;

/// What the rows of one district say, as the conditions of consistency compare them.
#[derive(Debug, Default)]
pub struct DistrictFacts {
    /// D_NEXT_O_ID.
    pub next_order: u32,
    /// D_YTD.
    pub ytd: i64,
    /// Orders by O_ID, including those of which only lines exist.
    pub orders: BTreeMap<u32, OrderFacts>,
    /// Each NO_O_ID of the district: the orders that are not delivered.
    pub new_orders: BTreeSet<u32>,
    /// Customers by C_ID, including those of which only history or orders exist.
    pub customers: BTreeMap<u16, CustomerFacts>,
    /// (O_C_ID, O_ID) in the index of orders by customer.
    pub indexed_orders: BTreeSet<(u16, u32)>,
}

/// What the rows of one order say.
#[derive(Debug, Default)]
pub struct OrderFacts {
    /// O_C_ID; none if there is no row in ORDER.
    pub customer: Option<u16>,
    /// O_CARRIER_ID is not null.
    pub delivered: bool,
    /// O_OL_CNT.
    pub lines: u32,
    /// The number of its rows in ORDER-LINE.
    pub line_rows: u32,
    /// The number of those rows whose OL_DELIVERY_D is not null.
    pub delivered_line_rows: u32,
    /// The sum of OL_AMOUNT over those.
    pub delivered_amount: i64,
}

/// What the rows of one customer say.
#[derive(Debug, Default)]
pub struct CustomerFacts {
    /// C_BALANCE.
    pub balance: i64,
    /// C_YTD_PAYMENT.
    pub ytd_payment: i64,
    /// C_DELIVERY_CNT.
    pub deliveries: u64,
    /// The sum of H_AMOUNT.
    pub paid: i64,
    /// The sum of OL_AMOUNT over delivered lines of the customer's orders.
    pub delivered_amount: i64,
}

impl DistrictFacts {
    /// Collects a district's facts, and adds to `paid` what its customers paid, wherever they did.
    ///
    /// # Errors
    /// Those of the database, and a rejection where a row is missing or misshapen.
    pub async fn collect<D: Database>(
        db: &D,
        tables: &Tables,
        district: DistrictId,
        paid: &mut Paid,
    ) -> Result<DistrictFacts> {
        let mut facts = DistrictFacts::default();
        let key = keys::district(district.warehouse, district.district);
        (facts.next_order, facts.ytd) = db
            .transact(async |tx| {
                let row: &District = read(tx, tables.district, &key).await?;
                Ok((row.next_order.get(), row.ytd.get()))
            })
            .await?;
        facts.collect_customers(db, tables, &key, paid).await?;
        facts.collect_orders(db, tables, &key).await?;
        for order in facts.orders.values() {
            if let Some(customer) = order.customer {
                facts.customers.entry(customer).or_default().delivered_amount +=
                    order.delivered_amount;
            }
        }
        Ok(facts)
    }

    async fn collect_customers<D: Database>(
        &mut self,
        db: &D,
        tables: &Tables,
        prefix: &[u8],
        paid: &mut Paid,
    ) -> Result<()> {
        let table = tables.customer;
        each(db, table, prefix, |key, value| {
            let (row, _): (&Customer, _) = as_customer(Some(value), table, key)?;
            let id = named(keys::last_customer_id(key), table, key)?;
            let customer = self.customers.entry(id).or_default();
            customer.balance = row.balance.get();
            customer.ytd_payment = row.ytd_payment.get();
            customer.deliveries = u64::from(row.deliveries.get());
            Ok(())
        })
        .await?;
        each_row(db, tables.history, prefix, |key, row: &History| {
            let id = named(keys::customer_id(key), tables.history, key)?;
            let amount = i64::from(row.amount.get());
            self.customers.entry(id).or_default().paid += amount;
            *paid.entry((row.warehouse.get(), row.district)).or_default() += amount;
            Ok(())
        })
        .await
    }

    async fn collect_orders<D: Database>(
        &mut self,
        db: &D,
        tables: &Tables,
        prefix: &[u8],
    ) -> Result<()> {
        each_row(db, tables.order, prefix, |key, row: &Order| {
            let order = self.orders.entry(named(keys::order_id(key), tables.order, key)?);
            let order = order.or_default();
            order.customer = Some(row.customer.get());
            order.delivered = row.carrier != NULL_CARRIER;
            order.lines = u32::from(row.lines);
            Ok(())
        })
        .await?;
        each_row(db, tables.order_line, prefix, |key, row: &OrderLine| {
            let order = self.orders.entry(named(keys::order_id(key), tables.order_line, key)?);
            let order = order.or_default();
            order.line_rows += 1;
            if row.delivery_date.get() != NULL_DATE {
                order.delivered_line_rows += 1;
                order.delivered_amount += i64::from(row.amount.get());
            }
            Ok(())
        })
        .await?;
        each(db, tables.new_order, prefix, |key, _| {
            self.new_orders.insert(named(keys::order_id(key), tables.new_order, key)?);
            Ok(())
        })
        .await?;
        let table = tables.order_by_customer;
        each(db, table, prefix, |key, _| {
            let customer = named(keys::customer_id(key), table, key)?;
            self.indexed_orders.insert((customer, named(keys::last_order_id(key), table, key)?));
            Ok(())
        })
        .await
    }
}

/// The id that a key holds, or the rejection of a key too short to hold it.
fn named<T>(id: Option<T>, table: TableId, key: &[u8]) -> Result<T> {
    id.ok_or_else(|| unexpected(Some(&[]), table, key))
}

/// Shows `visit` every row under the prefix; ends with its first error.
async fn each<D: Database>(
    db: &D,
    table: TableId,
    prefix: &[u8],
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let mut verdict = Ok(());
    for_each_with_prefix(db, table, prefix, |key, value| {
        if verdict.is_ok() {
            verdict = visit(key, value);
        }
    })
    .await?;
    verdict
}

/// [`each`], seen as rows of one type.
async fn each_row<D: Database, R: Row>(
    db: &D,
    table: TableId,
    prefix: &[u8],
    mut visit: impl FnMut(&[u8], &R) -> Result<()>,
) -> Result<()> {
    each(db, table, prefix, |key, value| visit(key, as_row(Some(value), table, key)?)).await
}
