//! What the system reports of this process, for its metrics.

use rustix::time::{ClockId, clock_gettime};
use std::fs;

/// What this process takes of the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ProcessUsage {
    /// Processor time of all its threads since it began.
    pub(crate) cpu_seconds: f64,
    /// Bytes of memory that are resident; `None` where the system does not say so.
    pub(crate) resident_bytes: Option<u64>,
    /// Open files and sockets; `None` where the system does not say so.
    pub(crate) open_files: Option<u64>,
}

impl ProcessUsage {
    /// As it is now.
    pub(crate) fn now() -> ProcessUsage {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let status = fs::read_to_string("/proc/self/status").ok();
        ProcessUsage {
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            resident_bytes: status.as_deref().and_then(resident_bytes),
            open_files: fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as u64),
        }
    }
}

/// The resident memory that stands in a status of Linux.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_takes_something() {
        let usage = ProcessUsage::now();
        assert!(usage.cpu_seconds > 0.0, "{usage:?}");
        assert!(usage.resident_bytes.is_none_or(|bytes| bytes > 1 << 20), "{usage:?}");
        assert!(usage.open_files.is_none_or(|files| files > 2), "{usage:?}");
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t    1234 kB\n"), Some(1234 << 10));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
    }
}
