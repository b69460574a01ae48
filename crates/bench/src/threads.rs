//! Clients of an embedded database that share threads: so there may be many transactions that wait for the disk, and no more threads than
//! cores.

use crate::regions::{StartClient, run_clients, start_client};
use shoal_client::Embedded;
use shoal_workloads::bench::{BenchPlace, BenchRole, Work, block_on};
use std::fmt;
use std::thread;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Clients that take turns on some threads. Each loader has a thread of its own.
pub struct ThreadClients {
    db: Embedded,
    threads: Vec<UnboundedSender<StartClient<Embedded>>>,
}

impl ThreadClients {
    /// So many threads for the clients of a database.
    ///
    /// # Errors
    /// A sentence, if the system has no more threads.
    pub fn new(db: Embedded, threads: usize) -> Result<ThreadClients, String> {
        let thread = |_| {
            let runtime =
                Builder::new_current_thread().build().map_err(|error| error.to_string())?;
            let (start, started) = unbounded_channel();
            let db = db.clone();
            thread::spawn(move || run_clients(&db, &runtime, started));
            Ok(start)
        };
        let threads = (0..threads).map(thread).collect::<Result<_, String>>()?;
        Ok(ThreadClients { db, threads })
    }
}

impl fmt::Debug for ThreadClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "clients on {} threads", self.threads.len())
    }
}

impl BenchPlace for ThreadClients {
    type Database = Embedded;

    fn database(&self) -> &Embedded {
        &self.db
    }

    fn thread_group(&self, client: usize) -> Option<usize> {
        Some(client % self.threads.len())
    }

    fn spawn(&self, role: BenchRole, work: impl Work) {
        match role {
            BenchRole::Loader(_) => {
                let db = self.db.clone();
                drop(thread::spawn(move || block_on(work.run(db))));
            }
            BenchRole::Client(number) => {
                // A thread that has panicked starts none, and one is missing.
                let _ = self.threads[number % self.threads.len()].send(start_client(work));
            }
        }
    }
}
