//! Keys, and sequences of them laid out one after the other, so that fetching the next one costs
//! nothing.

use shoal_types::Random;

/// How many operations run under one guard.
const BATCH: usize = 64;

/// Different keys, ascending; a key's number is its place among them.
pub struct Keys {
    all: Vec<Box<[u8]>>,
}

/// Keys to work on, in a row, each with its number.
pub struct Queries {
    bytes: Vec<u8>,
    /// Where each key ends, and its number.
    ends: Vec<(u32, u32)>,
}

/// Up to [`BATCH`] keys that follow each other.
pub struct Batch<'q> {
    bytes: &'q [u8],
    start: u32,
    ends: &'q [(u32, u32)],
}

impl<'q> Batch<'q> {
    /// The keys with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&'q [u8], u64)> {
        let (bytes, mut start) = (self.bytes, self.start);
        self.ends.iter().map(move |(end, number)| {
            let key = &bytes[start as usize..*end as usize];
            start = *end;
            (key, u64::from(*number))
        })
    }
}

impl Queries {
    /// How many keys the sequence has, repetitions included.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// All of them, a batch at a time.
    pub fn batches(&self) -> impl Iterator<Item = Batch<'_>> {
        let mut start = 0;
        self.ends.chunks(BATCH).map(move |ends| {
            let batch = Batch { bytes: &self.bytes, start, ends };
            start = ends.last().map_or(start, |(end, _)| *end);
            batch
        })
    }
}

impl Keys {
    fn new(mut all: Vec<Box<[u8]>>) -> Keys {
        all.sort_unstable();
        all.dedup();
        Keys { all }
    }

    /// About `count` keys `user…` of 16 to 40 bytes: digits that have no order.
    pub fn users(count: usize) -> Keys {
        let mut random = Random::new(1);
        let mut user = || {
            let digits = format!("{:020}{:020}", random.next_u64(), random.next_u64());
            let length = 12 + random.below(25) as usize;
            // The first digits of 64 random bits are not uniform; the last are.
            format!("user{}", &digits[digits.len() - length..]).into_bytes().into_boxed_slice()
        };
        Keys::new((0..count).map(|_| user()).collect())
    }

    /// `count` keys such as orders have: `T007W00012D03O00001234`.
    pub fn composite(count: usize) -> Keys {
        const DISTRICTS: usize = 10;
        const ORDERS: usize = 10_000;
        let key = |number: usize| {
            let (order, rest) = (number % ORDERS, number / ORDERS);
            let (district, warehouse) = (rest % DISTRICTS, rest / DISTRICTS);
            format!("T007W{warehouse:05}D{district:02}O{order:08}").into_bytes().into_boxed_slice()
        };
        Keys::new((0..count).map(key).collect())
    }

    /// How many different keys there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The numbers in random order.
    pub fn shuffled(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        Random::new(2).shuffle(&mut order);
        order
    }

    /// The keys of these numbers.
    pub fn queries(&self, numbers: &[u32]) -> Queries {
        let mut queries = Queries { bytes: Vec::new(), ends: Vec::new() };
        for number in numbers {
            queries.bytes.extend_from_slice(&self.all[*number as usize]);
            queries.ends.push((queries.bytes.len() as u32, *number));
        }
        queries
    }

    /// A sequence of `count` keys, each drawn with equal chances; a seed gives one sequence.
    pub fn uniform(&self, count: usize, seed: u64) -> Queries {
        let mut random = Random::new(3).fork(seed);
        let numbers: Vec<u32> =
            (0..count).map(|_| random.below(self.len() as u64) as u32).collect();
        self.queries(&numbers)
    }

    /// Keys drawn by Zipf's law; which are hot has nothing to do with their order.
    pub fn zipf(&self, count: usize, theta: f64, seed: u64) -> Queries {
        let order = self.shuffled();
        let mut total = 0.0;
        let sums: Vec<f64> = (1..=self.len())
            .map(|rank| {
                total += (rank as f64).powf(-theta);
                total
            })
            .collect();
        let mut random = Random::new(4).fork(seed);
        let numbers: Vec<u32> = (0..count)
            .map(|_| {
                let drawn = random.unit() * total;
                order[sums.partition_point(|sum| *sum <= drawn).min(order.len() - 1)]
            })
            .collect();
        self.queries(&numbers)
    }
}
