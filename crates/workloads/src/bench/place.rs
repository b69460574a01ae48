//! Where a bench's work is done: on threads of its own, or wherever the database has it.

use super::executor::block_on;
use shoal_types::Database;
use std::future::Future;
use std::thread;

/// A loader or a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchRole {
    /// A loader, by its number.
    Loader(usize),
    /// A client, by its number.
    Client(usize),
}

/// The work of a loader or a client.
pub trait Work: Send + 'static {
    /// Does it, to its end.
    fn run<D: Database>(self, db: D) -> impl Future<Output = ()>;
}

/// The place where loaders and clients run.
pub trait BenchPlace {
    /// From where the data is judged.
    type Database: Database;

    /// The database that was started.
    fn database(&self) -> &Self::Database;

    /// The clients of a thread group share a thread, with one another and with others; thread groups are numbered from 0.
    /// None where each client has a thread to itself.
    fn thread_group(&self, client: usize) -> Option<usize>;

    /// The regions in which clients are, where that is known: those of a thread group are in the region of its number,
    /// modulo so many.
    fn regions(&self) -> &[String] {
        &[]
    }

    /// The most loaders at once, where that is not the number of clients.
    fn loaders_max(&self) -> usize {
        usize::MAX
    }

    /// Which of so many parts of the data each loader loads, if there are to be so many clients.
    fn shares(&self, parts: usize, clients: usize) -> Vec<Vec<usize>> {
        let loaders = parts.min(clients).min(self.loaders_max());
        (0..loaders).map(|loader| (loader..parts).step_by(loaders).collect()).collect()
    }

    /// Runs the work of a client or loader, on a thread of its own or as a task of the database.
    fn spawn(&self, role: BenchRole, work: impl Work);
}

/// A thread for each, which all share a database.
#[derive(Debug)]
pub struct Threads<D>(pub D);

impl<D: Database + Send> BenchPlace for Threads<D> {
    type Database = D;

    fn database(&self) -> &D {
        &self.0
    }

    fn thread_group(&self, _client: usize) -> Option<usize> {
        None
    }

    fn spawn(&self, _role: BenchRole, work: impl Work) {
        let db = self.0.clone();
        thread::spawn(move || block_on(work.run(db)));
    }
}
