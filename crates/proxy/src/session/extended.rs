//! The messages of the extended protocol: names are resolved here, servers know statements by others.

use std::sync::Arc;

use causeway_protocol::frame::HEADER_LEN;
use causeway_protocol::frontend::{self, Target};
use causeway_protocol::pipeline::Request;
use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use causeway_routing::{Class, Command, PinReason, Reason};

use super::admit::{Admitted, At, malformed, unexpected};
use super::own;
use super::statements::{Content, SERVER_NAME_PREFIX, Statement};
use super::unit::{Item, Note, is_tracked};
use super::{Lookups, Session};

// === impl Session ===

impl Session {
    pub(super) fn admit_parse(&mut self, at: &At<'_>, lookups: &Lookups<'_>) -> Result<(), ErrorReport> {
        let parse = frontend::parse(at.body).map_err(malformed)?;
        if self.is_prepared_by_sql(parse.name) {
            // The server says that there is one; or accepts it, if it is gone by now.
            self.keep_under_own_name(parse.name, at);
            return Ok(());
        }
        let class = lookups.classify(parse.sql, self.parameters.syntax);
        self.unit.heed(parse.sql);
        self.judge(&class, lookups);
        self.look_for_databases(&class, parse.sql);
        let rewritten = own::failing(&class).or_else(|| self.deallocate_on_server(&class));
        let sql = rewritten.as_deref().unwrap_or(parse.sql);
        let known = self.statements.find(parse.name);
        if parse.name.is_empty() {
            self.server.unread_unnamed = false;
            let same = |statement: &&Arc<Statement>| {
                *statement.sql == *sql
                    && Arc::ptr_eq(&statement.class, &class)
                    && statement.types.iter().copied().eq(parse.types.iter())
            };
            if let Some(statement) = known.filter(same).map(Arc::clone) {
                let note = self.unit.note(Note::Unnamed { previous: Some(Arc::clone(&statement)) });
                self.unit.items.push(Item::Parse { statement, note });
                return Ok(());
            }
        }
        let types: Vec<u32> = parse.types.iter().collect();
        let parse_settings = self.settings.parse_key();
        let content = Content { sql, types: &types, parse_settings, class: &class };
        if parse.name.is_empty() {
            let statement = lookups.registry.unnamed(&content);
            let previous = self.statements.insert(b"", Arc::clone(&statement));
            let note = self.unit.note(Note::Unnamed { previous });
            self.unit.items.push(Item::Parse { statement, note });
            return Ok(());
        }
        let statement = lookups.registry.named(&content);
        if let Some(taken) = known {
            let taken = Arc::clone(taken);
            let note = self.unit.note(Note::Refused { name: parse.name.into() });
            self.unit.items.push(Item::ParseAgain { statement, taken, note });
            return Ok(());
        }
        self.statements.insert(parse.name, Arc::clone(&statement));
        let note =
            self.unit.note(Note::Parsed { name: parse.name.into(), statement: Arc::clone(&statement) });
        self.unit.items.push(Item::Parse { statement, note });
        Ok(())
    }

    /// A Parse too long to be kept: it goes to one server under the client's own name. For a named one the session stays
    /// there; an unnamed one is gone with the transaction.
    pub(super) fn admit_large_parse(&mut self, at: &At<'_>) {
        let name = at.body.split(|byte| *byte == 0).next().unwrap_or_default();
        self.keep_under_own_name(name, at);
    }

    fn keep_under_own_name(&mut self, name: &[u8], at: &At<'_>) {
        self.statements.remove(name);
        self.unit.demand.primary(Reason::TooComplex);
        if name.is_empty() {
            self.server.unread_unnamed = true;
        } else {
            self.unit.pins.insert(PinReason::SqlPrepare);
        }
        self.raw(Some(Request::Parse), at, 0);
    }

    pub(super) fn admit_bind(
        &mut self,
        at: &At<'_>,
        lookups: &Lookups<'_>,
    ) -> Result<Option<Admitted>, ErrorReport> {
        let Some(names) = frontend::bind_names(at.body).map_err(malformed)? else {
            return if at.complete { Err(unexpected(at)) } else { Ok(Some(Admitted::NeedMore)) };
        };
        let Some(statement) = self.statements.find(names.statement).map(Arc::clone) else {
            refuse_server_name(names.statement)?;
            self.unknown_statement(Request::Bind, names.statement, at);
            return Ok(None);
        };
        self.unit.heed(&statement.sql);
        self.judge(&statement.class, lookups);
        self.remember_portal(names.portal, &statement.class);
        self.unit.keeps_portal |= !names.portal.is_empty();
        let note = self.unit.uses(&statement);
        let body = at.frame.start + HEADER_LEN;
        let item = Item::Bind {
            statement,
            portal: body..body + names.portal.len(),
            rest: body + names.rest_at..at.frame.end,
            note,
        };
        self.unit.items.push(item);
        Ok(None)
    }

    pub(super) fn admit_describe(&mut self, at: &At<'_>, lookups: &Lookups<'_>) -> Result<(), ErrorReport> {
        let describe = frontend::describe(at.body).map_err(malformed)?;
        if describe.target == Target::Portal {
            self.raw(Some(Request::DescribePortal), at, 0);
            return Ok(());
        }
        if let Some(statement) = self.statements.find(describe.name).map(Arc::clone) {
            self.judge(&statement.class, lookups);
            let note = self.unit.uses(&statement);
            self.unit.items.push(Item::Describe { statement, note });
            return Ok(());
        }
        refuse_server_name(describe.name)?;
        self.unknown_statement(Request::DescribeStatement, describe.name, at);
        Ok(())
    }

    /// Remembers what executing this portal will do. Portals live to the end of their transaction.
    fn remember_portal(&mut self, portal: &[u8], class: &Arc<Class>) {
        self.portals.retain(|(name, _)| **name != *portal);
        if is_tracked(class) {
            self.portals.push((portal.into(), Arc::clone(class)));
        }
    }

    /// DEALLOCATE of a statement that was prepared by the protocol, for the server, which knows it by another name.
    fn deallocate_on_server(&mut self, class: &Class) -> Option<Box<[u8]>> {
        let [Command::Deallocate(Some(name))] = &*class.commands else { return None };
        let statement = Arc::clone(self.statements.find(name.as_bytes())?);
        let sql = [b"DEALLOCATE ", &*statement.server_name].concat();
        self.unit.items.push(Item::Ensure { statement });
        Some(sql.into())
    }

    /// A statement that the client did not prepare by the protocol: SQL may have done it, or the server says no.
    fn unknown_statement(&mut self, request: Request, name: &[u8], at: &At<'_>) {
        self.unit.demand.primary(Reason::SessionState);
        if name.is_empty() && !self.server.unread_unnamed {
            self.unit.items.push(Item::WithoutUnnamed { request, frame: at.frame.clone() });
        } else {
            self.raw(Some(request), at, 0);
        }
    }

    pub(super) fn admit_execute(&mut self, at: &At<'_>) -> Result<(), ErrorReport> {
        let execute = frontend::execute(at.body).map_err(malformed)?;
        self.unit.keeps_portal |= execute.max_rows > 0;
        let portal = self.portals.iter().find(|(name, _)| **name == *execute.portal);
        let class = portal.map(|(_, class)| Arc::clone(class));
        let note = class.map_or(0, |class| self.commands(&class));
        self.raw(Some(Request::Execute), at, note);
        Ok(())
    }

    pub(super) fn admit_close(&mut self, at: &At<'_>) -> Result<(), ErrorReport> {
        let close = frontend::close(at.body).map_err(malformed)?;
        if close.target == Target::Portal {
            self.raw(Some(Request::Close), at, 0);
            return Ok(());
        }
        match self.statements.remove(close.name) {
            Some(statement) => {
                let note = self.unit.note(Note::Closed { name: close.name.into(), statement });
                self.unit.items.push(Item::CloseStatement { note });
            }
            // Closing an unknown name is no error, but SQL may have prepared something under it.
            None if self.left.keeps() => {
                refuse_server_name(close.name)?;
                self.raw(Some(Request::Close), at, 0);
            }
            None => self.unit.items.push(Item::CloseStatement { note: 0 }),
        }
        Ok(())
    }
}

/// Other clients' statements have names that no client may use.
fn refuse_server_name(name: &[u8]) -> Result<(), ErrorReport> {
    if !name.starts_with(SERVER_NAME_PREFIX) {
        return Ok(());
    }
    let name = String::from_utf8_lossy(name).into_owned();
    let message = format!("prepared statement \"{name}\" does not exist");
    Err(ErrorReport::fatal(SqlState::INVALID_STATEMENT_NAME, message)
        .with_detail("Names that begin with \"causeway_\" are those of server-side statements."))
}
