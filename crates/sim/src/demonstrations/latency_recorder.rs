//! What the clients of a demonstration record: the latencies of transactions, by the period in which they
//! began.

use super::watched::Touched;
use hdrhistogram::Histogram;
use shoal_types::Time;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Assigns a transaction to a class by what it touched.
pub(super) type Classify = Rc<dyn Fn(Touched) -> usize>;

/// Latencies of transactions, in nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Times {
        Times(Histogram::new(3).expect("three digits are a precision"))
    }
}

impl Times {
    /// How many transactions were recorded.
    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that `percent` percent of the transactions did not exceed.
    pub(super) fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }
}

/// Latencies of transactions, by class. Clones share the record.
#[derive(Clone)]
pub(super) struct LatencyRecorder {
    classify: Classify,
    inner: Rc<LatencyRecorderState>,
}

#[derive(Default)]
struct LatencyRecorderState {
    /// When each period began, except period 0, before which nothing counts.
    turns: RefCell<Vec<Time>>,
    /// Latencies by period and class.
    times: RefCell<Vec<Vec<Times>>>,
    first_error: RefCell<Option<String>>,
    running_clients: Cell<usize>,
}

impl LatencyRecorder {
    /// No latency is recorded, and no period that counts has begun.
    pub(super) fn new(classify: Classify) -> LatencyRecorder {
        LatencyRecorder { classify, inner: Rc::default() }
    }

    /// Later transactions count for the next period.
    pub(super) fn turn(&self, now: Time) {
        self.inner.turns.borrow_mut().push(now);
    }

    /// Records a transaction that began at `began`, touched `touched` and took `took`.
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
        // Recording fails only beyond a fixed maximum, and this histogram grows.
        _ = classes[class].0.record(took.as_nanos() as u64);
    }

    /// Records that something went wrong; only the first such error is kept.
    pub(super) fn report_error(&self, what: String) {
        self.inner.first_error.borrow_mut().get_or_insert(what);
    }

    /// The first error that was recorded.
    pub(super) fn first_error(&self) -> Option<String> {
        self.inner.first_error.borrow().clone()
    }

    /// The latencies of a class of transactions that began in this period.
    pub(super) fn times(&self, period: usize, class: usize) -> Times {
        let times = self.inner.times.borrow();
        let classes = times.get(period);
        classes.and_then(|classes| classes.get(class)).cloned().unwrap_or_default()
    }

    /// Counts a client as running until the returned guard is dropped.
    pub(super) fn begin(&self) -> RunningClient {
        self.inner.running_clients.set(self.inner.running_clients.get() + 1);
        RunningClient(Rc::clone(&self.inner))
    }

    /// The number of clients that are running.
    pub(super) fn running_clients(&self) -> usize {
        self.inner.running_clients.get()
    }
}

/// Counts a client that is running; dropped when the client ends or its node dies.
pub(super) struct RunningClient(Rc<LatencyRecorderState>);

impl Drop for RunningClient {
    fn drop(&mut self) {
        self.0.running_clients.set(self.0.running_clients.get() - 1);
    }
}
