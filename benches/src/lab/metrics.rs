//! What a Causeway counts, from its `/metrics`.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::Failure;

/// The series at one moment.
#[derive(Debug)]
pub struct Metrics(String);

impl Metrics {
    /// Asks at this port on 127.0.0.1.
    ///
    /// # Errors
    ///
    /// Those of the socket; an answer that is none.
    pub fn read(port: u16) -> Result<Self, Failure> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        // In version 1.0 an answer is not chunked, and ends with the connection.
        write!(stream, "GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        if !text.contains(" 200 ") {
            return Err(format!("no metrics at port {port}: {text}").into());
        }
        Ok(Self(text))
    }

    /// The sum of a metric's series that have all of these, such as `kind="fence"`, among their labels.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let values = self.0.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let own =
                series.split('{').next() == Some(name) && labels.iter().all(|label| series.contains(label));
            own.then(|| value.parse::<f64>().ok())?
        });
        values.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_their_labels() {
        let text = "# TYPE a counter\na{kind=\"x\",c=\"1\"} 2\na{kind=\"x\",c=\"2\"} 3\na{kind=\"y\"} 5\na_b{kind=\"x\"} 7\n";
        let metrics = Metrics(text.to_owned());
        let close = |sum: f64, want: f64| assert!((sum - want).abs() < 1e-9, "{sum} {want}");
        close(metrics.sum("a", &["kind=\"x\""]), 5.0);
        close(metrics.sum("a", &[]), 10.0);
        close(metrics.sum("b", &[]), 0.0);
    }
}
