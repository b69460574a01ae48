//! The plots, as inline SVG.
//!
//! A plot is drawn with stand-in colours: [`INK`], [`GRID`] and one a series. The page's style
//! sheet turns each into the colour of the reader's theme by its attribute, so the same drawing
//! serves light and dark.

use super::words;
use crate::bench::measurement::{CurvePoint, Interval};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::{
    AreaSeries, ChartBuilder, Circle, Color, DrawingAreaErrorKind, IntoDrawingArea, IntoFont,
    LineSeries, RGBColor, SVGBackend,
};
use std::io;
use std::ops::Range;

/// Stands for the colour of text and axes.
pub const INK: RGBColor = RGBColor(0, 0, 0xf0);

/// Stands for the colour of grid lines.
pub const GRID: RGBColor = RGBColor(0, 0, 0xf1);

/// The number of colours for series in the style sheet; further series reuse them.
pub const SERIES_COLOURS: usize = 6;

const SIZE: (u32, u32) = (1040, 320);
const FONT_SIZE: u32 = 17;
const LABEL_WIDTH: u32 = 62;
const LABEL_HEIGHT: u32 = 32;
const TICK: u32 = 6;

/// Most points of a series that each have a dot: they were measured, the line between them was not.
const DOTS_MAX: usize = 24;
const DOT: i32 = 4;

/// Most points of a timeline that are drawn; neighbours are averaged beyond.
const TIMELINE_POINTS_MAX: usize = 300;

/// Stands for the colour of series `number`.
fn series_colour(number: usize) -> RGBColor {
    RGBColor(0, 0, 0xe0 + (number % SERIES_COLOURS) as u8)
}

/// Throughput over time, one series a run; a single one is filled.
pub fn throughput(runs: &[&[Interval]]) -> String {
    let ends = || runs.iter().flat_map(|run| run.iter());
    let end_s = ends().map(|at| at.end_s).fold(0.001, f64::max);
    let top = 1.12 * ends().map(|at| at.committed_per_s).fold(1.0, f64::max);
    let series: Vec<_> = runs.iter().map(|run| thin(run)).collect();
    let x = Axis {
        marks: round_steps(end_s, 10),
        range: 0.0..end_s,
        label: Box::new(|seconds| format!("{seconds} s")),
    };
    let y = Axis { marks: round_steps(top, 5), range: 0.0..top, label: Box::new(short_rate) };
    let look = if series.len() == 1 { Look::Filled } else { Look::Plain };
    draw(x, y, &series, look, &[])
}

/// The units of the two axes of a plot, for their labels; empty for numbers without one.
#[derive(Debug, Clone, Copy)]
pub struct AxisUnits {
    /// The unit of the horizontal axis.
    pub x: &'static str,
    /// The unit of the vertical axis.
    pub y: &'static str,
}

/// Any lines over one axis, in these units, with a mark wherever something happened. A line of few points
/// shows where they are.
pub fn lines(series: &[Vec<(f64, f64)>], marks: &[f64], units: AxisUnits) -> String {
    let AxisUnits { x: x_unit, y: y_unit } = units;
    let points = || series.iter().flatten();
    let left = points().map(|it| it.0).fold(0.0, f64::min);
    let right = points().map(|it| it.0).fold(left + 0.001, f64::max);
    let top = 1.12 * points().map(|it| it.1).fold(0.1, f64::max);
    let mut steps = round_steps(right.max(-left), 10);
    steps.extend(steps.clone().into_iter().skip(1).map(|mark| -mark));
    steps.retain(|mark| (left..=right).contains(mark));
    let in_unit = |label: String, unit: &str| format!("{label} {unit}").trim_end().to_owned();
    let x = Axis {
        marks: steps,
        range: left..right,
        label: Box::new(move |at| in_unit(at.to_string(), x_unit)),
    };
    let y = Axis {
        marks: round_steps(top, 5),
        range: 0.0..top,
        label: Box::new(move |at| in_unit(short_rate(at), y_unit)),
    };
    draw(x, y, series, Look::Dotted, marks)
}

/// Latency under which each part of the transactions stays, one series a transaction type. Both
/// axes are logarithmic: to the right in nines, upwards in powers of ten.
pub fn percentiles(curves: &[&[CurvePoint]]) -> String {
    let nines = |at: &CurvePoint| -(1.0 - at.quantile).max(f64::MIN_POSITIVE).log10();
    let height = |at: &CurvePoint| (at.latency_ns.max(1) as f64).log10();
    let points = || curves.iter().flat_map(|curve| curve.iter());
    let right = points().map(nines).fold(1.0, f64::max);
    let top = points().map(height).fold(f64::MIN, f64::max).max(1.0) + 0.1;
    let bottom = points().map(height).fold(top - 1.0, f64::min) - 0.1;
    let series: Vec<Vec<(f64, f64)>> = curves
        .iter()
        .map(|curve| curve.iter().map(|at| (nines(at), height(at))).collect())
        .collect();
    let median = std::f64::consts::LOG10_2;
    let marks: Vec<f64> =
        std::iter::once(median).chain((1..=right as u32).map(f64::from)).collect();
    let x = Axis { range: 0.0..right, marks, label: Box::new(words::quantile) };
    let y = Axis {
        marks: powers_of_ten(bottom..top),
        range: bottom..top,
        label: Box::new(|height| round_latency(10f64.powf(height).round() as u64)),
    };
    draw(x, y, &series, Look::Plain, &[])
}

/// An axis of a plot.
struct Axis {
    range: Range<f64>,
    /// The values with a grid line and a label.
    marks: Vec<f64>,
    label: Box<dyn Fn(f64) -> String>,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        (self.label)(*value)
    }
}

/// The style of a plot's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Plain,
    /// The area below the line is filled.
    Filled,
    /// Each point has a dot, if there are few.
    Dotted,
}

/// Draws one line a series, and a thin line at each mark.
fn draw(x: Axis, y: Axis, series: &[Vec<(f64, f64)>], look: Look, marks: &[f64]) -> String {
    let mut svg = String::new();
    try_draw(&mut svg, x, y, series, look, marks).expect("drawing into a string cannot fail");
    svg
}

fn try_draw(
    svg: &mut String,
    x: Axis,
    y: Axis,
    series: &[Vec<(f64, f64)>],
    look: Look,
    marks: &[f64],
) -> Result<(), DrawingAreaErrorKind<io::Error>> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let (floor, top) = (y.range.start, y.range.end);
    let mut chart = ChartBuilder::on(&area)
        .margin_top(10)
        .margin_right(34)
        .x_label_area_size(LABEL_HEIGHT)
        .y_label_area_size(LABEL_WIDTH)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .set_all_tick_mark_size(TICK)
        .label_style(("sans-serif", FONT_SIZE).into_font().color(&INK))
        .draw()?;
    for mark in marks {
        let line = [(*mark, floor), (*mark, top)];
        chart.draw_series(LineSeries::new(line, INK.stroke_width(1)))?;
    }
    for (number, points) in series.iter().enumerate() {
        let colour = series_colour(number);
        if look == Look::Filled {
            let shade = colour.mix(0.14);
            let points = points.iter().copied();
            chart.draw_series(AreaSeries::new(points, floor, shade))?;
        }
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        if look == Look::Dotted && points.len() <= DOTS_MAX {
            let dots = points.iter().map(|at| Circle::new(*at, DOT, colour.filled()));
            chart.draw_series(dots)?;
        }
    }
    area.present()
}

/// A timeline as points in the middle of its intervals, the first and last drawn out to the ends.
fn thin(timeline: &[Interval]) -> Vec<(f64, f64)> {
    let group = timeline.len().div_ceil(TIMELINE_POINTS_MAX).max(1);
    let mut start = 0.0;
    let mut points: Vec<(f64, f64)> = timeline
        .chunks(group)
        .map(|chunk| {
            let rates: f64 = chunk.iter().map(|at| at.committed_per_s).sum();
            let end = chunk[chunk.len() - 1].end_s;
            let middle = f64::midpoint(start, end);
            start = end;
            (middle, rates / chunk.len() as f64)
        })
        .collect();
    if let (Some(&(_, first)), Some(&(_, last))) = (points.first(), points.last()) {
        points.insert(0, (0.0, first));
        points.push((start, last));
    }
    points
}

/// Round numbers from 0 to `end`, at most about `wanted`.
fn round_steps(end: f64, wanted: u32) -> Vec<f64> {
    let least = end / f64::from(wanted);
    let power = least.log10().floor() as i32;
    // Multiplied and divided by whole numbers only, or a label would read 0.30000000000000004.
    let scaled = |number: u32| {
        let factor = 10f64.powi(power.abs());
        if power < 0 { f64::from(number) / factor } else { f64::from(number) * factor }
    };
    let step = [1, 2, 5].into_iter().find(|step| scaled(*step) >= least).unwrap_or(10);
    (0..).map(|at| scaled(at * step)).take_while(|mark| *mark <= end).collect()
}

/// Powers of ten in a range of logarithms, with twos and fives between where they are few.
fn powers_of_ten(range: Range<f64>) -> Vec<f64> {
    let within: &[f64] = if range.end - range.start < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    (0..20)
        .flat_map(|power| within.iter().map(move |part| part.log10() + f64::from(power)))
        .filter(|at| range.contains(at))
        .collect()
}

/// A rate on an axis: `0`, `500`, `80 k`, `1.2 M`.
fn short_rate(per_s: f64) -> String {
    match per_s {
        rate if rate >= 1e6 => format!("{} M", (rate / 1e4).round() / 100.0),
        rate if rate >= 1e3 => format!("{} k", (rate / 10.0).round() / 100.0),
        rate => format!("{rate}"),
    }
}

/// A latency on an axis, where all are round: `10 µs`.
fn round_latency(nanoseconds: u64) -> String {
    words::latency(nanoseconds).replace(".00 ", " ").replace(".0 ", " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round() {
        assert_eq!(
            round_steps(20.0, 10),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0]
        );
        assert_eq!(round_steps(0.35, 10), [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35]);
        assert_eq!(round_steps(93_000.0, 5), [0.0, 20e3, 40e3, 60e3, 80e3]);
        assert_eq!(powers_of_ten(2.9..6.1), [3.0, 4.0, 5.0, 6.0]);
        assert_eq!(
            [short_rate(80e3), short_rate(1.25e6), short_rate(5.0)].join(", "),
            "80 k, 1.25 M, 5"
        );
    }

    #[test]
    fn long_timelines_are_thinned_and_keep_their_mean() {
        let timeline: Vec<Interval> = (1..=6000)
            .map(|at| Interval {
                end_s: f64::from(at) / 10.0,
                committed_per_s: f64::from(at % 2),
                mean_latency_ns: None,
            })
            .collect();
        let points = thin(&timeline);
        assert!(points.len() <= TIMELINE_POINTS_MAX + 2);
        assert_eq!((points[0].0, points[points.len() - 1].0), (0.0, 600.0));
        assert!(points.iter().all(|(_, rate)| (rate - 0.5).abs() < 1e-9));
    }

    #[test]
    fn lines_may_begin_left_of_zero() {
        let svg = lines(&[vec![(-2.0, 5.0), (3.0, 0.0)]], &[0.0], AxisUnits { x: "s", y: "%" });
        for label in ["-2 s", "0 s", "3 s", "4 %"] {
            assert!(svg.contains(&format!("\n{label}\n")), "{label} is missing");
        }
    }

    #[test]
    fn few_points_have_dots_and_many_have_none() {
        let dots = |points: usize| {
            let points: Vec<(f64, f64)> = (0..points).map(|at| (at as f64, 1.0)).collect();
            lines(&[points], &[], AxisUnits { x: "s", y: "" }).matches("<circle").count()
        };
        assert_eq!((dots(1), dots(DOTS_MAX), dots(DOTS_MAX + 1)), (1, DOTS_MAX, 0));
    }

    #[test]
    fn nothing_to_draw_is_an_empty_plot() {
        assert!(throughput(&[]).starts_with("<svg"));
        assert!(percentiles(&[&[]]).starts_with("<svg"));
        assert!(lines(&[], &[], AxisUnits { x: "s", y: "" }).starts_with("<svg"));
    }
}
