//! Draws the memory over time.

use std::path::Path;

use plotters::prelude::*;

use crate::{
    Failure,
    memory::{Sample, mebibytes},
};

const SIZE: (u32, u32) = (900, 420);
const RESIDENT: RGBColor = RGBColor(31, 90, 160);
const HELD: RGBColor = RGBColor(200, 90, 30);

/// A curve: name, colour, and the value of a sample.
type Curve = (&'static str, RGBColor, fn(&Sample) -> u64);

/// Draws the memory of the process and the bytes held by the subscription to an SVG file.
pub(crate) fn draw(path: &Path, samples: &[Sample]) -> Result<(), Failure> {
    let minutes = |sample: &Sample| sample.at.as_secs_f64() / 60.0;
    let end = samples.last().map(minutes).unwrap_or_default();
    let top = samples.iter().map(|sample| mebibytes(sample.resident.max(sample.held))).fold(1.0, f64::max) * 1.1;
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart.configure_mesh().light_line_style(TRANSPARENT).x_desc("minutes").y_desc("MiB").draw()?;
    let curves: [Curve; 2] = [
        ("memory of the process", RESIDENT, |sample| sample.resident),
        ("bytes held, by stats()", HELD, |sample| sample.held),
    ];
    for (name, colour, of) in curves {
        let points = samples.iter().map(|sample| (minutes(sample), mebibytes(of(sample))));
        let legend = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour);
        chart.draw_series(LineSeries::new(points, colour))?.label(name).legend(legend);
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}
