//! Clients that make histories on any database: random transactions over few keys, recorded as
//! they run.
//!
//! Lists live in one table and registers in another. A list's value is its elements, a register's
//! value its number, each 8 bytes, little-endian. Keys come in **generations**: after a number of
//! transactions a client goes on to fresh keys, so that lists stay short however long the run.
//! A key is `l` or `r`, the generation and a place, as in `l00012-3`; it is the same text in the
//! history as in the database.
//!
//! A scan reads every key of a range of places: those it does not return it has seen absent. So
//! a phantom shows as a read that missed a write.
//!
//! Every run of a transaction's body is an attempt of its own with values of its own. It starts no
//! later than anything it does: at the call, or when the run before it left the body. If another
//! run follows, it had no effect.

use super::format::Seen;
use super::recorder::Recorder;
use shoal_types::{Database, Error, Random, Result, Scan, TableId, Transaction};

/// The parameters of the clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// The number of lists of a generation. Fewer means more conflicts.
    pub lists: u32,
    /// The number of registers of a generation.
    pub registers: u32,
    /// Most operations of one transaction; each has 1 to so many.
    pub operations_max: u32,
    /// Percentage of operations that read one key.
    pub reads_percent: u32,
    /// Of a hundred operations, how many scan; what is neither read nor scan writes.
    pub scans_percent: u32,
    /// Transactions of one client on keys of one generation.
    pub generation_transactions: u64,
    /// The first generation. Runs on one database whose generations are far apart do not meet.
    pub first_generation: u64,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            lists: 4,
            registers: 4,
            operations_max: 4,
            reads_percent: 45,
            scans_percent: 5,
            generation_transactions: 16,
            first_generation: 0,
        }
    }
}

/// Where the clients of one run work. Each gets its [`Client`] here.
#[derive(Debug, Clone)]
pub struct Generator {
    parameters: Parameters,
    lists: TableId,
    registers: TableId,
    clients: u64,
}

impl Generator {
    /// A generator for this many clients, working in the tables `history-lists` and
    /// `history-registers`, which must hold nothing of its generations.
    ///
    /// # Errors
    /// Those of making a table.
    ///
    /// # Panics
    /// If there is no key, no operation or no client, or if reads and scans are more than 100 %.
    pub fn new<D: Database>(db: &D, parameters: Parameters, clients: u64) -> Result<Generator> {
        assert!(parameters.lists + parameters.registers > 0, "there must be a key: {parameters:?}");
        assert!(parameters.operations_max > 0, "a transaction does something: {parameters:?}");
        assert!(parameters.generation_transactions > 0, "a generation lasts: {parameters:?}");
        assert!(
            parameters.reads_percent + parameters.scans_percent <= 100,
            "reads and scans are at most all operations: {parameters:?}"
        );
        assert!(clients > 0, "there are no clients");
        let lists = db.table("history-lists")?;
        let registers = db.table("history-registers")?;
        Ok(Generator { parameters, lists, registers, clients })
    }

    /// Client number `number` of those announced, which draws from `seed` alone.
    ///
    /// # Panics
    /// If there is no client of that number.
    pub fn client(&self, number: u64, seed: u64) -> Client {
        assert!(number < self.clients, "client {number} of {}", self.clients);
        Client {
            generator: self.clone(),
            random: Random::new(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            values: Values { next: number + 1, step: self.clients },
            transactions: 0,
            recorder: Recorder::new(number),
        }
    }
}

/// One client: runs transactions one after the other and records them.
#[derive(Debug)]
pub struct Client {
    generator: Generator,
    random: Random,
    values: Values,
    transactions: u64,
    recorder: Recorder,
}

/// Values that no other client writes.
#[derive(Debug)]
struct Values {
    next: u64,
    step: u64,
}

impl Values {
    fn draw(&mut self) -> u64 {
        let value = self.next;
        self.next += self.step;
        value
    }
}

/// An operation to do. Keys are in text, as everywhere.
#[derive(Debug, Clone)]
enum Task {
    Append(String),
    Write(String),
    Read(Kind, String),
    Scan { kind: Kind, keys: Vec<String>, reverse: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    List,
    Register,
}

impl Client {
    /// Runs the next transaction to its end and records its attempts. `clock` returns the time in
    /// nanoseconds, the same to all clients.
    ///
    /// # Errors
    /// What the database rejects; a well-formed transaction it should not. Aborts and unknown
    /// outcomes are recorded and are no errors. A value that no client can have written, or a key
    /// outside the range that was scanned, is an error.
    pub async fn next<D: Database>(&mut self, db: &D, clock: &dyn Fn() -> u64) -> Result<()> {
        let tasks = self.draw_tasks();
        self.transactions += 1;
        self.run(db, clock, &tasks).await
    }

    /// Reads all keys of a generation in one transaction, as [`next`](Self::next) does it. What was
    /// written last, and not read since, would not be judged otherwise.
    ///
    /// # Errors
    /// As for `next`.
    pub async fn look_at<D: Database>(
        &mut self,
        db: &D,
        clock: &dyn Fn() -> u64,
        generation: u64,
    ) -> Result<()> {
        let Parameters { lists, registers, .. } = self.generator.parameters;
        let lists = (0..lists).map(|place| (Kind::List, place));
        let all = lists.chain((0..registers).map(|place| (Kind::Register, place)));
        let read = |(kind, place)| Task::Read(kind, key_name(kind, generation, place));
        let tasks: Vec<Task> = all.map(read).collect();
        self.run(db, clock, &tasks).await
    }

    async fn run<D: Database>(
        &mut self,
        db: &D,
        clock: &dyn Fn() -> u64,
        tasks: &[Task],
    ) -> Result<()> {
        let Client { generator, values, recorder, .. } = self;
        let mut start_ns = clock();
        let mut running = false;
        let done = db
            .transact(async |tx| {
                if running {
                    recorder.aborted(start_ns);
                }
                running = true;
                recorder.begin(start_ns);
                let result = generator.run(tx, tasks, values, recorder).await;
                start_ns = clock();
                result
            })
            .await;
        if !running {
            return done;
        }
        match done {
            Ok(()) => self.recorder.committed(clock()),
            Err(Error::Aborted(_)) => self.recorder.aborted(clock()),
            Err(Error::Unknown(_)) => self.recorder.unknown(),
            Err(error @ Error::Rejected(_)) => {
                self.recorder.aborted(clock());
                return Err(error);
            }
        }
        Ok(())
    }

    /// The generation of the next transaction's keys.
    pub fn generation(&self) -> u64 {
        let Parameters { first_generation, generation_transactions, .. } =
            self.generator.parameters;
        first_generation + self.transactions / generation_transactions
    }

    /// Ends the client, for the history that it has recorded.
    pub fn into_recorder(self) -> Recorder {
        self.recorder
    }

    fn draw_tasks(&mut self) -> Vec<Task> {
        let operations = 1 + self.random.below(self.generator.parameters.operations_max.into());
        (0..operations).map(|_| self.draw_task()).collect()
    }

    fn draw_task(&mut self) -> Task {
        let Parameters { lists, registers, reads_percent, scans_percent, .. } =
            self.generator.parameters;
        let place = self.random.below(u64::from(lists) + u64::from(registers)) as u32;
        let (kind, place, places) = match place.checked_sub(lists) {
            None => (Kind::List, place, lists),
            Some(place) => (Kind::Register, place, registers),
        };
        let generation = self.generation();
        let key = |place| key_name(kind, generation, place);
        let share = self.random.below(100) as u32;
        if share < reads_percent {
            Task::Read(kind, key(place))
        } else if share < reads_percent + scans_percent {
            let last = place + self.random.below((places - place).into()) as u32;
            let reverse = self.random.below(2) == 1;
            Task::Scan { kind, keys: (place..=last).map(key).collect(), reverse }
        } else if kind == Kind::List {
            Task::Append(key(place))
        } else {
            Task::Write(key(place))
        }
    }
}

impl Generator {
    fn table(&self, kind: Kind) -> TableId {
        match kind {
            Kind::List => self.lists,
            Kind::Register => self.registers,
        }
    }

    async fn run<T: Transaction>(
        &self,
        tx: &T,
        tasks: &[Task],
        values: &mut Values,
        recorder: &mut Recorder,
    ) -> Result<()> {
        for task in tasks {
            match task {
                Task::Append(key) => {
                    let value = values.draw();
                    recorder.append(key, value);
                    let list = tx.get_for_update(self.lists, key.as_bytes()).await?;
                    let mut list = list.unwrap_or_default().to_vec();
                    list.extend_from_slice(&value.to_le_bytes());
                    tx.put(self.lists, key.as_bytes(), &list)?;
                }
                Task::Write(key) => {
                    let value = values.draw();
                    recorder.write(key, value);
                    tx.put(self.registers, key.as_bytes(), &value.to_le_bytes())?;
                }
                Task::Read(kind, key) => {
                    let bytes = tx.get(self.table(*kind), key.as_bytes()).await?;
                    recorder.read(key, decode(*kind, key, bytes)?);
                }
                Task::Scan { kind, keys, reverse } => {
                    self.scan(tx, *kind, keys, *reverse, recorder).await?;
                }
            }
        }
        Ok(())
    }

    /// Reads all of `keys`, which are adjacent and in order, with one scan.
    async fn scan<T: Transaction>(
        &self,
        tx: &T,
        kind: Kind,
        keys: &[String],
        reverse: bool,
        recorder: &mut Recorder,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Ok(()) };
        let range = Scan::range(first.as_bytes()..=last.as_bytes());
        let scan = if reverse { range.reverse() } else { range };
        let mut rows = tx.scan(self.table(kind), scan).await?;
        if reverse {
            rows.reverse();
        }
        let mut rows = rows.into_iter().peekable();
        for key in keys {
            let row = rows.next_if(|(found, _)| *found == key.as_bytes());
            recorder.read(key, decode(kind, key, row.map(|(_, value)| value))?);
        }
        match rows.next() {
            None => Ok(()),
            Some((key, _)) => Err(Error::reject(format!(
                "a scan from {first} to {last} returned '{}' out of place",
                key.escape_ascii()
            ))),
        }
    }
}

/// Within a generation, keys sort by place.
fn key_name(kind: Kind, generation: u64, place: u32) -> String {
    let letter = match kind {
        Kind::List => 'l',
        Kind::Register => 'r',
    };
    format!("{letter}{generation:05}-{place:04}")
}

fn decode(kind: Kind, key: &str, bytes: Option<&[u8]>) -> Result<Seen> {
    let Some(bytes) = bytes else { return Ok(Seen::Absent) };
    let (numbers, rest) = bytes.as_chunks::<8>();
    let mut numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
    match (kind, numbers.len(), rest) {
        (Kind::List, 1.., []) => Ok(Seen::List(numbers.collect())),
        (Kind::Register, 1, []) => Ok(numbers.next().map_or(Seen::Absent, Seen::Value)),
        _ => Err(Error::reject(format!(
            "{key} holds {} bytes, which no transaction wrote",
            bytes.len()
        ))),
    }
}
