//! The settings a session wants to find on whichever server connection it is given.

use std::sync::Arc;

use causeway_pool::{Change, Settings};
use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use causeway_routing::{Level, SettingValue};

use super::own;

/// Settings that a server consults at Parse. A server-side statement is shared only between sessions that agree on
/// all of them.
const PARSE_AFFECTING: [&str; 9] = [
    "array_nulls",
    "backslash_quote",
    "client_encoding",
    "datestyle",
    "intervalstyle",
    "standard_conforming_strings",
    "timezone",
    "transform_null_equals",
    "xmloption",
];

/// Defaults of transactions that are never given to a standby: it refuses some of them, and is read-only anyway.
const NOT_FOR_STANDBYS: [&str; 3] =
    ["default_transaction_read_only", "default_transaction_deferrable", "default_transaction_isolation"];

/// Settings that RESET ALL leaves as they are (`GUC_NO_RESET_ALL`).
pub(super) const NOT_RESET: [&str; 1] = ["role"];

/// The one setting of which SET may change a part alone.
pub(super) const DATE_STYLE: &str = "datestyle";

/// The settings of one session.
///
/// A value is SQL: after `=` the text that followed SET's `=` or TO, after `'` the body of a string literal for
/// `set_config`, which takes what a start-up packet holds.
#[derive(Clone, Debug)]
pub(crate) struct SessionSettings {
    startup: Settings,
    wanted: Settings,
    /// The same without what a standby must not get.
    for_standbys: Settings,
    serializable: bool,
    level: Option<Level>,
    asks_replica: bool,
    /// What was wanted before the running transaction, which may be one of a single statement, changed it.
    before_transaction: Option<Settings>,
    parse_key: Arc<str>,
}

// === impl SessionSettings ===

impl SessionSettings {
    /// The settings of a session that has just started with these parameters.
    pub(crate) fn new<'a>(startup: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut settings = Settings::default();
        for (name, value) in startup {
            settings.set(&name.to_ascii_lowercase(), &format!("'{}", value.replace('\'', "''")));
        }
        let mut session = Self {
            startup: settings.clone(),
            wanted: settings,
            for_standbys: Settings::default(),
            serializable: false,
            level: None,
            asks_replica: false,
            before_transaction: None,
            parse_key: Arc::from(""),
        };
        session.refresh();
        session
    }

    /// What a server connection must have; `standby` leaves out what a standby must not get.
    pub(crate) fn wanted(&self, standby: bool) -> &Settings {
        if standby { &self.for_standbys } else { &self.wanted }
    }

    /// What parse-affecting settings this session has, as one comparable text.
    pub(crate) fn parse_key(&self) -> &Arc<str> {
        &self.parse_key
    }

    /// Whether transactions of this session are serializable unless they say otherwise.
    pub(crate) fn serializable(&self) -> bool {
        self.serializable
    }

    /// The consistency level that the session has asked for.
    pub(crate) fn level(&self) -> Option<Level> {
        self.level
    }

    /// Whether the session asks for replicas, doubtful as its statements may be.
    pub(crate) fn asks_replica(&self) -> bool {
        self.asks_replica
    }

    /// Why a session cannot have these settings.
    pub(crate) fn refusal(&self) -> Option<ErrorReport> {
        let (code, message, hint) = own::refusal(&self.wanted)?;
        let code = SqlState::from_bytes(code.as_bytes()).unwrap_or(SqlState::INTERNAL_ERROR);
        Some(ErrorReport::fatal(code, message).with_hint(hint))
    }

    /// What SHOW gives of a setting of Causeway's own.
    pub(crate) fn shown(&self, name: &str, default: Level) -> Option<String> {
        own::shown(name, &self.wanted, default)
    }

    /// A SET has succeeded.
    pub(crate) fn set(&mut self, name: &str, value: &SettingValue) {
        self.remember();
        match value {
            SettingValue::Text(text) => self.wanted.set(name, &format!("={text}")),
            SettingValue::Default => self.restore(name),
        }
        self.refresh();
    }

    /// A RESET has succeeded: back to what the session started with.
    pub(crate) fn reset(&mut self, name: &str) {
        self.remember();
        self.restore(name);
        self.refresh();
    }

    /// RESET ALL has succeeded.
    pub(crate) fn reset_all(&mut self) {
        self.remember();
        let mut wanted = self.startup.clone();
        for name in NOT_RESET {
            match self.wanted.value(name) {
                Some(value) => wanted.set(name, value),
                None => wanted.reset(name),
            }
        }
        self.wanted = wanted;
        self.refresh();
    }

    /// DISCARD ALL has succeeded.
    pub(crate) fn discard(&mut self) {
        self.remember();
        self.wanted = self.startup.clone();
        self.refresh();
    }

    /// The server at hand has told what a setting is now; `None`: it has no such setting.
    pub(crate) fn learn(&mut self, name: &str, value: Option<&str>, standby: bool, has: &mut Settings) {
        // There it was never set.
        if standby && NOT_FOR_STANDBYS.contains(&name) {
            return;
        }
        if let Some(value) = value {
            let value = format!("'{}", value.replace('\'', "''"));
            self.wanted.set(name, &value);
            has.set(name, &value);
        } else {
            self.wanted.reset(name);
            has.reset(name);
        }
        self.refresh();
    }

    /// The names of all settings that the session has, or had before the running transaction.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let before = self.before_transaction.iter().flat_map(Settings::iter);
        self.wanted.iter().chain(before).map(|(name, _)| name)
    }

    /// The running transaction has changed settings.
    pub(crate) fn changed_in_transaction(&self) -> bool {
        self.before_transaction.is_some()
    }

    /// The transaction is over; a rollback takes its changes back.
    pub(crate) fn end_transaction(&mut self, rolled_back: bool) {
        if let Some(before) = self.before_transaction.take()
            && rolled_back
        {
            self.wanted = before;
            self.refresh();
        }
    }

    fn remember(&mut self) {
        if self.before_transaction.is_none() {
            self.before_transaction = Some(self.wanted.clone());
        }
    }

    fn restore(&mut self, name: &str) {
        match self.startup.value(name).map(str::to_owned) {
            Some(value) => self.wanted.set(name, &value),
            None => self.wanted.reset(name),
        }
    }

    /// Takes in what follows from the settings wanted, once for all the statements that ask.
    fn refresh(&mut self) {
        let isolation = self.wanted.value("default_transaction_isolation");
        self.serializable =
            isolation.is_some_and(|value| value.to_ascii_lowercase().contains("serializable"));
        self.level = own::level(&self.wanted);
        self.asks_replica = own::asks_replica(&self.wanted);
        self.for_standbys = self.wanted.clone();
        for name in NOT_FOR_STANDBYS {
            self.for_standbys.reset(name);
        }
        let mut key = String::new();
        for name in PARSE_AFFECTING {
            if let Some(value) = self.wanted.value(name) {
                key.push_str(name);
                key.push_str(value);
                key.push('\n');
            }
        }
        if *self.parse_key != *key {
            self.parse_key = key.into();
        }
    }
}

/// The statements that turn what a server connection has into `wanted`, or nothing.
pub(crate) fn transition(has: &Settings, wanted: &Settings) -> Option<String> {
    if has.same(wanted) {
        return None;
    }
    let mut sql = String::new();
    // Settings are the login's own to make; the role that it goes by comes last.
    let role = wanted.value("role");
    if has.value("role").is_some() {
        sql.push_str("RESET ROLE");
    }
    let ordinary = |change: &Change<'_>| {
        let (Change::Reset(name) | Change::Set(name, _)) = change;
        *name != "role"
    };
    let last = role.map(|value| Change::Set("role", value));
    for change in has.difference(wanted).filter(ordinary).chain(last) {
        if !sql.is_empty() {
            sql.push_str("; ");
        }
        match change {
            Change::Reset(name) => {
                sql.push_str("RESET ");
                push_name(&mut sql, name);
            }
            Change::Set(name, value) => {
                // A value may leave one of its two parts as it is: check_datestyle in src/backend/commands/variable.c.
                if name == DATE_STYLE && has.value(name).is_some() {
                    sql.push_str("RESET datestyle; ");
                }
                push_set(&mut sql, name, value);
            }
        }
    }
    (!sql.is_empty()).then_some(sql)
}

/// A statement that sets `name` to a value as [`SessionSettings`] keeps it.
fn push_set(sql: &mut String, name: &str, value: &str) {
    match value.split_at_checked(1) {
        Some(("'", body)) => {
            sql.push_str("SELECT pg_catalog.set_config('");
            sql.push_str(&name.replace('\'', "''"));
            // E'' would be needed for a backslash only where standard_conforming_strings is off.
            sql.push_str("', '");
            sql.push_str(body);
            sql.push_str("', false)");
        }
        Some((_, text)) => {
            sql.push_str("SET ");
            push_name(sql, name);
            sql.push_str(" TO ");
            sql.push_str(text);
        }
        None => {}
    }
}

/// A setting's name as SET takes it: `a`, `a.b`, each part quoted.
fn push_name(sql: &mut String, name: &str) {
    for (n, part) in name.split('.').enumerate() {
        if n > 0 {
            sql.push('.');
        }
        sql.push('"');
        sql.push_str(&part.replace('"', "\"\""));
        sql.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> SettingValue {
        SettingValue::Text(value.into())
    }

    #[test]
    fn reset_goes_back_to_the_start() {
        let mut settings = SessionSettings::new([("work_mem", "6MB")]);
        settings.set("work_mem", &text("'9MB'"));
        assert_eq!(settings.wanted(false).value("work_mem"), Some("='9MB'"));
        settings.reset_all();
        assert_eq!(settings.wanted(false).value("work_mem"), Some("'6MB"));
        settings.set("work_mem", &SettingValue::Default);
        assert_eq!(settings.wanted(false).value("work_mem"), Some("'6MB"));
    }

    #[test]
    fn rollback_takes_changes_back() {
        let mut settings = SessionSettings::new([]);
        settings.set("a", &text("1"));
        settings.set("b", &text("2"));
        settings.end_transaction(true);
        assert_eq!(settings.wanted(false).value("a"), None);
        settings.set("a", &text("3"));
        settings.end_transaction(false);
        assert_eq!(settings.wanted(false).value("a"), Some("=3"));
    }

    #[test]
    fn transitions_are_sql() {
        let mut has = Settings::default();
        has.set("search_path", "=shop, public");
        let settings = SessionSettings::new([("application_name", "o'b"), ("a.b", "1")]);
        let sql = transition(&has, settings.wanted(false)).unwrap();
        assert!(sql.contains("RESET \"search_path\""), "{sql}");
        assert!(sql.contains("SELECT pg_catalog.set_config('application_name', 'o''b', false)"), "{sql}");
        assert_eq!(transition(&has, &has.clone()), None);
        let (mut iso, mut dmy) = (Settings::default(), Settings::default());
        iso.set("datestyle", "=iso");
        dmy.set("DateStyle", "=dmy");
        assert_eq!(transition(&iso, &dmy).as_deref(), Some("RESET datestyle; SET \"datestyle\" TO dmy"));
        let mut wanted = Settings::default();
        wanted.set("search_path", "=\"$user\", x");
        assert_eq!(transition(&has, &wanted).as_deref(), Some("SET \"search_path\" TO \"$user\", x"));
    }

    #[test]
    fn the_role_comes_last_and_goes_first() {
        let (mut has, mut wanted) = (Settings::default(), Settings::default());
        wanted.set("role", "=a");
        wanted.set("zero", "=1");
        assert_eq!(transition(&has, &wanted).as_deref(), Some("SET \"zero\" TO 1; SET \"role\" TO a"));
        std::mem::swap(&mut has, &mut wanted);
        assert_eq!(transition(&has, &wanted).as_deref(), Some("RESET ROLE; RESET \"zero\""));
        wanted.set("role", "=a");
        assert_eq!(
            transition(&has, &wanted).as_deref(),
            Some("RESET ROLE; RESET \"zero\"; SET \"role\" TO a")
        );
        let mut session = SessionSettings::new([("a.b", "1")]);
        session.set("role", &text("x"));
        session.reset_all();
        assert_eq!(session.wanted(false).value("role"), Some("=x"));
        session.discard();
        assert_eq!(session.wanted(false).value("role"), None);
    }

    #[test]
    fn parse_key_follows_only_what_parse_consults() {
        let mut settings = SessionSettings::new([("TimeZone", "UTC")]);
        let utc = Arc::clone(settings.parse_key());
        settings.set("work_mem", &text("'9MB'"));
        assert_eq!(*settings.parse_key(), utc);
        settings.set("timezone", &text("'Asia/Tokyo'"));
        assert_ne!(*settings.parse_key(), utc);
    }

    #[test]
    fn standbys_get_no_transaction_defaults() {
        let settings =
            SessionSettings::new([("default_transaction_isolation", "serializable"), ("x.y", "1")]);
        assert!(settings.serializable());
        assert_eq!(settings.wanted(true).value("default_transaction_isolation"), None);
        assert_eq!(settings.wanted(true).value("x.y"), Some("'1"));
    }
}
