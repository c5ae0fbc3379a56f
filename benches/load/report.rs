//! Medians, spreads and the table that goes into `docs/benchmarks/`.

use std::fmt::Write;

/// Median and spread of repeated measurements.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// Sorts and summarises.
pub(crate) fn sample(mut values: Vec<f64>) -> Sample {
    assert!(!values.is_empty());
    values.sort_by(f64::total_cmp);
    Sample { median: values[values.len() / 2], min: values[0], max: values[values.len() - 1] }
}

/// One row: what was measured, ours, the peer's, and the ratio against the goal.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) ours: String,
    pub(crate) peer: String,
    pub(crate) ratio: String,
    pub(crate) goal: String,
}

/// The rows as a markdown table.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::from("| what | ours | peer | ratio | goal |\n|---|---|---|---|---|\n");
    for Row { what, ours, peer, ratio, goal } in rows {
        writeln!(text, "| {what} | {ours} | {peer} | {ratio} | {goal} |").expect("writing to a string");
    }
    text
}

impl Sample {
    /// `median (min–max) unit`.
    pub(crate) fn show(self, unit: &str) -> String {
        format!("{:.3} ({:.3}–{:.3}) {unit}", self.median, self.min, self.max)
    }
}
