//! TPC-C on the serial model: what each transaction does to the data, what a run of the mix keeps
//! true, and that every consistency condition notices when it does not hold.

use futures_executor::block_on;
use shoal_types::{Database, Random, Result, Scan, TableId, Transaction};
use shoal_workloads::model::{Model, ModelTransaction};
use shoal_workloads::tpcc::client::Kind;
use shoal_workloads::tpcc::customer::Selection;
use shoal_workloads::tpcc::profile::Profile;
use shoal_workloads::tpcc::schema::{
    Customer, CustomerImage, District, History, NULL_CARRIER, Order, OrderLine, Row, Stock, Tables,
    Warehouse, as_customer, as_row, read,
};
use shoal_workloads::tpcc::{
    Scale, TpcC, delivery, keys, new_order, order_status, payment, stock_level,
};
use shoal_workloads::workload::Workload;

/// A loaded database of two small warehouses.
struct Loaded {
    db: Model,
    tpcc: TpcC,
    tables: Tables,
    scale: Scale,
    random: Random,
}

impl Loaded {
    fn new() -> Loaded {
        let scale = Scale::small(2);
        let db = Model::new();
        let tpcc = TpcC::new(&db, scale).unwrap();
        for part in 0..tpcc.load_parts() {
            block_on(tpcc.load(&db, part, 1, &mut |_| {})).unwrap();
        }
        let tables = tpcc.tables();
        Loaded { db, tpcc, tables, scale, random: Random::new(2) }
    }

    /// Runs transactions of the mix with three clients.
    fn run_mix(&self, transactions: usize) -> [shoal_workloads::tpcc::Client; 3] {
        let mut clients = [0, 1, 2].map(|number| self.tpcc.client(number, 3));
        for turn in 0..transactions {
            let client = &mut clients[turn % 3];
            let done = block_on(self.tpcc.next(&self.db, client)).unwrap();
            assert_eq!(done.retries, 0, "the model knows no conflicts");
            assert!(!done.rolled_back || done.kind == Kind::NewOrder as usize);
        }
        clients
    }

    /// Runs one transaction.
    fn run<P: Profile>(&self, profile: &P) -> Result<P::Output> {
        let mut output = P::Output::default();
        let run = self.db.transact(async |tx| profile.run(tx, &self.tables, &mut output).await);
        block_on(run)?;
        Ok(output)
    }

    /// A copy of a row.
    fn row<R: Row + Copy>(&self, table: TableId, key: &[u8]) -> R {
        let row: Result<R> =
            block_on(self.db.transact(async |tx| Ok(*read(tx, table, key).await?)));
        row.unwrap()
    }

    /// A copy of a customer's row and C_DATA.
    fn customer(&self, w: u16, d: u8, c: u16) -> (Customer, Vec<u8>) {
        let key = keys::customer(w, d, c);
        block_on(self.db.transact(async |tx| {
            let row = tx.get(self.tables.customer, &key).await?;
            let (customer, data) = as_customer(row, self.tables.customer, &key)?;
            Ok((*customer, data.to_vec()))
        }))
        .unwrap()
    }

    /// Copies of all rows under a prefix.
    fn rows<R: Row + Copy>(&self, table: TableId, prefix: &[u8]) -> Vec<R> {
        block_on(self.db.transact(async |tx| {
            let rows = tx.scan(table, Scan::prefix(prefix)).await?;
            rows.into_iter().map(|(key, row)| as_row(Some(row), table, key).copied()).collect()
        }))
        .unwrap()
    }

    /// The names of the conditions that do not hold, without their wording.
    fn violated(&self) -> Vec<String> {
        let checks = block_on(self.tpcc.check(&self.db)).unwrap();
        assert_eq!(checks.len(), 13);
        let violated = checks.into_iter().filter(|check| check.verdict.is_err());
        violated.map(|check| check.name.split(": ").next().unwrap().to_owned()).collect()
    }

    /// An order that names no unused item.
    fn valid_order(&mut self) -> new_order::Input {
        loop {
            let input = new_order::Input::draw(&mut self.random, self.scale, 1, 9);
            if input.lines().iter().all(|line| line.item != self.scale.unused_item()) {
                return input;
            }
        }
    }
}

#[test]
fn the_initial_population_is_complete_and_consistent() {
    let loaded = Loaded::new();
    assert_eq!(loaded.violated(), [""; 0]);
    let (scale, tables) = (loaded.scale, loaded.tables);
    let count = |table| loaded.rows_in(table);
    assert_eq!(count(tables.item), 100);
    assert_eq!(count(tables.stock), 200);
    assert_eq!(count(tables.warehouse), 2);
    assert_eq!(count(tables.district), 20);
    assert_eq!(count(tables.customer), 600);
    assert_eq!(count(tables.customer_by_name), 600);
    assert_eq!(count(tables.history), 600);
    assert_eq!(count(tables.order), 600);
    assert_eq!(count(tables.order_by_customer), 600);
    assert_eq!(count(tables.new_order), 180);
    let mut customers: Vec<u16> = loaded
        .rows::<Order>(tables.order, &keys::district(2, 7))
        .iter()
        .map(|order| order.customer.get())
        .collect();
    assert!(!customers.is_sorted(), "orders belong to customers in random order");
    customers.sort_unstable();
    assert_eq!(customers, (1..=scale.customers).collect::<Vec<u16>>());
    let (_, data) = loaded.customer(1, 1, 1);
    assert!((300..=500).contains(&data.len()));
}

impl Loaded {
    fn rows_in(&self, table: TableId) -> usize {
        let rows = self.db.transact(async |tx| Ok(tx.scan(table, Scan::all()).await?.len()));
        block_on(rows).unwrap()
    }
}

#[test]
fn a_run_of_the_mix_keeps_every_condition() {
    let loaded = Loaded::new();
    let clients = loaded.run_mix(3_000);
    assert_eq!(loaded.violated(), [""; 0]);
    let sum = |count: fn(&shoal_workloads::tpcc::Client) -> u64| -> u64 {
        clients.iter().map(count).sum()
    };
    for client in &clients {
        assert_eq!(client.counts.kinds, [450, 430, 40, 40, 40]);
    }
    let (rolled_back, lines) = (sum(|client| client.counts.rolled_back), sum(|c| c.counts.lines));
    assert!((4..30).contains(&rolled_back), "1 % of 1350: {rolled_back}");
    assert!((13_000..14_000).contains(&lines), "ten lines an order: {lines}");
    let remote_lines = sum(|client| client.counts.remote_lines);
    assert!((90..190).contains(&remote_lines), "1 % of them remote: {remote_lines}");
    let remote_payments = sum(|client| client.counts.remote_payments);
    assert!((150..240).contains(&remote_payments), "15 % of 1290: {remote_payments}");
    let by_name = sum(|client| client.counts.by_name);
    assert!((780..920).contains(&by_name), "60 % of 1410: {by_name}");
    let orders = loaded.rows_in(loaded.tables.order) as u64;
    assert_eq!(orders, 600 + 1_350 - rolled_back);
}

#[test]
fn the_same_seed_gives_the_same_data() {
    let runs = [(); 2].map(|()| {
        let loaded = Loaded::new();
        loaded.run_mix(300);
        let stock = loaded.rows::<Stock>(loaded.tables.stock, &[]);
        let lines = loaded.rows::<OrderLine>(loaded.tables.order_line, &[]);
        (stock, lines)
    });
    assert!(runs[0] == runs[1]);
}

#[test]
fn a_new_order_enters_order_lines_and_takes_stock() {
    let mut loaded = Loaded::new();
    let tables = loaded.tables;
    let input = loaded.valid_order();
    let d = input.district;
    let before = loaded.rows::<Stock>(tables.stock, &[]);
    let output = loaded.run(&input).unwrap();
    let o = output.order;
    assert_eq!(o, 31);
    let district: District = loaded.row(tables.district, &keys::district(1, d));
    assert_eq!(district.next_order.get(), 32);
    let order: Order = loaded.row(tables.order, &keys::order(1, d, o));
    assert_eq!((order.customer.get(), order.carrier), (input.customer, NULL_CARRIER));
    assert_eq!(order.all_local, u8::from(input.remote_lines() == 0));
    let lines = loaded.rows::<OrderLine>(tables.order_line, &keys::order(1, d, o));
    assert_eq!((lines.len(), usize::from(order.lines)), (input.lines().len(), lines.len()));
    for ((line, wanted), shown) in lines.iter().zip(input.lines()).zip(&output.lines) {
        assert_eq!((line.item.get(), line.quantity), (wanted.item, wanted.quantity));
        assert_eq!(line.amount.get(), shown.price * u32::from(wanted.quantity));
        let stock: Stock = loaded.row(tables.stock, &keys::stock(wanted.supplier, wanted.item));
        assert_eq!(line.district_info, stock.district_info[usize::from(d) - 1]);
    }
    let after = loaded.rows::<Stock>(tables.stock, &[]);
    let ordered = |stock: &[Stock]| -> u32 { stock.iter().map(|row| row.orders.get()).sum() };
    let remote = |stock: &[Stock]| stock.iter().map(|row| row.remote_orders.get()).sum::<u32>();
    assert_eq!(ordered(&after) - ordered(&before), lines.len() as u32);
    assert_eq!(remote(&after) - remote(&before), input.remote_lines() as u32);
    for (row, old) in after.iter().zip(&before) {
        let taken = (row.ytd.get() - old.ytd.get()) as i16;
        let difference = old.quantity.get() - taken - row.quantity.get();
        assert!(difference % 91 == 0 && row.quantity.get() >= 10, "{old:?} {row:?}");
    }
}

#[test]
fn an_order_of_an_unused_item_leaves_nothing_but_its_output() {
    let mut loaded = Loaded::new();
    let unused = loaded.scale.unused_item();
    let input = loop {
        let input = new_order::Input::draw(&mut loaded.random, loaded.scale, 1, 9);
        if input.lines().iter().any(|line| line.item == unused) {
            break input;
        }
    };
    let mut output = new_order::Output::default();
    let run = loaded.db.transact(async |tx| input.run(tx, &loaded.tables, &mut output).await);
    let error = block_on(run).unwrap_err();
    assert!(error.to_string().contains(new_order::UNUSED_ITEM), "{error}");
    let (customer, _) = loaded.customer(1, input.district, input.customer);
    assert_eq!((output.order, output.last, output.credit), (31, customer.last, customer.credit));
    assert_eq!(loaded.rows_in(loaded.tables.order), 600);
    assert_eq!(loaded.violated(), [""; 0]);
}

#[test]
fn a_payment_is_booked_everywhere() {
    let mut loaded = Loaded::new();
    let tables = loaded.tables;
    let (mut good, mut bad) = (0, 0);
    for _ in 0..200 {
        let input = payment::Input::draw(&mut loaded.random, loaded.scale, 1, 9);
        let (w, d) = (input.customer_warehouse, input.customer_district);
        let warehouse: Warehouse = loaded.row(tables.warehouse, &keys::warehouse(1));
        let before: Vec<_> =
            (1..=loaded.scale.customers).map(|c| loaded.customer(w, d, c)).collect();
        let output = loaded.run(&input).unwrap();
        let after: Warehouse = loaded.row(tables.warehouse, &keys::warehouse(1));
        assert_eq!(after.ytd.get() - warehouse.ytd.get(), i64::from(input.amount));
        let (old, old_data) = &before[usize::from(output.id) - 1];
        let (new, data) = loaded.customer(w, d, output.id);
        assert_eq!(new, output.customer);
        assert_eq!(old.balance.get() - new.balance.get(), i64::from(input.amount));
        assert_eq!(new.payments.get(), old.payments.get() + 1);
        if let Selection::LastName(last) = input.customer {
            assert_eq!(new.last, last);
        }
        if new.has_bad_credit() {
            bad += 1;
            assert!(
                data.starts_with(format!("{} {d} {w} {} 1 ", output.id, input.district).as_bytes())
            );
            assert_eq!(output.data(), &data[..200]);
            assert!(data.len() <= 500 && data.len() >= old_data.len());
        } else {
            good += 1;
            assert_eq!(&data, old_data);
            assert!(output.data().is_empty());
        }
        let key = keys::history(w, d, output.id, new.payments.get());
        let history: History = loaded.row(tables.history, &key);
        assert_eq!(history.amount.get(), input.amount);
    }
    assert!(good > 100 && bad > 5, "{good} good, {bad} bad");
    assert_eq!(loaded.violated(), [""; 0]);
}

#[test]
fn deliveries_take_the_oldest_orders_until_there_are_none() {
    let mut loaded = Loaded::new();
    let tables = loaded.tables;
    for turn in 0..9 {
        let input = delivery::Input::draw(&mut loaded.random, 1, 70 + u64::from(turn));
        let output = loaded.run(&input).unwrap();
        assert_eq!(output.skipped(), 0);
        for (d, delivered) in (1..).zip(output.delivered) {
            let delivered = delivered.unwrap();
            assert_eq!(delivered.order, 22 + turn);
            let key = keys::order(1, d, delivered.order);
            let order: Order = loaded.row(tables.order, &key);
            assert_eq!((order.carrier, order.customer.get()), (input.carrier, delivered.customer));
            let lines = loaded.rows::<OrderLine>(tables.order_line, &key);
            assert!(lines.iter().all(|line| line.delivery_date.get() == input.date));
            let amount: i64 = lines.iter().map(|line| i64::from(line.amount.get())).sum();
            let (customer, _) = loaded.customer(1, d, delivered.customer);
            assert_eq!((amount, customer.balance.get()), (delivered.amount, amount - 1_000));
        }
    }
    let nothing_left = delivery::Input::draw(&mut loaded.random, 1, 80);
    assert_eq!(loaded.run(&nothing_left).unwrap().skipped(), 10);
    assert_eq!(loaded.violated(), [""; 0]);
}

#[test]
fn order_status_shows_the_last_order() {
    let mut loaded = Loaded::new();
    let order = loaded.valid_order();
    let entered = loaded.run(&order).unwrap();
    let input = order_status::Input {
        warehouse: 1,
        district: order.district,
        customer: Selection::Id(order.customer),
    };
    let status = loaded.run(&input).unwrap();
    assert_eq!((status.order, status.last, status.balance), (entered.order, entered.last, -1_000));
    let shown: Vec<u32> = status.lines().iter().map(|line| line.item).collect();
    let wanted: Vec<u32> = order.lines().iter().map(|line| line.item).collect();
    assert_eq!(shown, wanted);
}

#[test]
fn stock_level_counts_each_low_item_once() {
    let mut loaded = Loaded::new();
    loaded.run_mix(600);
    let tables = loaded.tables;
    let mut low = 0;
    for d in 1..=10 {
        let input = stock_level::Input::draw(&mut loaded.random, 2, d);
        let output = loaded.run(&input).unwrap();
        let district: District = loaded.row(tables.district, &keys::district(2, d));
        let next = district.next_order.get();
        let mut expected = std::collections::BTreeSet::new();
        for o in next - 20..next {
            for line in loaded.rows::<OrderLine>(tables.order_line, &keys::order(2, d, o)) {
                let item = line.item.get();
                let stock: Stock = loaded.row(tables.stock, &keys::stock(2, item));
                if stock.quantity.get() < i16::from(input.threshold) {
                    expected.insert(item);
                }
            }
        }
        assert_eq!(output.low as usize, expected.len());
        low += output.low;
    }
    assert!(low > 0, "nothing was low anywhere; the test shows nothing");
}

/// Patches the row under `key`.
async fn patch<R: Row + Copy>(
    tx: &ModelTransaction,
    table: TableId,
    key: &[u8],
    patch: impl FnOnce(&mut R),
) -> Result<()> {
    let mut row: R = *read(tx, table, key).await?;
    patch(&mut row);
    tx.put(table, key, row.as_bytes())
}

/// Patches the fixed part of a customer's row.
async fn patch_customer(
    tx: &ModelTransaction,
    tables: &Tables,
    patch: impl FnOnce(&mut Customer),
) -> Result<()> {
    let key = keys::customer(1, 3, 5);
    let (customer, data) =
        as_customer(tx.get(tables.customer, &key).await?, tables.customer, &key)?;
    let mut row = *customer;
    patch(&mut row);
    tx.put(tables.customer, &key, CustomerImage::new(&row, data).as_bytes())
}

/// Corrupts warehouse 1 in one way and returns the conditions that must notice.
async fn corrupt(tx: &ModelTransaction, t: &Tables, way: usize) -> Result<&'static [&'static str]> {
    // Orders 22 to 30 of every district are not delivered, those before are.
    let (delivered, open) = (keys::order(1, 3, 10), keys::order(1, 3, 25));
    let d = keys::district(1, 3);
    let w = keys::warehouse(1);
    Ok(match way {
        0 => {
            patch(tx, t.warehouse, &w, |row: &mut Warehouse| row.ytd += 1).await?;
            &["TPC-C 3.3.2.1", "TPC-C 3.3.2.8"]
        }
        1 => {
            patch(tx, t.district, &d, |row: &mut District| row.next_order += 1).await?;
            &["TPC-C 3.3.2.2"]
        }
        2 => {
            tx.delete(t.new_order, &open)?;
            &["TPC-C 3.3.2.3", "TPC-C 3.3.2.5", "TPC-C 3.3.2.11"]
        }
        3 => {
            tx.delete(t.order_line, &keys::order_line(1, 3, 25, 1))?;
            &["TPC-C 3.3.2.4", "TPC-C 3.3.2.6"]
        }
        4 => {
            patch(tx, t.order, &delivered, |row: &mut Order| row.carrier = NULL_CARRIER).await?;
            &["TPC-C 3.3.2.5", "TPC-C 3.3.2.7"]
        }
        5 => {
            patch(tx, t.order, &delivered, |row: &mut Order| row.lines += 1).await?;
            patch(tx, t.order, &open, |row: &mut Order| row.lines -= 1).await?;
            &["TPC-C 3.3.2.6"]
        }
        6 => {
            let key = keys::order_line(1, 3, 10, 2);
            patch(tx, t.order_line, &key, |row: &mut OrderLine| row.delivery_date = 0.into())
                .await?;
            &["TPC-C 3.3.2.7"]
        }
        7 => {
            patch(tx, t.warehouse, &w, |row: &mut Warehouse| row.ytd += 1).await?;
            patch(tx, t.district, &d, |row: &mut District| row.ytd += 1).await?;
            &["TPC-C 3.3.2.8", "TPC-C 3.3.2.9"]
        }
        8 => {
            patch(tx, t.district, &d, |row: &mut District| row.ytd += 1).await?;
            let other = keys::district(1, 4);
            patch(tx, t.district, &other, |row: &mut District| row.ytd -= 1).await?;
            &["TPC-C 3.3.2.9"]
        }
        9 => {
            patch_customer(tx, t, |row| (row.balance, row.ytd_payment) = (0.into(), 0.into()))
                .await?;
            &["TPC-C 3.3.2.10"]
        }
        10 => {
            patch_customer(tx, t, |row| row.deliveries += 1).await?;
            &["TPC-C 3.3.2.11"]
        }
        11 => {
            patch_customer(tx, t, |row| row.ytd_payment += 1).await?;
            &["TPC-C 3.3.2.12"]
        }
        _ => {
            let order: Order = *read(tx, t.order, &delivered).await?;
            let entry = keys::order_by_customer(1, 3, order.customer.get(), 10);
            tx.delete(t.order_by_customer, &entry)?;
            &["index of orders by customer = ORDER"]
        }
    })
}

#[test]
fn every_condition_notices_its_corruption() {
    for way in 0..13 {
        let loaded = Loaded::new();
        let corruption = loaded.db.transact(async |tx| corrupt(tx, &loaded.tables, way).await);
        let expected = block_on(corruption).unwrap();
        let violated = loaded.violated();
        assert!(
            violated.iter().map(String::as_str).eq(expected.iter().copied()),
            "corruption {way} must violate {expected:?}, violated {violated:?}"
        );
    }
}

#[test]
fn a_violation_names_place_and_values() {
    let loaded = Loaded::new();
    block_on(loaded.db.transact(async |tx| corrupt(tx, &loaded.tables, 0).await)).unwrap();
    let checks = block_on(loaded.tpcc.check(&loaded.db)).unwrap();
    let expected = "warehouse 1: W_YTD is 300001, sum(D_YTD) is 300000";
    assert_eq!(checks[0].verdict, Err(expected.to_owned()));
}
