//! A client: the terminal of one warehouse and district that asks for transactions in the standard
//! mix (clause 5.2).

use super::population::LOAD_DATE;
use super::scale::{DISTRICTS, Scale};
use super::{delivery, new_order, order_status, payment, stock_level};
use shoal_types::Random;

/// The five transaction types of the specification's mix (clause 5.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The new-order transaction, [`new_order`].
    NewOrder,
    /// The payment transaction, [`payment`].
    Payment,
    /// The order-status transaction, [`order_status`].
    OrderStatus,
    /// The delivery transaction, [`delivery`].
    Delivery,
    /// The stock-level transaction, [`stock_level`].
    StockLevel,
}

/// Of a hundred transactions, how many are of which kind (clause 5.2.3).
const MIX: [(Kind, usize); 5] = [
    (Kind::NewOrder, 45),
    (Kind::Payment, 43),
    (Kind::OrderStatus, 4),
    (Kind::Delivery, 4),
    (Kind::StockLevel, 4),
];

impl Kind {
    /// Names, by the number that a kind is.
    pub const NAMES: [&str; 5] =
        ["new-order", "payment", "order-status", "delivery", "stock-level"];
}

/// What a client asked for so far, as far as the specification prescribes shares of it, and what
/// it met of the two things that are not in its hands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many transactions of each kind it asked for, in the order of [`Kind`].
    pub kinds: [u64; 5],
    /// New orders rolled back because they name no item.
    pub rolled_back: u64,
    /// Order lines of all new orders, also of those rolled back.
    pub lines: u64,
    /// The number of order lines that another warehouse supplies.
    pub remote_lines: u64,
    /// Payments by customers of another warehouse.
    pub remote_payments: u64,
    /// Payments and order-statuses that find the customer by last name.
    pub by_name: u64,
    /// Districts that a delivery found without an order to deliver.
    pub skipped_districts: u64,
}

/// What the client's terminal last showed, by kind of transaction.
#[derive(Debug, Default)]
pub struct Outputs {
    /// The output of the last new-order.
    pub new_order: new_order::Output,
    /// The output of the last payment.
    pub payment: payment::Output,
    /// The output of the last order-status.
    pub order_status: order_status::Output,
    /// The output of the last delivery.
    pub delivery: delivery::Output,
    /// The output of the last stock-level.
    pub stock_level: stock_level::Output,
}

/// One client's state. Client n is at home in warehouse n mod W + 1.
#[derive(Debug)]
pub struct Client {
    /// The home warehouse, from 1.
    pub warehouse: u16,
    /// The district whose stock level it asks for.
    pub district: u8,
    /// Counts of the client's transactions so far.
    pub counts: Counts,
    /// The outputs of its last transactions.
    pub outputs: Outputs,
    pub(super) random: Random,
    deck: [Kind; 100],
    /// How many of the deck are dealt; at first all, so that it is shuffled before use.
    dealt: usize,
    date: u64,
}

impl Client {
    /// Client number `number`, which draws from `seed` alone.
    pub fn new(scale: Scale, number: usize, seed: u64) -> Client {
        let mut cards = MIX.iter().flat_map(|(kind, share)| std::iter::repeat_n(*kind, *share));
        let warehouses = usize::from(scale.warehouses);
        Client {
            warehouse: (number % warehouses + 1) as u16,
            district: (number / warehouses % usize::from(DISTRICTS) + 1) as u8,
            counts: Counts::default(),
            outputs: Outputs::default(),
            random: Random::new(seed).fork(number as u64),
            deck: std::array::from_fn(|_| cards.next().expect("the mix has a hundred parts")),
            dealt: 100,
            date: LOAD_DATE,
        }
    }

    /// The kind of the next transaction, from a deck of a hundred cards that is shuffled whenever
    /// all are dealt (clause 5.2.4.2): the mix is exact after every hundred.
    pub fn deal(&mut self) -> Kind {
        if self.dealt == self.deck.len() {
            self.random.shuffle(&mut self.deck);
            self.dealt = 0;
        }
        self.dealt += 1;
        self.deck[self.dealt - 1]
    }

    /// The date of the next transaction.
    pub(super) fn next_date(&mut self) -> u64 {
        self.date += 1;
        self.date
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_exact_and_shuffled() {
        let mut client = Client::new(Scale::small(1), 0, 7);
        let mut rounds = Vec::new();
        for _ in 0..3 {
            let round: Vec<Kind> = (0..100).map(|_| client.deal()).collect();
            for (kind, share) in MIX {
                assert_eq!(round.iter().filter(|dealt| **dealt == kind).count(), share);
            }
            rounds.push(round);
        }
        assert!(rounds[0] != rounds[1] && rounds[1] != rounds[2]);
    }

    #[test]
    fn clients_spread_over_warehouses_then_districts() {
        let homes: Vec<(u16, u8)> = (0..5)
            .map(|number| Client::new(Scale::small(2), number, 7))
            .map(|client| (client.warehouse, client.district))
            .collect();
        assert_eq!(homes, [(1, 1), (2, 1), (1, 2), (2, 2), (1, 3)]);
    }
}
