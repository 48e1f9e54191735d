//! Plots as SVG. They bring their own white ground, so that they can be read on pages of any colour.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 390.0;
/// The area of the data: left, top, right, bottom.
const AREA: [f64; 4] = [70.0, 60.0, 740.0, 310.0];
/// Colours that stay apart for people who do not see them all (Okabe and Ito), the same for a proxy in every plot.
const COLOURS: [(&str, &str); 6] = [
    ("causeway", "#0072b2"),
    ("causeway-tls", "#56b4e9"),
    ("pgbouncer", "#d55e00"),
    ("pgbouncer-tls", "#e69f00"),
    ("haproxy", "#009e73"),
    ("pgpool", "#cc79a7"),
];

/// A line: a name and its points.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// A bar of two parts, one on the other.
#[derive(Debug, Clone)]
pub(super) struct Stack {
    pub(super) name: String,
    pub(super) parts: [f64; 2],
}

/// What stands at the axes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Labels<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
}

/// Groups of stacked bars: the same colours in each group, the second part of a bar paler.
pub(super) fn stacks(
    labels: &Labels<'_>,
    parts: Option<[&str; 2]>,
    groups: &[(String, Vec<Stack>)],
) -> String {
    let bars = || groups.iter().flat_map(|(_, bars)| bars);
    let highest = bars().map(|bar| bar.parts.iter().sum::<f64>()).fold(0.0, f64::max);
    let mut names: Vec<&str> = Vec::new();
    for bar in bars() {
        if !names.contains(&bar.name.as_str()) {
            names.push(&bar.name);
        }
    }
    let scale = Scale::up_to(highest);
    let mut svg = frame(labels, &scale.ticks());
    let [left, _, right, bottom] = AREA;
    let group_width = (right - left) / count(groups.len().max(1));
    for (number, (title, bars)) in groups.iter().enumerate() {
        let start = left + group_width * count(number);
        let width = group_width * 0.8 / count(bars.len().max(1));
        text(&mut svg, (start + group_width / 2.0, bottom + 20.0), "middle", title);
        for (place, bar) in bars.iter().enumerate() {
            let x = start + group_width * 0.1 + width * count(place);
            let colour = colour(&bar.name);
            let mut base = 0.0;
            for (part, opacity) in bar.parts.into_iter().zip([1.0, 0.45]) {
                let (y, below) = (scale.y(base + part), scale.y(base));
                write(
                    &mut svg,
                    &format!(
                        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\" fill-opacity=\"{opacity}\"/>",
                        width * 0.9,
                        below - y
                    ),
                );
                base += part;
            }
            text(&mut svg, (x + width * 0.45, scale.y(base) - 4.0), "middle", &short(base));
        }
    }
    if let Some([dark, pale]) = parts {
        text(&mut svg, (right, AREA[1] - 18.0), "end", &format!("dark: {dark}, pale: {pale}"));
    }
    legend(&mut svg, &names);
    svg + "</svg>\n"
}

/// Lines over axes on which each step is a multiple.
pub(super) fn lines(labels: &Labels<'_>, ticks: &[f64], lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let [left, top, right, bottom] = AREA;
    let logarithmic = |value: f64, first: f64, last: f64| (value / first).ln() / (last / first).ln();
    let (first, last) = (ticks.first().copied().unwrap_or(1.0), ticks.last().copied().unwrap_or(10.0));
    let x = |value: f64| left + 20.0 + logarithmic(value, first, last) * (right - left - 40.0);
    let values = points().map(|point| point.1).filter(|value| *value > 0.0);
    let steps = round_steps(values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max));
    let (low, high) = (steps.first().copied().unwrap_or(1.0), steps.last().copied().unwrap_or(10.0));
    let y = |value: f64| bottom - logarithmic(value.max(low), low, high) * (bottom - top);
    let mut svg = frame(labels, &steps.iter().map(|step| (*step, y(*step))).collect::<Vec<_>>());
    for tick in ticks {
        let at = x(*tick);
        write(&mut svg, &format!("<path d=\"M{at:.1} {top:.1}V{bottom:.1}\" stroke=\"#eee\"/>"));
        text(&mut svg, (at, bottom + 20.0), "middle", &short(*tick));
    }
    for line in lines {
        let colour = colour(&line.name);
        let at: Vec<_> = line.points.iter().map(|(at, value)| (x(*at), y(*value))).collect();
        let path: Vec<_> = at.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        write(
            &mut svg,
            &format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.join(" ")
            ),
        );
        for (x, y) in at {
            write(&mut svg, &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"));
        }
    }
    let names: Vec<_> = lines.iter().map(|line| line.name.as_str()).collect();
    legend(&mut svg, &names);
    svg + "</svg>\n"
}

/// 1, 2, 5, 10 and so on, from at most the lowest to at least the highest value; two at least.
fn round_steps(lowest: f64, highest: f64) -> Vec<f64> {
    let all = || (-4..6).flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10_f64.powi(power)));
    let low = all().rfind(|step| *step <= lowest).unwrap_or(1e-4);
    let high = all().find(|step| *step >= highest && *step > low).unwrap_or(1e6);
    all().filter(|step| (low..=high).contains(step)).collect()
}

/// The axis of the values: from nothing to a round number above the highest.
struct Scale {
    step: f64,
    steps: u8,
}

impl Scale {
    fn up_to(highest: f64) -> Self {
        let rough = if highest > 0.0 { highest / 5.0 } else { 1.0 };
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * power);
        let steps = (1..=10).find(|steps| step * f64::from(*steps) >= highest).unwrap_or(10);
        Self { step, steps }
    }

    fn ticks(&self) -> Vec<(f64, f64)> {
        let values = (0..=self.steps).map(|number| self.step * f64::from(number));
        values.map(|value| (value, self.y(value))).collect()
    }

    fn y(&self, value: f64) -> f64 {
        let [_, top, _, bottom] = AREA;
        bottom - value / (self.step * f64::from(self.steps)) * (bottom - top)
    }
}

/// Title, ground and axes; `ticks` are values with where they are.
fn frame(labels: &Labels<'_>, ticks: &[(f64, f64)]) -> String {
    let [left, _, right, bottom] = AREA;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"#fff\"/>\n\
         <text x=\"{left}\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
        labels.title
    );
    for (number, (value, y)) in ticks.iter().enumerate() {
        let colour = if number == 0 { "#222" } else { "#ddd" };
        write(&mut svg, &format!("<path d=\"M{left} {y:.1}H{right}\" stroke=\"{colour}\"/>"));
        text(&mut svg, (left - 8.0, y + 4.0), "end", &short(*value));
    }
    text(&mut svg, (f64::midpoint(left, right), bottom + 40.0), "middle", labels.x);
    let middle = f64::midpoint(AREA[1], bottom);
    write(
        &mut svg,
        &format!(
            "<text x=\"18\" y=\"{middle:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {middle:.1})\">{}</text>",
            labels.y
        ),
    );
    svg
}

fn legend(svg: &mut String, names: &[&str]) {
    let mut x = AREA[0];
    let y = HEIGHT - 14.0;
    for name in names {
        write(
            svg,
            &format!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"11\" height=\"11\" fill=\"{}\"/>",
                y - 10.0,
                colour(name)
            ),
        );
        text(svg, (x + 16.0, y), "start", name);
        x += 34.0 + 7.0 * count(name.len());
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    write(svg, &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"));
}

fn write(svg: &mut String, element: &str) {
    writeln!(svg, "{element}").unwrap_or_else(|_| unreachable!("a String takes everything"));
}

fn colour(name: &str) -> &'static str {
    COLOURS.iter().find(|(known, _)| *known == name).map_or("#555555", |(_, colour)| colour)
}

/// As few digits as tell it apart.
fn short(value: f64) -> String {
    let digits = if value >= 20.0 || value.fract() == 0.0 {
        0
    } else if value >= 2.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(0.0, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_round_numbers_above_the_highest() {
        for (highest, top) in [(11.3, 12.5), (1.0, 1.0), (47.0, 50.0), (0.8, 0.8), (0.0, 1.0)] {
            let scale = Scale::up_to(highest);
            assert!((scale.step * f64::from(scale.steps) - top).abs() < 1e-9, "{highest}: {}", scale.step);
        }
    }

    #[test]
    fn steps_of_multiples_hold_all_values() {
        let shown =
            |low, high| round_steps(low, high).iter().map(|step| short(*step)).collect::<Vec<_>>().join(" ");
        assert_eq!(shown(0.45, 4.2), "0.20 0.50 1 2 5");
        assert_eq!(shown(1.0, 1.0), "1 2");
    }

    #[test]
    fn plots_hold_what_they_are_given() {
        let labels = Labels { title: "T", x: "X", y: "Y" };
        let bars = vec![("g".to_owned(), vec![Stack { name: "p".to_owned(), parts: [1.0, 2.0] }])];
        let svg = stacks(&labels, Some(["user", "system"]), &bars);
        assert_eq!(svg.matches("fill-opacity").count(), 2);
        let line = Line { name: "p".to_owned(), points: vec![(11.0, 1.0), (8000.0, 0.5)] };
        let svg = lines(&labels, &[11.0, 8000.0], &[line]);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.ends_with("</svg>\n"));
    }
}
