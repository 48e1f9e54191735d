//! The Prometheus text format, as far as tests look at it.

use std::collections::{BTreeMap, BTreeSet};

/// A scrape.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    text: String,
    samples: Vec<Sample>,
}

#[derive(Debug, Clone, PartialEq)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Metrics {
    /// Reads a scrape; a line that is none fails the test.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let samples = lines.map(|line| sample(line).unwrap_or_else(|| panic!("no metric: {line}"))).collect();
        Self { text: text.to_owned(), samples }
    }

    /// The sum over the series of this name that carry these labels, whatever others they have; 0 if there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).map(|sample| sample.value).sum()
    }

    /// Whether there is a series of this name with these labels.
    pub fn has(&self, name: &str, labels: &[(&str, &str)]) -> bool {
        self.matching(name, labels).next().is_some()
    }

    /// The names of all series.
    pub fn names(&self) -> BTreeSet<String> {
        self.samples.iter().map(|sample| sample.name.clone()).collect()
    }

    /// The values that this label has over the series of this name.
    pub fn label_values(&self, name: &str, label: &str) -> BTreeSet<String> {
        self.matching(name, &[]).filter_map(|sample| sample.labels.get(label).cloned()).collect()
    }

    /// The scrape as it came.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn matching<'a>(&'a self, name: &'a str, labels: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            sample.name == name
                && labels.iter().all(|(label, value)| sample.labels.get(*label).is_some_and(|is| is == value))
        })
    }
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        None => (BTreeMap::new(), rest),
        Some(rest) => labels(rest)?,
    };
    let value = rest.split_whitespace().next()?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        value => value.parse().ok()?,
    };
    Some(Sample { name: name.to_owned(), labels, value })
}

/// The labels after the opening brace, and what follows the closing one.
fn labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = after.char_indices();
        loop {
            match characters.next()? {
                (at, '"') => {
                    rest = after.get(at + 1..)?;
                    break;
                }
                (_, '\\') => match characters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        }
        labels.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_the_labels_asked_for() {
        let metrics = Metrics::parse(
            "# HELP a_total text\n# TYPE a_total counter\na_total{x=\"1\",y=\"p\"} 2\na_total{x=\"1\",y=\"q\"} 3\n\
             a_total{x=\"2\",y=\"p\"} 5\nb 1.5\nc{le=\"+Inf\",t=\"a \\\"b\\\" }\\n\"} +Inf 1700000000\n",
        );
        assert!((metrics.sum("a_total", &[]) - 10.0).abs() < f64::EPSILON);
        assert!((metrics.sum("a_total", &[("x", "1")]) - 5.0).abs() < f64::EPSILON);
        assert!((metrics.sum("a_total", &[("y", "p"), ("x", "2")]) - 5.0).abs() < f64::EPSILON);
        assert!((metrics.sum("nothing", &[])).abs() < f64::EPSILON);
        assert!(metrics.has("c", &[("t", "a \"b\" }\n")]));
        assert!(!metrics.has("a_total", &[("x", "3")]));
        assert_eq!(metrics.label_values("a_total", "x"), ["1", "2"].map(str::to_owned).into());
        assert_eq!(metrics.names().len(), 3);
    }

    #[test]
    #[should_panic(expected = "no metric")]
    fn a_line_that_is_no_metric_is_noticed() {
        Metrics::parse("a_total{x=\"1\" 2\n");
    }
}
