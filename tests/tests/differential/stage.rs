//! Where programs run: a database, a Causeway before it, and tables that are as new before each run.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use causeway_testkit::wire::Client;
use causeway_testkit::{Causeway, fresh_database, shared_cluster};
use causeway_tests::{reads_use_replicas, start};

use crate::program::Program;
use crate::session::{Answer, Session};

/// What there is before the first program. No table has one for large values beside it: TRUNCATE, which each run begins
/// with, makes files for all of them.
const SET_UP: &str = "
    CREATE TABLE item (id int PRIMARY KEY, name varchar(40));
    CREATE TABLE log (id serial, note varchar(40));
    CREATE SEQUENCE counter;
    CREATE TABLE mark (n int);
    INSERT INTO mark VALUES (0);
    CREATE SCHEMA other;
    CREATE TABLE other.item (id int PRIMARY KEY, name varchar(40));
    CREATE FUNCTION touch(what text) RETURNS int LANGUAGE sql VOLATILE
        AS $$ INSERT INTO log (note) VALUES (what) RETURNING id $$;
    CREATE FUNCTION peek() RETURNS bigint LANGUAGE sql STABLE AS $$ SELECT count(*) FROM item $$;
    CREATE FUNCTION say(what text) RETURNS text LANGUAGE plpgsql VOLATILE
        AS $$ BEGIN RAISE NOTICE 'said %', what; RETURN what; END $$;
    CREATE FUNCTION fail(what text) RETURNS int LANGUAGE plpgsql STABLE
        AS $$ BEGIN RAISE EXCEPTION 'failed: %', what USING ERRCODE = 'P0042', HINT = 'none'; END $$;
    CREATE PROCEDURE note(what text) LANGUAGE sql AS $$ INSERT INTO log (note) VALUES (what) $$";

const AS_NEW: &str = "
    TRUNCATE item, other.item, log RESTART IDENTITY;
    ALTER SEQUENCE counter RESTART;
    INSERT INTO other.item VALUES (1, 'elsewhere');
    INSERT INTO item VALUES (1, 'one'), (2, 'two'), (3, 'three')";

/// The locks are those of anything still under way.
const CONTENTS: &str = "
    LOCK TABLE item, other.item, log;
    SELECT 'item', id, name FROM item UNION ALL SELECT 'other', id, name FROM other.item
        UNION ALL SELECT 'log', id, note FROM log ORDER BY 1, 2, 3";

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
    replicas: Vec<Client>,
    marks: u32,
    tables: BTreeSet<u32>,
    /// With so few server connections that clients take each other's.
    causeway: Causeway,
}

impl Stage {
    /// With as many server connections for each node as a program has sessions: each can keep one for as long as it
    /// likes.
    pub(crate) async fn set_up(sessions: usize) -> Self {
        let sandbox = shared_cluster().await;
        let database = fresh_database(sandbox).await;
        let primary = sandbox.primary().port();
        let mut owner = Client::login(primary, "postgres", &database).await;
        owner.rows(SET_UP).await;
        // A lock that another session holds is an error soon, on both sides.
        owner.rows(&format!("ALTER DATABASE {database} SET lock_timeout = '100ms'")).await;
        owner.rows(AS_NEW).await;
        let ids = owner
            .rows(
                "SELECT oid FROM pg_class WHERE relkind = 'r' AND oid < 16384 OR relname IN ('item', 'log')",
            )
            .await;
        let tables =
            ids.into_iter().flatten().flatten().map(|id| id.parse().expect("an object id")).collect();
        let causeway = start(sandbox, &format!("pool: {{ size: {sessions} }}\n")).await;
        reads_use_replicas(&causeway, &database, "SELECT count(*) FROM item").await;
        let mut replicas = Vec::new();
        for node in sandbox.nodes().iter().filter(|node| node.port() != primary) {
            replicas.push(Client::login(node.port(), "postgres", &database).await);
        }
        Self { database, primary, owner, replicas, marks: 0, tables, causeway }
    }

    /// Waits until the replicas show all that is committed: of other sessions' writes the default level promises nothing.
    async fn replicas_show_everything(&mut self) {
        self.marks += 1;
        let mark = self.marks.to_string();
        self.owner.rows(&format!("UPDATE mark SET n = {mark}")).await;
        for replica in &mut self.replicas {
            while replica.one("SELECT n FROM mark").await != mark {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    /// Runs the program directly and through Causeway.
    pub(crate) async fn run(&mut self, program: &Program) -> (Outcome, Outcome) {
        let causeway = self.causeway.port();
        (self.run_at(self.primary, program).await, self.run_at(causeway, program).await)
    }

    async fn run_at(&mut self, port: u16, program: &Program) -> Outcome {
        self.owner.rows(AS_NEW).await;
        let through = port != self.primary;
        if through {
            self.replicas_show_everything().await;
        }
        let database = self.database.clone();
        let tables = self.tables.clone();
        let mut parameters = vec![("user", "postgres"), ("database", database.as_str())];
        parameters.extend_from_slice(&program.startup);
        let (mut sessions, mut greetings) = (Vec::new(), Vec::new());
        for _ in 0..program.sessions {
            let (session, greeting) = Session::login(port, &parameters, &tables).await;
            sessions.push(session);
            greetings.push(greeting);
        }
        let mut units = Vec::new();
        for unit in &program.units {
            units.push(sessions[unit.session].carry_out(unit, through).await);
            if through && program.sessions > 1 {
                self.replicas_show_everything().await;
            }
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
        let nothing = |value: f64| value < 0.5;
        self.causeway.wait_for_metric("causeway_backend_in_flight", &[], nothing).await;
        self.causeway.wait_for_metric("causeway_backend_connections", &[("state", "active")], nothing).await;
        self.causeway.wait_for_metric("causeway_checkout_waiters", &[], nothing).await;
    }

    /// Ends Causeway, whose log must hold no warning.
    pub(crate) async fn close(self) {
        self.causeway.stop().await;
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
