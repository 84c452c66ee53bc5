//! Figures of report files as SVG: one chart for each workload that is compared, one bar for each report.
//!
//! `plinth bench plot plinth.json kube-apiserver.json --to docs/plots` writes `rate.svg`,
//! `latency.svg` and `memory.svg`. Workloads differ by orders of magnitude, so scales are logarithmic.

use std::path::{Path, PathBuf};

use plotters::prelude::*;

use crate::api::report::{Measurement, Report};
use crate::api::Error;
use crate::output;

/// `plinth bench plot`: draws report files.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  plinth bench plot plinth.json reference.json --to docs/plots")]
pub struct Options {
    /// Report files (`plinth bench api --output`); each is a series, named by its label.
    #[arg(value_name = "REPORT", required = true)]
    pub reports: Vec<PathBuf>,
    /// Directory for the SVG files.
    #[arg(long, default_value = ".")]
    pub to: PathBuf,
}

/// A chart: its file, title, and the value of a measurement that it shows (none: not in this chart).
struct Chart {
    file: &'static str,
    title: &'static str,
    value: fn(&Measurement) -> Option<f64>,
}

const CHARTS: &[Chart] = &[
    Chart { file: "rate.svg", title: "operations per second (more is better)", value: |m| positive(m.rate) },
    Chart {
        file: "latency.svg",
        title: "99th percentile of latency, milliseconds (less is better)",
        value: |m| m.latency_ms.and_then(|q| positive(q.p99)),
    },
    Chart {
        file: "cpu.svg",
        title: "server CPU milliseconds per operation (less is better)",
        value: |m| positive(m.rate).and_then(|_| positive(m.cpu_ms_per_operation())),
    },
    Chart {
        file: "memory.svg",
        title: "peak resident memory of the server, MiB (less is better)",
        value: |m| positive(m.server_peak_rss_mib),
    },
];

fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

/// Draws every chart that the reports have values for.
pub fn run(options: Options) -> Result<(), Error> {
    let reports = options.reports.iter().map(|path| Report::read(path)).collect::<Result<Vec<_>, _>>()?;
    std::fs::create_dir_all(&options.to).map_err(Error::io(format!("making {}", options.to.display())))?;
    for chart in CHARTS {
        let path = options.to.join(chart.file);
        if draw(chart, &reports, &path)? {
            output::line(format_args!("{}", path.display()));
        }
    }
    Ok(())
}

const BAR: i32 = 14;
const GAP: i32 = 10;
const WIDTH: u32 = 900;
const LABELS: i32 = 130;
const TOP: i32 = 70;
const COLOURS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(214, 126, 44), RGBColor(110, 110, 110), RGBColor(60, 150, 80)];

/// Horizontal bars, drawn directly: rows of text and rectangles are simpler than a chart's axes.
/// Returns false, and writes nothing, when there is nothing to show.
fn draw(chart: &Chart, reports: &[Report], path: &Path) -> Result<bool, Error> {
    let names = workloads(chart, reports);
    let values = |name: &str| -> Vec<Option<f64>> {
        reports.iter().map(|r| r.results.iter().find(|m| m.workload == name).and_then(chart.value)).collect()
    };
    let all: Vec<f64> = names.iter().flat_map(|name| values(name)).flatten().collect();
    let Some(greatest) = all.iter().copied().reduce(f64::max) else { return Ok(false) };
    let least = all.iter().copied().fold(greatest, f64::min) / 2.0;
    let span = (greatest / least).ln().max(f64::MIN_POSITIVE);
    let room = f64::from(WIDTH as i32 - LABELS - 90);

    let group = BAR * reports.len() as i32 + GAP;
    let height = TOP + group * names.len() as i32 + GAP;
    let area = SVGBackend::new(path, (WIDTH, height.unsigned_abs())).into_drawing_area();
    let failed = |e: DrawingAreaErrorKind<std::io::Error>| Error::Plot(format!("{}: {e}", path.display()));
    area.fill(&WHITE).map_err(failed)?;
    let text = |size: i32| ("sans-serif", size).into_font();
    area.draw(&Text::new(chart.title, (10, 12), text(18))).map_err(failed)?;
    for (index, report) in reports.iter().enumerate() {
        let x = 10 + 200 * index as i32;
        let colour = COLOURS[index % COLOURS.len()];
        area.draw(&Rectangle::new([(x, 44), (x + 12, 56)], colour.filled())).map_err(failed)?;
        area.draw(&Text::new(report.label.clone(), (x + 18, 43), text(13))).map_err(failed)?;
    }
    for (row, name) in names.iter().enumerate() {
        let y = TOP + group * row as i32;
        area.draw(&Text::new(name.to_string(), (10, y), text(13))).map_err(failed)?;
        for (index, value) in values(name).into_iter().enumerate() {
            let Some(value) = value else { continue };
            let y = y + BAR * index as i32;
            let length = (room * (value / least).ln() / span).round() as i32;
            let bar = [(LABELS, y), (LABELS + length, y + BAR - 3)];
            area.draw(&Rectangle::new(bar, COLOURS[index % COLOURS.len()].filled())).map_err(failed)?;
            area.draw(&Text::new(shown(value), (LABELS + length + 6, y), text(12))).map_err(failed)?;
        }
    }
    area.present().map_err(failed)?;
    Ok(true)
}

/// Names of the workloads that any report has a value for, in the order of the first report.
fn workloads<'a>(chart: &Chart, reports: &'a [Report]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for measurement in reports.iter().flat_map(|r| &r.results) {
        if (chart.value)(measurement).is_some() && !names.contains(&&*measurement.workload) {
            names.push(&measurement.workload);
        }
    }
    names
}

/// Three significant digits.
fn shown(value: f64) -> String {
    let decimals = (2.0 - value.log10().floor()).clamp(0.0, 3.0) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(
            [0.1234, 1.234, 12.34, 123.4, 1234.5].map(shown),
            ["0.123", "1.23", "12.3", "123", "1234"]
        );
    }
}
