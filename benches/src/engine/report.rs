//! What a run ends in: a table on standard output, a JSON file, plots.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Error, Options, Workload};
use crate::api::report::Machine;
use crate::output;

/// A run: machine, options and results.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Seconds since 1970 at the start.
    pub started: u64,
    /// On which machine it was measured.
    pub machine: Machine,
    /// The one-minute load average before the run: more than a little means that others disturbed it.
    pub load_before: f64,
    /// Seconds for each figure taken over time.
    pub seconds: f64,
    /// Bytes of a value.
    pub value_size: usize,
    /// In the order measured.
    pub figures: Vec<Figure>,
}

/// One figure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figure {
    /// Name of the workload, as on the command line.
    pub workload: String,
    /// What was measured.
    pub name: String,
    /// The figure, in `unit`.
    pub value: f64,
    /// Unit of `value`.
    pub unit: String,
    /// What it is held against, in the same unit, measured in the same run.
    pub baseline: Option<f64>,
    /// The goal, in words.
    pub goal: Option<String>,
    /// Whether the goal was reached; none without one.
    pub reached: Option<bool>,
    /// Where it stands in a series: the name of the series and the place on its axis.
    pub point: Option<(String, f64)>,
}

/// A goal for a figure.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// The value must be at least so much.
    AtLeast(f64),
    /// The value must be at most so much.
    AtMost(f64),
    /// The value divided by the baseline must be at least so much.
    RatioAtLeast(f64),
    /// The value divided by the baseline must be at most so much.
    RatioAtMost(f64),
}

impl Goal {
    fn reached(self, value: f64, baseline: f64) -> bool {
        match self {
            Goal::AtLeast(goal) => value >= goal,
            Goal::AtMost(goal) => value <= goal,
            Goal::RatioAtLeast(goal) => value >= goal * baseline,
            Goal::RatioAtMost(goal) => value <= goal * baseline,
        }
    }

    fn words(self) -> String {
        match self {
            Goal::AtLeast(goal) => format!("at least {}", human(goal)),
            Goal::AtMost(goal) => format!("at most {}", human(goal)),
            Goal::RatioAtLeast(goal) => format!("at least {goal:.2}x"),
            Goal::RatioAtMost(goal) => format!("at most {goal:.2}x"),
        }
    }
}

impl Report {
    /// An empty report of this machine.
    pub fn new(options: &Options) -> Report {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let load_before = std::fs::read_to_string("/proc/loadavg")
            .ok()
            .and_then(|text| text.split(' ').next()?.parse().ok())
            .unwrap_or(f64::NAN);
        let report = Report {
            started,
            machine: Machine::this(),
            load_before,
            seconds: options.seconds,
            value_size: options.value_size,
            figures: Vec::new(),
        };
        output::line(format_args!(
            "{} x {}, {} MiB, Linux {}, load {load_before}",
            report.machine.cpus, report.machine.processor, report.machine.memory_mib, report.machine.kernel
        ));
        report
    }

    /// Starts a part of the table.
    pub fn section(&mut self, workload: &Workload) {
        output::line(format_args!("\n{}: {}", workload.name, workload.about));
        output::line(format_args!(
            "  {:<52} {:>12} {:<8} {:>12} {:>7}  goal",
            "", "value", "unit", "baseline", "ratio"
        ));
    }

    /// Adds a figure and prints it.
    pub fn add(
        &mut self,
        workload: &str,
        name: impl Into<String>,
        (value, unit): (f64, &str),
        baseline: Option<f64>,
        goal: Option<Goal>,
    ) -> &mut Figure {
        let name = name.into();
        let reached = goal.map(|goal| goal.reached(value, baseline.unwrap_or(f64::NAN)));
        let words = goal.map(Goal::words);
        let ratio = baseline.map(|baseline| format!("{:.2}x", value / baseline)).unwrap_or_default();
        let mark = match reached {
            Some(true) => "reached: ",
            Some(false) => "MISSED: ",
            None => "",
        };
        output::line(format_args!(
            "  {name:<52} {:>12} {unit:<8} {:>12} {ratio:>7}  {mark}{}",
            human(value),
            baseline.map(human).unwrap_or_default(),
            words.as_deref().unwrap_or_default()
        ));
        self.figures.push(Figure {
            workload: workload.to_owned(),
            name,
            value,
            unit: unit.to_owned(),
            baseline,
            goal: words,
            reached,
            point: None,
        });
        let last = self.figures.len() - 1;
        &mut self.figures[last]
    }

    /// Writes the figures as JSON.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        Ok(std::fs::write(path, serde_json::to_vec_pretty(self)?)?)
    }

    /// Draws one chart for each unit of the figures that stand in a series.
    ///
    /// # Errors
    /// When a file cannot be drawn.
    pub fn plot(&self, dir: &Path) -> Result<(), Error> {
        std::fs::create_dir_all(dir)?;
        let mut charts: Vec<(&str, &str)> = Vec::new();
        for figure in self.figures.iter().filter(|figure| figure.point.is_some()) {
            if !charts.contains(&(figure.workload.as_str(), figure.unit.as_str())) {
                charts.push((&figure.workload, &figure.unit));
            }
        }
        for (workload, unit) in charts {
            let file: String =
                format!("engine-{workload}-{unit}").replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            let path = dir.join(file + ".svg");
            self.chart(&path, workload, unit)
                .map_err(|error| Error::Plot { path, reason: error.to_string() })?;
        }
        Ok(())
    }

    fn chart(&self, path: &Path, workload: &str, unit: &str) -> Result<(), Box<dyn std::error::Error>> {
        let mut series: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
        for figure in self.figures.iter().filter(|f| f.workload == workload && f.unit == unit) {
            let Some((name, x)) = &figure.point else { continue };
            match series.iter_mut().find(|(other, _)| other == name) {
                Some((_, points)) => points.push((*x, figure.value)),
                None => series.push((name, vec![(*x, figure.value)])),
            }
        }
        let points = || series.iter().flat_map(|(_, points)| points);
        let low = |value: fn(&(f64, f64)) -> f64| points().map(value).fold(f64::MAX, f64::min);
        let high = |value: fn(&(f64, f64)) -> f64| points().map(value).fold(f64::MIN, f64::max);
        let (x, y) = (low(|p| p.0)..high(|p| p.0) * 1.2, low(|p| p.1) / 2.0..high(|p| p.1) * 2.0);
        let root = SVGBackend::new(path, (720, 420)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(format!("{workload}: {unit}"), ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(70)
            .build_cartesian_2d(x.log_scale(), y.log_scale())?;
        chart.configure_mesh().y_label_formatter(&|y| human(*y)).x_label_formatter(&|x| human(*x)).draw()?;
        for (i, (name, points)) in series.iter().enumerate() {
            let color = Palette99::pick(i).to_rgba();
            chart
                .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(4))?
                .label(*name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
        root.present()?;
        Ok(())
    }
}

impl Figure {
    /// Places the figure in a series, for the plots.
    pub fn at(&mut self, series: impl Into<String>, x: f64) {
        self.point = Some((series.into(), x));
    }
}

/// A number with as many digits as a reader wants.
fn human(value: f64) -> String {
    match value.abs() {
        v if v >= 10_000_000.0 => format!("{:.1}M", value / 1e6),
        v if v >= 100_000.0 => format!("{:.0}k", value / 1e3),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
