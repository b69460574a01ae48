//! The initial population of clause 4.3.3.1.
//!
//! It is loaded in parts that touch different keys, so that they can be loaded side by side: the
//! items; of each warehouse its own row and its stock; and each of its districts with customers,
//! their history and orders. Every part draws from its own seed, whichever order they run in.
//!
//! A part is drawn row by row, as the database takes its rows.

use super::keys::{self, DistrictId, OrderId};
use super::random::{
    digits, fill_letters, goods_data, last_name, last_name_at_load, letters, permutation, uniform,
    uniform_u8, uniform_u16,
};
use super::scale::{DISTRICTS, LINES_MAX, LINES_MIN, Scale};
use super::schema::{
    Address, CUSTOMER_DATA_MAX, Customer, CustomerImage, District, History, Item, NULL_CARRIER,
    NULL_DATE, Order, OrderLine, Stock, Tables, Text, UNIT, Warehouse,
};
use shoal_types::bulk_load::LoadRow;
use shoal_types::{Database, Random, Result};
use std::ops::RangeInclusive;
use zerocopy::IntoBytes;

/// The date at which everything in the initial population happened.
pub const LOAD_DATE: u64 = 1;

/// The contents of a part of the population.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All rows of ITEM, which no warehouse owns.
    Items,
    /// A warehouse's own row and its stock.
    Warehouse(u16),
    /// A district's own row, its customers and their orders.
    District(u16, u8),
}

impl Part {
    /// The number of parts of the population.
    pub fn count(scale: Scale) -> usize {
        1 + usize::from(scale.warehouses) * (1 + usize::from(DISTRICTS))
    }

    /// Part number `number`, which is below [`count`](Part::count).
    pub fn of(number: usize) -> Part {
        let Some(number) = number.checked_sub(1) else { return Part::Items };
        let of_warehouse = 1 + usize::from(DISTRICTS);
        let w = (number / of_warehouse + 1) as u16;
        match (number % of_warehouse) as u8 {
            0 => Part::Warehouse(w),
            d => Part::District(w, d),
        }
    }
}

/// The approximate number of rows of the population, order lines included.
pub fn rows(scale: Scale) -> u64 {
    let lines = u64::from(LINES_MIN + LINES_MAX) / 2;
    let customers = u64::from(scale.customers);
    // A customer, its history, its order; the indexes of the first and the last.
    let district = 1 + customers * (5 + lines) + u64::from(scale.undelivered);
    let items = u64::from(scale.items);
    items + u64::from(scale.warehouses) * (1 + items + u64::from(DISTRICTS) * district)
}

/// Loads one part.
///
/// # Errors
/// Those of the database.
pub async fn load<D: Database>(
    db: &D,
    tables: Tables,
    scale: Scale,
    part: usize,
    seed: u64,
    loaded: &mut dyn FnMut(u64),
) -> Result<()> {
    let random = Random::new(seed).fork(part as u64);
    let mut loader = Loader { db, tables, scale, random, loaded };
    match Part::of(part) {
        Part::Items => loader.items().await,
        Part::Warehouse(w) => loader.warehouse(w).await,
        Part::District(w, d) => loader.district(w, d).await,
    }
}

struct Loader<'a, D> {
    db: &'a D,
    tables: Tables,
    scale: Scale,
    random: Random,
    loaded: &'a mut dyn FnMut(u64),
}

impl<D: Database> Loader<'_, D> {
    /// Loads the rows that `draw` adds for each id.
    async fn load(
        &mut self,
        ids: RangeInclusive<u32>,
        mut draw: impl FnMut(&mut Vec<LoadRow>, &mut Random, u32),
    ) -> Result<()> {
        let rows = ids.flat_map(|id| {
            let mut rows = Vec::new();
            draw(&mut rows, &mut self.random, id);
            rows
        });
        self.db.load(rows, self.loaded).await
    }

    async fn items(&mut self) -> Result<()> {
        let tables = self.tables;
        self.load(1..=self.scale.items, |rows, random, i| {
            let item = Item {
                price: uniform(random, UNIT..=100 * UNIT).into(),
                image: uniform_u16(random, 1..=10_000).into(),
                name: letters(random, 14..=24),
                data: goods_data(random),
            };
            rows.push(LoadRow::new(tables.item, &keys::item(i), item.as_bytes()));
        })
        .await
    }

    async fn warehouse(&mut self, w: u16) -> Result<()> {
        let (tables, scale) = (self.tables, self.scale);
        self.load(1..=1, |rows, random, _| {
            let warehouse = Warehouse {
                ytd: (district_ytd(scale) * i64::from(DISTRICTS)).into(),
                tax: uniform_u16(random, 0..=2000).into(),
                name: letters(random, 6..=10),
                address: address(random),
            };
            rows.push(LoadRow::new(tables.warehouse, &keys::warehouse(w), warehouse.as_bytes()));
        })
        .await?;
        self.load(1..=scale.items, |rows, random, i| {
            let stock = Stock {
                quantity: i16::from(uniform_u8(random, 10..=100)).into(),
                ytd: 0.into(),
                orders: 0.into(),
                remote_orders: 0.into(),
                data: goods_data(random),
                district_info: std::array::from_fn(|_| letters(random, 24..=24)),
            };
            rows.push(LoadRow::new(tables.stock, &keys::stock(w, i), stock.as_bytes()));
        })
        .await
    }

    async fn district(&mut self, w: u16, d: u8) -> Result<()> {
        let (tables, scale) = (self.tables, self.scale);
        self.load(1..=1, |rows, random, _| {
            let district = District {
                next_order: (scale.orders() + 1).into(),
                tax: uniform_u16(random, 0..=2000).into(),
                ytd: district_ytd(scale).into(),
                name: letters(random, 6..=10),
                address: address(random),
            };
            rows.push(LoadRow::new(tables.district, &keys::district(w, d), district.as_bytes()));
        })
        .await?;
        let district = DistrictId { warehouse: w, district: d };
        self.load(1..=u32::from(scale.customers), |rows, random, c| {
            add_customer(rows, tables, scale, random, district, c as u16);
        })
        .await?;
        let customers = permutation(&mut self.random, scale.customers);
        self.load(1..=scale.orders(), |rows, random, o| {
            let customer = customers[o as usize - 1];
            add_order(
                rows,
                tables,
                scale,
                random,
                OrderId { warehouse: w, district: d, order: o },
                customer,
            );
        })
        .await
    }
}

/// What each customer has paid so far, in cents.
const FIRST_PAYMENT: u32 = 10 * UNIT;

/// D_YTD: what the district's customers have paid so far.
fn district_ytd(scale: Scale) -> i64 {
    i64::from(FIRST_PAYMENT) * i64::from(scale.customers)
}

fn address(random: &mut Random) -> Address {
    let Text([a, b, c, d]) = digits(random);
    Address {
        street_1: letters(random, 10..=20),
        street_2: letters(random, 10..=20),
        city: letters(random, 10..=20),
        state: letters(random, 2..=2),
        zip: Text([a, b, c, d, b'1', b'1', b'1', b'1', b'1']),
    }
}

/// A customer, the entry in the index by name, and the history of one payment.
fn add_customer(
    rows: &mut Vec<LoadRow>,
    tables: Tables,
    scale: Scale,
    random: &mut Random,
    district: DistrictId,
    c: u16,
) {
    let DistrictId { warehouse: w, district: d } = district;
    let last = match c {
        1..=1000 => last_name(u32::from(c) - 1),
        _ => last_name_at_load(random, scale),
    };
    let customer = Customer {
        balance: (-i64::from(FIRST_PAYMENT)).into(),
        ytd_payment: i64::from(FIRST_PAYMENT).into(),
        payments: 1.into(),
        deliveries: 0.into(),
        discount: uniform_u16(random, 0..=5000).into(),
        credit: Text(if random.chance(10, 100) { *b"BC" } else { *b"GC" }),
        last,
        middle: Text(*b"OE"),
        first: letters(random, 8..=16),
        credit_limit: i64::from(50_000 * UNIT).into(),
        since: LOAD_DATE.into(),
        phone: digits(random),
        address: address(random),
    };
    let mut data = [0; CUSTOMER_DATA_MAX];
    let data = &mut data[..uniform(random, 300..=500) as usize];
    fill_letters(random, data);
    let image = CustomerImage::new(&customer, data);
    rows.push(LoadRow::new(tables.customer, &keys::customer(w, d, c), image.as_bytes()));
    let name = keys::customer_by_name(w, d, &customer.last, &customer.first, c);
    rows.push(LoadRow::new(tables.customer_by_name, &name, &[]));
    let history = History {
        district: d,
        warehouse: w.into(),
        date: LOAD_DATE.into(),
        amount: FIRST_PAYMENT.into(),
        data: letters(random, 12..=24),
    };
    rows.push(LoadRow::new(tables.history, &keys::history(w, d, c, 1), history.as_bytes()));
}

/// An order with its lines, its entry in the index by customer and, if it is not delivered, its
/// entry among the new orders.
fn add_order(
    rows: &mut Vec<LoadRow>,
    tables: Tables,
    scale: Scale,
    random: &mut Random,
    order: OrderId,
    customer: u16,
) {
    let OrderId { warehouse: w, district: d, order: o } = order;
    let delivered = o <= scale.delivered();
    let order = Order {
        customer: customer.into(),
        carrier: if delivered { uniform_u8(random, 1..=10) } else { NULL_CARRIER },
        lines: uniform_u8(random, LINES_MIN..=LINES_MAX),
        all_local: 1,
        entry_date: LOAD_DATE.into(),
    };
    rows.push(LoadRow::new(tables.order, &keys::order(w, d, o), order.as_bytes()));
    rows.push(LoadRow::new(
        tables.order_by_customer,
        &keys::order_by_customer(w, d, customer, o),
        &[],
    ));
    for number in 1..=order.lines {
        let line = OrderLine {
            item: uniform(random, 1..=scale.items).into(),
            amount: if delivered { 0 } else { uniform(random, 1..=10_000 * UNIT - 1) }.into(),
            delivery_date: if delivered { LOAD_DATE } else { NULL_DATE }.into(),
            supplier: w.into(),
            quantity: 5,
            district_info: letters(random, 24..=24),
        };
        rows.push(LoadRow::new(
            tables.order_line,
            &keys::order_line(w, d, o, number),
            line.as_bytes(),
        ));
    }
    if !delivered {
        rows.push(LoadRow::new(tables.new_order, &keys::order(w, d, o), &[]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_every_warehouse_and_district() {
        let scale = Scale::small(2);
        let parts: Vec<Part> = (0..Part::count(scale)).map(Part::of).collect();
        assert_eq!(parts.len(), 23);
        assert_eq!(parts[0], Part::Items);
        assert_eq!(parts[1], Part::Warehouse(1));
        assert_eq!(parts[11], Part::District(1, 10));
        assert_eq!(parts[12], Part::Warehouse(2));
        assert_eq!(parts[22], Part::District(2, 10));
    }
}
