//! The protocol side of the admin console: simple and extended queries over [`Console`].

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use causeway_protocol::backend::{Column, TransactionStatus};
use causeway_protocol::encode;
use causeway_protocol::frame::{self, Frame};
use causeway_protocol::frontend::MalformedMessage;
use causeway_protocol::frontend::{self, Target, tag};
use causeway_protocol::report::{ErrorReport, Severity};
use causeway_protocol::sqlstate::SqlState;
use causeway_protocol::startup::Startup;

use crate::Shared;
use crate::accept::Door;
use crate::console::{self, ColumnKind, Console, Reply};
use crate::registry::{Introduction, Registration};
use crate::socket::Socket as _;

/// The longest message that the console takes.
const MAX_MESSAGE: usize = 64 * 1024;

/// What clients are told about the console's "server".
const PARAMETERS: [(&str, &str); 8] = [
    ("server_version", concat!(env!("CARGO_PKG_VERSION"), "/causeway")),
    ("client_encoding", "UTF8"),
    ("server_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("TimeZone", "GMT"),
    ("integer_datetimes", "on"),
    ("standard_conforming_strings", "on"),
    ("is_superuser", "on"),
];

/// One client of the console.
struct ConsoleSession<'a> {
    console: &'a dyn Console,
    door: Door,
    entry: Registration,
    statements: HashMap<Box<[u8]>, Arc<str>>,
    portals: HashMap<Box<[u8]>, Portal>,
    /// An error was sent: everything up to Sync is skipped.
    skipping: bool,
}

#[derive(Clone)]
struct Portal {
    sql: Arc<str>,
    /// The result format codes of the Bind: none, one for all, or one a column.
    formats: Vec<i16>,
}

/// Serves a client that is let in until it leaves.
pub(crate) async fn serve(shared: &Shared, mut door: Door, startup: &Startup, console: &dyn Console) {
    if let Some(report) = console.refuse(&startup.user) {
        encode::error_response(&mut door.outbound, &report.with_severity(Severity::Fatal));
        if let Err(error) = door.flush().await {
            tracing::debug!(%error, "console client left");
        }
        return;
    }
    let entry = shared.clients.register(
        Introduction {
            database: Arc::from(&*startup.database),
            user: Arc::from(&*startup.user),
            application_name: startup.setting("application_name").unwrap_or_default().into(),
            address: door.address,
            tls: door.stream.tls(),
        },
        None,
    );
    for (name, value) in PARAMETERS {
        encode::parameter_status(&mut door.outbound, name.as_bytes(), value.as_bytes());
    }
    encode::backend_key_data(&mut door.outbound, &entry.key);
    encode::ready_for_query(&mut door.outbound, TransactionStatus::Idle);
    let session = ConsoleSession {
        console,
        door,
        entry,
        statements: HashMap::new(),
        portals: HashMap::new(),
        skipping: false,
    };
    if let Err(error) = session.run().await {
        tracing::debug!(%error, "console client left");
    }
}

// === impl ConsoleSession ===

impl ConsoleSession<'_> {
    async fn run(mut self) -> std::io::Result<()> {
        loop {
            let input = std::mem::take(&mut self.door.inbound);
            let mut rest = input.filled();
            let mut consumed = 0;
            let mut over = false;
            while !over {
                match frame::split(rest, MAX_MESSAGE) {
                    Ok(Some((frame, len))) => {
                        over = frame.tag == tag::TERMINATE;
                        self.message(frame).await;
                        rest = rest.get(len..).unwrap_or_default();
                        consumed += len;
                    }
                    Ok(None) => break,
                    Err(error) => {
                        let report = ErrorReport::fatal(SqlState::PROTOCOL_VIOLATION, error.to_string());
                        encode::error_response(&mut self.door.outbound, &report);
                        over = true;
                    }
                }
            }
            self.door.inbound = input;
            self.door.inbound.consume(consumed);
            self.door.flush().await?;
            if over || self.more().await? == 0 {
                return Ok(());
            }
        }
    }

    /// Reads more; nothing, as at the end of the stream, once the session is to end.
    async fn more(&mut self) -> std::io::Result<usize> {
        let Self { door, entry, .. } = self;
        poll_fn(|cx| {
            entry.wake_by(cx.waker());
            let interrupts = entry.interrupts();
            if interrupts.kill || interrupts.drain {
                return Poll::Ready(Ok(0));
            }
            door.stream.poll_fill(cx, &mut door.inbound)
        })
        .await
    }

    async fn message(&mut self, frame: Frame<'_>) {
        if self.skipping && frame.tag != tag::SYNC {
            return;
        }
        let result = match frame.tag {
            tag::QUERY => {
                let result = self.query(frame.body).await;
                if let Err(report) = result {
                    encode::error_response(&mut self.door.outbound, &report);
                }
                encode::ready_for_query(&mut self.door.outbound, TransactionStatus::Idle);
                return;
            }
            tag::PARSE => self.parse(frame.body),
            tag::BIND => self.bind(frame.body),
            tag::DESCRIBE => self.describe(frame.body),
            tag::EXECUTE => self.execute(frame.body).await,
            tag::CLOSE => self.close(frame.body),
            tag::SYNC => {
                self.skipping = false;
                encode::ready_for_query(&mut self.door.outbound, TransactionStatus::Idle);
                return;
            }
            tag::FLUSH | tag::TERMINATE => return,
            other => Err(ErrorReport::error(
                SqlState::PROTOCOL_VIOLATION,
                format!("the console does not take messages of type {other}"),
            )),
        };
        if let Err(report) = result {
            encode::error_response(&mut self.door.outbound, &report);
            self.skipping = true;
        }
    }

    async fn query(&mut self, body: &[u8]) -> Result<(), ErrorReport> {
        let sql = text(frontend::query(body).map_err(malformed)?)?;
        let mut any = false;
        for statement in statements(sql) {
            any = true;
            let reply = self.console.run(&self.entry.user, statement).await?;
            let out = &mut self.door.outbound;
            match reply {
                Reply::Table { columns, rows, tag } => {
                    describe_columns(out, &columns, &[]);
                    write_rows(out, &columns, &rows, &[])?;
                    complete(out, tag, rows.len());
                }
                Reply::Done { tag } => encode::command_complete(out, tag.as_bytes()),
            }
        }
        if !any {
            encode::empty_query_response(&mut self.door.outbound);
        }
        Ok(())
    }

    fn parse(&mut self, body: &[u8]) -> Result<(), ErrorReport> {
        let parse = frontend::parse(body).map_err(malformed)?;
        let sql = text(parse.sql)?.trim().trim_end_matches(';').trim_end().into();
        self.statements.insert(parse.name.into(), sql);
        encode::parse_complete(&mut self.door.outbound);
        Ok(())
    }

    fn bind(&mut self, body: &[u8]) -> Result<(), ErrorReport> {
        let bind = frontend::bind(body).map_err(malformed)?;
        let sql = self.statements.get(bind.statement).map(Arc::clone).ok_or_else(|| {
            ErrorReport::error(SqlState::INVALID_STATEMENT_NAME, "prepared statement does not exist")
        })?;
        if bind.count > 0 {
            let message = "console statements take no parameters";
            return Err(ErrorReport::error(SqlState::PROTOCOL_VIOLATION, message));
        }
        let formats = bind.result_formats.iter().collect();
        self.portals.insert(bind.portal.into(), Portal { sql, formats });
        encode::bind_complete(&mut self.door.outbound);
        Ok(())
    }

    fn describe(&mut self, body: &[u8]) -> Result<(), ErrorReport> {
        let describe = frontend::describe(body).map_err(malformed)?;
        let portal = match describe.target {
            Target::Portal => self.portals.get(describe.name).cloned(),
            Target::Statement => {
                let sql = self.statements.get(describe.name).map(Arc::clone);
                sql.map(|sql| Portal { sql, formats: Vec::new() })
            }
        };
        let Some(portal) = portal else { return Err(unknown(describe.target)) };
        let columns = if portal.sql.is_empty() { None } else { self.console.describe(&portal.sql)? };
        let out = &mut self.door.outbound;
        if describe.target == Target::Statement {
            encode::parameter_description(out, []);
        }
        match columns {
            Some(columns) => describe_columns(out, &columns, &portal.formats),
            None => encode::no_data(out),
        }
        Ok(())
    }

    async fn execute(&mut self, body: &[u8]) -> Result<(), ErrorReport> {
        let execute = frontend::execute(body).map_err(malformed)?;
        let portal = self.portals.get(execute.portal).cloned().ok_or_else(|| unknown(Target::Portal))?;
        if portal.sql.is_empty() {
            encode::empty_query_response(&mut self.door.outbound);
            return Ok(());
        }
        let reply = self.console.run(&self.entry.user, &portal.sql).await?;
        let out = &mut self.door.outbound;
        match reply {
            Reply::Table { columns, rows, tag } => {
                write_rows(out, &columns, &rows, &portal.formats)?;
                complete(out, tag, rows.len());
            }
            Reply::Done { tag } => encode::command_complete(out, tag.as_bytes()),
        }
        Ok(())
    }

    fn close(&mut self, body: &[u8]) -> Result<(), ErrorReport> {
        let close = frontend::close(body).map_err(malformed)?;
        match close.target {
            Target::Statement => drop(self.statements.remove(close.name)),
            Target::Portal => drop(self.portals.remove(close.name)),
        }
        encode::close_complete(&mut self.door.outbound);
        Ok(())
    }
}

/// The statements of a query. One that is about SQL takes the rest of the text, semicolons and all.
fn statements(mut sql: &str) -> Vec<&str> {
    let mut found = Vec::new();
    while let Some(start) = sql.find(|c: char| c != ';' && !c.is_whitespace()) {
        let rest = sql.get(start..).unwrap_or_default();
        let explains = rest.get(..7).is_some_and(|word| word.eq_ignore_ascii_case("explain"));
        let end = if explains { rest.len() } else { rest.find(';').unwrap_or(rest.len()) };
        let (statement, remaining) = rest.split_at(end);
        found.push(statement.trim_end_matches(|c: char| c == ';' || c.is_whitespace()));
        sql = remaining;
    }
    found
}

fn text(bytes: &[u8]) -> Result<&str, ErrorReport> {
    std::str::from_utf8(bytes).map_err(|_| {
        ErrorReport::error(SqlState::CHARACTER_NOT_IN_REPERTOIRE, "console statements are UTF-8")
    })
}

fn malformed(error: MalformedMessage) -> ErrorReport {
    error.report()
}

fn unknown(target: Target) -> ErrorReport {
    match target {
        Target::Portal => ErrorReport::error(SqlState::INVALID_CURSOR_NAME, "portal does not exist"),
        Target::Statement => {
            ErrorReport::error(SqlState::INVALID_STATEMENT_NAME, "prepared statement does not exist")
        }
    }
}

/// The format of one column: none given means text, one is for all.
fn format(formats: &[i16], column: usize) -> i16 {
    match formats {
        [] => 0,
        [all] => *all,
        each => each.get(column).copied().unwrap_or(0),
    }
}

fn describe_columns(out: &mut Vec<u8>, columns: &[console::Column], formats: &[i16]) {
    let described: Vec<Column<'_>> = columns
        .iter()
        .enumerate()
        .map(|(n, column)| {
            let (type_oid, type_len) = column.kind.type_oid_and_len();
            Column { type_oid, type_len, format: format(formats, n), ..Column::text(column.name.as_bytes()) }
        })
        .collect();
    encode::row_description(out, &described);
}

fn write_rows(
    out: &mut Vec<u8>,
    columns: &[console::Column],
    rows: &[Vec<Option<String>>],
    formats: &[i16],
) -> Result<(), ErrorReport> {
    for row in rows {
        let values = row
            .iter()
            .zip(columns)
            .enumerate()
            .map(|(n, (value, column))| {
                value.as_ref().map(|value| encoded(value, column.kind, format(formats, n))).transpose()
            })
            .collect::<Result<Vec<_>, _>>()?;
        encode::data_row(out, values.iter().map(Option::as_deref));
    }
    Ok(())
}

/// A value in the format that was asked for: 0 is text, 1 is binary.
fn encoded(value: &str, kind: ColumnKind, format: i16) -> Result<Vec<u8>, ErrorReport> {
    let unfit = || ErrorReport::error(SqlState::INTERNAL_ERROR, format!("not a number: {value}"));
    match (kind, format) {
        (_, 0) | (ColumnKind::Text, 1) => Ok(value.as_bytes().to_vec()),
        (ColumnKind::Int4, 1) => Ok(value.parse::<i32>().map_err(|_| unfit())?.to_be_bytes().to_vec()),
        (ColumnKind::Int8, 1) => Ok(value.parse::<i64>().map_err(|_| unfit())?.to_be_bytes().to_vec()),
        _ => Err(ErrorReport::error(
            SqlState::FEATURE_NOT_SUPPORTED,
            "the console gives numeric columns in text format only",
        )),
    }
}

/// As the server does, SELECT tells the number of rows and other commands do not.
fn complete(out: &mut Vec<u8>, tag: &str, rows: usize) {
    if tag == "SELECT" {
        encode::command_complete(out, format!("SELECT {rows}").as_bytes());
    } else {
        encode::command_complete(out, tag.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_told_apart() {
        assert_eq!(statements(" SHOW POOLS ; ; show clients;"), ["SHOW POOLS", "show clients"]);
        assert_eq!(statements(";;"), Vec::<&str>::new());
        let explain = "EXPLAIN ROUTE DATABASE d SELECT $$;$$; DELETE FROM t";
        assert_eq!(statements(&format!("SHOW VERSION; {explain}; ")), ["SHOW VERSION", explain]);
    }
}
