//! Reports of a [`Measurement`]: JSON for programs, and one
//! self-contained page for people. [`words`] formats numbers the way both the page and the terminal
//! do.
//!
//! Read in this order: [`page`] puts the page together, [`plot`] draws its plots, `style.css` gives
//! both their colours, in light and in dark. [`comparison`] is the page
//! of several measurements, [`sheet`] one of anything else: tables and plots.

pub mod comparison;
pub mod page;
pub mod plot;
pub mod sheet;
pub mod words;

pub use page::html;

use crate::bench::Measurement;
use serde::Serialize;

/// The measurement as JSON, ending in a newline.
pub fn json(measurement: &Measurement) -> String {
    written(measurement)
}

/// Several measurements as a list in JSON, ending in a newline.
pub fn json_list(measurements: &[Measurement]) -> String {
    written(measurements)
}

fn written<T: Serialize + ?Sized>(what: &T) -> String {
    let mut text = serde_json::to_string_pretty(what)
        .expect("a measurement has only text keys and finite numbers");
    text.push('\n');
    text
}
