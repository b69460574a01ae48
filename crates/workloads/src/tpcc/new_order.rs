//! The new-order transaction (clause 2.4): an order of 5 to 15 lines, one in a hundred of which
//! turns out at its last line to name no item and is rolled back.

use super::bounded::Bounded;
use super::keys::{self, OrderId};
use super::profile::Profile;
use super::random::{customer_id, item_id, other, uniform_u8};
use super::scale::{DISTRICTS, LINES_MAX, LINES_MIN, Scale};
use super::schema::{
    District, Item, NULL_CARRIER, NULL_DATE, Order, OrderLine, RATE_ONE, Stock, Tables, Text,
    Warehouse, as_customer, as_row, read, read_for_update,
};
use shoal_types::procedure::Access;
use shoal_types::wire::Coded;
use shoal_types::{Error, Footprint, Random, Result, Scan, Transaction};
use zerocopy::IntoBytes;

/// The reason with which an order that names no item is rolled back.
pub const UNUSED_ITEM: &str = "Item number is not valid";

/// What is ordered, by which customer, and when.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
#[coded(check = Input::check)]
pub struct Input {
    /// W_ID.
    pub warehouse: u16,
    /// D_ID.
    pub district: u8,
    /// C_ID.
    pub customer: u16,
    /// O_ENTRY_D.
    pub date: u64,
    lines: Bounded<Wanted, { LINES_MAX as usize }>,
}

/// A line of an order as it is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Coded)]
pub struct Wanted {
    /// OL_I_ID.
    pub item: u32,
    /// OL_SUPPLY_W_ID.
    pub supplier: u16,
    /// OL_QUANTITY.
    pub quantity: u8,
}

impl Input {
    /// An order at the warehouse, as clause 2.4.1 draws it.
    pub fn draw(random: &mut Random, scale: Scale, warehouse: u16, date: u64) -> Input {
        let district = uniform_u8(random, 1..=DISTRICTS);
        let customer = customer_id(random, scale);
        let count = uniform_u8(random, LINES_MIN..=LINES_MAX);
        let rolled_back = random.chance(1, 100);
        let mut lines: Bounded<Wanted, { LINES_MAX as usize }> = Bounded::of(count.into());
        for line in lines.iter_mut() {
            let remote = random.chance(1, 100);
            let elsewhere =
                if remote { other(random, 1..=scale.warehouses, warehouse) } else { None };
            *line = Wanted {
                item: item_id(random, scale),
                supplier: elsewhere.unwrap_or(warehouse),
                quantity: uniform_u8(random, 1..=10),
            };
        }
        if rolled_back {
            lines[usize::from(count) - 1].item = scale.unused_item();
        }
        Input { warehouse, district, customer, date, lines }
    }

    /// Refuses an order from outside for a district that no warehouse has.
    fn check(&self) -> std::result::Result<(), &'static str> {
        let known = (1..=DISTRICTS).contains(&self.district);
        if known { Ok(()) } else { Err("no such district") }
    }

    /// The lines of the order, as many as the client asked for.
    pub fn lines(&self) -> &[Wanted] {
        &self.lines
    }

    /// The number of lines that another warehouse supplies.
    pub fn remote_lines(&self) -> usize {
        self.lines().iter().filter(|line| line.supplier != self.warehouse).count()
    }
}

/// What the terminal shows (clause 2.4.3.3); of an order that is rolled back, C_LAST, C_CREDIT and
/// O_ID (clause 2.4.3.4).
#[derive(Debug, Clone, Default, Coded)]
pub struct Output {
    /// O_ID.
    pub order: u32,
    /// C_LAST.
    pub last: Text<16>,
    /// C_CREDIT.
    pub credit: Text<2>,
    /// C_DISCOUNT.
    pub discount: u16,
    /// W_TAX.
    pub warehouse_tax: u16,
    /// D_TAX.
    pub district_tax: u16,
    /// The amount to pay, with discount and taxes.
    pub total: i64,
    /// The lines, the first as many as were asked for.
    pub lines: [Line; LINES_MAX as usize],
}

/// A line of an order as the terminal shows it, beside what was asked for.
#[derive(Debug, Clone, Copy, Default, Coded)]
pub struct Line {
    /// I_NAME.
    pub name: Text<24>,
    /// I_PRICE.
    pub price: u32,
    /// OL_AMOUNT.
    pub amount: u32,
    /// S_QUANTITY, after the order.
    pub stock: i16,
    /// Brand goods (`B`) rather than generic ones (`G`).
    pub brand: bool,
}

impl Input {
    /// Brings near what the order reads besides its district, all of it known from the start: the
    /// customer, items and stock, and where the order will stand in the customer's index.
    fn prefetch<X: Transaction>(&self, tx: &X, tables: &Tables) {
        let (w, d, c) = (self.warehouse, self.district, self.customer);
        let (customer, last) =
            (keys::customer(w, d, c), keys::order_by_customer(w, d, c, u32::MAX));
        let (mut items, mut stock) = ([[0; 4]; LINES_MAX as usize], [[0; 6]; LINES_MAX as usize]);
        for ((line, item), stock) in self.lines().iter().zip(&mut items).zip(&mut stock) {
            (*item, *stock) = (keys::item(line.item), keys::stock(line.supplier, line.item));
        }
        let mut wanted = [(tables.customer, &customer[..]); 2 * LINES_MAX as usize + 2];
        wanted[1] = (tables.order_by_customer, &last);
        for ((pair, item), stock) in wanted[2..].chunks_exact_mut(2).zip(&items).zip(&stock) {
            pair.copy_from_slice(&[(tables.item, item), (tables.stock, stock)]);
        }
        tx.prefetch(&wanted[..2 * self.lines.len() + 2]);
    }
}

impl Profile for Input {
    const NAME: &'static str = "tpcc.new_order";
    type Output = Output;

    fn warehouse(&self) -> u16 {
        self.warehouse
    }

    /// A line of the order has what the stock of its supplier says: nothing of it is independent of the rest.
    fn footprint(&self, tables: &Tables) -> Footprint {
        let (w, d, c) = (self.warehouse, self.district, self.customer);
        let (district, customer) = (keys::district(w, d), keys::customer(w, d, c));
        let mut footprint = Footprint::whole();
        footprint.read(tables.warehouse, &keys::warehouse(w));
        footprint.read_write(tables.district, &district);
        footprint.read(tables.customer, &customer);
        // Which order it becomes is known only once the district is read.
        for table in [tables.order, tables.new_order, tables.order_line] {
            footprint.range(table, &Scan::prefix(&district), Access::ReadWrite);
        }
        footprint.range(tables.order_by_customer, &Scan::prefix(&customer), Access::ReadWrite);
        for line in self.lines() {
            footprint.read(tables.item, &keys::item(line.item));
            footprint.read_write(tables.stock, &keys::stock(line.supplier, line.item));
        }
        footprint
    }

    async fn run<X: Transaction>(
        &self,
        tx: &X,
        tables: &Tables,
        output: &mut Output,
    ) -> Result<()> {
        let (w, d, c) = (self.warehouse, self.district, self.customer);
        self.prefetch(tx, tables);
        let warehouse: &Warehouse = read(tx, tables.warehouse, &keys::warehouse(w)).await?;
        let district: &District =
            read_for_update(tx, tables.district, &keys::district(w, d)).await?;
        let o = district.next_order.get();
        let next = District { next_order: o.wrapping_add(1).into(), ..*district };
        tx.put(tables.district, &keys::district(w, d), next.as_bytes())?;

        let key = keys::customer(w, d, c);
        let (customer, _) =
            as_customer(tx.get(tables.customer, &key).await?, tables.customer, &key)?;
        output.order = o;
        output.last = customer.last;
        output.credit = customer.credit;
        output.discount = customer.discount.get();
        output.warehouse_tax = warehouse.tax.get();
        output.district_tax = district.tax.get();

        let order = Order {
            customer: c.into(),
            carrier: NULL_CARRIER,
            lines: u8::try_from(self.lines.len()).expect("at most LINES_MAX"),
            all_local: u8::from(self.remote_lines() == 0),
            entry_date: self.date.into(),
        };
        let key = keys::order(w, d, o);
        tx.insert(tables.order, &key, order.as_bytes()).await?;
        tx.insert(tables.new_order, &key, &[]).await?;
        tx.insert(tables.order_by_customer, &keys::order_by_customer(w, d, c, o), &[]).await?;

        let id = OrderId { warehouse: w, district: d, order: o };
        let mut sum = 0;
        for (number, (wanted, shown)) in (1..).zip(self.lines().iter().zip(&mut output.lines)) {
            enter_line(tx, tables, LineId { order: id, number }, wanted, shown).await?;
            sum += i64::from(shown.amount);
        }
        output.total = total(sum, output);
        Ok(())
    }
}

/// The key of a line: an order, and OL_NUMBER.
#[derive(Debug, Clone, Copy)]
struct LineId {
    order: OrderId,
    number: u8,
}

/// One line: the item, its stock, and the row of ORDER-LINE.
async fn enter_line<X: Transaction>(
    tx: &X,
    tables: &Tables,
    id: LineId,
    wanted: &Wanted,
    shown: &mut Line,
) -> Result<()> {
    let LineId { order: OrderId { warehouse: w, district: d, order: o }, number } = id;
    let key = keys::item(wanted.item);
    let found = tx.get(tables.item, &key).await?;
    if found.is_none() {
        return Err(Error::reject(UNUSED_ITEM));
    }
    let item: &Item = as_row(found, tables.item, &key)?;
    let key = keys::stock(wanted.supplier, wanted.item);
    let stock: &Stock = read_for_update(tx, tables.stock, &key).await?;
    let left = take(tx, tables, &key, stock, wanted, wanted.supplier != w)?;

    shown.name = item.name;
    shown.price = item.price.get();
    shown.amount = item.price.get().wrapping_mul(wanted.quantity.into());
    shown.stock = left;
    shown.brand = item.data.is_original() && stock.data.is_original();
    let line = OrderLine {
        item: wanted.item.into(),
        amount: shown.amount.into(),
        delivery_date: NULL_DATE.into(),
        supplier: wanted.supplier.into(),
        quantity: wanted.quantity,
        district_info: stock.district_info[usize::from(d) - 1],
    };
    tx.insert(tables.order_line, &keys::order_line(w, d, o, number), line.as_bytes()).await
}

/// Takes what is wanted out of the stock and returns what is left: 91 more arrive when fewer than
/// ten would be.
fn take<X: Transaction>(
    tx: &X,
    tables: &Tables,
    key: &[u8],
    stock: &Stock,
    wanted: &Wanted,
    remote: bool,
) -> Result<i16> {
    let rest = stock.quantity.get().wrapping_sub(wanted.quantity.into());
    let left = if rest >= 10 { rest } else { rest.wrapping_add(91) };
    let mut image = *stock;
    image.quantity = left.into();
    image.ytd = image.ytd.get().wrapping_add(wanted.quantity.into()).into();
    image.orders = image.orders.get().wrapping_add(1).into();
    image.remote_orders = image.remote_orders.get().wrapping_add(remote.into()).into();
    tx.put(tables.stock, key, image.as_bytes())?;
    Ok(left)
}

/// The sum of the lines, less the discount, plus both taxes, rounded to cents.
fn total(sum: i64, output: &Output) -> i64 {
    let discounted = RATE_ONE - i64::from(output.discount);
    let taxed = RATE_ONE + i64::from(output.warehouse_tax) + i64::from(output.district_tax);
    let one = RATE_ONE * RATE_ONE;
    sum.wrapping_mul(discounted).wrapping_mul(taxed).wrapping_add(one / 2) / one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_have_the_shares_of_the_specification() {
        let (mut random, scale) = (Random::new(11), Scale::specification(4));
        let orders: Vec<Input> =
            (0..20_000).map(|_| Input::draw(&mut random, scale, 2, 0)).collect();
        let lines: usize = orders.iter().map(|order| order.lines().len()).sum();
        let remote: usize = orders.iter().map(Input::remote_lines).sum();
        let rolled_back = orders
            .iter()
            .filter(|order| order.lines().iter().any(|line| line.item == scale.unused_item()))
            .count();
        assert!((195_000..205_000).contains(&lines), "ten lines each: {lines}");
        assert!((1_800..2_200).contains(&remote), "one line in a hundred: {remote}");
        assert!((150..250).contains(&rolled_back), "one order in a hundred: {rolled_back}");
        assert!(orders.iter().all(|order| (1..=10).contains(&order.district)));
        let one = Input::draw(&mut random, Scale::specification(1), 1, 0);
        assert_eq!(one.remote_lines(), 0, "a single warehouse supplies itself");
    }

    #[test]
    fn totals_are_discounted_and_taxed() {
        let output = Output {
            discount: 1_000,
            warehouse_tax: 500,
            district_tax: 1_500,
            ..Output::default()
        };
        // 100.00 less 10 % is 90.00, plus 20 % is 108.00.
        assert_eq!(total(10_000, &output), 10_800);
        assert_eq!(total(1, &output), 1);
    }
}
