//! The log of a process, line by line.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use serde_json::Value;

/// A line of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogLine {
    /// `ERROR`, `WARN`, `INFO` and so on; `RAW` for a line that is no JSON object, such as those of a panic.
    pub level: String,
    /// The line as it was written.
    pub text: String,
    /// The same, parsed; null if it is not JSON.
    pub value: Value,
}

impl LogLine {
    fn parse(text: String) -> Self {
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let level = value.get("level").and_then(Value::as_str).unwrap_or("RAW").to_uppercase();
        Self { level, text, value }
    }

    /// Whether a test must expect this line, or fail.
    pub(crate) fn is_bad(&self) -> bool {
        !matches!(self.level.as_str(), "INFO" | "DEBUG" | "TRACE")
    }
}

/// Collects the lines of a pipe. A thread does it, since a pipe that nobody empties would stall the process, and the
/// test's runtime is often busy or gone.
#[derive(Debug)]
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<LogLine>>>,
    thread: Option<JoinHandle<()>>,
}

impl Log {
    pub(crate) fn collect(pipe: impl Read + Send + 'static) -> Self {
        let lines = Arc::<Mutex<Vec<LogLine>>>::default();
        let sink = Arc::clone(&lines);
        let thread = std::thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                let line = LogLine::parse(String::from_utf8_lossy(&line).into_owned());
                lock(&sink).push(line);
            }
        });
        Self { lines, thread: Some(thread) }
    }

    pub(crate) fn lines(&self) -> Vec<LogLine> {
        lock(&self.lines).clone()
    }

    /// All of it; to be called only when the process has ended, since it waits for the end of the pipe.
    pub(crate) fn finish(&mut self) -> Vec<LogLine> {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread that reads the log does not panic");
        }
        self.lines()
    }
}

fn lock(lines: &Mutex<Vec<LogLine>>) -> MutexGuard<'_, Vec<LogLine>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_and_anything_else_is_bad() {
        let text = "{\"level\":\"INFO\",\"msg\":\"a\"}\n{\"level\":\"WARN\"}\nthread 'main' panicked at x\n{\"l\":1}";
        let lines = Log::collect(text.as_bytes()).finish();
        let levels: Vec<&str> = lines.iter().map(|line| line.level.as_str()).collect();
        assert_eq!(levels, ["INFO", "WARN", "RAW", "RAW"]);
        assert_eq!(lines.iter().map(LogLine::is_bad).collect::<Vec<_>>(), [false, true, true, true]);
        assert_eq!(lines[0].value["msg"], "a");
    }
}
