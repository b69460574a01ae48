//! The processor time of the threads of this process, by what they do.
//!
//! A thread is known by its name: those of nodes have the name of the node and of the part (`n0-w1`, `n0-manager`), all others
//! belong to clients. So a bench on a cluster of this process shows what a transaction costs the whole cluster, and where.

use super::machine::ThreadTime;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// The processor time of the threads of one kind during the measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessorTime {
    /// What the threads do: `n0, workers`, `managers`, or `clients and others`.
    pub threads: String,
    /// The time in nanoseconds, in the process and in the kernel.
    pub total_ns: u64,
    /// The part of it in the kernel, to within ticks of 10 ms a thread.
    pub kernel_ns: u64,
}

/// The processor times of all threads since each began.
#[derive(Debug, Clone, Default)]
pub(super) struct ThreadTimes(BTreeMap<u32, OneThread>);

#[derive(Debug, Clone)]
struct OneThread {
    kind: String,
    running: Duration,
    kernel: Duration,
}

/// `/proc` counts in ticks of this length, which is not that of the kernel's own ticks.
const TICK: Duration = Duration::from_millis(10);

impl ThreadTimes {
    /// Of the threads that there are now; of none where the system does not report it.
    pub(super) fn read() -> ThreadTimes {
        let Ok(threads) = fs::read_dir("/proc/self/task") else { return ThreadTimes::default() };
        let threads = threads.filter_map(|entry| {
            let path = entry.ok()?.path();
            let read = |file: &str| fs::read_to_string(path.join(file)).ok();
            let (name, scheduled, stat) = (read("comm")?, read("schedstat")?, read("stat")?);
            let ThreadTime { running, .. } = ThreadTime::parse(&scheduled)?;
            let id = path.file_name()?.to_str()?.parse().ok()?;
            Some((id, OneThread { kind: kind(name.trim()), running, kernel: kernel(&stat)? }))
        });
        ThreadTimes(threads.collect())
    }

    /// How much more it is than `earlier`, by kind, of the threads that there were then or that have begun meanwhile and
    /// not ended.
    pub(super) fn since(&self, earlier: &ThreadTimes) -> Vec<ProcessorTime> {
        let mut sums = BTreeMap::<&str, (Duration, Duration)>::new();
        for (id, OneThread { kind, running, kernel }) in &self.0 {
            let (before, kernel_before) = earlier
                .0
                .get(id)
                .map_or_else(Default::default, |before| (before.running, before.kernel));
            let sum = sums.entry(kind).or_default();
            sum.0 += running.saturating_sub(before);
            sum.1 += kernel.saturating_sub(kernel_before);
        }
        let nanos = |span: Duration| span.as_nanos() as u64;
        let sums = sums.into_iter().map(|(kind, (total, kernel))| ProcessorTime {
            threads: kind.to_owned(),
            total_ns: nanos(total),
            kernel_ns: nanos(kernel.min(total)),
        });
        sums.collect()
    }
}

/// What a thread of this name does.
fn kind(name: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match name.rsplit_once('-') {
        Some((node, part)) if part.strip_prefix('w').is_some_and(is_number) => {
            format!("{node}, workers")
        }
        Some((_, "manager")) => "managers".to_owned(),
        _ => "clients and others".to_owned(),
    }
}

/// The time in the kernel, by a line of `/proc/self/task/*/stat`: the 15th field. The second, the name in parentheses, may
/// have any characters in it.
fn kernel(stat: &str) -> Option<Duration> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let ticks: u32 = behind_name.split_whitespace().nth(12)?.parse().ok()?;
    Some(TICK * ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_known_by_their_names() {
        let kinds = ["n0-w0", "n0-w12", "n1-manager", "db-east-w3", "bench-w", "tokio-rt-worker"];
        let others = "clients and others";
        let expected =
            ["n0, workers", "n0, workers", "managers", "db-east, workers", others, others];
        assert_eq!(kinds.map(kind), expected);
    }

    #[test]
    fn the_time_in_the_kernel_is_the_fifteenth_field() {
        let stat = "12 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 140 25 0 0";
        assert_eq!(kernel(stat), Some(Duration::from_millis(250)));
        assert_eq!(kernel("12"), None);
    }

    #[test]
    fn times_are_added_by_kind() {
        let thread = |kind: &str, running, kernel| OneThread {
            kind: kind.to_owned(),
            running: Duration::from_nanos(running),
            kernel: Duration::from_nanos(kernel),
        };
        let earlier = ThreadTimes([(1, thread("a", 5, 1)), (9, thread("gone", 5, 1))].into());
        let now = [(1, thread("a", 9, 2)), (2, thread("a", 3, 3)), (3, thread("b", 1, 4))];
        let time = |threads: &str, total_ns, kernel_ns| ProcessorTime {
            threads: threads.to_owned(),
            total_ns,
            kernel_ns,
        };
        assert_eq!(ThreadTimes(now.into()).since(&earlier), [time("a", 7, 4), time("b", 1, 1)]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_thread_is_one() {
        let earlier = ThreadTimes::read();
        let all: u64 = ThreadTimes::read().since(&earlier).iter().map(|it| it.total_ns).sum();
        assert!(!earlier.0.is_empty() && all < 60_000_000_000, "{earlier:?}");
    }
}
