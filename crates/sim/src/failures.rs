//! What a seed draws for failures: the managers and their timeouts, and how often nodes, clocks and managers
//! fail, beside the link faults of the fault schedule.

use crate::clock::NodeClock;
use crate::draw::one_of;
use crate::fault_schedule::{FaultSchedule, FaultWeights};
use crate::managers::ManagersPlan;
use shoal_cluster::manager::{LogPace, ManagerOptions};
use shoal_types::Random;
use std::time::Duration;

/// A lease that every node renews in time.
const FOR_EVER: Duration = Duration::from_secs(100_000);

/// The managers of a scenario, and whether nodes fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailurePlan {
    /// The datacenter of each manager.
    pub datacenters: Vec<usize>,
    /// The pace of the managers' log.
    pub pace: LogPace,
    /// Leases, timeouts and bounds of clocks, with which the managers and all nodes run.
    pub options: ManagerOptions,
    /// Whether nodes fail; otherwise leases practically never end, and no shard is taken over.
    pub fails: bool,
}

impl FailurePlan {
    /// Draws the managers for a cluster whose longest round trip takes `round_trip_ns`.
    pub fn draw(
        random: &mut Random,
        datacenters: u32,
        round_trip_ns: u64,
        drift_ppm_max: i64,
    ) -> FailurePlan {
        let managers = one_of(random, &[1, 3, 3, 3, 5]);
        let datacenters =
            (0..managers).map(|_| random.below(datacenters.into()) as usize).collect();
        let nanos = Duration::from_nanos;
        let fails = random.chance(1, 2);
        let drift_ppm = drift_ppm_max.max(one_of(random, &[0, 20, 1000])) as u32;
        let steady = ManagerOptions { drift_ppm, ..ManagerOptions::default() };
        let quick = round_trip_ns < 50_000_000 && random.chance(1, 4);
        let options = match fails {
            false => {
                let retry_after = steady.retry_after.max(nanos(3 * round_trip_ns));
                ManagerOptions { lease: FOR_EVER, retry_after, ..steady }
            }
            true if quick => steady,
            true => {
                let lease = nanos(round_trip_ns * random.range_inclusive(4, 16));
                let lease = lease.max(Duration::from_millis(20));
                ManagerOptions {
                    lease,
                    heartbeat_every: lease / one_of(random, &[4, 8, 8, 16]),
                    suspect_after: lease * one_of(random, &[2, 3, 6]) / 8,
                    tick_every: lease / one_of(random, &[6, 12, 24]),
                    retry_after: (lease / one_of(random, &[2, 2, 8])).max(nanos(2 * round_trip_ns)),
                    ..steady
                }
            }
        };
        let pace = LogPace {
            delay_min: nanos(round_trip_ns / 40),
            delay_max: nanos(round_trip_ns / one_of(random, &[4, 10, 30])),
            late_percent: one_of(random, &[0, 0, 2, 10]),
            loss_percent: one_of(random, &[0, 0, 2, 10]),
        };
        FailurePlan { datacenters, pace, options, fails }
    }

    /// No node fails, and leases last longer than any run.
    pub fn calm(&mut self) {
        (self.fails, self.options.lease) = (false, FOR_EVER);
    }

    /// Adds faults of nodes, clocks and managers to the fault schedule.
    pub fn add_faults(
        &self,
        fault_schedule: &mut FaultSchedule,
        random: &mut Random,
        span_ns: u64,
    ) {
        if !self.fails {
            return;
        }
        let lease_ns = self.options.lease.as_nanos() as u64;
        fault_schedule.weights = FaultWeights {
            crash: one_of(random, &[0, 2, 4, 10]),
            datacenter: one_of(random, &[0, 0, 1, 3]),
            pause: one_of(random, &[0, 1, 3]),
            part: one_of(random, &[0, 1, 4]),
            clock: one_of(random, &[0, 0, 2]),
            elect: one_of(random, &[0, 0, 2]),
            outage: one_of(random, &[0, 0, 2]),
            manager: one_of(random, &[0, 0, 2]),
            forget: one_of(random, &[0, 2, 4]),
            diverge: one_of(random, &[0, 2, 4]),
            ..fault_schedule.weights
        };
        if fault_schedule.weights == FaultWeights::default() {
            fault_schedule.weights.crash = 1;
        }
        fault_schedule.every_ns = span_ns / random.range_inclusive(3, 20);
        fault_schedule.longest_ns = (lease_ns * random.range_inclusive(1, 6)).min(span_ns);
        fault_schedule.lost_percent = one_of(random, &[0, 0, 30, 70]);
        fault_schedule.struck_percent = one_of(random, &[0, 10, 30, 60]);
        fault_schedule.gone_percent = one_of(random, &[0, 0, 0, 30]);
        fault_schedule.interrupted_ppm = one_of(random, &[0, 0, 100, 2000]);
        fault_schedule.wild_clocks = fault_schedule.weights.clock > 0 && random.chance(1, 6);
    }

    /// How long clients run, in nanoseconds: a few leases at least, if nodes fail.
    pub fn span_ns(&self, span_ns: u64) -> u64 {
        let lease_ns = self.options.lease.as_nanos() as u64;
        if self.fails { span_ns.max(12 * lease_ns).min(10_000_000_000) } else { span_ns }
    }

    /// The managers to simulate, with their clocks.
    pub fn managed(&self, random: &mut Random) -> ManagersPlan {
        let bound = i64::from(self.options.drift_ppm);
        let clock = |_: &usize| {
            let drift = random.below(2 * bound as u64 + 1) as i64 - bound;
            NodeClock::new(random.below(10_000_000_000), drift)
        };
        let clocks = self.datacenters.iter().map(clock).collect();
        let (datacenters, pace) = (self.datacenters.clone(), self.pace.clone());
        ManagersPlan { datacenters, clocks, pace, options: self.options.clone() }
    }
}
