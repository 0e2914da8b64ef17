//! A chart as SVG.

use crate::report::{Chart, number};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

const SIZE: (u32, u32) = (620, 360);
/// Colours of the curves of KarstDB, of RocksDB and of others, in the order of the curves.
const KARST: [RGBColor; 4] =
    [RGBColor(21, 101, 192), RGBColor(66, 165, 245), RGBColor(0, 131, 143), RGBColor(94, 53, 177)];
const ROCKS: [RGBColor; 4] =
    [RGBColor(230, 81, 0), RGBColor(255, 167, 38), RGBColor(141, 110, 99), RGBColor(198, 40, 40)];
const OTHERS: [RGBColor; 4] =
    [RGBColor(97, 97, 97), RGBColor(158, 158, 158), RGBColor(69, 90, 100), RGBColor(120, 144, 156)];

pub(crate) fn draw(chart: &Chart) -> Result<String, String> {
    let places = || chart.curves.iter().flat_map(|curve| &curve.points).map(|point| point.0);
    let (least, most) = (places().fold(f64::MAX, f64::min), places().fold(f64::MIN, f64::max));
    // The scale is logarithmic where possible, because concurrency grows in doublings.
    if least > 0.0 && most / least >= 8.0 {
        draw_over(chart, (least..most).log_scale().base(2.0))
    } else {
        draw_over(chart, least..most)
    }
}

fn draw_over<X>(chart: &Chart, places: X) -> Result<String, String>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    let mut svg = String::new();
    {
        let values = chart.curves.iter().flat_map(|curve| &curve.points).map(|point| point.1);
        // The axis begins at 0, so that heights are proportional to values. The space above holds
        // the names of the curves, which would hide curves elsewhere.
        let room = 1.05 + 0.06 * chart.curves.len() as f64;
        let values = 0.0..values.fold(0.0, f64::max) * room;
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw_on(&area, chart, places, values)
            .map_err(|e| format!("{} over {}: {e}", chart.figure, chart.over))?;
        area.present().map_err(|e| e.to_string())?;
    }
    Ok(svg)
}

type Area<'s> = DrawingArea<SVGBackend<'s>, plotters::coord::Shift>;

fn draw_on<X>(
    area: &Area<'_>,
    chart: &Chart,
    places: X,
    values: std::ops::Range<f64>,
) -> Result<(), Box<dyn std::error::Error>>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    area.fill(&WHITE)?;
    let mut drawn = ChartBuilder::on(area)
        .caption(format!("{} over {}", chart.figure, chart.over), ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(places, values)?;
    drawn
        .configure_mesh()
        .x_desc(chart.over.as_str())
        .y_desc(chart.figure.as_str())
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(227, 232, 238))
        .draw()?;
    let mut used = [0; 3];
    for curve in &chart.curves {
        let (palette, kind) = match curve.engine.as_str() {
            "KarstDB" => (KARST, 0),
            "RocksDB" => (ROCKS, 1),
            _ => (OTHERS, 2),
        };
        let color = palette[used[kind] % palette.len()];
        used[kind] += 1;
        drawn
            .draw_series(LineSeries::new(curve.points.iter().copied(), color.stroke_width(2)).point_size(3))?
            .label(curve.name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    drawn
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(227, 232, 238))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Curve;

    fn chart(points: &[(f64, f64)]) -> Chart {
        let curve = |name: &str, engine: &str| Curve {
            name: name.into(),
            engine: engine.into(),
            points: points.to_vec(),
        };
        Chart {
            over: "in flight".into(),
            figure: "gets/s".into(),
            curves: vec![curve("KarstDB", "KarstDB"), curve("RocksDB & more", "RocksDB")],
        }
    }

    #[test]
    fn curves_have_names_and_points_in_both_scales() {
        for points in [&[(1.0, 10.0), (8.0, 20.0), (64.0, 5.0)][..], &[(0.0, 10.0), (1e6, 20.0), (2e6, 5.0)]]
        {
            let svg = draw(&chart(points)).unwrap();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
            assert_eq!(svg.matches("<circle").count(), 6, "a point for each measurement: {svg}");
            assert!(svg.contains("KarstDB") && svg.contains("RocksDB &amp; more"), "{svg}");
            assert!(svg.contains("gets/s over in flight"), "{svg}");
        }
    }
}
