//! The `options` of a start-up message: switches as on the server's command line.
//!
//! Split as by `pg_split_opts` (`src/backend/utils/init/postinit.c`) and read as by `getopt` and
//! `process_postgres_switches` (`src/backend/tcop/postgres.c`).

/// The switches can't be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A switch that does not exist, lacks its argument or is not for clients; or no switch at all.
    #[error("invalid command-line argument for server process: {0}")]
    Unknown(Box<str>),
    /// `-c name` or `--name` without a value.
    #[error("{0} requires a value")]
    NoValue(Box<str>),
}

/// Switches without argument, and the setting they stand for. Left out, here and in [`setting`], are those for
/// settings which only a start of the server changes, and which PostgreSQL refuses with another code, and `-d`.
const FLAGS: &[(char, &str, &str)] = &[
    ('e', "datestyle", "euro"),
    ('O', "allow_system_table_mods", "true"),
    ('P', "ignore_system_indexes", "true"),
    ('s', "log_statement_stats", "true"),
];

/// Switches PostgreSQL takes from a client and does nothing about: first those without an argument.
const IGNORED: (&[char], &[char]) = (&['b', 'E', 'j', 'n', 'T'], &['C', 'D', 'r', 'v']);

/// What `-f` turns off (`set_plan_disabling_options`).
const PLANS: &[(&str, &str)] = &[
    ("s", "enable_seqscan"),
    ("i", "enable_indexscan"),
    ("o", "enable_indexonlyscan"),
    ("b", "enable_bitmapscan"),
    ("t", "enable_tidscan"),
    ("n", "enable_nestloop"),
    ("m", "enable_mergejoin"),
    ("h", "enable_hashjoin"),
];

/// What `-t` turns on, by the first letters of its argument (`get_stats_option_name`).
const STATS: &[(&str, &str)] =
    &[("pa", "log_parser_stats"), ("pl", "log_planner_stats"), ("e", "log_executor_stats")];

type Setting = (Box<str>, Box<str>);

/// The settings in `options`, in order.
///
/// # Errors
///
/// When a switch is unknown or incomplete.
pub(super) fn settings(options: &str) -> Result<Vec<Setting>, OptionsError> {
    let mut arguments = split(options).into_iter();
    let mut settings = Vec::new();
    while let Some(argument) = arguments.next() {
        let unknown = || OptionsError::Unknown(argument.as_str().into());
        // "--" ends the switches, and what could follow is not a switch.
        if argument == "--" {
            return arguments.next().map_or(Ok(settings), |next| Err(OptionsError::Unknown(next.into())));
        }
        let mut cluster =
            argument.strip_prefix('-').filter(|rest| !rest.is_empty()).ok_or_else(unknown)?.chars();
        while let Some(switch) = cluster.next() {
            if let Some((_, name, value)) = FLAGS.iter().find(|(flag, ..)| *flag == switch) {
                settings.push(((*name).into(), (*value).into()));
                continue;
            }
            if IGNORED.0.contains(&switch) {
                continue;
            }
            // The argument of a switch is the rest of the word, or else the next word, whatever that begins with.
            let value = match cluster.as_str() {
                "" => arguments.next().ok_or_else(unknown)?,
                rest => rest.to_owned(),
            };
            if !IGNORED.1.contains(&switch) {
                settings.push(setting(switch, &value)?.ok_or_else(unknown)?);
            }
            break;
        }
    }
    Ok(settings)
}

/// The setting that `-switch value` stands for, if there is such a switch.
fn setting(switch: char, value: &str) -> Result<Option<Setting>, OptionsError> {
    let turn = |name: &str, to: &str| (name.into(), to.into());
    Ok(match switch {
        'c' | '-' => {
            let (name, value) = value.split_once('=').ok_or_else(|| {
                let prefix = if switch == 'c' { "-c " } else { "--" };
                OptionsError::NoValue(format!("{prefix}{value}").into())
            })?;
            Some((name.replace('-', "_").into(), value.into()))
        }
        'S' => Some(turn("work_mem", value)),
        'f' => PLANS.iter().find(|(plan, _)| *plan == value).map(|(_, name)| turn(name, "false")),
        't' => STATS.iter().find(|(start, _)| value.starts_with(start)).map(|(_, name)| turn(name, "true")),
        _ => None,
    })
}

/// The words of `options`: spaces part them, a backslash takes the next character as it is.
fn split(options: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        match character {
            // isspace() in the C locale.
            ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r' => words.extend(word.take()),
            // A backslash at the very end begins a word and adds nothing to it.
            '\\' => word.get_or_insert_default().extend(characters.next()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &str) -> Result<Vec<(String, String)>, String> {
        settings(options)
            .map(|list| list.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn switches_become_settings() {
        let table: &[(&str, &[(&str, &str)])] = &[
            ("", &[]),
            (" \t\n", &[]),
            ("-c work_mem=4MB", &[("work_mem", "4MB")]),
            ("-cwork_mem=4MB", &[("work_mem", "4MB")]),
            ("--work-mem=4MB", &[("work_mem", "4MB")]),
            ("-c a-b.c-d=x-y", &[("a_b.c_d", "x-y")]),
            ("--application_name=a\\ b\\\\c", &[("application_name", "a b\\c")]),
            ("-c search_path=a,b=c", &[("search_path", "a,b=c")]),
            ("-c x=", &[("x", "")]),
            ("-D /tmp -jE -c x=1", &[("x", "1")]),
            ("-c x=1 --", &[("x", "1")]),
            ("-c x=1\\", &[("x", "1")]),
            ("-c --y=1", &[("__y", "1")]),
            (
                "  -c  a=1\x0b--b=2\r-eS 64 -fs -tpl",
                &[
                    ("a", "1"),
                    ("b", "2"),
                    ("datestyle", "euro"),
                    ("work_mem", "64"),
                    ("enable_seqscan", "false"),
                    ("log_planner_stats", "true"),
                ],
            ),
            ("-c name=gr\u{fc}n", &[("name", "gr\u{fc}n")]),
        ];
        for (options, expected) in table {
            let expected: Vec<_> = expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            assert_eq!(read(options), Ok(expected), "{options:?}");
        }
    }

    #[test]
    fn what_is_no_switch_is_refused() {
        let table = [
            ("x", "invalid command-line argument for server process: x"),
            ("-", "invalid command-line argument for server process: -"),
            ("-c a=1 b=2", "invalid command-line argument for server process: b=2"),
            ("-c a=1 -- b", "invalid command-line argument for server process: b"),
            ("-z", "invalid command-line argument for server process: -z"),
            ("-c", "invalid command-line argument for server process: -c"),
            ("-fz", "invalid command-line argument for server process: -fz"),
            ("-D", "invalid command-line argument for server process: -D"),
            ("-p 1", "invalid command-line argument for server process: -p"),
            ("-c work_mem", "-c work_mem requires a value"),
            ("--work-mem", "--work-mem requires a value"),
            ("\\", "invalid command-line argument for server process: "),
        ];
        for (options, expected) in table {
            assert_eq!(read(options), Err(expected.to_owned()), "{options:?}");
        }
    }
}
