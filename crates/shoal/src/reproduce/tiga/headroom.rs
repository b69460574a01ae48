//! Figure 13 of the Tiga paper: by how much timestamps are ahead.

use super::super::experiment::{About, Chart, Curve, Experiment, ExperimentRow, Plots};
use super::super::run::ExperimentRun;
use super::rates::RATE;
use super::setup::{
    CLIENTS, Curves, INCREMENT, Leaders, Places, SKEW_MOST, UNIFORM_MS, all_regions, at_rate,
    chart_of_paths, chart_of_regions, cluster, increments, scaled,
};
use crate::local::ClusterPlan;
use shoal_server::{EngineOptions, Protocol};
use std::time::Duration;

/// More than any delay of an experiment: nothing bounds the headroom.
const UNBOUNDED: Duration = Duration::from_millis(500);

/// Less than any delay: a transaction has the time at which it is sent, as near as options let it.
const NONE: Duration = Duration::from_micros(1);

/// The headroom that coordinators estimate is the delay from a leader to the furthest replica, in milliseconds one way; the
/// leaders are in South Carolina.
const FURTHEST_MS: i32 = 65;

/// By how much the headroom differs from the estimate, in milliseconds.
const DELTAS_MS: [i32; 7] = [-50, -25, -10, 0, 10, 25, 50];

/// The same on uniform distances.
const UNIFORM_DELTAS_MS: [i32; 3] = [-20, 0, 50];

/// By how much timestamps are ahead.
#[derive(Debug, Clone, Copy)]
enum Headroom {
    /// As by default.
    Usual,
    /// Not at all.
    SendingTime,
    /// Than estimated, so many milliseconds more, where the furthest replica is so many from the leaders.
    Estimated { more_ms: i32, furthest_ms: i32 },
}

fn with_headroom(places: Places, headroom: Headroom) -> ExperimentRun {
    let EngineOptions::Tiga(mut options) = Protocol::Tiga.options() else {
        unreachable!("these are options of Tiga")
    };
    let protocol = &mut options.protocol;
    let millis = |ms: i32| Duration::from_millis(u64::from(ms.unsigned_abs()));
    match headroom {
        Headroom::Usual => {}
        Headroom::SendingTime => {
            (protocol.headroom_max, protocol.margin) = (NONE, Duration::ZERO);
        }
        Headroom::Estimated { more_ms: more_ms @ ..0, furthest_ms } => {
            protocol.headroom_max = millis(furthest_ms + more_ms);
        }
        Headroom::Estimated { more_ms, .. } => {
            protocol.headroom_max = UNBOUNDED;
            protocol.margin += millis(more_ms);
        }
    }
    let plan = cluster(Protocol::Tiga, places, Leaders::Together);
    of(ClusterPlan { engine: EngineOptions::Tiga(options), ..plan })
}

fn of(plan: ClusterPlan) -> ExperimentRun {
    ExperimentRun::in_regions(plan, increments(SKEW_MOST), CLIENTS, at_rate(RATE))
}

fn row(ms: i32) -> ExperimentRow {
    ExperimentRow { x: ms.into(), ..ExperimentRow::named(0, format!("{ms:+}")) }
}

/// A curve over deltas, where the furthest replica is so far from the leaders.
fn curve(curves: &mut Curves<'_>, places: Places, deltas: &[i32], furthest_ms: i32) -> Curve {
    let name = format!("tiga, {}", places.words());
    let rows = deltas.iter().map(|more_ms| {
        let headroom = Headroom::Estimated { more_ms: *more_ms, furthest_ms };
        (row(*more_ms), with_headroom(places, headroom))
    });
    curves.curve(name, rows)
}

/// Figure 13: latency over the headroom.
pub fn over_headroom() -> Experiment {
    let mut runs = Vec::new();
    let mut curves = Curves::of(&mut runs);
    let mut all = vec![curve(&mut curves, Places::Paper, &DELTAS_MS, FURTHEST_MS)];
    let others =
        [("tiga, sending time", Headroom::SendingTime), ("tiga, default", Headroom::Usual)];
    for (name, headroom) in others {
        let run = with_headroom(Places::Paper, headroom);
        all.push(curves.curve(name, std::iter::once((row(0), run))));
    }
    for protocol in [Protocol::Mako, Protocol::TwoPhaseCommit] {
        let run = of(cluster(protocol, Places::Paper, Leaders::Together));
        all.push(curves.curve(protocol.name(), std::iter::once((row(0), run))));
    }
    all.extend(
        UNIFORM_MS.map(|ms| curve(&mut curves, Places::Uniform(ms), &UNIFORM_DELTAS_MS, ms as i32)),
    );
    let paths = chart_of_paths("", all.iter());
    let regions = chart_of_regions(&all[1..5], 0);
    let chart = Chart {
        title: "Increments over the headroom, skew 0.99, all regions",
        axis: "than estimated",
        unit: "ms",
        quantities: all_regions(INCREMENT),
        plots: Plots::AlongAxis,
        curves: all,
        notes: vec![
            "The estimate is the 95th percentile of the delays to the leaders and to the replicas of a fast quorum. By default the \
             headroom ends 20 ms above the delay to the nearest leader. Engines without timestamps ahead stand at 0. Relative: \
             to the first of a curve."
                .to_owned(),
        ],
    };
    Experiment {
        about: About {
            name: "tiga-fig13",
            title: "Tiga, figure 13: the headroom of timestamps",
            paper: "Increments with skew 0.99, 8,000 a second for each coordinator, leaders apart; the estimated headroom plus -50 to \
                    50 ms, and none (sending time). The estimate is close to optimal: less brings more rollbacks and latency, more \
                    prolongs the latency. Its text has no numbers.",
            scaled: scaled(&[
                "500 transactions a second and 800 clients on all regions together.",
                "Leaders are together, so that each coordinator’s estimate is the same, and a bound changes it by as much; so nothing is \
                 rolled back, and what the slow path takes stands below instead.",
                "Less than the estimate is made by a bound on the headroom above the nearest leader’s delay, more by the margin.",
                "mako and two-phase-commit have no headroom, and stand beside.",
            ]),
        },
        runs,
        charts: vec![chart, regions, paths],
    }
}
