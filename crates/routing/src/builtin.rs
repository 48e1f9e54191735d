//! What PostgreSQL itself brings along: functions, relations, types and operators, judged one by one.
//!
//! The tables beside this file are joined from what the queries beside them print on each of PostgreSQL's supported versions
//! (`scripts/builtin-tables`). Names of later versions that no table lists are unknown, and what is unknown goes to the
//! primary.

use crate::class::PinReason;

/// What a built-in function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing: a hot standby answers as the primary does.
    Harmless,
    /// It writes, or runs what it is given.
    Writes,
    /// Its answer belongs to the node that runs it.
    NodeLocal,
    /// Its effect does: it signals processes, resets counters, promotes a standby.
    NodeEffect,
    /// It makes or reads state of the server session.
    Session,
    /// It writes (or locks, for all nodes) and makes or reads state of the server session.
    WritesSession,
}

const FUNCTIONS: &str = include_str!("builtin/functions.tsv");
const RELATIONS: &str = include_str!("builtin/relations.tsv");
const TYPES: &str = include_str!("builtin/types.tsv");
const OPERATORS: &str = include_str!("builtin/operators.tsv");

/// Functions of extensions that run SQL text, although they are labelled stable.
const RUNS_TEXT: [&str; 7] =
    ["connectby", "crosstab", "crosstab2", "crosstab3", "crosstab4", "crosstabn", "xpath_table"];

/// Functions of extensions that are volatile by their answer alone: uuid-ossp, pgcrypto, tablefunc.
const HARMLESS_EXTENSION_FUNCTIONS: [&str; 6] = [
    "gen_random_bytes",
    "gen_salt",
    "normal_rand",
    "uuid_generate_v1",
    "uuid_generate_v1mc",
    "uuid_generate_v4",
];

/// What the function of this name in `pg_catalog` does; `None` when there is none.
pub fn function(name: &str) -> Option<Effect> {
    find(FUNCTIONS, name).map(effect)
}

/// Whose the contents of this relation are; `None` when there is none.
pub fn relation(schema: &str, name: &str) -> Option<Effect> {
    // The names are of bounded length (63 bytes each), so that no buffer needs the heap.
    let mut buffer = [0_u8; 128];
    let length = schema.len() + 1 + name.len();
    let place = buffer.get_mut(..length)?;
    place.get_mut(..schema.len())?.copy_from_slice(schema.as_bytes());
    *place.get_mut(schema.len())? = b'.';
    place.get_mut(schema.len() + 1..)?.copy_from_slice(name.as_bytes());
    find(RELATIONS, std::str::from_utf8(place).ok()?).map(effect)
}

/// Whether `pg_catalog` has a type of this name. All of them are harmless.
pub fn is_type(name: &str) -> bool {
    find(TYPES, name).is_some()
}

/// Whether `pg_catalog` has an operator of this name. All of them are harmless.
pub fn is_operator(name: &str) -> bool {
    find(OPERATORS, name).is_some()
}

/// Whether a function of this name runs SQL text, whatever its label says.
pub(crate) fn runs_text(name: &str) -> bool {
    RUNS_TEXT.contains(&name)
}

/// Whether a volatile function of this name is known to be one of an extension that changes nothing.
pub(crate) fn is_harmless_extension_function(name: &str) -> bool {
    HARMLESS_EXTENSION_FUNCTIONS.contains(&name)
}

/// Whether an unqualified name may be special syntax rather than a function: it always means the same.
pub(crate) fn is_syntax(name: &str) -> bool {
    matches!(
        name,
        "coalesce"
            | "greatest"
            | "least"
            | "nullif"
            | "grouping"
            | "row"
            | "array"
            | "xmlconcat"
            | "xmlattributes"
            | "xmlelement"
            | "xmlexists"
            | "xmlforest"
            | "xmlparse"
            | "xmlpi"
            | "xmlroot"
            | "xmlserialize"
            | "normalize"
            | "merge_action"
    )
}

/// Whether an unqualified word is a value function that takes no parentheses.
pub(crate) fn is_value_keyword(name: &str) -> bool {
    matches!(
        name,
        "current_catalog"
            | "current_date"
            | "current_role"
            | "current_schema"
            | "current_time"
            | "current_timestamp"
            | "current_user"
            | "localtime"
            | "localtimestamp"
            | "session_user"
            | "system_user"
            | "user"
    )
}

/// Why a session that has called this built-in function must keep its server connection.
///
/// `set_config` is not among them: its last argument decides. Nor are those that release advisory locks: a session that
/// holds any is pinned already.
pub fn pin(name: &str) -> Option<PinReason> {
    Some(match name {
        "setseed" => PinReason::Seed,
        "currval" | "lastval" => PinReason::Sequence,
        "pg_backend_pid" => PinReason::BackendPid,
        "pg_export_snapshot" => PinReason::Snapshot,
        "pg_advisory_lock"
        | "pg_advisory_lock_shared"
        | "pg_try_advisory_lock"
        | "pg_try_advisory_lock_shared" => PinReason::AdvisoryLock,
        "lo_open" | "lo_close" | "loread" | "lowrite" | "lo_lseek" | "lo_lseek64" | "lo_tell"
        | "lo_tell64" | "lo_truncate" | "lo_truncate64" => PinReason::LargeObject,
        "pg_replication_origin_session_setup" | "pg_replication_origin_session_reset" => PinReason::Other,
        _ => return None,
    })
}

/// What a setting is, for SHOW and `current_setting`.
pub(crate) fn setting(name: &str) -> Effect {
    match name {
        // Fixed when the cluster was made or the server was built; a physical replica has the same.
        "server_version"
        | "server_version_num"
        | "server_encoding"
        | "block_size"
        | "wal_block_size"
        | "segment_size"
        | "wal_segment_size"
        | "integer_datetimes"
        | "lc_collate"
        | "lc_ctype"
        | "max_function_args"
        | "max_identifier_length"
        | "max_index_keys" => Effect::Harmless,
        // A standby answers differently, and drivers draw conclusions from it.
        "transaction_read_only"
        | "in_hot_standby"
        | "cluster_name"
        | "config_file"
        | "data_directory"
        | "external_pid_file"
        | "hba_file"
        | "hot_standby"
        | "ident_file"
        | "listen_addresses"
        | "port"
        | "primary_conninfo"
        | "primary_slot_name"
        | "synchronous_standby_names"
        | "unix_socket_directories" => Effect::NodeLocal,
        _ => Effect::Session,
    }
}

fn effect(verdict: &str) -> Effect {
    match verdict {
        "r" => Effect::Harmless,
        "n" => Effect::NodeLocal,
        "e" => Effect::NodeEffect,
        "s" => Effect::Session,
        "b" => Effect::WritesSession,
        _ => Effect::Writes,
    }
}

/// The rest of the line of `table` whose first field is `name`; the lines are sorted bytewise.
fn find<'a>(table: &'a str, name: &str) -> Option<&'a str> {
    let bytes = table.as_bytes();
    let (mut low, mut high) = (0, bytes.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let start = bytes.get(low..middle)?.iter().rposition(|b| *b == b'\n').map_or(low, |n| low + n + 1);
        let end = start + memchr::memchr(b'\n', bytes.get(start..)?).unwrap_or(bytes.len() - start);
        let line = table.get(start..end)?;
        let (key, rest) = line.split_once('\t').unwrap_or((line, ""));
        match key.as_bytes().cmp(name.as_bytes()) {
            std::cmp::Ordering::Equal => return Some(rest),
            std::cmp::Ordering::Less => low = end + 1,
            std::cmp::Ordering::Greater => high = start,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_found() {
        for table in [FUNCTIONS, RELATIONS, TYPES, OPERATORS] {
            let keys: Vec<_> = table.lines().map(|line| line.split('\t').next().unwrap()).collect();
            assert!(keys.is_sorted(), "the search is by bytes");
            assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
            for line in table.lines() {
                let (key, rest) = line.split_once('\t').unwrap_or((line, ""));
                assert_eq!(find(table, key), Some(rest), "{key}");
                assert_eq!(find(table, &format!("{key}\u{1}")), None);
            }
            assert_eq!(find(table, ""), None);
            assert_eq!(find(table, "~~~~~"), None);
        }
    }

    #[test]
    fn effects() {
        for (name, effect) in [
            ("lower", Effect::Harmless),
            ("count", Effect::Harmless),
            ("row_number", Effect::Harmless),
            ("random", Effect::Harmless),
            ("nextval", Effect::Writes),
            ("query_to_xml", Effect::Writes),
            ("ts_rewrite", Effect::Writes),
            ("txid_current", Effect::Writes),
            ("pg_is_in_recovery", Effect::NodeLocal),
            ("pg_stat_get_activity", Effect::NodeLocal),
            ("pg_promote", Effect::NodeEffect),
            ("uuidv7", Effect::Harmless),
            ("pg_get_acl", Effect::Harmless),
            ("pg_start_backup", Effect::Writes),
            ("set_config", Effect::Session),
            ("pg_advisory_lock", Effect::WritesSession),
            ("pg_try_advisory_xact_lock", Effect::Writes),
        ] {
            assert_eq!(function(name), Some(effect), "{name}");
        }
        assert_eq!(function("no_such_function"), None);
        assert_eq!(relation("pg_catalog", "pg_class"), Some(Effect::Harmless));
        assert_eq!(relation("pg_catalog", "pg_stats"), Some(Effect::Harmless));
        assert_eq!(relation("pg_catalog", "pg_stat_activity"), Some(Effect::NodeLocal));
        assert_eq!(relation("pg_catalog", "pg_settings"), Some(Effect::Session));
        assert_eq!(relation("information_schema", "tables"), Some(Effect::Harmless));
        assert_eq!(relation("public", "pg_class"), None);
        assert_eq!(relation("pg_catalog", &"x".repeat(200)), None);
        assert!(is_type("int4") && is_type("text") && is_type("_int4") && !is_type("hstore"));
        assert!(is_operator("<->") && is_operator("->>") && !is_operator("<+>"));
    }

    #[test]
    fn what_pins_is_never_harmless() {
        for line in FUNCTIONS.lines() {
            let (name, _) = line.split_once('\t').unwrap();
            if pin(name).is_some() {
                assert_ne!(function(name), Some(Effect::Harmless), "{name}");
            }
        }
    }
}
