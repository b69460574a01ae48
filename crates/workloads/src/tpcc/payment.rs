//! The payment transaction (clause 2.5): a customer pays, at the own warehouse or at another, and
//! the sums of customer, district and warehouse follow.

use super::bounded::Bounded;
use super::customer::{Selection, find};
use super::keys::{self, DistrictId};
use super::profile::Profile;
use super::random::{other, uniform, uniform_u8};
use super::scale::{DISTRICTS, Scale};
use super::schema::{
    Address, CUSTOMER_DATA_MAX, Customer, CustomerImage, District, History, Tables, Text, UNIT,
    Warehouse, as_customer, read_for_update,
};
use shoal_types::procedure::Access;
use shoal_types::wire::Coded;
use shoal_types::{Footprint, Random, Result, Scan, Transaction};
use std::io::Write;
use zerocopy::IntoBytes;

/// How much is paid, where, and by which customer.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Input {
    /// W_ID: where it is paid.
    pub warehouse: u16,
    /// D_ID: where it is paid.
    pub district: u8,
    /// C_W_ID: where the customer resides.
    pub customer_warehouse: u16,
    /// C_D_ID: where the customer resides.
    pub customer_district: u8,
    /// The customer that pays, by C_ID or by last name.
    pub customer: Selection,
    /// H_AMOUNT, in cents.
    pub amount: u32,
    /// H_DATE.
    pub date: u64,
}

impl Input {
    /// A payment at the warehouse, as clause 2.5.1 draws it: in 15 % of the cases, and if there is
    /// another warehouse, by a customer of another one.
    pub fn draw(random: &mut Random, scale: Scale, warehouse: u16, date: u64) -> Input {
        let district = uniform_u8(random, 1..=DISTRICTS);
        let remote = random.chance(15, 100);
        let elsewhere = if remote { other(random, 1..=scale.warehouses, warehouse) } else { None };
        let customer_district = if remote { uniform_u8(random, 1..=DISTRICTS) } else { district };
        Input {
            warehouse,
            district,
            customer_warehouse: elsewhere.unwrap_or(warehouse),
            customer_district,
            customer: Selection::draw(random, scale),
            amount: uniform(random, UNIT..=5_000 * UNIT),
            date,
        }
    }

    /// Whether the customer resides at another warehouse.
    pub fn is_remote(&self) -> bool {
        self.customer_warehouse != self.warehouse
    }
}

/// What the terminal shows (clause 2.5.3.3), beside what was asked for.
#[derive(Debug, Clone, Default, Coded)]
pub struct Output {
    /// W_STREET_1 to W_ZIP.
    pub warehouse: Address,
    /// D_STREET_1 to D_ZIP.
    pub district: Address,
    /// C_ID.
    pub id: u16,
    /// C_FIRST to C_BALANCE, after the payment.
    pub customer: Customer,
    data: Bounded<u8, SHOWN_DATA>,
}

/// As much of C_DATA as a terminal shows of a customer with bad credit.
const SHOWN_DATA: usize = 200;

impl Output {
    /// The beginning of C_DATA, of a customer with bad credit only.
    pub fn data(&self) -> &[u8] {
        &self.data
    }
}

impl Profile for Input {
    const NAME: &'static str = "tpcc.payment";
    type Output = Output;

    fn warehouse(&self) -> u16 {
        self.warehouse
    }

    fn is_multi_shot(&self) -> bool {
        self.customer.is_by_name()
    }

    /// Of a payment by last name, any customer of the district may be the one that is found.
    fn footprint(&self, tables: &Tables) -> Footprint {
        let (w, d) = (self.customer_warehouse, self.customer_district);
        let mut footprint = Footprint::whole();
        footprint.read_write(tables.warehouse, &keys::warehouse(self.warehouse));
        footprint.read_write(tables.district, &keys::district(self.warehouse, self.district));
        match &self.customer {
            Selection::Id(c) => {
                let customer = keys::customer(w, d, *c);
                footprint.read_write(tables.customer, &customer);
                footprint.range(tables.history, &Scan::prefix(&customer), Access::ReadWrite);
            }
            Selection::LastName(last) => {
                let (named, of_district) = (keys::last_name(w, d, last), keys::district(w, d));
                footprint.range(tables.customer_by_name, &Scan::prefix(&named), Access::Read);
                for table in [tables.customer, tables.history] {
                    footprint.range(table, &Scan::prefix(&of_district), Access::ReadWrite);
                }
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
        let (w, d) = (self.warehouse, self.district);
        let paid = i64::from(self.amount);
        self.prefetch(tx, tables);
        let key = keys::warehouse(w);
        let warehouse: &Warehouse = read_for_update(tx, tables.warehouse, &key).await?;
        let image = Warehouse { ytd: warehouse.ytd.get().wrapping_add(paid).into(), ..*warehouse };
        tx.put(tables.warehouse, &key, image.as_bytes())?;

        let key = keys::district(w, d);
        let district: &District = read_for_update(tx, tables.district, &key).await?;
        let image = District { ytd: district.ytd.get().wrapping_add(paid).into(), ..*district };
        tx.put(tables.district, &key, image.as_bytes())?;

        let home =
            DistrictId { warehouse: self.customer_warehouse, district: self.customer_district };
        let id = find(tx, tables, home, &self.customer).await?;
        output.id = id;
        output.warehouse = warehouse.address;
        output.district = district.address;
        let key = keys::customer(home.warehouse, home.district, id);
        let row = tx.get_for_update(tables.customer, &key).await?;
        let payment = pay(tx, tables, self, row, output)?;

        let history = History {
            district: d,
            warehouse: w.into(),
            date: self.date.into(),
            amount: self.amount.into(),
            data: history_data(warehouse, district),
        };
        let key = keys::history(home.warehouse, home.district, id, payment);
        tx.insert(tables.history, &key, history.as_bytes()).await
    }
}

impl Input {
    /// Brings near the customer, if it is known, and the end of the customer's history.
    fn prefetch<X: Transaction>(&self, tx: &X, tables: &Tables) {
        let Selection::Id(c) = self.customer else { return };
        let (w, d) = (self.customer_warehouse, self.customer_district);
        let (customer, last) = (keys::customer(w, d, c), keys::history(w, d, c, u32::MAX));
        tx.prefetch(&[(tables.customer, &customer), (tables.history, &last)]);
    }
}

/// Writes the customer's row and returns C_PAYMENT_CNT. The row is that of `output.id`.
fn pay<X: Transaction>(
    tx: &X,
    tables: &Tables,
    input: &Input,
    row: Option<&[u8]>,
    output: &mut Output,
) -> Result<u32> {
    let paid = i64::from(input.amount);
    let key = keys::customer(input.customer_warehouse, input.customer_district, output.id);
    let (customer, data) = as_customer(row, tables.customer, &key)?;
    let mut after = *customer;
    after.balance = after.balance.get().wrapping_sub(paid).into();
    after.ytd_payment = after.ytd_payment.get().wrapping_add(paid).into();
    after.payments = after.payments.get().wrapping_add(1).into();
    output.customer = after;
    output.data = Bounded::default();
    if after.has_bad_credit() {
        let (noted, length) = note(input, output.id, data);
        let noted = &noted[..length];
        output.data = Bounded::of(length.min(SHOWN_DATA));
        let shown = output.data.len();
        output.data.copy_from_slice(&noted[..shown]);
        tx.put(tables.customer, &key, CustomerImage::new(&after, noted).as_bytes())?;
    } else {
        tx.put(tables.customer, &key, CustomerImage::new(&after, data).as_bytes())?;
    }
    Ok(after.payments.get())
}

/// C_DATA of a customer with bad credit: this payment's particulars, then what was there, as far
/// as it fits (clause 2.5.2.2).
fn note(input: &Input, id: u16, data: &[u8]) -> ([u8; CUSTOMER_DATA_MAX], usize) {
    let Input { warehouse, district, customer_warehouse, customer_district, amount, .. } = input;
    let mut noted = [0; CUSTOMER_DATA_MAX];
    let mut rest = &mut noted[..];
    let (units, cents) = (amount / UNIT, amount % UNIT);
    write!(
        rest,
        "{id} {customer_district} {customer_warehouse} {district} {warehouse} {units}.{cents:02} "
    )
    .expect("six numbers fit into C_DATA");
    let kept = data.len().min(rest.len());
    rest[..kept].copy_from_slice(&data[..kept]);
    let length = CUSTOMER_DATA_MAX - (rest.len() - kept);
    (noted, length)
}

/// H_DATA: both names, four spaces between them.
fn history_data(warehouse: &Warehouse, district: &District) -> Text<24> {
    let (first, second) = (warehouse.name.as_bytes(), district.name.as_bytes());
    let mut data = Text::default();
    data.0[..first.len()].copy_from_slice(first);
    data.0[first.len()..][..4].copy_from_slice(b"    ");
    data.0[first.len() + 4..][..second.len()].copy_from_slice(second);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input() -> Input {
        Input {
            warehouse: 1,
            district: 2,
            customer_warehouse: 3,
            customer_district: 4,
            customer: Selection::Id(5),
            amount: 1_205,
            date: 0,
        }
    }

    #[test]
    fn inputs_have_the_shares_of_the_specification() {
        let (mut random, scale) = (Random::new(12), Scale::specification(4));
        let payments: Vec<Input> =
            (0..20_000).map(|_| Input::draw(&mut random, scale, 2, 0)).collect();
        let remote = payments.iter().filter(|payment| payment.is_remote()).count();
        let by_name = payments.iter().filter(|payment| payment.customer.is_by_name()).count();
        assert!((2_800..3_200).contains(&remote), "15 of a hundred: {remote}");
        assert!((11_700..12_300).contains(&by_name), "60 of a hundred: {by_name}");
        assert!(payments.iter().all(|payment| (UNIT..=5_000 * UNIT).contains(&payment.amount)));
        let one = Input::draw(&mut random, Scale::specification(1), 1, 0);
        assert!(!one.is_remote());
    }

    #[test]
    fn bad_credit_is_noted_before_what_was_there() {
        let (noted, length) = note(&input(), 5, b"old");
        assert_eq!(&noted[..length], b"5 4 3 2 1 12.05 old");
        let (noted, length) = note(&input(), 5, &[b'x'; CUSTOMER_DATA_MAX]);
        assert_eq!(length, CUSTOMER_DATA_MAX);
        assert!(noted.starts_with(b"5 4 3 2 1 12.05 xxx"));
    }

    #[test]
    fn history_tells_both_names() {
        let warehouse = Warehouse { name: Text::new("WAREHOUSE1"), ..Warehouse::default() };
        let district = District { name: Text::new("DISTRICT"), ..District::default() };
        assert_eq!(history_data(&warehouse, &district).as_bytes(), b"WAREHOUSE1    DISTRICT");
    }
}
