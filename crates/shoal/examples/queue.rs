//! A queue of jobs: each is taken by one worker, and done once.
//!
//! Shows conflicts, since all workers want the same job, and steps that may be repeated when no worker
//! knows their outcome. All keys begin with the queue's name: it lives on one shard as a whole.
//!
//! `cargo run -p shoal --example queue`, or with the address of a node: `… -- 127.0.0.1:7000`

use shoal::{Db, Error, Partitioning, Result, Scan, TableId, Transaction};

/// A database, and tables of jobs that wait, of those that workers hold, and how many each has done.
struct Queue<'d>(&'d Db, TableId, TableId, TableId);

impl Queue<'_> {
    /// Takes a step until its outcome is known: one that, taken twice, is taken once.
    async fn step<T>(&self, step: impl AsyncFn(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        loop {
            match self.0.transact(&step).await {
                Err(Error::Unknown(_)) => {}
                known => return known,
            }
        }
    }

    /// So many jobs wait now; what was there before is gone.
    async fn fill(&self, count: u32) -> Result<()> {
        let &Queue(_, jobs, held, done) = self;
        self.step(async |tx: &mut Transaction<'_>| {
            for table in [jobs, held, done] {
                let rows = tx.scan(table, Scan::prefix(b"mail")).await?;
                rows.iter().try_for_each(|(key, _)| tx.delete(table, key))?;
            }
            let key = |job: u32| [*b"mail", job.to_be_bytes()].concat();
            (0..count).try_for_each(|job| tx.put(jobs, &key(job), b"Dear reader"))
        })
        .await
    }

    /// Does what the worker holds, or else the oldest job, until there is none; returns how many.
    async fn work(&self, worker: &[u8]) -> Result<i64> {
        let &Queue(_, jobs, held, done) = self;
        let take = async |tx: &mut Transaction<'_>| {
            let oldest = tx.scan(jobs, Scan::prefix(b"mail").limit(1));
            let (mine, oldest) = tokio::try_join!(tx.get(held, worker), oldest)?;
            let (None, [(key, job)]) = (mine, &oldest[..]) else { return Ok(mine.is_some()) };
            tx.delete(jobs, key)?;
            tx.put(held, worker, job)?;
            Ok(true)
        };
        let finish = async |tx: &mut Transaction<'_>| {
            let holds = tx.get(held, worker).await?.is_some();
            tx.delete(held, worker)?;
            tx.add(done, worker, i64::from(holds)).await
        };
        while self.step(take).await? {
            tokio::task::yield_now().await; // Here a job would be done.
            self.step(finish).await?;
        }
        self.step(async |tx: &mut Transaction<'_>| tx.add(done, worker, 0).await).await
    }
}

/// Two workers, and 60 jobs.
pub async fn run(db: &Db) -> Result<()> {
    // Keys begin with four bytes of the queue's name.
    let create = async |name| db.create_table(name, Partitioning::Hash { prefix_bytes: 4 }).await;
    let jobs = create("queue.jobs").await?;
    let queue = Queue(db, jobs, create("queue.held").await?, create("queue.done").await?);
    queue.fill(60).await?;
    let (a, b) = tokio::try_join!(queue.work(b"mail/a"), queue.work(b"mail/b"))?;
    assert_eq!(a + b, 60, "a job was lost, or done twice");
    println!("60 jobs: {a} done by one worker, {b} by the other");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let db = match std::env::args().nth(1) {
        Some(address) => Db::connect(&[address]).await?,
        None => Db::memory(),
    };
    Ok(run(&db).await?)
}
