//! The settings that are Causeway's own, in SET and in comments.
//!
//! Any server takes them for settings of an extension that is not loaded, keeps them, and takes them back with the
//! transaction. So SET, SET LOCAL and RESET go there like those of any other setting; only the values are looked at here.

use causeway_pool::Settings;
use causeway_routing::{Class, Command, Fence, Level, SettingValue};

/// What the names begin with.
const PREFIX: &str = "causeway.";
const CONSISTENCY: &str = "causeway.consistency";
const AFTER: &str = "causeway.after";
const ROUTE: &str = "causeway.route";
/// Can be shown, not set: a token that covers everything acknowledged so far.
pub(super) const FENCE: &str = "causeway.fence";

/// Why a value is refused: SQLSTATE, message, hint.
type Refusal = (&'static str, String, &'static str);

/// What a comment at the very beginning of a statement asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// Whose writes the statement must see.
    pub level: Option<Level>,
    /// Whether it is asked for a replica, doubtful as it may be.
    pub replica: Option<bool>,
}

/// Whether these settings ask for a replica.
pub(super) fn asks_replica(settings: &Settings) -> bool {
    settings.value(ROUTE).map(plain).is_some_and(|route| route.eq_ignore_ascii_case("replica"))
}

/// The level that these settings ask for; `None` if they say nothing of it.
pub(super) fn level(settings: &Settings) -> Option<Level> {
    let value = |name| settings.value(name).map(plain).filter(|value| !value.is_empty());
    if value(ROUTE).is_some_and(|route| route.eq_ignore_ascii_case("primary")) {
        return Some(Level::Primary);
    }
    let token = value(AFTER).and_then(|token| token.parse().ok()).map(Level::After);
    token.or_else(|| value(CONSISTENCY)?.parse().ok())
}

/// What SHOW of one of them gives; `None` if it is not one of those known here.
pub(super) fn shown(name: &str, settings: &Settings, default: Level) -> Option<String> {
    let value = settings.value(name).map(plain);
    match name {
        CONSISTENCY => Some(value.unwrap_or_else(|| default.to_string())),
        AFTER => Some(value.unwrap_or_default()),
        ROUTE => Some(value.unwrap_or_else(|| "auto".to_owned())),
        _ => None,
    }
}

/// Why these settings cannot be a session's, such as those of a start-up packet.
pub(super) fn refusal(settings: &Settings) -> Option<Refusal> {
    settings.iter().find_map(|(name, value)| refused(name, &plain(value)))
}

/// A statement to be run in place of one that sets an own setting to what it cannot be: it fails as that should, and so
/// does the transaction.
pub(super) fn failing(class: &Class) -> Option<Box<[u8]>> {
    let (code, message, hint) = class.commands.iter().find_map(|command| match command {
        Command::Set { name, value: SettingValue::Text(text), .. } => {
            refused(name, &plain(&format!("={text}")))
        }
        _ => None,
    })?;
    let quoted = |text: &str| text.replace('\'', "''");
    let raise = format!(
        "RAISE EXCEPTION USING ERRCODE = '{code}', MESSAGE = '{}', HINT = '{hint}'",
        quoted(&message)
    );
    Some(format!("DO $causeway$BEGIN {}; END$causeway$", raise.replace("$causeway$", "")).into_bytes().into())
}

/// What a comment at the very beginning of a statement asks for: `/* causeway: consistency=eventual, route=auto */`. What
/// it says and is not understood asks for the primary.
pub fn hint(sql: &[u8]) -> Option<Hint> {
    let sql = sql.trim_ascii_start();
    if !sql.starts_with(b"/*") {
        return None;
    }
    let end = sql.windows(2).position(|pair| pair == b"*/")?;
    let text = std::str::from_utf8(sql.get(2..end)?).ok()?;
    let wishes = text.trim().strip_prefix("causeway:")?;
    let mut settings = Settings::default();
    for wish in wishes.split([',', ';']).filter(|wish| !wish.trim().is_empty()) {
        let (name, value) = wish.split_once('=')?;
        let name = format!("{PREFIX}{}", name.trim().to_ascii_lowercase());
        if refused(&name, value.trim()).is_some() {
            return Some(Hint { level: Some(Level::Primary), replica: Some(false) });
        }
        settings.set(&name, &format!("'{}", value.trim().replace('\'', "''")));
    }
    let replica = settings.value(ROUTE).is_some().then(|| asks_replica(&settings));
    Some(Hint { level: level(&settings), replica })
}

fn refused(name: &str, value: &str) -> Option<Refusal> {
    let own = name.strip_prefix(PREFIX)?;
    let invalid = |hint| {
        let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
        Some(("22023", message, hint))
    };
    match name {
        CONSISTENCY if value.parse::<Level>().is_err() => invalid(
            "One of cluster, router, session, bounded(250ms), eventual, primary, or after and a token.",
        ),
        AFTER if !value.is_empty() && value.parse::<Fence>().is_err() => {
            invalid("SHOW causeway.fence gives a token.")
        }
        ROUTE if !matches!(&*value.to_ascii_lowercase(), "auto" | "primary" | "replica") => {
            invalid("One of auto, primary and replica.")
        }
        CONSISTENCY | AFTER | ROUTE => None,
        FENCE => Some((
            "55P02",
            format!("parameter \"{name}\" cannot be changed"),
            "SHOW causeway.fence reads it.",
        )),
        _ => Some((
            "42704",
            format!("unrecognized configuration parameter \"{PREFIX}{own}\""),
            "Causeway has causeway.consistency, causeway.after, causeway.route and causeway.fence.",
        )),
    }
}

/// The value behind the text that the books keep: after `=` as SET took it, after `'` the body of a literal.
fn plain(kept: &str) -> String {
    match kept.split_at_checked(1) {
        Some(("'", body)) => body.replace("''", "'"),
        Some((_, text)) => {
            let text = text.trim();
            let literal = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
            let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            match (literal, quoted) {
                (Some(body), _) => body.replace("''", "'"),
                (None, Some(body)) => body.replace("\"\"", "\""),
                (None, None) => text.to_owned(),
            }
        }
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().copied().collect()
    }

    #[test]
    fn levels_are_read_from_settings() {
        let bounded = Level::Bounded(Duration::from_millis(250));
        for (pairs, wanted) in [
            (&[][..], None),
            (&[("causeway.consistency", "='eventual'")], Some(Level::Eventual)),
            (&[("causeway.consistency", "=eventual")], Some(Level::Eventual)),
            (&[("causeway.consistency", "'bounded(250ms)")], Some(bounded)),
            (&[("causeway.consistency", "='session'"), ("causeway.route", "=primary")], Some(Level::Primary)),
        ] {
            assert_eq!(level(&settings(pairs)), wanted, "{pairs:?}");
        }
        let after =
            level(&settings(&[("causeway.after", "='7:2:0/10'"), ("causeway.consistency", "=session")]));
        assert!(matches!(after, Some(Level::After(fence)) if fence.timeline == 2));
    }

    #[test]
    fn comments_ask_for_levels_and_replicas() {
        for (sql, wanted) in [
            ("SELECT 1", None),
            ("/* consistency=eventual */ SELECT 1", None),
            ("/* causeway: consistency=eventual */ SELECT 1", Some(Level::Eventual)),
            (" /*causeway:route=primary*/SELECT 1", Some(Level::Primary)),
            ("/* causeway: consistency=eventual, route=auto */ SELECT 1", Some(Level::Eventual)),
            ("/* causeway: consistency=evntual */ SELECT 1", Some(Level::Primary)),
            ("/* causeway: speed=high */ SELECT 1", Some(Level::Primary)),
            ("/* causeway: consistency=eventual", None),
            ("-- causeway: consistency=eventual\nSELECT 1", None),
        ] {
            assert_eq!(hint(sql.as_bytes()).and_then(|hint| hint.level), wanted, "{sql}");
        }
        for (sql, wanted) in [
            ("/* causeway: consistency=eventual */ SELECT 1", None),
            ("/* causeway: route=auto */ SELECT 1", Some(false)),
            ("/* causeway: route=Replica, consistency=session */ SELECT 1", Some(true)),
            ("/* causeway: route=replica, speed=high */ SELECT 1", Some(false)),
        ] {
            assert_eq!(hint(sql.as_bytes()).and_then(|hint| hint.replica), wanted, "{sql}");
        }
    }

    #[test]
    fn wrong_values_are_refused() {
        assert_eq!(refusal(&settings(&[("causeway.consistency", "'eventual"), ("work_mem", "'x")])), None);
        for (name, value, code) in [
            ("causeway.consistency", "'evntual", "22023"),
            ("causeway.after", "'x", "22023"),
            ("causeway.route", "'standby", "22023"),
            ("causeway.fence", "'1:1:0/0", "55P02"),
            ("causeway.speed", "'high", "42704"),
        ] {
            let refused = refusal(&settings(&[(name, value)])).map(|(code, ..)| code);
            assert_eq!(refused, Some(code), "{name}");
        }
    }
}
