//! What was measured, in tables and plots, beside what was published.

use super::experiment::{
    Chart, Curve, Experiment, ExperimentRow, Plots, PublishedNumber, Quantity,
};
use super::quantity::stop_s;
use super::run::{ExperimentRun, MeasuredRun};
use shoal_sim::demonstrations::{
    DemonstrationResults, ResultLine, ResultPlot, ResultTable, TargetVerdict,
};
use shoal_workloads::bench::measurement::{Interval, Run};
use shoal_workloads::report::words;

/// Where the command line says nothing.
const NONE: &str = "–";

/// The charts of an experiment, of whose runs this came.
pub fn results(experiment: &Experiment, measured: &[MeasuredRun]) -> DemonstrationResults {
    let mut results = DemonstrationResults::default();
    for chart in &experiment.charts {
        let seen = SeenRun { chart, runs: &experiment.runs, measured };
        results.tables.push(seen.table());
        results.plots.extend(match chart.plots {
            Plots::AlongAxis | Plots::AlongAxisAndBreakEven { .. } => seen.plots_along_axis(),
            Plots::AlongAxisAndTime => {
                let mut plots = seen.plots_along_axis();
                plots.push(seen.plot_over_time());
                plots
            }
            Plots::Percentiles => vec![seen.plot_of_percentiles()],
            Plots::OverTime => seen.plots_over_time(),
        });
    }
    results
}

/// A chart with what was measured for it.
struct SeenRun<'a> {
    chart: &'a Chart,
    runs: &'a [ExperimentRun],
    measured: &'a [MeasuredRun],
}

/// A column of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ViewColumn {
    quantity: Quantity,
    whose: Whose,
    is_relative: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    Papers,
    /// Rows are either ours or the paper's.
    Either,
}

impl ViewColumn {
    fn head(self) -> &'static str {
        match (self.is_relative, self.whose) {
            (true, Whose::Papers) => "the paper, relative",
            (true, Whose::Ours | Whose::Either) => "relative",
            (false, Whose::Papers) => "the paper",
            (false, Whose::Ours | Whose::Either) => self.quantity.head(),
        }
    }

    fn words(self, value: f64) -> String {
        if self.is_relative { words::times(value) } else { self.quantity.words(value) }
    }
}

impl SeenRun<'_> {
    fn ours(&self, row: &ExperimentRow, quantity: Quantity) -> Option<f64> {
        let run = row.run?;
        quantity.of(self.measured[run].as_ref().ok()?, self.runs[run].shards(), row.region)
    }

    /// The lowest and the highest of several runs of a row.
    fn range(&self, row: &ExperimentRow, quantity: Quantity) -> Option<String> {
        let (low, high) = quantity.range(self.measured[row.run?].as_ref().ok()?)?;
        Some(format!("{} to {}", quantity.words(low), quantity.words(high)))
    }

    /// Does a column beside it show how far the runs lie apart?
    fn has_range(&self, column: ViewColumn) -> bool {
        let is_measured = column.whose != Whose::Papers && !column.is_relative;
        is_measured && self.rows().any(|(_, row)| self.range(row, column.quantity).is_some())
    }

    fn value(&self, curve: &Curve, row: &ExperimentRow, column: ViewColumn) -> Option<f64> {
        let ViewColumn { quantity, whose, is_relative } = column;
        let ours = || {
            let own = self.ours(row, quantity)?;
            let base = || self.ours(&curve.rows[curve.base], quantity).filter(|base| *base > 0.0);
            if is_relative { Some(own / base()?) } else { Some(own) }
        };
        let papers =
            || if is_relative { relative(curve, row, quantity) } else { absolute(row, quantity) };
        match whose {
            Whose::Ours => ours(),
            Whose::Papers => papers(),
            Whose::Either => ours().or_else(papers),
        }
    }

    fn rows(&self) -> impl Iterator<Item = (&Curve, &ExperimentRow)> {
        self.chart.curves.iter().flat_map(|curve| curve.rows.iter().map(move |row| (curve, row)))
    }

    /// The columns that have something in them.
    fn columns(&self) -> Vec<ViewColumn> {
        let is_published = |row: &ExperimentRow| !row.published.is_empty();
        let beside = self.rows().any(|(_, row)| row.run.is_some() && is_published(row));
        let apart = !beside && self.rows().any(|(_, row)| is_published(row));
        let first = if apart { Whose::Either } else { Whose::Ours };
        let of = |quantity: Quantity| {
            let column = |whose, is_relative| ViewColumn { quantity, whose, is_relative };
            let mut columns = vec![column(first, false)];
            if quantity.is_compared() {
                columns.push(column(Whose::Ours, true));
            }
            if !apart {
                columns.extend([column(Whose::Papers, false), column(Whose::Papers, true)]);
            }
            columns
        };
        let all = self.chart.quantities.iter().flat_map(|quantity| of(*quantity));
        let is_said = |column: &ViewColumn| {
            let is_optional = column.whose == Whose::Papers || column.is_relative;
            let value = |(curve, row)| self.value(curve, row, *column);
            !is_optional || self.rows().any(|place| value(place).is_some())
        };
        all.filter(is_said).collect()
    }

    fn table(&self) -> ResultTable {
        let columns = self.columns();
        let has_names = self.chart.curves.len() > 1;
        let names = if has_names { vec!["", self.chart.axis] } else { vec![self.chart.axis] };
        let words = names.len();
        let heads = |column: &ViewColumn| {
            let range = self.has_range(*column).then_some("range");
            std::iter::once(column.head()).chain(range)
        };
        let line = |(curve, row): (&Curve, &ExperimentRow)| {
            let mut cells = if has_names { vec![curve.name.clone()] } else { Vec::new() };
            cells.push(format!("{} {}", row.label, self.chart.unit).trim_end().to_owned());
            for column in &columns {
                let value = self.value(curve, row, *column);
                cells.push(value.map_or_else(|| NONE.to_owned(), |value| column.words(value)));
                if self.has_range(*column) {
                    cells.push(self.range(row, column.quantity).unwrap_or_else(|| NONE.to_owned()));
                }
            }
            let (target, verdict) = self.judged(curve, row);
            ResultLine { cells, target, verdict }
        };
        ResultTable {
            title: self.chart.title,
            notes: self.chart.notes.iter().cloned().chain(self.break_even()).collect(),
            heads: names.into_iter().chain(columns.iter().flat_map(heads)).collect(),
            words,
            lines: self.rows().map(line).collect(),
        }
    }

    /// Where the first of each group of curves falls below the others, if that is to be said.
    fn break_even(&self) -> Vec<String> {
        let Plots::AlongAxisAndBreakEven { group } = self.chart.plots else { return Vec::new() };
        let points = |curve: &Curve| -> Vec<(f64, f64)> {
            let point = |row: &ExperimentRow| Some((row.x, self.ours(row, Quantity::Throughput)?));
            curve.rows.iter().filter_map(point).collect()
        };
        let of_group = |curves: &[Curve]| -> Vec<String> {
            let Some((first, others)) = curves.split_first() else { return Vec::new() };
            let words = |other: &Curve| {
                let (axis, unit) = (self.chart.axis, self.chart.unit);
                Some(match break_even(&points(first), &points(other))? {
                    BreakEven::At(x) => {
                        format!(
                            "{} breaks even with {} at {x:.1} {unit} {axis}.",
                            first.name, other.name
                        )
                    }
                    BreakEven::Above => format!("{} stays above {}.", first.name, other.name),
                    BreakEven::Below => format!("{} is always below {}.", first.name, other.name),
                })
            };
            others.iter().filter_map(words).collect()
        };
        self.chart.curves.chunks(group).flat_map(of_group).collect()
    }

    /// The target of a row, and whether it was met.
    fn judged(&self, curve: &Curve, row: &ExperimentRow) -> (String, TargetVerdict) {
        let kept = row.kept_min.map(|(quantity, least)| {
            let column = ViewColumn { quantity, whose: Whose::Ours, is_relative: true };
            let holds = self.value(curve, row, column).is_some_and(|kept| kept >= least);
            (format!("relative ≥ {}", words::times(least)), holds)
        });
        let least = row.least.iter().map(|(quantity, least)| {
            let holds = self.ours(row, *quantity).is_some_and(|value| value >= *least);
            (format!("{} ≥ {}", quantity.head(), quantity.words(*least)), holds)
        });
        let most = row.most.iter().map(|(quantity, most)| {
            let holds = self.ours(row, *quantity).is_some_and(|value| value <= *most);
            (format!("{} ≤ {}", quantity.head(), quantity.words(*most)), holds)
        });
        let judged: Vec<(String, bool)> = kept.into_iter().chain(least).chain(most).collect();
        let targets: Vec<&str> = judged.iter().map(|(target, _)| target.as_str()).collect();
        let verdict = match judged.is_empty() {
            true => TargetVerdict::Shown,
            false => TargetVerdict::of(judged.iter().all(|(_, holds)| *holds)),
        };
        (targets.join(", "), verdict)
    }

    /// A series of each curve for `column`, if there is anything on it.
    fn series(&self, column: ViewColumn, whose: &str) -> Vec<(String, Vec<(f64, f64)>)> {
        let point = |curve: &Curve, row: &ExperimentRow| {
            let value = self.value(curve, row, column)?;
            let value = if column.is_relative { value } else { column.quantity.plotted(value).0 };
            Some((row.x, value))
        };
        let of = |curve: &Curve| {
            let points = curve.rows.iter().filter_map(|row| point(curve, row)).collect();
            (format!("{}{whose}", curve.name), points)
        };
        let all = self.chart.curves.iter().map(of);
        all.filter(|(_, points): &(String, Vec<_>)| !points.is_empty()).collect()
    }

    fn plots_along_axis(&self) -> Vec<ResultPlot> {
        let quantities = self.chart.quantities.iter().copied();
        // The same line once more, in another unit.
        let quantities = quantities.filter(|quantity| *quantity != Quantity::PerShard);
        quantities.flat_map(|quantity| self.plots_of(quantity)).collect()
    }

    /// What is ours; and next to the paper's where both can be compared.
    fn plots_of(&self, quantity: Quantity) -> Vec<ResultPlot> {
        let column = |whose, is_relative| ViewColumn { quantity, whose, is_relative };
        let papers = |is_relative| self.series(column(Whose::Papers, is_relative), ", the paper");
        let mut plots = Vec::new();
        let mut absolute = self.series(column(Whose::Ours, false), "");
        if quantity.is_of_any_machine() {
            absolute.extend(papers(false));
        }
        let unit = quantity.plotted(0.0).1;
        plots.push(self.plot(&quantity.title(), absolute, unit));
        let published = papers(true);
        if quantity.is_compared() && !published.is_empty() {
            let both = self.series(column(Whose::Ours, true), ", here").into_iter();
            let title = format!("{}, relative", quantity.title());
            plots.push(self.plot(&title, both.chain(published).collect(), "×"));
        }
        plots
    }

    fn plot(
        &self,
        title: &str,
        series: Vec<(String, Vec<(f64, f64)>)>,
        y: &'static str,
    ) -> ResultPlot {
        let Chart { title: chart, axis, unit, .. } = self.chart;
        let (names, series) = series.into_iter().unzip();
        let lead = format!("{chart}. To the right: {axis}.");
        ResultPlot { title: title.to_owned(), lead, names, series, marks: Vec::new(), x: unit, y }
    }

    /// The throughput of each row, in the intervals of its first run.
    fn plot_over_time(&self) -> ResultPlot {
        let series = self.rows().filter_map(|(_, row)| {
            let first = self.measured[row.run?].as_ref().ok()?.runs.first()?;
            let points = first.timeline.iter().map(|at| (at.end_s, at.committed_per_s)).collect();
            Some((format!("{} {}", row.label, self.chart.axis), points))
        });
        let (names, series): (Vec<String>, Vec<Vec<(f64, f64)>>) = series.unzip();
        let title = format!("{}, over time", Quantity::Throughput.title());
        let lead = format!("{}. To the right: the time of the measurement.", self.chart.title);
        ResultPlot { title, lead, names, series, marks: Vec::new(), x: "s", y: "" }
    }

    /// Throughput and mean latency of each row, in the intervals of its first run, and when its leader was stopped.
    fn plots_over_time(&self) -> Vec<ResultPlot> {
        let mean_ms = |at: &Interval| Some(at.mean_latency_ns? as f64 / 1e6);
        let throughput = Quantity::Throughput.title();
        vec![
            self.plot_of_intervals(&throughput, "", &|at| Some(at.committed_per_s)),
            self.plot_of_intervals("Mean latency", "ms", &mean_ms),
        ]
    }

    fn plot_of_intervals(
        &self,
        title: &str,
        y: &'static str,
        of: &dyn Fn(&Interval) -> Option<f64>,
    ) -> ResultPlot {
        let first_run = |(curve, row): (&Curve, &ExperimentRow)| {
            let first = self.measured[row.run?].as_ref().ok()?.runs.first()?;
            Some((format!("{}, {}", curve.name, row.label), first))
        };
        let first_runs: Vec<(String, &Run)> = self.rows().filter_map(first_run).collect();
        let points =
            |run: &Run| run.timeline.iter().filter_map(|at| Some((at.end_s, of(at)?))).collect();
        ResultPlot {
            title: format!("{title}, over time"),
            lead: format!("{}. To the right: the time of the measurement.", self.chart.title),
            names: first_runs.iter().map(|(name, _)| name.clone()).collect(),
            series: first_runs.iter().map(|(_, run)| points(run)).collect(),
            marks: first_runs.iter().take(1).map(|(_, run)| stop_s(run)).collect(),
            x: "s",
            y,
        }
    }

    fn plot_of_percentiles(&self) -> ResultPlot {
        let point = |curve: &Curve, row: &ExperimentRow, quantity: &Quantity| {
            let (Quantity::Latency(percentile, _) | Quantity::RegionLatency(percentile)) =
                *quantity
            else {
                return None;
            };
            let column =
                ViewColumn { quantity: *quantity, whose: Whose::Either, is_relative: false };
            Some((percentile.percent(), self.value(curve, row, column)?))
        };
        let series = self.rows().map(|(curve, row)| {
            let quantities = self.chart.quantities.iter();
            let points = quantities.filter_map(|quantity| point(curve, row, quantity));
            (row.label.clone(), points.collect())
        });
        let title = self.chart.title.to_owned();
        let (names, series) = series.filter(|(_, points): &(_, Vec<_>)| !points.is_empty()).unzip();
        let lead = "The time in which each part of the transactions is done.".to_owned();
        ResultPlot { title, lead, names, series, marks: Vec::new(), x: "%", y: "ms" }
    }
}

/// Where one curve falls below another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum BreakEven {
    /// There, for the first time.
    At(f64),
    /// At no place.
    Above,
    /// It begins below it.
    Below,
}

/// Compares two curves, ascending along the axis and straight between their points; `None` if one of them has no point.
pub(super) fn break_even(first: &[(f64, f64)], other: &[(f64, f64)]) -> Option<BreakEven> {
    let mut all: Vec<f64> = first.iter().chain(other).map(|(x, _)| *x).collect();
    all.sort_unstable_by(f64::total_cmp);
    let mut before = None;
    for x in all {
        let lead = height(first, x)? - height(other, x)?;
        if lead < 0.0 {
            return Some(match before {
                None => BreakEven::Below,
                Some((from, lead_before)) => {
                    BreakEven::At(from + (x - from) * lead_before / (lead_before - lead))
                }
            });
        }
        before = Some((x, lead));
    }
    before.map(|_| BreakEven::Above)
}

/// The height of a curve at `x`; beyond its ends, that of the end.
fn height(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = points.partition_point(|(at, _)| *at < x);
    let (last, next) = (points.get(after.wrapping_sub(1)), points.get(after));
    match (last, next) {
        (Some((x0, y0)), Some((x1, y1))) => Some(y0 + (y1 - y0) * (x - x0) / (x1 - x0)),
        (Some((_, y)), None) | (None, Some((_, y))) => Some(*y),
        (None, None) => None,
    }
}

/// The paper's number for `quantity` in a row, as it was measured.
fn absolute(row: &ExperimentRow, quantity: Quantity) -> Option<f64> {
    said(row, quantity).and_then(|number| match number {
        PublishedNumber::Absolute(value) => Some(value),
        PublishedNumber::Relative(_) => None,
    })
}

/// The same, compared with the base.
fn relative(curve: &Curve, row: &ExperimentRow, quantity: Quantity) -> Option<f64> {
    if !quantity.is_compared() {
        return None;
    }
    match said(row, quantity)? {
        PublishedNumber::Relative(ratio) => Some(ratio),
        PublishedNumber::Absolute(value) => {
            Some(value / absolute(&curve.rows[curve.base], quantity)?)
        }
    }
}

fn said(row: &ExperimentRow, quantity: Quantity) -> Option<PublishedNumber> {
    row.published.iter().find(|it| it.quantity == quantity).map(|it| it.number)
}
