//! A tiny PostgreSQL: the rules of its protocol, prepared statements, portals, transactions and settings, over a
//! handful of statements. What is modelled follows `src/backend/tcop/postgres.c`.

use std::collections::BTreeMap;

use causeway_protocol::backend::{Column, TransactionStatus};
use causeway_protocol::encode;
use causeway_protocol::frame;
use causeway_protocol::frontend::{self, Target};

type Map = BTreeMap<String, String>;

#[derive(Clone, Debug)]
struct Portal {
    sql: String,
    /// What it has still to give, once it has been run.
    rows: Option<Vec<String>>,
    /// A command that has been run.
    done: bool,
}

#[derive(Debug)]
struct Copy {
    extended: bool,
    rows: u32,
    /// What follows in the text of a simple query.
    rest: Vec<String>,
}

struct Failure(&'static str, String);

/// A server process.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are as independent as the server's own globals")]
pub(super) struct Model {
    standby: bool,
    input: Vec<u8>,
    unflushed: Vec<u8>,
    output: Vec<u8>,
    named: BTreeMap<String, String>,
    unnamed: Option<String>,
    portals: BTreeMap<String, Portal>,
    status: TransactionStatus,
    read_only: bool,
    /// Something was executed in the running transaction.
    executed: bool,
    /// A transaction was ended by a command since the last `ReadyForQuery`.
    ended: bool,
    skipping: bool,
    copy: Option<Copy>,
    /// What its settings were at the start.
    base: Map,
    settings: Map,
    local: Map,
    /// The settings before the running transaction, be it an implicit one.
    before: Option<Map>,
    savepoints: Vec<(String, Map, Map)>,
    reported: String,
    /// Something that cannot be taken back was sent since the last ReadyForQuery.
    shown: bool,
}

fn fails<T>(code: &'static str, message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure(code, message.into()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn returns_rows(sql: &str) -> bool {
    ["SELECT", "SHOW", "EXECUTE"].iter().any(|word| sql.starts_with(word))
}

fn ends_transaction(sql: &str) -> bool {
    ["COMMIT", "ROLLBACK"].iter().any(|word| sql.starts_with(word))
}

/// What stands between the first pair of quotes.
fn quoted(text: &str, quote: char) -> Option<&str> {
    text.split(quote).nth(1)
}

// === impl Model ===

impl Model {
    /// The values of its settings.
    pub(super) fn settings(&self) -> &Map {
        &self.settings
    }

    pub(super) fn new(standby: bool, settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter().map(|(name, value)| (name.to_ascii_lowercase(), (*value).to_owned()));
        let settings: Map = settings.collect();
        let reported = settings.get("timezone").cloned().unwrap_or_default();
        Self {
            standby,
            input: Vec::new(),
            unflushed: Vec::new(),
            output: Vec::new(),
            named: BTreeMap::new(),
            unnamed: None,
            portals: BTreeMap::new(),
            status: TransactionStatus::Idle,
            read_only: false,
            executed: false,
            ended: false,
            skipping: false,
            copy: None,
            base: settings.clone(),
            settings,
            local: Map::new(),
            before: None,
            savepoints: Vec::new(),
            reported,
            shown: false,
        }
    }

    /// Takes what a client has sent and does what is complete of it.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        while let Some((frame, len)) =
            frame::split(&input[at..], frame::MAX_FRAME_LEN).expect("a client's frame")
        {
            self.message(frame.tag, frame.body);
            at += len;
        }
        self.input = input[at..].to_vec();
    }

    /// What it has sent and not been relieved of: only what it has flushed.
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Whether nothing of anybody's is left running here.
    pub(super) fn is_resting(&self) -> bool {
        self.status == TransactionStatus::Idle
            && self.before.is_none()
            && self.copy.is_none()
            && !self.skipping
            && self.input.is_empty()
            && self.unflushed.is_empty()
    }

    fn flush(&mut self) {
        self.output.append(&mut self.unflushed);
    }

    fn message(&mut self, tag: u8, body: &[u8]) {
        if self.copy.is_some() {
            return self.copy_message(tag, body);
        }
        if self.skipping && tag != b'S' {
            return;
        }
        let done = match tag {
            b'Q' => return self.query(&text(frontend::query(body).unwrap())),
            b'S' => return self.sync(),
            b'H' => {
                self.flush();
                Ok(())
            }
            b'd' | b'c' | b'f' => Ok(()),
            b'P' => self.parse(body),
            b'B' => self.bind(body),
            b'D' => self.describe(body),
            b'E' => self.execute(body),
            b'C' => {
                self.start();
                let close = frontend::close(body).unwrap();
                match (close.target, close.name) {
                    (Target::Portal, name) => drop(self.portals.remove(&text(name))),
                    (Target::Statement, b"") => self.unnamed = None,
                    (Target::Statement, name) => drop(self.named.remove(&text(name))),
                }
                self.shown = true;
                encode::close_complete(&mut self.unflushed);
                Ok(())
            }
            _ => panic!("no message for a server: {}", char::from(tag)),
        };
        if let Err(failure) = done {
            self.fail(&failure);
            self.skipping = true;
        }
    }

    // === transactions ===

    fn start(&mut self) {
        if self.before.is_none() {
            self.before = Some(self.settings.clone());
        }
    }

    fn end(&mut self, keep: bool) {
        if let Some(before) = self.before.take()
            && !keep
        {
            self.settings = before;
        }
        self.local.clear();
        self.savepoints.clear();
        self.portals.clear();
        self.status = TransactionStatus::Idle;
        self.read_only = false;
        self.executed = false;
    }

    fn fail(&mut self, Failure(code, message): &Failure) {
        let body = format!("SERROR\0VERROR\0C{code}\0M{message}\0\0");
        encode::raw(&mut self.unflushed, b'E', body.as_bytes());
        self.flush();
        if self.status == TransactionStatus::Idle {
            self.end(false);
        } else {
            self.status = TransactionStatus::Failed;
        }
    }

    fn notice(&mut self, message: &str) {
        let body = format!("SWARNING\0VWARNING\0C25000\0M{message}\0\0");
        encode::raw(&mut self.unflushed, b'N', body.as_bytes());
        self.flush();
    }

    fn sync(&mut self) {
        self.skipping = false;
        self.ready();
    }

    fn ready(&mut self) {
        if self.status == TransactionStatus::Idle {
            self.end(true);
        }
        let zone = self.shown_setting("timezone");
        if zone != self.reported {
            encode::parameter_status(&mut self.unflushed, b"TimeZone", zone.as_bytes());
            self.reported = zone;
        }
        encode::ready_for_query(&mut self.unflushed, self.status);
        self.flush();
        (self.shown, self.ended) = (false, false);
    }

    fn shown_setting(&self, name: &str) -> String {
        self.local.get(name).or(self.settings.get(name)).cloned().unwrap_or_default()
    }

    // === messages ===

    /// What is wrong with a text at Parse.
    fn analyse(&self, sql: &str) -> Result<(), Failure> {
        if sql.starts_with("SELEC ") || sql == "SELEC" {
            return fails("42601", "syntax error at or near \"SELEC\"");
        }
        self.allowed(sql)?;
        let lags = self.standby && !self.shown && self.status == TransactionStatus::Idle;
        match sql {
            "SELECT missing" => fails("42703", "column \"missing\" does not exist"),
            "SELECT lag" if lags => fails("42P01", "relation \"lag\" does not exist"),
            _ => Ok(()),
        }
    }

    fn allowed(&self, sql: &str) -> Result<(), Failure> {
        if self.status == TransactionStatus::Failed && !ends_transaction(sql) {
            return fails("25P02", "current transaction is aborted");
        }
        Ok(())
    }

    fn parse(&mut self, body: &[u8]) -> Result<(), Failure> {
        let parse = frontend::parse(body).unwrap();
        let (name, sql) = (text(parse.name), text(parse.sql));
        self.start();
        if name.is_empty() {
            self.unnamed = None;
        }
        // In a failed transaction a server would look at the text first, and might find the name taken. A proxy would have to prepare
        // what has the name first, and cannot: it is refused for that reason, here as well.
        if self.status == TransactionStatus::Failed && self.named.contains_key(&name) {
            return fails("25P02", "current transaction is aborted");
        }
        self.analyse(&sql)?;
        if name.is_empty() {
            self.unnamed = Some(sql);
        } else {
            self.store(&name, sql)?;
        }
        encode::parse_complete(&mut self.unflushed);
        Ok(())
    }

    fn store(&mut self, name: &str, sql: String) -> Result<(), Failure> {
        if self.named.contains_key(name) {
            return fails("42P05", format!("prepared statement \"{name}\" already exists"));
        }
        self.named.insert(name.to_owned(), sql);
        Ok(())
    }

    fn statement(&self, name: &str) -> Result<String, Failure> {
        let found = if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) };
        match found {
            Some(sql) => Ok(sql.clone()),
            None if name.is_empty() => fails("26000", "unnamed prepared statement does not exist"),
            None => fails("26000", format!("prepared statement \"{name}\" does not exist")),
        }
    }

    fn bind(&mut self, body: &[u8]) -> Result<(), Failure> {
        let names = frontend::bind_names(body).unwrap().unwrap();
        let (portal, name) = (text(names.portal), text(names.statement));
        self.start();
        let sql = self.statement(&name)?;
        self.allowed(&sql)?;
        if !portal.is_empty() && self.portals.contains_key(&portal) {
            return fails("42P03", format!("cursor \"{portal}\" already exists"));
        }
        self.portals.insert(portal, Portal { sql, rows: None, done: false });
        encode::bind_complete(&mut self.unflushed);
        Ok(())
    }

    fn portal(&self, name: &str) -> Result<Portal, Failure> {
        match self.portals.get(name) {
            Some(portal) => Ok(portal.clone()),
            None => fails("34000", format!("portal \"{name}\" does not exist")),
        }
    }

    fn describe(&mut self, body: &[u8]) -> Result<(), Failure> {
        let describe = frontend::describe(body).unwrap();
        let name = text(describe.name);
        self.start();
        let sql = match describe.target {
            Target::Statement => self.statement(&name)?,
            Target::Portal => self.portal(&name)?.sql,
        };
        // A server would describe what gives no rows even in a failed transaction; the same reservation.
        if returns_rows(&sql) || describe.target == Target::Statement {
            self.allowed(&sql)?;
        }
        if describe.target == Target::Statement {
            encode::parameter_description(&mut self.unflushed, []);
        }
        if returns_rows(&sql) {
            encode::row_description(&mut self.unflushed, &[Column::text(b"x")]);
        } else {
            encode::no_data(&mut self.unflushed);
        }
        Ok(())
    }

    fn execute(&mut self, body: &[u8]) -> Result<(), Failure> {
        let execute = frontend::execute(body).unwrap();
        let name = text(execute.portal);
        self.start();
        let mut portal = self.portal(&name)?;
        if portal.sql.is_empty() {
            self.shown = true;
            encode::empty_query_response(&mut self.unflushed);
            return Ok(());
        }
        self.allowed(&portal.sql)?;
        if portal.done {
            return fails("55000", format!("portal \"{name}\" cannot be run"));
        }
        let sql = portal.sql.clone();
        if !returns_rows(&sql) {
            if let Some(kept) = self.portals.get_mut(&name) {
                kept.done = true;
            }
            if sql.starts_with("COPY t FROM") {
                return self.copy_in(Copy { extended: true, rows: 0, rest: Vec::new() });
            }
            let tag = self.run(&sql, true)?;
            self.executed = self.before.is_some();
            self.complete(&tag);
            return Ok(());
        }
        let mut rows = match portal.rows.take() {
            Some(rows) => rows,
            None => self.rows(&sql)?,
        };
        let limit = usize::try_from(execute.max_rows).ok().filter(|max| *max > 0);
        let given = limit.unwrap_or(usize::MAX).min(rows.len());
        for row in rows.drain(..given) {
            encode::data_row(&mut self.unflushed, [Some(row.as_bytes())]);
        }
        self.executed = true;
        self.shown = true;
        portal.rows = Some(rows);
        self.portals.insert(name, portal);
        if limit == Some(given) {
            encode::portal_suspended(&mut self.unflushed);
        } else {
            self.complete(&format!("SELECT {given}"));
        }
        Ok(())
    }

    fn complete(&mut self, tag: &str) {
        self.shown = true;
        encode::command_complete(&mut self.unflushed, tag.as_bytes());
    }

    fn query(&mut self, sql: &str) {
        self.start();
        self.unnamed = None;
        let parts: Vec<String> = sql.split(';').map(|part| part.trim().to_owned()).collect();
        if parts.iter().any(|part| part.starts_with("SELEC") && !part.starts_with("SELECT")) {
            self.fail(&Failure("42601", "syntax error at or near \"SELEC\"".to_owned()));
            return self.ready();
        }
        if sql.is_empty() {
            self.shown = true;
            encode::empty_query_response(&mut self.unflushed);
            return self.ready();
        }
        self.parts(parts);
    }

    fn parts(&mut self, parts: Vec<String>) {
        let single = parts.len() == 1;
        let mut parts = parts.into_iter();
        while let Some(sql) = parts.next() {
            self.start();
            match self.part(&sql, single) {
                Ok(false) => {}
                Ok(true) => {
                    let copy = Copy { extended: false, rows: 0, rest: parts.collect() };
                    match self.copy_in(copy) {
                        Ok(()) => return,
                        Err(failure) => {
                            self.fail(&failure);
                            return self.ready();
                        }
                    }
                }
                Err(failure) => {
                    self.fail(&failure);
                    break;
                }
            }
        }
        self.ready();
    }

    /// One statement of a simple query; says whether it is a COPY from the client.
    fn part(&mut self, sql: &str, single: bool) -> Result<bool, Failure> {
        self.analyse(sql)?;
        if sql.starts_with("COPY t FROM") {
            return Ok(true);
        }
        if returns_rows(sql) {
            let rows = self.rows(sql)?;
            self.shown = true;
            encode::row_description(&mut self.unflushed, &[Column::text(b"x")]);
            for row in &rows {
                encode::data_row(&mut self.unflushed, [Some(row.as_bytes())]);
            }
            self.complete(&format!("SELECT {}", rows.len()));
        } else {
            let tag = self.run(sql, single && !self.executed)?;
            self.complete(&tag);
        }
        self.executed = self.before.is_some();
        Ok(false)
    }

    // === statements ===

    fn rows(&mut self, sql: &str) -> Result<Vec<String>, Failure> {
        if sql == "SELECT 1/0" {
            return fails("22012", "division by zero");
        }
        if sql == "SELECT generate_series(1,3)" {
            return Ok(["1", "2", "3"].map(str::to_owned).into());
        }
        if let Some(name) = sql.strip_prefix("EXECUTE ") {
            let prepared = self.statement(name)?;
            return self.rows(&prepared);
        }
        if let Some(name) = sql.strip_prefix("SHOW ") {
            return Ok(vec![self.shown_setting(&name.to_ascii_lowercase())]);
        }
        if let Some(call) = sql.split("set_config(").nth(1) {
            let mut arguments = call.split('\'');
            let name = arguments.nth(1).unwrap_or_default().to_ascii_lowercase();
            let value = arguments.nth(1).unwrap_or_default().to_owned();
            self.set(&name, value.clone());
            return Ok(vec![value]);
        }
        Ok(vec![sql.trim_start_matches("SELECT ").to_owned()])
    }

    /// A standby refuses all of them; but a session that goes over to a transaction that may write in the middle of a
    /// read-only one cannot leave its server.
    fn refuses_writes(&self) -> bool {
        self.read_only || self.standby && self.status == TransactionStatus::Idle && !self.ended
    }

    fn set(&mut self, name: &str, value: String) {
        self.local.remove(name);
        self.settings.insert(name.to_owned(), value);
    }

    /// `alone`: nothing else was executed in its transaction.
    fn run(&mut self, sql: &str, alone: bool) -> Result<String, Failure> {
        let mut words = sql.split_whitespace();
        let (verb, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let tag = match verb {
            "BEGIN" | "COMMIT" | "ROLLBACK" | "SAVEPOINT" | "RELEASE" => return self.control(sql),
            "INSERT" if self.refuses_writes() => {
                return fails("25006", "cannot execute INSERT in a read-only transaction");
            }
            "INSERT" => "INSERT 0 1",
            "COPY" => {
                encode::copy_out_response(&mut self.unflushed, 0, 1);
                encode::copy_data(&mut self.unflushed, b"row");
                encode::copy_done(&mut self.unflushed);
                "COPY 1"
            }
            "SET" | "RESET" => {
                self.set_or_reset(sql);
                verb
            }
            "PREPARE" => {
                self.store(second, sql.split(" AS ").nth(1).unwrap_or_default().to_owned())?;
                "PREPARE"
            }
            "DEALLOCATE" if second == "ALL" => {
                self.named.clear();
                "DEALLOCATE ALL"
            }
            "DEALLOCATE" => {
                self.statement(second)?;
                self.named.remove(second);
                "DEALLOCATE"
            }
            "DISCARD" if !alone || self.status != TransactionStatus::Idle => {
                return fails("25001", "DISCARD ALL cannot run inside a transaction block");
            }
            "DISCARD" => {
                self.named.clear();
                self.settings.clone_from(&self.base);
                self.portals.clear();
                "DISCARD ALL"
            }
            "LISTEN" => "LISTEN",
            _ => panic!("not modelled: {sql}"),
        };
        Ok(tag.to_owned())
    }

    /// `SET a = 'x'`, `SET LOCAL a = 'x'`, `SET a TO DEFAULT`, `RESET a`, `RESET ALL`, names quoted or not.
    fn set_or_reset(&mut self, sql: &str) {
        let sql = sql.replace('"', "");
        let local = sql.starts_with("SET LOCAL ");
        let rest = sql.trim_start_matches("SET ").trim_start_matches("RESET ").trim_start_matches("LOCAL ");
        let name = rest.split(' ').next().unwrap_or_default().to_ascii_lowercase();
        match quoted(&sql, '\'') {
            Some(value) if local => {
                if self.status != TransactionStatus::Idle {
                    self.local.insert(name, value.to_owned());
                }
            }
            Some(value) => self.set(&name, value.to_owned()),
            None if name == "all" => {
                self.settings.clone_from(&self.base);
                self.local.clear();
            }
            None => {
                match self.base.get(&name) {
                    Some(value) => drop(self.settings.insert(name.clone(), value.clone())),
                    None => drop(self.settings.remove(&name)),
                }
                self.local.remove(&name);
            }
        }
    }

    fn control(&mut self, sql: &str) -> Result<String, Failure> {
        let idle = self.status == TransactionStatus::Idle;
        let name = sql.rsplit(' ').next().unwrap_or_default();
        match sql {
            "BEGIN" | "BEGIN READ ONLY" => {
                if !idle {
                    self.notice("there is already a transaction in progress");
                }
                self.status = TransactionStatus::InTransaction;
                self.read_only |= sql == "BEGIN READ ONLY";
                Ok("BEGIN".to_owned())
            }
            "COMMIT" | "ROLLBACK" => {
                if idle {
                    self.notice("there is no transaction in progress");
                }
                let keep = sql == "COMMIT" && self.status != TransactionStatus::Failed;
                self.end(keep);
                self.ended = true;
                Ok(if keep { "COMMIT" } else { "ROLLBACK" }.to_owned())
            }
            "COMMIT AND CHAIN" | "ROLLBACK AND CHAIN" => {
                if idle {
                    return fails("25P01", "AND CHAIN can only be used in transaction blocks");
                }
                let keep = sql == "COMMIT AND CHAIN" && self.status != TransactionStatus::Failed;
                let read_only = self.read_only;
                self.end(keep);
                self.start();
                self.status = TransactionStatus::InTransaction;
                self.read_only = read_only;
                Ok(if keep { "COMMIT" } else { "ROLLBACK" }.to_owned())
            }
            _ if idle => fails("25P01", "only in transaction blocks"),
            _ if sql.starts_with("SAVEPOINT") => {
                self.savepoints.push((name.to_owned(), self.settings.clone(), self.local.clone()));
                Ok("SAVEPOINT".to_owned())
            }
            _ => {
                let Some(at) = self.savepoints.iter().rposition(|savepoint| savepoint.0 == name) else {
                    return fails("3B001", format!("savepoint \"{name}\" does not exist"));
                };
                if sql.starts_with("RELEASE") {
                    self.savepoints.truncate(at);
                    return Ok("RELEASE".to_owned());
                }
                self.savepoints.truncate(at + 1);
                (self.settings, self.local) = (self.savepoints[at].1.clone(), self.savepoints[at].2.clone());
                self.portals.clear();
                self.status = TransactionStatus::InTransaction;
                Ok("ROLLBACK".to_owned())
            }
        }
    }

    // === COPY from the client ===

    fn copy_in(&mut self, copy: Copy) -> Result<(), Failure> {
        if self.refuses_writes() {
            return fails("25006", "cannot execute COPY FROM in a read-only transaction");
        }
        self.shown = true;
        encode::copy_in_response(&mut self.unflushed, 0, 1);
        self.flush();
        self.copy = Some(copy);
        Ok(())
    }

    fn copy_message(&mut self, tag: u8, body: &[u8]) {
        let failure = match tag {
            b'S' | b'H' => return,
            b'd' if body != b"bad" => {
                if let Some(copy) = &mut self.copy {
                    copy.rows += 1;
                }
                return;
            }
            b'c' => {
                let Some(copy) = self.copy.take() else { return };
                self.complete(&format!("COPY {}", copy.rows));
                self.executed = true;
                if !copy.extended {
                    self.parts(copy.rest);
                }
                return;
            }
            b'd' => Failure("22P02", "invalid input syntax".to_owned()),
            b'f' => Failure("57014", format!("COPY from stdin failed: {}", text(&body[..body.len() - 1]))),
            _ => Failure("08P01", "unexpected message type during COPY from stdin".to_owned()),
        };
        let extended = self.copy.take().is_some_and(|copy| copy.extended);
        self.fail(&failure);
        if extended {
            self.skipping = true;
        } else {
            self.ready();
        }
    }
}
