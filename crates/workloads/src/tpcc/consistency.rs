//! The twelve consistency conditions of clause 3.3.2, and one of the house: that the index of
//! orders by customer says what ORDER says. Each is a [`Check`] of its own.
//!
//! The clause words conditions 3.3.2.11 and 3.3.2.12 for databases that no transactions have run on,
//! or for a sample of customers. Here they hold for all customers at all times; what 3.3.2.11
//! calls 2100 is what the initial population has delivered, to which every delivery since adds.

use super::facts::{DistrictFacts, OrderFacts, Paid};
use super::keys::{self, DistrictId};
use super::scale::{DISTRICTS, Scale};
use super::schema::{Tables, Warehouse, read};
use crate::workload::Check;
use shoal_types::{Database, Result};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Reports, to its last argument, where a condition does not hold in a district.
type Condition = fn(&DistrictFacts, Scale, &mut dyn FnMut(String));

/// The conditions on a single district.
const OF_A_DISTRICT: [(&str, Condition); 9] = [
    ("3.3.2.2: D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)", orders_reach_the_next_id),
    ("3.3.2.3: max(NO_O_ID) - min(NO_O_ID) + 1 = count(NEW-ORDER)", new_orders_have_no_gap),
    ("3.3.2.4: sum(O_OL_CNT) = count(ORDER-LINE)", lines_are_as_many),
    ("3.3.2.5: O_CARRIER_ID is null where a row of NEW-ORDER exists", new_orders_have_no_carrier),
    ("3.3.2.6: O_OL_CNT = count(ORDER-LINE) of the order", orders_have_their_lines),
    ("3.3.2.7: OL_DELIVERY_D is null where O_CARRIER_ID is null", lines_go_with_their_order),
    ("3.3.2.10: C_BALANCE = sum(OL_AMOUNT) - sum(H_AMOUNT)", balances_add_up),
    ("3.3.2.11: count(ORDER) - count(NEW-ORDER) = orders delivered", deliveries_are_counted),
    ("3.3.2.12: C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT)", payments_add_up),
];

/// Judges the whole database.
///
/// # Errors
/// Those of the database, and a rejection if a row that every population has is not there.
pub async fn check<D: Database>(db: &D, tables: Tables, scale: Scale) -> Result<Vec<Check>> {
    let mut warehouse_sums = Finding::new("TPC-C 3.3.2.1: W_YTD = sum(D_YTD)");
    let mut of_a_district =
        OF_A_DISTRICT.map(|(name, condition)| (Finding::new(&format!("TPC-C {name}")), condition));
    let mut warehouse_history = Finding::new("TPC-C 3.3.2.8: W_YTD = sum(H_AMOUNT)");
    let mut district_history = Finding::new("TPC-C 3.3.2.9: D_YTD = sum(H_AMOUNT)");
    let mut index = Finding::new("index of orders by customer = ORDER");

    // A customer may pay anywhere: only after all districts is it known what each has been paid.
    let mut paid = Paid::new();
    let mut ytd = Vec::new();
    for w in 1..=scale.warehouses {
        let warehouse_ytd = warehouse_ytd(db, &tables, w).await?;
        let mut districts_ytd = 0;
        for d in 1..=DISTRICTS {
            let id = DistrictId { warehouse: w, district: d };
            let facts = DistrictFacts::collect(db, &tables, id, &mut paid).await?;
            let place = format!("warehouse {w} district {d}");
            for (finding, condition) in &mut of_a_district {
                condition(&facts, scale, &mut |what| finding.violated(&place, &what));
            }
            index_agrees(&facts, &mut |what| index.violated(&place, &what));
            districts_ytd += facts.ytd;
            ytd.push((w, Some(d), facts.ytd));
        }
        ytd.push((w, None, warehouse_ytd));
        let place = format!("warehouse {w}");
        warehouse_sums.compare(&place, "W_YTD", warehouse_ytd, "sum(D_YTD)", districts_ytd);
    }
    for (w, d, ytd) in ytd {
        if let Some(d) = d {
            let place = format!("warehouse {w} district {d}");
            let sum = paid.get(&(w, d)).copied().unwrap_or(0);
            district_history.compare(&place, "D_YTD", ytd, "sum(H_AMOUNT)", sum);
        } else {
            let sum = paid.range((w, 0)..=(w, u8::MAX)).map(|(_, sum)| sum).sum();
            let place = format!("warehouse {w}");
            warehouse_history.compare(&place, "W_YTD", ytd, "sum(H_AMOUNT)", sum);
        }
    }

    let mut findings = vec![warehouse_sums];
    findings.extend(of_a_district.into_iter().map(|(finding, _)| finding));
    findings.extend([warehouse_history, district_history, index]);
    Ok(findings.into_iter().map(Finding::into_check).collect())
}

async fn warehouse_ytd<D: Database>(db: &D, tables: &Tables, w: u16) -> Result<i64> {
    db.transact(async |tx| {
        let row: &Warehouse = read(tx, tables.warehouse, &keys::warehouse(w)).await?;
        Ok(row.ytd.get())
    })
    .await
}

/// A condition and where it was found violated.
struct Finding {
    name: String,
    /// The first places, in words.
    violations: String,
    count: usize,
}

impl Finding {
    /// The most violations that a message lists.
    const SHOWN: usize = 3;

    fn new(name: &str) -> Finding {
        Finding { name: name.to_owned(), violations: String::new(), count: 0 }
    }

    fn violated(&mut self, place: &str, what: &str) {
        if self.count < Self::SHOWN {
            let separator = if self.count == 0 { "" } else { "; " };
            write!(self.violations, "{separator}{place}: {what}").expect("a string takes all");
        }
        self.count += 1;
    }

    fn compare(&mut self, place: &str, left: &str, a: i64, right: &str, b: i64) {
        if a != b {
            self.violated(place, &format!("{left} is {a}, {right} is {b}"));
        }
    }

    fn into_check(mut self) -> Check {
        if self.count > Self::SHOWN {
            let more = self.count - Self::SHOWN;
            write!(self.violations, "; and {more} more").expect("a string takes all");
        }
        let verdict = if self.count == 0 { Ok(()) } else { Err(self.violations) };
        Check { name: self.name, verdict }
    }
}

fn orders_reach_the_next_id(facts: &DistrictFacts, _: Scale, report: &mut dyn FnMut(String)) {
    let next = facts.next_order;
    let rows = facts.orders.iter().filter(|(_, order)| order.customer.is_some());
    let last = rows.map(|(id, _)| *id).next_back().unwrap_or(0);
    if u64::from(next) != u64::from(last) + 1 {
        report(format!("D_NEXT_O_ID is {next}, max(O_ID) is {last}"));
    }
    if let Some(last) = facts.new_orders.last()
        && u64::from(next) != u64::from(*last) + 1
    {
        report(format!("D_NEXT_O_ID is {next}, max(NO_O_ID) is {last}"));
    }
}

fn new_orders_have_no_gap(facts: &DistrictFacts, _: Scale, report: &mut dyn FnMut(String)) {
    let rows = &facts.new_orders;
    if let (Some(first), Some(last)) = (rows.first(), rows.last())
        && (last - first) as usize + 1 != rows.len()
    {
        report(format!("NO_O_ID goes from {first} to {last}, count(NEW-ORDER) is {}", rows.len()));
    }
}

fn lines_are_as_many(facts: &DistrictFacts, _: Scale, report: &mut dyn FnMut(String)) {
    let sum = |count: fn(&OrderFacts) -> u32| -> u64 {
        facts.orders.values().map(|order| u64::from(count(order))).sum()
    };
    let (lines, rows) = (sum(|order| order.lines), sum(|order| order.line_rows));
    if lines != rows {
        report(format!("sum(O_OL_CNT) is {lines}, count(ORDER-LINE) is {rows}"));
    }
}

fn new_orders_have_no_carrier(facts: &DistrictFacts, _: Scale, report: &mut dyn FnMut(String)) {
    for (id, order) in facts.orders.iter().filter(|(_, order)| order.customer.is_some()) {
        match (order.delivered, facts.new_orders.contains(id)) {
            (true, true) => report(format!("order {id} has a carrier and a row in NEW-ORDER")),
            (false, false) => report(format!("order {id} has no carrier and no row in NEW-ORDER")),
            (true, false) | (false, true) => {}
        }
    }
}

fn orders_have_their_lines(facts: &DistrictFacts, _: Scale, report: &mut dyn FnMut(String)) {
    for (id, order) in &facts.orders {
        let (lines, rows) = (order.lines, order.line_rows);
        if lines != rows {
            report(format!("order {id}: O_OL_CNT is {lines}, count(ORDER-LINE) is {rows}"));
        }
    }
}

fn lines_go_with_their_order(facts: &DistrictFacts, _: Scale, report: &mut dyn FnMut(String)) {
    for (id, order) in &facts.orders {
        let expected = if order.delivered { order.line_rows } else { 0 };
        let found = order.delivered_line_rows;
        if found != expected {
            let rows = order.line_rows;
            let carrier = if order.delivered { "a" } else { "no" };
            report(format!("order {id} has {carrier} carrier, {found} of {rows} lines a date"));
        }
    }
}

fn balances_add_up(facts: &DistrictFacts, _: Scale, report: &mut dyn FnMut(String)) {
    for (id, customer) in &facts.customers {
        let (balance, lines, paid) = (customer.balance, customer.delivered_amount, customer.paid);
        if balance != lines - paid {
            report(format!(
                "customer {id}: C_BALANCE is {balance}, sum(OL_AMOUNT) is {lines}, sum(H_AMOUNT) is {paid}"
            ));
        }
    }
}

fn deliveries_are_counted(facts: &DistrictFacts, scale: Scale, report: &mut dyn FnMut(String)) {
    let rows = facts.orders.values().filter(|order| order.customer.is_some()).count();
    let undelivered = facts.new_orders.len();
    let deliveries: u64 = facts.customers.values().map(|customer| customer.deliveries).sum();
    let first = scale.delivered();
    if rows as u64 != undelivered as u64 + u64::from(first) + deliveries {
        report(format!(
            "count(ORDER) is {rows}, count(NEW-ORDER) is {undelivered}, delivered are {first} at first and sum(C_DELIVERY_CNT) = {deliveries} since"
        ));
    }
}

fn payments_add_up(facts: &DistrictFacts, _: Scale, report: &mut dyn FnMut(String)) {
    for (id, customer) in &facts.customers {
        let (balance, payment) = (customer.balance, customer.ytd_payment);
        let lines = customer.delivered_amount;
        if balance + payment != lines {
            report(format!(
                "customer {id}: C_BALANCE is {balance}, C_YTD_PAYMENT is {payment}, sum(OL_AMOUNT) is {lines}"
            ));
        }
    }
}

fn index_agrees(facts: &DistrictFacts, report: &mut dyn FnMut(String)) {
    let of_orders = |(id, order): (&u32, &OrderFacts)| order.customer.map(|c| (c, *id));
    let orders: BTreeSet<_> = facts.orders.iter().filter_map(of_orders).collect();
    for (customer, id) in orders.symmetric_difference(&facts.indexed_orders) {
        report(format!("order {id} of customer {customer} is in one and not in the other"));
    }
}
