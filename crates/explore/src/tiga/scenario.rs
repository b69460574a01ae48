//! What a search is given: transactions with their footprints and timestamps, and which failures there may be.

use super::rules::Rule;
use shoal_types::Random;

/// The most shards that a scenario may have.
pub const SHARDS_MAX: usize = 3;
/// Voters of each shard: 2f + 1.
pub const REPLICAS: usize = 3;
/// Failures that a shard survives.
pub(super) const FAULTS: usize = 1;
/// Votes of followers that make a fast quorum with the leader's: S - 1, which is f + ⌈f/2⌉.
pub(super) const FAST_FOLLOWERS: usize = FAULTS + FAULTS.div_ceil(2);
/// Lists, of f + 1, in which a candidate has to stand: ⌈f/2⌉ + 1.
pub(super) const CANDIDATE_LISTS: usize = FAULTS.div_ceil(2) + 1;
/// Keys of each shard, numbered as bits of [`Access`].
pub(super) const KEYS: usize = 3;

/// The keys of one shard that a transaction reads and writes, as bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Access {
    /// Keys that are read, a bit for each.
    pub reads: u8,
    /// Keys that are written, a bit for each.
    pub writes: u8,
}

impl Access {
    /// Reads `keys`, and writes the same.
    pub const fn update(keys: u8) -> Access {
        Access { reads: keys, writes: keys }
    }

    /// Reads `keys`, and writes nothing.
    pub const fn read(keys: u8) -> Access {
        Access { reads: keys, writes: 0 }
    }

    /// Writes `keys` without reading them.
    pub const fn write(keys: u8) -> Access {
        Access { reads: 0, writes: keys }
    }

    /// No key of the shard, which is no participant then.
    pub const NONE: Access = Access { reads: 0, writes: 0 };

    pub(super) fn is_some(self) -> bool {
        self.reads | self.writes != 0
    }

    /// Reads do not conflict with reads.
    pub(super) fn conflicts(self, other: Access) -> bool {
        self.writes & (other.reads | other.writes) != 0 || other.writes & self.reads != 0
    }
}

/// A transaction: the keys that it accesses, and its timestamp.
#[derive(Debug, Clone, Copy)]
pub struct Transaction {
    /// What it touches, by shard.
    pub access: [Access; SHARDS_MAX],
    /// The timestamp that its coordinator gives it.
    pub t: u8,
    /// It only reads, on one shard, whose leader answers it at once: it has no timestamp, and is not certified.
    pub is_read: bool,
}

/// How transactions of several shards run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// At each participant on that shard's rows alone.
    Pieces,
    /// Alike at every participant, on the reads of all.
    Whole,
}

/// What a search is given.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The transactions, by their ids; each is submitted once.
    pub transactions: Vec<Transaction>,
    /// Shards, up to [`SHARDS_MAX`].
    pub shards: usize,
    /// How often another leader is appointed, by shard.
    pub appointments: [u8; SHARDS_MAX],
    /// How many of the replaced leaders may have crashed, by shard; the others are alive and do not know it.
    pub crashes: [u8; SHARDS_MAX],
    /// How often a voter that does not lead loses its memory, by shard.
    pub restarts: [u8; SHARDS_MAX],
    /// Every replaced leader crashes as long as `crashes` allows it.
    pub always_crash: bool,
    /// No appointment before so many actions. Not zero only in random walks: a state counts actions up to here.
    pub quiet_actions: u16,
    /// Shape of all transactions of several shards.
    pub shape: Shape,
    /// Leaders execute and vote at the head of the queue, before they agree (§3.8).
    pub detective: bool,
    /// Deliveries that never happen, as (transaction, shard, replica).
    pub lost: Vec<(u8, u8, u8)>,
    /// A shard that has lost its majority for a time: others recover without its answers, and learn of its log later.
    pub unreachable: Option<usize>,
    /// Rules that are switched off.
    pub without: Vec<Rule>,
}

impl Scenario {
    /// Transactions on two shards, all rules, no failures.
    pub fn new(transactions: Vec<Transaction>) -> Scenario {
        Scenario {
            transactions,
            shards: 2,
            appointments: [0; SHARDS_MAX],
            crashes: [0; SHARDS_MAX],
            restarts: [0; SHARDS_MAX],
            always_crash: true,
            quiet_actions: 0,
            shape: Shape::Pieces,
            detective: false,
            lost: Vec::new(),
            unreachable: None,
            without: Vec::new(),
        }
    }

    /// The leaders of these shards crash, once each.
    #[must_use]
    pub fn crashing(mut self, shards: &[usize]) -> Scenario {
        for shard in shards {
            self.appointments[*shard] += 1;
            self.crashes[*shard] += 1;
        }
        self
    }

    /// Switches a rule off, for the search to find a violation.
    #[must_use]
    pub fn without(mut self, rule: Rule) -> Scenario {
        self.without.push(rule);
        self
    }

    /// No follower receives a transaction from its coordinator, so there is no fast path.
    #[must_use]
    pub fn only_slow(mut self) -> Scenario {
        for id in 0..self.transactions.len() as u8 {
            for shard in 0..self.shards as u8 {
                self.lost.extend((0..REPLICAS as u8).map(|replica| (id, shard, replica)));
            }
        }
        self
    }

    /// Adds one or two transactions that leaders answer at once.
    #[must_use]
    pub fn with_random_reads(mut self, seed: u64) -> Scenario {
        let mut random = Random::new(!seed);
        for _ in 0..random.range_inclusive(1, 2) {
            self.transactions.push(random_read(&mut random, self.shards));
        }
        self
    }

    /// A scenario drawn from `seed`: two to five transactions over `shards` shards, up to three appointments.
    pub fn random(seed: u64, shards: usize) -> Scenario {
        let mut random = Random::new(seed);
        let count = random.range_inclusive(2, 5);
        let transactions = (0..count).map(|_| random_transaction(&mut random, shards)).collect();
        let mut scenario = Scenario::new(transactions);
        scenario.shards = shards;
        for _ in 0..random.range_inclusive(0, 3) {
            let shard = random.below(shards as u64) as usize;
            scenario.appointments[shard] = (scenario.appointments[shard] + 1).min(2);
            scenario.crashes[shard] = 1;
        }
        scenario.always_crash = random.chance(3, 4);
        scenario.quiet_actions = random.below(60) as u16;
        scenario.lost = random_losses(&mut random, count as u8, shards);
        scenario
    }
}

fn random_transaction(random: &mut Random, shards: usize) -> Transaction {
    let mut access = [Access::NONE; SHARDS_MAX];
    let many = random.chance(1, 2);
    let only = random.below(shards as u64) as usize;
    for (shard, access) in access.iter_mut().enumerate().take(shards) {
        let joins = shard == only || many && (shards == 2 || random.chance(2, 3));
        if joins {
            let keys = *random.pick(&[1, 1, 2, 3]).expect("not empty");
            *access = match random.below(6) {
                0 => Access::read(keys),
                1 => Access::write(keys),
                _ => Access::update(keys),
            };
        }
    }
    Transaction { access, t: random.range_inclusive(1, 9) as u8, is_read: false }
}

/// A transaction that a leader answers at once.
fn random_read(random: &mut Random, shards: usize) -> Transaction {
    let mut access = [Access::NONE; SHARDS_MAX];
    let keys = *random.pick(&[1, 1, 2, 3]).expect("not empty");
    access[random.below(shards as u64) as usize] = Access::read(keys);
    Transaction { access, t: 0, is_read: true }
}

/// Most followers receive most transactions, or too few of them are fast for anything to go wrong.
fn random_losses(random: &mut Random, transactions: u8, shards: usize) -> Vec<(u8, u8, u8)> {
    let percent = *random.pick(&[0, 10, 30]).expect("not empty");
    let mut lost = Vec::new();
    for transaction in 0..transactions {
        for shard in 0..shards as u8 {
            for replica in 0..REPLICAS as u8 {
                if random.chance(percent, 100) {
                    lost.push((transaction, shard, replica));
                }
            }
        }
    }
    lost
}
