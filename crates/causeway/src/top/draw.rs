//! One screen, drawn from the JSON document of the status page.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

/// How things are set apart: by colour, or not at all. Words and signs say the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    colour: bool,
}

/// Columns of a table: its title, and whether its values stand at the right.
type Columns<'a> = &'a [(&'a str, bool)];

/// Nodes have curves as wide as this.
const CURVE: usize = 24;

/// Draws the document on so many columns and lines.
pub(super) fn screen(document: &Value, style: Style, (columns, lines): (usize, usize)) -> String {
    let mut text = String::new();
    head(&mut text, document, style);
    for cluster in list(&document["clusters"]) {
        nodes(&mut text, cluster, document, style);
    }
    routing(&mut text, document, style);
    pools(&mut text, document, style);
    events(&mut text, document, style);
    let shown = text.lines().take(lines.saturating_sub(1)).map(|line| cut(line, columns));
    shown.fold(String::new(), |text, line| text + &line + "\n")
}

fn head(text: &mut String, document: &Value, style: Style) {
    let up =
        Duration::from_millis(number(&document["now_ms"]).saturating_sub(number(&document["started_ms"])));
    let ready = match document["not_ready_because"].as_str() {
        None => style.good("● ready"),
        Some(why) => style.bad(&format!("✕ {why}")),
    };
    line(
        text,
        format_args!(
            "{}  {ready}   up {}   version {}",
            style.strong("causeway"),
            span(up),
            word(&document["version"])
        ),
    );
    let saved = &document["saved"];
    let (queries, all) = (number(&saved["queries"]), number(&saved["of_queries"]));
    let share = (queries * 100 + all / 2).checked_div(all);
    let share = share.map_or_else(|| "-".to_owned(), |share| format!("{share} %"));
    let seconds =
        Duration::try_from_secs_f64(saved["seconds"].as_f64().unwrap_or_default()).unwrap_or_default();
    line(
        text,
        format_args!(
            "replicas answered {} of {} queries, {queries} in {} of server time that the primary was spared",
            style.strong(&share),
            all,
            span(seconds)
        ),
    );
    let clients = &document["clients"];
    let waiting = number(&clients["by_state"]["waiting"]);
    let waiting =
        if waiting > 0 { style.bad(&format!("▲ {waiting} waiting")) } else { "0 waiting".to_owned() };
    line(
        text,
        format_args!(
            "{} of {} clients: {} active, {} in a transaction, {} pinned, {waiting}",
            clients["connected"],
            clients["limit"],
            clients["by_state"]["active"],
            clients["by_state"]["in_transaction"],
            clients["by_state"]["pinned"],
        ),
    );
}

fn nodes(text: &mut String, cluster: &Value, document: &Value, style: Style) {
    let fence = cluster["fence_ms"].as_f64().map_or_else(String::new, |ms| format!(", {ms:.1} ms a fence"));
    let title =
        format!("cluster {}, timeline {}{fence}", word(&cluster["name"]), known(&cluster["timeline"]));
    line(text, format_args!("\n{}", style.strong(&title)));
    if let Some(complaint) = cluster["complaint"].as_str() {
        line(text, style.bad(&format!("✕ {complaint}")));
    }
    let columns = &[
        ("node", false),
        ("role", false),
        ("state", false),
        ("lag", true),
        ("latency", true),
        ("weight", true),
        ("running", true),
        ("conns", true),
        ("queries", true),
        ("last minutes: latency", false),
    ];
    let row = |node: &Value| {
        let state = word(&node["state"]);
        let state = match state {
            "serving" => style.good("● serving"),
            "unknown" => "○ unknown".to_owned(),
            "lagging" => style.bad("▲ lagging"),
            _ => style.bad(&format!("✕ {state}")),
        };
        let drained = if node["drained"] == true { ", drained" } else { "" };
        let role = if node["is_primary"] == true { "primary" } else { word(&node["role"]) };
        vec![
            word(&node["name"]).to_owned(),
            role.to_owned(),
            state + drained,
            millis(&node["lag_ms"]),
            millis(&node["latency_ms"]),
            node["weight"].to_string(),
            node["in_flight"].to_string(),
            node["connections"].to_string(),
            node["queries"].to_string(),
            curve(document, word(&cluster["name"]), word(&node["name"])),
        ]
    };
    table(text, columns, &list(&cluster["nodes"]).iter().map(row).collect::<Vec<_>>(), style);
    for node in list(&cluster["nodes"]) {
        if let Some(reason) = node["reason"].as_str() {
            line(text, style.bad(&format!("  {}: {reason}", word(&node["name"]))));
        }
    }
}

/// The latency of the last minutes, in eight heights; a blank is a moment without a query.
fn curve(document: &Value, cluster: &str, node: &str) -> String {
    let curves = list(&document["history"]["nodes"]).iter();
    let mut own = curves.filter(|curve| word(&curve["cluster"]) == cluster && word(&curve["node"]) == node);
    let Some(values) = own.next().map(|curve| list(&curve["latency_ms"])) else { return String::new() };
    let values: Vec<Option<f64>> = values.iter().map(Value::as_f64).collect();
    let chunk = values.len().div_ceil(CURVE).max(1);
    let most = |values: &[Option<f64>]| values.iter().copied().flatten().reduce(f64::max);
    let values: Vec<Option<f64>> = values.chunks(chunk).map(most).collect();
    let top = most(&values).unwrap_or(1.0).max(f64::MIN_POSITIVE);
    let height = |value: f64| {
        let steps =
            [(0.125, '▁'), (0.25, '▂'), (0.375, '▃'), (0.5, '▄'), (0.625, '▅'), (0.75, '▆'), (0.875, '▇')];
        steps.iter().find(|(limit, _)| value / top <= *limit).map_or('█', |(_, sign)| *sign)
    };
    values.into_iter().map(|value| value.map_or(' ', height)).collect()
}

fn routing(text: &mut String, document: &Value, style: Style) {
    let decisions = list(&document["routing"]);
    if decisions.is_empty() {
        return;
    }
    line(text, format_args!("\n{}", style.strong("where statements go, and why")));
    let row = |decision: &Value| {
        vec![
            word(&decision["target"]).to_owned(),
            word(&decision["reason"]).to_owned(),
            decision["last_minute"].to_string(),
            decision["count"].to_string(),
        ]
    };
    let columns = &[("target", false), ("reason", false), ("last minute", true), ("in all", true)];
    table(text, columns, &decisions.iter().take(6).map(row).collect::<Vec<_>>(), style);
}

/// The fullest pools.
fn pools(text: &mut String, document: &Value, style: Style) {
    let mut pools: Vec<&Value> = list(&document["pools"]).iter().collect();
    if pools.is_empty() {
        return;
    }
    pools.sort_by_key(|pool| std::cmp::Reverse((number(&pool["waiting"]), number(&pool["active"]))));
    line(text, format_args!("\n{}", style.strong("pools")));
    let row = |pool: &&Value| {
        let waiting = number(&pool["waiting"]);
        vec![
            word(&pool["database"]).to_owned(),
            word(&pool["user"]).to_owned(),
            word(&pool["node"]).to_owned(),
            format!("{} of {}", pool["active"], pool["size"]),
            pool["idle"].to_string(),
            if waiting > 0 { style.bad(&format!("▲ {waiting}")) } else { "0".to_owned() },
            if waiting > 0 { millis(&pool["oldest_wait_ms"]) } else { "-".to_owned() },
        ]
    };
    let columns = &[
        ("database", false),
        ("user", false),
        ("node", false),
        ("in use", true),
        ("idle", true),
        ("waiting", true),
        ("oldest", true),
    ];
    table(text, columns, &pools.iter().take(6).map(row).collect::<Vec<_>>(), style);
}

fn events(text: &mut String, document: &Value, style: Style) {
    line(text, format_args!("\n{}", style.strong("events, newest first")));
    let now = number(&document["now_ms"]);
    for event in list(&document["events"]).iter().take(8) {
        let age = span(Duration::from_millis(now.saturating_sub(number(&event["at"]))));
        let what = word(&event["text"]);
        let what = match word(&event["severity"]) {
            "bad" => style.bad(&format!("✕ {what}")),
            "good" => style.good(&format!("● {what}")),
            _ => format!("■ {what}"),
        };
        line(text, format_args!("{age:>12} ago  {what}"));
    }
}

fn table(text: &mut String, columns: Columns<'_>, rows: &[Vec<String>], style: Style) {
    let width = |i: usize, title: &str| {
        let widest = rows.iter().filter_map(|row| row.get(i)).map(|value| visible(value)).max();
        widest.unwrap_or(0).max(title.len())
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(|(i, (title, _))| width(i, title)).collect();
    let put = |text: &mut String, values: &mut dyn Iterator<Item = String>| {
        for ((value, width), (_, right)) in values.zip(&widths).zip(columns) {
            let blanks = " ".repeat(width.saturating_sub(visible(&value)));
            text.push_str("  ");
            let (before, after) = if *right { (blanks.as_str(), "") } else { ("", blanks.as_str()) };
            for part in [before, &value, after] {
                text.push_str(part);
            }
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    };
    put(text, &mut columns.iter().map(|(title, _)| style.soft(title)));
    for row in rows {
        put(text, &mut row.iter().cloned());
    }
}

fn line(text: &mut String, what: impl std::fmt::Display) {
    // Writing to a String cannot fail.
    writeln!(text, "{what}").ok();
}

/// Characters that take up room: escape sequences do not.
fn visible(text: &str) -> usize {
    let mut inside = false;
    let shows = |character: &char| match (inside, *character) {
        (false, '\x1b') => {
            inside = true;
            false
        }
        (true, 'm') => {
            inside = false;
            false
        }
        (inside, _) => !inside,
    };
    text.chars().filter(shows).count()
}

/// The line as far as it fits; an escape sequence is kept whole, and ended.
fn cut(text: &str, columns: usize) -> String {
    if visible(text) <= columns {
        return text.to_owned();
    }
    let (mut kept, mut inside, mut room) = (String::new(), false, columns);
    for character in text.chars() {
        inside |= character == '\x1b';
        if !inside && room == 0 {
            continue;
        }
        room -= usize::from(!inside);
        kept.push(character);
        inside &= character != 'm';
    }
    kept
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

fn known(value: &Value) -> String {
    if value.is_null() { "-".to_owned() } else { value.to_string() }
}

fn millis(value: &Value) -> String {
    match value.as_f64() {
        None => "-".to_owned(),
        Some(value) if value >= 1_000.0 => format!("{:.1} s", value / 1_000.0),
        Some(value) if value >= 10.0 || value == 0.0 => format!("{value:.0} ms"),
        Some(value) => format!("{value:.2} ms"),
    }
}

fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

// === impl Style ===

impl Style {
    pub(super) fn new(colour: bool) -> Self {
        Self { colour }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn strong(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn soft(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Blue and orange are told apart by everybody; the signs before the words are, too.
    fn good(self, text: &str) -> String {
        self.paint("34", text)
    }

    fn bad(self, text: &str) -> String {
        self.paint("33;1", text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_screen_fits_its_terminal() {
        let node = json!({"name": "pg-1", "role": "replica", "state": "down", "reason": "refused", "lag_ms": 1500,
            "latency_ms": 0.25, "weight": 1, "in_flight": 0, "connections": 2, "queries": 7});
        let document = json!({
            "version": "1", "now_ms": 61_000, "started_ms": 0, "not_ready_because": "draining",
            "clients": {"connected": 1, "limit": 2, "by_state": {"waiting": 1}},
            "clusters": [{"name": "main", "timeline": 3, "complaint": null, "fence_ms": 0.5, "nodes": [node]}],
            "saved": {"queries": 1, "of_queries": 8, "seconds": 3.5},
            "history": {"nodes": [{"cluster": "main", "node": "pg-1", "latency_ms": [1.0, null, 8.0]}]},
            "events": [{"at": 1_000, "severity": "bad", "text": "main: pg-1 is down"}],
        });
        let plain = screen(&document, Style::new(false), (200, 100));
        for part in [
            "✕ draining   up 1 min 1 s",
            "replicas answered 13 % of 8 queries",
            "▲ 1 waiting",
            "timeline 3",
            "✕ down",
            "1.5 s",
            "0.25 ms",
            "▁ █",
            "pg-1: refused",
            "1 min 0 s ago  ✕ main: pg-1 is down",
        ] {
            assert!(plain.contains(part), "{part}:\n{plain}");
        }
        assert!(!plain.contains('\x1b'));
        let narrow = screen(&document, Style::new(true), (30, 6));
        assert_eq!(narrow.lines().count(), 5);
        assert!(narrow.lines().all(|line| visible(line) <= 30), "{narrow}");
        assert!(
            narrow.lines().all(|line| line.matches("\x1b[").count() % 2 == 0),
            "every colour ends: {narrow:?}"
        );
    }

    #[test]
    fn nothing_known_is_drawn_too() {
        assert!(screen(&Value::Null, Style::new(true), (80, 24)).contains("events"));
    }
}
