//! Drawings, as SVG.

use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;

/// Why there is no drawing.
#[derive(Debug, thiserror::Error)]
#[error("no drawing: {0}")]
pub struct PlotError(String);

/// What is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Caption<'a> {
    /// Above the drawing.
    pub title: &'a str,
    /// At the horizontal axis.
    pub x: &'a str,
    /// At the vertical axis.
    pub y: &'a str,
}

/// Points of one kind, joined by lines.
#[derive(Debug, Clone)]
pub struct Line {
    /// In the legend.
    pub name: String,
    /// x and y; on logarithmic axes above 0.
    pub points: Vec<(f64, f64)>,
}

/// How both axes are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from 0.
    Linear,
    /// By ratios: a power law is a straight line, its exponent the slope.
    Logarithmic,
}

/// Width and height in pixels.
const SIZE: (u32, u32) = (900, 480);
const FONT: &str = "sans-serif";

/// Lines over a common axis.
pub fn lines(caption: Caption<'_>, scale: Scale, lines: &[Line]) -> Result<String, PlotError> {
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let x = extent(all().map(|point| point.0), scale);
    let y = extent(all().map(|point| point.1), scale);
    draw(|root| {
        let mut builder = chart(root, caption.title);
        match scale {
            Scale::Linear => {
                let chart = builder.build_cartesian_2d(x.0..x.1, y.0..y.1);
                draw_lines(chart.map_err(drawing)?, caption, lines)
            }
            Scale::Logarithmic => {
                let (x, y) = ((x.0..x.1).log_scale(), (y.0..y.1).log_scale());
                let chart = builder.build_cartesian_2d(x, y);
                draw_lines(chart.map_err(drawing)?, caption, lines)
            }
        }
    })
}

/// Groups of bars side by side: `bars[group][series]`, `None` where there is nothing to show.
pub fn bars(
    caption: Caption<'_>,
    groups: &[&str],
    series: &[&str],
    bars: &[Vec<Option<f64>>],
) -> Result<String, PlotError> {
    let highest = extent(bars.iter().flatten().flatten().copied(), Scale::Linear).1;
    let wide = groups.len() as f64;
    draw(|root| {
        let mut builder = chart(root, caption.title);
        let chart = builder.build_cartesian_2d(0.0..wide, 0.0..highest);
        let mut chart = chart.map_err(drawing)?;
        let name = |at: &f64| groups.get(*at as usize).copied().unwrap_or_default();
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(groups.len() * 2 + 1)
            // Labels come at whole numbers and between: those between are a group's middle.
            .x_label_formatter(&|at| match at.fract() {
                0.0 => String::new(),
                _ => name(at).to_owned(),
            })
            .x_desc(caption.x)
            .y_desc(caption.y)
            .draw()
            .map_err(drawing)?;
        let width = 0.8 / series.len().max(1) as f64;
        for (place, name) in series.iter().enumerate() {
            let style = color(place).filled();
            let rectangles = bars.iter().enumerate().filter_map(|(group, bars)| {
                let height = bars.get(place).copied().flatten()?;
                let left = group as f64 + 0.1 + place as f64 * width;
                Some(Rectangle::new([(left, 0.0), (left + width, height)], style))
            });
            let drawn = chart.draw_series(rectangles).map_err(drawing)?;
            drawn
                .label(*name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], style));
        }
        legend(&mut chart)
    })
}

type Svg<'a> = SVGBackend<'a>;
type Area<'a> = DrawingArea<Svg<'a>, plotters::coord::Shift>;

fn draw(fill: impl FnOnce(&Area<'_>) -> Result<(), PlotError>) -> Result<String, PlotError> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(drawing)?;
    fill(&root)?;
    root.present().map_err(drawing)?;
    drop(root);
    Ok(svg)
}

fn chart<'a, 'b>(root: &'a Area<'b>, title: &str) -> ChartBuilder<'a, 'b, Svg<'b>> {
    let mut builder = ChartBuilder::on(root);
    builder
        .caption(title, (FONT, 20))
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(72);
    builder
}

fn draw_lines<'a, X, Y>(
    mut chart: ChartContext<'a, Svg<'a>, Cartesian2d<X, Y>>,
    caption: Caption<'_>,
    lines: &[Line],
) -> Result<(), PlotError>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_desc(caption.x)
        .y_desc(caption.y)
        .draw()
        .map_err(drawing)?;
    for (place, line) in lines.iter().enumerate() {
        let style = color(place).stroke_width(2);
        let points = line.points.iter().copied();
        let drawn = chart
            .draw_series(LineSeries::new(points, style).point_size(3))
            .map_err(drawing)?;
        drawn
            .label(line.name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], style));
    }
    legend(&mut chart)
}

fn legend<'a, X: Ranged, Y: Ranged>(
    chart: &mut ChartContext<'a, Svg<'a>, Cartesian2d<X, Y>>,
) -> Result<(), PlotError> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.2))
        .label_font((FONT, 12))
        .draw()
        .map_err(drawing)
}

/// Colours that stay apart, also for up to sixteen series.
fn color(place: usize) -> HSLColor {
    let turn = (place as f64 * 0.381_966) % 1.0;
    HSLColor(
        turn,
        0.55,
        if place.is_multiple_of(2) { 0.40 } else { 0.58 },
    )
}

/// The range of an axis that shows all of `values`.
fn extent(values: impl Iterator<Item = f64>, scale: Scale) -> (f64, f64) {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    match scale {
        Scale::Linear if high > 0.0 => (0.0, high * 1.1),
        Scale::Logarithmic if high > 0.0 && low > 0.0 => (low / 1.2, high * 1.2),
        Scale::Linear => (0.0, 1.0),
        Scale::Logarithmic => (1.0, 10.0),
    }
}

fn drawing(error: impl std::fmt::Display) -> PlotError {
    PlotError(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPTION: Caption<'static> = Caption {
        title: "a title",
        x: "tokens",
        y: "microseconds",
    };

    #[test]
    fn lines_of_both_scales_carry_their_names() {
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let line = Line {
                name: "growth".to_owned(),
                points: vec![(1.0, 2.0), (10.0, 20.0), (100.0, 200.0)],
            };
            let svg = lines(CAPTION, scale, &[line]).expect("a drawing");
            for part in ["<svg", "a title", "growth", "tokens", "<polyline"] {
                assert!(svg.contains(part), "{scale:?}: {part}");
            }
        }
    }

    #[test]
    fn bars_are_named_by_group_and_series_and_absent_ones_left_out() {
        let heights = [vec![Some(0.5), None], vec![Some(0.25), Some(1.0)]];
        let svg = bars(CAPTION, &["left", "right"], &["ours", "theirs"], &heights);
        let svg = svg.expect("a drawing");
        for part in ["left", "right", "ours", "theirs"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let one_less = bars(CAPTION, &["left", "right"], &["ours", "theirs"], &{
            let mut all = heights.clone();
            all[0][1] = Some(0.5);
            all
        });
        let rectangles = |svg: &str| svg.matches("<rect").count();
        let one_less = one_less.expect("a drawing");
        assert_eq!(rectangles(&svg) + 1, rectangles(&one_less));
    }

    #[test]
    fn nothing_to_show_is_an_empty_drawing() {
        assert!(lines(CAPTION, Scale::Logarithmic, &[]).is_ok());
        assert!(bars(CAPTION, &[], &[], &[]).is_ok());
    }
}
