//! The statements of the admin databases.

mod commands;
pub(crate) mod exporter;
mod operate;
mod rows;
mod stats;
mod tables;
mod words;

use std::sync::Arc;

use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use causeway_proxy::console::{Column, Console, Reply, ReplyFuture};

use self::commands::{Action, COMMANDS, Command, Row};
use self::words::{Word, trimmed, words};
use crate::config::{ADMIN_DATABASES, nearest};
use crate::serve::live::Live;

/// The longest command has three words of its own.
const COMMAND_WORDS: usize = 3;

/// The console of the running process.
pub struct AdminConsole {
    live: Arc<Live>,
}

/// A command and the text after its words.
struct Invocation<'a> {
    command: &'static Command,
    argument: &'a str,
}

// === impl AdminConsole ===

impl AdminConsole {
    /// The console of `live`.
    pub fn new(live: Arc<Live>) -> Self {
        Self { live }
    }

    async fn execute(&self, user: &str, sql: &str) -> Result<Reply, ErrorReport> {
        let Invocation { command, argument } = parse(sql)?;
        self.allow(user, command)?;
        match command.action {
            Action::Show(rows) => Ok(table(command, rows(&self.live), "SHOW")),
            Action::Parameter(value) => Ok(table(command, vec![vec![Some(value.to_owned())]], "SHOW")),
            Action::ExplainRoute => Ok(table(command, vec![self.explain(user, argument).await?], "EXPLAIN")),
            Action::Set => Ok(Reply::Done { tag: "SET" }),
            Action::Reload => {
                tracing::info!(event = "console", user, command = "RELOAD", "asked for on the console");
                match self.live.reload().await {
                    Ok(()) => Ok(Reply::Done { tag: "RELOAD" }),
                    Err(error) => {
                        let message = "the configuration was not reloaded: the old one keeps serving";
                        let report = ErrorReport::error(SqlState::CONFIG_FILE_ERROR, message);
                        Err(report.with_detail(error.to_string()))
                    }
                }
            }
            Action::EpochAccept => self.accept_epoch(user, argument),
            Action::Pause => self.pause(user, argument).await,
            Action::Resume => self.resume(user, argument),
            Action::Drain => self.drain(user, argument).await,
            Action::Undrain => self.undrain(user, argument),
            Action::Kill => self.kill(user, argument),
            Action::KillClient => self.kill_client(user, argument),
        }
    }

    /// Who only watches changes nothing.
    fn allow(&self, user: &str, command: &Command) -> Result<(), ErrorReport> {
        let harmless = matches!(
            command.action,
            Action::Show(_) | Action::Parameter(_) | Action::ExplainRoute | Action::Set
        );
        if harmless || self.live.config.load().admins.iter().any(|admin| admin == user) {
            return Ok(());
        }
        let message = format!("user \"{user}\" may only look");
        Err(ErrorReport::error(SqlState::INSUFFICIENT_PRIVILEGE, message)
            .with_hint("The key admin.users of the configuration lists who may change something."))
    }

    async fn explain(&self, user: &str, argument: &str) -> Result<Row, ErrorReport> {
        let (database, user, statement) = route_arguments(argument, user)?;
        let explained = self.live.proxy.explain(&database, &user, statement).await?;
        let candidates: Vec<String> = explained.candidates.iter().map(ToString::to_string).collect();
        Ok(vec![
            Some(explained.kind.as_str().to_owned()),
            Some(explained.target.as_str().to_owned()),
            explained.node.map(|node| node.to_string()),
            Some(explained.reason.as_str().to_owned()),
            Some(explained.level.to_string()),
            explained.fence.map(|fence| fence.to_string()),
            (!candidates.is_empty()).then(|| candidates.join(", ")),
        ])
    }

    fn accept_epoch(&self, user: &str, argument: &str) -> Result<Reply, ErrorReport> {
        let name = only_word(argument, "EPOCH ACCEPT <cluster>")?;
        let clusters = self.live.clusters.load();
        let Some(named) = clusters.iter().find(|named| *named.name == *name.written) else {
            let message = format!("no cluster is called \"{}\"", name.written);
            return Err(ErrorReport::error(SqlState::UNDEFINED_OBJECT, message));
        };
        named.cluster.accept_lineage();
        let view = named.cluster.view();
        tracing::warn!(
            event = "console",
            user,
            command = "EPOCH ACCEPT",
            cluster = &*named.name,
            "the lineage was accepted"
        );
        match view.complaint.as_deref() {
            None => Ok(Reply::Done { tag: "EPOCH" }),
            Some(complaint) => {
                let message = "the former lineage is forgotten, but which node is the primary cannot be told";
                let report = ErrorReport::error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
                Err(report
                    .with_detail(complaint.to_owned())
                    .with_hint("Stop the nodes that are not to be the primary."))
            }
        }
    }

    fn kill(&self, user: &str, argument: &str) -> Result<Reply, ErrorReport> {
        let database = only_word(argument, "KILL <database>")?;
        let clients = self.live.proxy.clients();
        let ids =
            clients.iter().filter(|client| *client.database == *database.written).map(|client| client.id);
        let ended = ids.filter(|id| self.live.proxy.kill(*id)).count();
        tracing::info!(
            event = "console",
            user,
            command = "KILL",
            ended,
            "sessions were ended from the console"
        );
        Ok(Reply::Done { tag: "KILL" })
    }

    fn kill_client(&self, user: &str, argument: &str) -> Result<Reply, ErrorReport> {
        let id = only_word(argument, "KILL_CLIENT <id>")?;
        let id: i32 = id.text.parse().map_err(|_| {
            ErrorReport::error(SqlState::INVALID_TEXT_REPRESENTATION, "the id of a client is a number")
                .with_hint("The column id of SHOW CLIENTS has it.")
        })?;
        if !self.live.proxy.kill(id) {
            let message = format!("there is no client with the id {id}");
            return Err(ErrorReport::error(SqlState::UNDEFINED_OBJECT, message));
        }
        tracing::info!(
            event = "console",
            user,
            command = "KILL_CLIENT",
            id,
            "a session was ended from the console"
        );
        Ok(Reply::Done { tag: "KILL_CLIENT" })
    }
}

impl Console for AdminConsole {
    fn owns(&self, database: &str) -> bool {
        ADMIN_DATABASES.contains(&database)
    }

    fn refuse(&self, user: &str) -> Option<ErrorReport> {
        let config = self.live.config.load();
        (!config.admins.iter().chain(&config.watchers).any(|known| known == user)).then(|| {
            let message = format!("user \"{user}\" may not use the console");
            ErrorReport::fatal(SqlState::INSUFFICIENT_PRIVILEGE, message)
                .with_hint("The keys admin.users and admin.stats_users of the configuration list who may.")
        })
    }

    fn describe(&self, sql: &str) -> Result<Option<Vec<Column>>, ErrorReport> {
        let columns = parse(sql)?.command.columns;
        Ok((!columns.is_empty()).then(|| columns.to_vec()))
    }

    fn run<'a>(&'a self, user: &'a str, sql: &'a str) -> ReplyFuture<'a> {
        Box::pin(self.execute(user, sql))
    }
}

fn table(command: &Command, rows: Vec<Row>, tag: &'static str) -> Reply {
    Reply::Table { columns: command.columns.to_vec(), rows, tag }
}

/// Finds the command; its argument is checked by whoever runs it, except that there is one if and only if there must be.
fn parse(sql: &str) -> Result<Invocation<'_>, ErrorReport> {
    let sql = trimmed(sql);
    let words = words(sql, COMMAND_WORDS);
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let Some(command) = COMMANDS.iter().find(|command| texts.starts_with(command.words)) else {
        return Err(unknown(&texts));
    };
    let last = words.get(command.words.len() - 1);
    let argument = last.and_then(|word| sql.get(word.end..)).unwrap_or_default().trim_start();
    if argument.is_empty() == command.argument.is_empty() || command.argument.starts_with('[') {
        return Ok(Invocation { command, argument });
    }
    Err(syntax(&rows::synopsis(command.words, command.argument)))
}

fn syntax(synopsis: &str) -> ErrorReport {
    ErrorReport::error(SqlState::SYNTAX_ERROR, format!("the command is written: {synopsis}"))
}

fn unknown(texts: &[&str]) -> ErrorReport {
    let known: Vec<String> = COMMANDS.iter().map(|command| command.words.join(" ")).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let meant = nearest(&texts.iter().take(2).copied().collect::<Vec<_>>().join(" "), &known);
    let hint = match meant {
        Some(meant) => format!("Did you mean {}? SHOW HELP lists all commands.", meant.to_uppercase()),
        None => "SHOW HELP lists all commands.".to_owned(),
    };
    ErrorReport::error(SqlState::SYNTAX_ERROR, "this is not a command of the console").with_hint(hint)
}

fn only_word(argument: &str, synopsis: &str) -> Result<Word, ErrorReport> {
    let mut words = words(argument, 2);
    match (words.pop(), words.pop()) {
        (Some(word), None) => Ok(word),
        _ => Err(syntax(synopsis)),
    }
}

/// `<database> [USER <user>] <statement>`; no SQL statement begins with USER.
fn route_arguments<'a>(
    argument: &'a str,
    console_user: &str,
) -> Result<(String, String, &'a str), ErrorReport> {
    let first = words(argument, 3);
    let (database, user) = match first.as_slice() {
        [database, keyword, user] if keyword.text == "user" => (database, Some(user)),
        [database, ..] => (database, None),
        [] => return Err(syntax("EXPLAIN ROUTE DATABASE <database> [USER <user>] <statement>")),
    };
    let end = user.map_or(database.end, |user| user.end);
    let statement = argument.get(end..).unwrap_or_default().trim_start();
    if statement.is_empty() {
        return Err(syntax("EXPLAIN ROUTE DATABASE <database> [USER <user>] <statement>"));
    }
    let user = user.map_or_else(|| console_user.to_owned(), |user| user.written.clone());
    Ok((database.written.clone(), user, statement))
}

#[cfg(test)]
mod tests;
