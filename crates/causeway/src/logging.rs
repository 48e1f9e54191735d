//! Events to standard error, one line each: text for people or JSON for machines.
//!
//! An event's fields are written as they are, so no event may carry SQL text, parameters or secrets.

use std::fmt;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;

use crate::config::{LogFormat, LogLevel};

/// Changes the level while the process runs.
#[derive(Clone, Debug)]
pub struct LevelHandle(reload::Handle<LevelFilter, Registry>);

struct Lines {
    format: LogFormat,
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

/// Begins to log. Call it once.
///
/// # Errors
///
/// When something else in the process logs already.
pub fn start(
    level: LogLevel,
    format: LogFormat,
) -> Result<LevelHandle, tracing::subscriber::SetGlobalDefaultError> {
    let (filter, handle) = reload::Layer::new(level_filter(level));
    let subscriber = Registry::default().with(filter).with(Lines { format });
    tracing::subscriber::set_global_default(subscriber)?;
    Ok(LevelHandle(handle))
}

/// Has panics logged with their place. What they say stays out: it may quote data.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or_default();
        tracing::error!(event = "panic", place, thread, "a task panicked; this is a bug");
    }));
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

// === impl LevelHandle ===

impl LevelHandle {
    /// From now on only events of `level` and more severe ones are logged.
    pub fn set(&self, level: LogLevel) {
        if let Err(error) = self.0.reload(level_filter(level)) {
            tracing::error!(event = "log_level_failed", error = %error, "the log level could not be changed");
        }
    }
}

// === impl Lines ===

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let now = timestamp(SystemTime::now());
        let level = event.metadata().level().as_str();
        let line = match self.format {
            LogFormat::Text => text_line(&now, level, &fields),
            LogFormat::Json => json_line(&now, level, fields),
        };
        // There is nowhere left to complain.
        drop(std::io::stderr().lock().write_all(line.as_bytes()));
    }
}

fn text_line(now: &str, level: &str, fields: &Fields) -> String {
    let mut line = format!("{now} {level:5} {}", one_line(&fields.message));
    for (name, value) in &fields.others {
        let value = match value {
            Value::String(text) if plain(text) => text.clone(),
            other => other.to_string(),
        };
        for part in [" ", name, "=", &value] {
            line.push_str(part);
        }
    }
    line.push('\n');
    line
}

fn json_line(now: &str, level: &str, fields: Fields) -> String {
    let mut object = Map::new();
    object.insert("ts".to_owned(), now.into());
    object.insert("level".to_owned(), level.to_ascii_lowercase().into());
    object.extend(fields.others);
    object.insert("msg".to_owned(), fields.message.into());
    let mut line = Value::Object(object).to_string();
    line.push('\n');
    line
}

/// Whether a text value can stand without quotes.
fn plain(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"' || c == '=')
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " | ")
}

/// Seconds and milliseconds in UTC as RFC 3339 has them.
pub(crate) fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// The date that is `days` after 1970-01-01, by counting 400-year cycles of 146,097 days from 1 March of year 0, so
/// that the leap day is the last day of its year.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (cycle, day_of_cycle) = (days / 146_097, days % 146_097);
    let year_of_cycle =
        (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = cycle * 400 + year_of_cycle + u64::from(month <= 2);
    (year, month, day)
}

// === impl Fields ===

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        self.others.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.put(field, format!("{value:?}").into()),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.put(field, value.into()),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn timestamps_are_right() {
        let at = |seconds: u64, millis: u64| {
            timestamp(UNIX_EPOCH + Duration::from_millis(seconds * 1_000 + millis))
        };
        assert_eq!(at(0, 7), "1970-01-01T00:00:00.007Z");
        assert_eq!(at(951_782_399, 999), "2000-02-28T23:59:59.999Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_735_689_599, 0), "2024-12-31T23:59:59.000Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn an_event_is_one_line() {
        let mut fields = Fields { message: "two\nlines".to_owned(), others: Map::new() };
        fields.others.insert("node".to_owned(), "pg-0".into());
        fields.others.insert("reason".to_owned(), "no \"answer\"\nyet".into());
        fields.others.insert("port".to_owned(), 6432.into());
        assert_eq!(
            text_line("T", "WARN", &fields),
            "T WARN  two | lines node=pg-0 port=6432 reason=\"no \\\"answer\\\"\\nyet\"\n"
        );
        assert_eq!(
            json_line("T", "WARN", fields),
            "{\"level\":\"warn\",\"msg\":\"two\\nlines\",\"node\":\"pg-0\",\"port\":6432,\"reason\":\"no \
             \\\"answer\\\"\\nyet\",\"ts\":\"T\"}\n"
        );
    }
}
