//! What the clients of a demonstration write down: how long which transactions took, by the period in
//! which they began.

use super::watched::Touched;
use hdrhistogram::Histogram;
use shoal_types::Time;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Tells classes of transactions apart by what they did.
pub(super) type Classify = Rc<dyn Fn(Touched) -> usize>;

/// Times of transactions, in nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Times {
        Times(Histogram::new(3).expect("three digits are a precision"))
    }
}

impl Times {
    /// How many.
    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// So many of a hundred took no longer than this.
    pub(super) fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }
}

/// Latencies of transactions, by class. Clones are the same book.
#[derive(Clone)]
pub(super) struct LatencyBook {
    classify: Classify,
    inner: Rc<LatencyBookState>,
}

#[derive(Default)]
struct LatencyBookState {
    /// When each period began, but for period 0, the one before anything counts.
    turns: RefCell<Vec<Time>>,
    /// By period and class.
    times: RefCell<Vec<Vec<Times>>>,
    complaint: RefCell<Option<String>>,
    at_work: Cell<usize>,
}

impl LatencyBook {
    /// An empty one.
    pub(super) fn new(classify: Classify) -> LatencyBook {
        LatencyBook { classify, inner: Rc::default() }
    }

    /// The next period begins.
    pub(super) fn turn(&self, now: Time) {
        self.inner.turns.borrow_mut().push(now);
    }

    /// A transaction that began then and did `touched` took so long.
    pub(super) fn done(&self, began: Time, touched: Touched, took: Duration) {
        let period = self.inner.turns.borrow().partition_point(|turn| *turn <= began);
        let class = (self.classify)(touched);
        let mut times = self.inner.times.borrow_mut();
        if times.len() <= period {
            times.resize(period + 1, Vec::new());
        }
        let classes = &mut times[period];
        if classes.len() <= class {
            classes.resize_with(class + 1, Times::default);
        }
        // A histogram that grows takes every number.
        _ = classes[class].0.record(took.as_nanos() as u64);
    }

    /// Something went wrong; the first such thing counts.
    pub(super) fn complain(&self, what: String) {
        self.inner.complaint.borrow_mut().get_or_insert(what);
    }

    /// What went wrong, if anything.
    pub(super) fn complaint(&self) -> Option<String> {
        self.inner.complaint.borrow().clone()
    }

    /// The times of a class of transactions that began in this period.
    pub(super) fn times(&self, period: usize, class: usize) -> Times {
        let times = self.inner.times.borrow();
        let classes = times.get(period);
        classes.and_then(|classes| classes.get(class)).cloned().unwrap_or_default()
    }

    /// A client begins, and has ended when what this returns is dropped.
    pub(super) fn begin(&self) -> ClientAtWork {
        self.inner.at_work.set(self.inner.at_work.get() + 1);
        ClientAtWork(Rc::clone(&self.inner))
    }

    /// Those who have not ended.
    pub(super) fn at_work(&self) -> usize {
        self.inner.at_work.get()
    }
}

/// A client is at work, or dies with the node where it lived.
pub(super) struct ClientAtWork(Rc<LatencyBookState>);

impl Drop for ClientAtWork {
    fn drop(&mut self) {
        self.0.at_work.set(self.0.at_work.get() - 1);
    }
}
