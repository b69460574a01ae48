//! Facts about the machine and this process, which every result states. What the system does not
//! report is left out.

use serde::Serialize;
use std::fs;
use std::time::Duration;

/// The machine on which a result was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The model of the processor, as the system reports it; `None` where it does not.
    pub cpu: Option<String>,
    /// Processors that this process may use.
    pub cores: usize,
    /// Main memory of the machine in bytes; `None` where the system does not report it.
    pub memory_bytes: Option<u64>,
    /// The operating system that the build is for, such as `linux`.
    pub system: &'static str,
    /// The release of the kernel; `None` where the system does not report it.
    pub kernel: Option<String>,
    /// Whether large pages come unasked: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
}

impl Machine {
    /// Reads what the system reports of this machine.
    pub fn read() -> Machine {
        let line = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let huge_pages = line("/sys/kernel/mm/transparent_hugepage/enabled");
        Machine {
            cpu: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kibibytes("/proc/meminfo", "MemTotal"),
            system: std::env::consts::OS,
            kernel: line("/proc/sys/kernel/osrelease"),
            transparent_huge_pages: huge_pages.and_then(|setting| chosen(&setting)),
        }
    }
}

/// Main memory that could be had now.
pub fn available_bytes() -> Option<u64> {
    kibibytes("/proc/meminfo", "MemAvailable")
}

/// The most main memory that this process ever held.
pub fn peak_resident_bytes() -> Option<u64> {
    kibibytes("/proc/self/status", "VmHWM")
}

/// How the calling thread has spent its time, as far as it wanted a processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// The time for which the thread ran on a processor.
    pub running: Duration,
    /// The time for which the thread was ready and all processors were taken.
    pub waiting: Duration,
}

impl ThreadTime {
    /// The times since the thread began, to within a tick of the scheduler.
    pub fn read() -> Option<ThreadTime> {
        ThreadTime::parse(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
    }

    /// `running waiting slices`, in nanoseconds.
    pub(super) fn parse(text: &str) -> Option<ThreadTime> {
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut next = || Some(Duration::from_nanos(numbers.next()?.ok()?));
        Some(ThreadTime { running: next()?, waiting: next()? })
    }

    /// The difference between this and `earlier`.
    pub fn since(self, earlier: ThreadTime) -> ThreadTime {
        ThreadTime {
            running: self.running.saturating_sub(earlier.running),
            waiting: self.waiting.saturating_sub(earlier.waiting),
        }
    }
}

/// The value of the first line `name: value` in `path`.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// The field `name: 123 kB` in bytes.
fn kibibytes(path: &str, name: &str) -> Option<u64> {
    let value = field(path, name)?;
    let number: u64 = value.strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

/// The word in brackets: `always [madvise] never` has `madvise` chosen.
fn chosen(setting: &str) -> Option<String> {
    let (_, rest) = setting.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    Some(word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_setting_stands_in_brackets() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("always"), None);
        assert_eq!(chosen("]["), None);
    }

    #[test]
    fn thread_times_are_nanoseconds() {
        let time = |running, waiting| ThreadTime {
            running: Duration::from_nanos(running),
            waiting: Duration::from_nanos(waiting),
        };
        assert_eq!(ThreadTime::parse("12 3 45\n"), Some(time(12, 3)));
        assert_eq!(ThreadTime::parse("12"), None);
        assert_eq!(ThreadTime::parse("a b c"), None);
        assert_eq!(time(12, 3).since(time(2, 5)), time(10, 0));
    }
}
