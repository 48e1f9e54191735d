//! Where programs run: a database, two Causeways before it, and tables that are as new before each run.

use std::collections::BTreeSet;
use std::fmt::Write;

use causeway_testkit::wire::Client;
use causeway_testkit::{Causeway, fresh_database, shared_cluster};
use causeway_tests::{reads_use_replicas, start};

use crate::program::Program;
use crate::session::{Answer, Session};

/// What there is before the first program. A lock that another session holds is an error soon, on both sides.
const SET_UP: &str = "
    CREATE TABLE item (id int PRIMARY KEY, name text);
    CREATE TABLE log (id serial, note text);
    CREATE SEQUENCE counter;
    CREATE SCHEMA other;
    CREATE TABLE other.item (id int PRIMARY KEY, name text);
    INSERT INTO other.item VALUES (100, 'elsewhere');
    CREATE FUNCTION touch(what text) RETURNS int LANGUAGE sql VOLATILE
        AS $$ INSERT INTO log (note) VALUES (what) RETURNING id $$;
    CREATE FUNCTION peek() RETURNS bigint LANGUAGE sql STABLE AS $$ SELECT count(*) FROM item $$;
    CREATE FUNCTION say(what text) RETURNS text LANGUAGE plpgsql IMMUTABLE
        AS $$ BEGIN RAISE NOTICE 'said %', what; RETURN what; END $$;
    CREATE FUNCTION fail(what text) RETURNS int LANGUAGE plpgsql STABLE
        AS $$ BEGIN RAISE EXCEPTION 'failed: %', what USING ERRCODE = 'P0042', HINT = 'none'; END $$;
    CREATE PROCEDURE note(what text) LANGUAGE sql AS $$ INSERT INTO log (note) VALUES (what) $$";

const AS_NEW: &str = "
    TRUNCATE item, log RESTART IDENTITY;
    ALTER SEQUENCE counter RESTART;
    INSERT INTO item VALUES (1, 'one'), (2, 'two'), (3, 'three')";

/// The locks are those of anything still under way.
const CONTENTS: &str = "
    LOCK TABLE item, log;
    SELECT 'item', id, name FROM item UNION ALL SELECT 'log', id, note FROM log ORDER BY 1, 2, 3";

/// Everything that a program's clients saw, and what it left.
#[derive(PartialEq, Eq)]
pub(crate) struct Outcome {
    /// What the sessions were told at login.
    greetings: Vec<Vec<Answer>>,
    /// The answers to each unit.
    units: Vec<Vec<Answer>>,
    /// What came after the last unit of each session.
    farewells: Vec<Vec<Answer>>,
    tables: Vec<String>,
}

/// The servers.
pub(crate) struct Stage {
    database: String,
    primary: u16,
    owner: Client,
    tables: BTreeSet<u32>,
    /// With one and with two server connections for each node, so that clients take each other's.
    causeways: [Causeway; 2],
}

impl Stage {
    pub(crate) async fn set_up() -> Self {
        let sandbox = shared_cluster().await;
        let database = fresh_database(sandbox).await;
        let primary = sandbox.primary().port();
        let mut owner = Client::login(primary, "postgres", &database).await;
        owner.rows(SET_UP).await;
        owner.rows(&format!("ALTER DATABASE {database} SET lock_timeout = '200ms'")).await;
        owner.rows(AS_NEW).await;
        let ids = owner
            .rows(
                "SELECT oid FROM pg_class WHERE relkind = 'r' AND oid < 16384 OR relname IN ('item', 'log')",
            )
            .await;
        let tables =
            ids.into_iter().flatten().flatten().map(|id| id.parse().expect("an object id")).collect();
        let causeways =
            [start(sandbox, "pool: { size: 1 }\n").await, start(sandbox, "pool: { size: 2 }\n").await];
        for causeway in &causeways {
            reads_use_replicas(causeway, &database, "SELECT count(*) FROM item").await;
        }
        Self { database, primary, owner, tables, causeways }
    }

    /// Runs the program directly and through Causeway.
    pub(crate) async fn run(&mut self, program: &Program) -> (Outcome, Outcome) {
        // Each session of a program can have a server connection of its own for as long as it likes.
        let causeway = self.causeways[program.sessions - 1].port();
        (self.run_at(self.primary, program, false).await, self.run_at(causeway, program, true).await)
    }

    async fn run_at(&mut self, port: u16, program: &Program, split: bool) -> Outcome {
        self.owner.rows(AS_NEW).await;
        let mut parameters = vec![("user", "postgres"), ("database", self.database.as_str())];
        parameters.extend_from_slice(&program.startup);
        let (mut sessions, mut greetings) = (Vec::new(), Vec::new());
        for _ in 0..program.sessions {
            let (session, greeting) = Session::login(port, &parameters, &self.tables).await;
            sessions.push(session);
            greetings.push(greeting);
        }
        let mut units = Vec::new();
        for unit in &program.units {
            units.push(sessions[unit.session].carry_out(unit, split).await);
        }
        let mut farewells = Vec::new();
        for session in sessions {
            farewells.push(session.leave().await);
        }
        let answer = self.owner.query(CONTENTS).await;
        let tables = answer.iter().map(|message| format!("{message:?}")).collect();
        Outcome { greetings, units, farewells, tables }
    }

    /// Fails the test unless every server connection comes to rest.
    pub(crate) async fn is_at_rest(&self) {
        for causeway in &self.causeways {
            let nothing = |value: f64| value < 0.5;
            causeway.wait_for_metric("causeway_backend_in_flight", &[], nothing).await;
            causeway.wait_for_metric("causeway_backend_connections", &[("state", "active")], nothing).await;
            causeway.wait_for_metric("causeway_checkout_waiters", &[], nothing).await;
        }
    }

    /// Ends the Causeways, whose logs must hold no warning.
    pub(crate) async fn close(self) {
        for causeway in self.causeways {
            causeway.stop().await;
        }
    }
}

impl Outcome {
    /// Where the two differ, in lines.
    pub(crate) fn difference(program: &Program, direct: &Self, through: &Self) -> String {
        let mut text = String::new();
        let mut compare = |what: &str, direct: &[Answer], through: &[Answer]| {
            if direct != through {
                writeln!(text, "  differs: {what}\n    direct:  {direct:?}\n    through: {through:?}")
                    .expect("writing to a string");
                if format!("{direct:?}") == format!("{through:?}") {
                    text += &hidden(direct, through);
                }
            }
        };
        let greetings = direct.greetings.iter().zip(&through.greetings);
        greetings.for_each(|(direct, through)| compare("greeting", direct, through));
        for (unit, (direct, through)) in program.units.iter().zip(direct.units.iter().zip(&through.units)) {
            compare(&unit.to_string(), direct, through);
        }
        let farewells = direct.farewells.iter().zip(&through.farewells);
        farewells.for_each(|(direct, through)| compare("after the last unit", direct, through));
        if direct.tables != through.tables {
            writeln!(
                text,
                "  differs: tables\n    direct:  {:?}\n    through: {:?}",
                direct.tables, through.tables
            )
            .expect("writing to a string");
        }
        text
    }
}

/// The bytes of the first messages that differ though they print alike.
fn hidden(direct: &[Answer], through: &[Answer]) -> String {
    let bytes = |answer: &Answer| match answer {
        Answer::Message(message) => String::from_utf8_lossy(&message.body).replace('\0', " ~ "),
        other => format!("{other:?}"),
    };
    let differing = direct.iter().zip(through).find(|(direct, through)| direct != through);
    differing.map_or_else(String::new, |(direct, through)| {
        format!("    in bytes: {:?}\n    against:  {:?}\n", bytes(direct), bytes(through))
    })
}
