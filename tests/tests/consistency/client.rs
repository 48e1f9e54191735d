//! A client that writes, reads at all levels, and writes down what it was told.

use std::sync::Arc;
use std::time::Duration;

use causeway_testkit::history::{
    Event, Execution, Level, Moment, NEVER, Op, Outcome, Served, Snapshot, Transaction,
};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{Error, NoTls, SimpleQueryMessage};

use crate::stage::{KEYS, Stage};

/// What clients have written down.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) events: Vec<Event>,
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) transactions: Vec<Transaction>,
    pub(crate) executions: Vec<Execution>,
    /// Errors, with how often they came.
    pub(crate) errors: Vec<String>,
}

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// Of a hundred operations so many are writes.
    pub(crate) writes: u32,
    /// Before each operation it thinks for at most so long.
    pub(crate) pause: Duration,
    /// Of its reads, all are at level `cluster`.
    pub(crate) cluster_only: bool,
    /// A third of the clients commits asynchronously.
    pub(crate) asynchronous: bool,
}

pub(crate) struct Client {
    stage: Arc<Stage>,
    router: u16,
    /// Also the register that it alone writes.
    id: u32,
    habits: Habits,
    random: StdRng,
    connection: Option<tokio_postgres::Client>,
    /// A session of the history: a new one after each login.
    session: u32,
    token: Option<(Moment, String)>,
    records: Records,
}

/// An operation takes no longer, whatever happens to the servers.
const LIMIT: Duration = Duration::from_secs(40);

// === impl Records ===

impl Records {
    pub(crate) fn add(&mut self, mut other: Self) {
        self.events.append(&mut other.events);
        self.snapshots.append(&mut other.snapshots);
        self.transactions.append(&mut other.transactions);
        self.executions.append(&mut other.executions);
        self.errors.append(&mut other.errors);
    }
}

// === impl Client ===

impl Client {
    pub(crate) fn new(stage: &Arc<Stage>, id: u32, habits: Habits, seed: u64) -> Self {
        Self {
            stage: stage.clone(),
            router: u16::try_from(id % 2).expect("two routers"),
            id,
            habits,
            random: StdRng::seed_from_u64(seed.wrapping_mul(1000).wrapping_add(u64::from(id))),
            connection: None,
            session: id,
            token: None,
            records: Records::default(),
        }
    }

    /// Works until then.
    pub(crate) async fn work(mut self, until: Instant) -> Records {
        while Instant::now() < until {
            let pause = self.random.random_range(0..=self.habits.pause.as_micros());
            sleep(Duration::from_micros(u64::try_from(pause).unwrap_or(0))).await;
            if self.connection.is_none() && !self.connect().await {
                sleep(Duration::from_millis(20)).await;
                continue;
            }
            let done = timeout(LIMIT, self.operate()).await;
            let Err(error) = done.expect("an operation ends") else { continue };
            if self.connection.as_ref().is_none_or(tokio_postgres::Client::is_closed)
                || error.as_db_error().is_none()
            {
                self.connection = None;
            }
            self.records.errors.push(error.as_db_error().map_or_else(
                || "connection lost".to_owned(),
                |report| format!("{} {}", report.code().code(), report.message()),
            ));
        }
        self.records
    }

    async fn connect(&mut self) -> bool {
        let port = self.stage.routers[usize::from(self.router)].port();
        let login = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
        let Ok(Ok((client, connection))) = timeout(LIMIT, tokio_postgres::connect(&login, NoTls)).await
        else {
            return false;
        };
        tokio::spawn(async move { drop(connection.await) });
        self.session = u32::try_from(self.stage.next()).expect("not that many");
        let lazy = self.habits.asynchronous && self.id.is_multiple_of(3);
        let ready = !lazy || client.simple_query("SET synchronous_commit = off").await.is_ok();
        self.connection = ready.then_some(client);
        ready && self.clean_up().await.is_ok()
    }

    /// What an earlier connection has left prepared would hold up every later write.
    async fn clean_up(&mut self) -> Result<(), Error> {
        let left = format!("SELECT gid FROM pg_prepared_xacts WHERE gid LIKE 'c{}v%'", self.id);
        for row in self.run(&left).await? {
            self.run(&format!("ROLLBACK PREPARED '{}'", row[0])).await?;
        }
        Ok(())
    }

    async fn operate(&mut self) -> Result<(), Error> {
        if self.random.random_range(0..100) < self.habits.writes {
            return match self.random.random_range(0..10) {
                0 => self.append().await,
                1 => self.count().await,
                2 => self.commit_prepared().await,
                3 => self.write_and_read().await,
                _ => self.write().await,
            };
        }
        if self.habits.cluster_only {
            return self.read("cluster", Level::Cluster).await;
        }
        match self.random.random_range(0..20) {
            0..7 => self.read("cluster", Level::Cluster).await,
            7..10 => self.read("session", Level::Session).await,
            10..12 => self.read("router", Level::Router).await,
            12 => self.read("bounded(100ms)", Level::Bounded(100_000)).await,
            13 => self.read("eventual", Level::Eventual).await,
            14 => self.read("primary", Level::Primary).await,
            15 => self.take_token().await,
            16 => self.read_after().await,
            17 => self.read_lists().await,
            _ => self.transaction().await,
        }
    }

    async fn run(&self, sql: &str) -> Result<Vec<Vec<String>>, Error> {
        let client = self.connection.as_ref().expect("connected before");
        let messages = client.simple_query(sql).await?;
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|column| row.get(column).unwrap_or_default().to_owned()).collect())
            }
            _ => None,
        };
        Ok(messages.into_iter().filter_map(row).collect())
    }

    fn record(
        &mut self,
        key: u32,
        op: Op,
        level: Level,
        (invoked, outcome): (Moment, Outcome),
    ) -> &mut Event {
        let completed = if outcome == Outcome::Unknown { NEVER } else { self.stage.now() };
        self.records.events.push(Event {
            session: self.session,
            router: self.router,
            key,
            op,
            level,
            invoked,
            completed,
            outcome,
            served: None,
            proof: None,
        });
        self.records.events.last_mut().expect("pushed")
    }

    /// One that comes late does not undo a later one.
    fn update(&mut self) -> (u64, String) {
        let (value, key) = (self.stage.next(), self.id);
        let sql = match self.random.random_range(0..4) {
            0 if self.habits.asynchronous => format!("SELECT write_lazily({key}, {value})"),
            1 => format!(
                "BEGIN; UPDATE register SET value = {value} WHERE key = {key} AND value < {value}; COMMIT"
            ),
            _ => format!("UPDATE register SET value = {value} WHERE key = {key} AND value < {value}"),
        };
        (value, sql)
    }

    async fn write(&mut self) -> Result<(), Error> {
        let (value, sql) = self.update();
        let invoked = self.stage.now();
        let result = self.run(&sql).await;
        let outcome = outcome_of(&result);
        self.record(self.id, Op::Write(value), Level::Cluster, (invoked, outcome));
        result.map(drop)
    }

    /// The read is sent before the write is answered.
    async fn write_and_read(&mut self) -> Result<(), Error> {
        let (value, sql) = self.update();
        let read = format!("SELECT node(), value FROM register WHERE key = {}", self.id);
        let invoked = self.stage.now();
        let (written, shown) = tokio::join!(self.run(&sql), self.run(&read));
        let outcome = outcome_of(&written);
        self.record(self.id, Op::Write(value), Level::Cluster, (invoked, outcome));
        written?;
        let shown = shown?;
        let (node, value) = (served(&shown[0][0]), number(&shown[0][1]));
        // After the session's own write, whoever had been told of that by then.
        let read = self.record(self.id, Op::Read(value), Level::Session, (invoked + 1, Outcome::Done));
        read.served = Some(node);
        Ok(())
    }

    /// COMMIT PREPARED is the write, whoever prepared it.
    async fn commit_prepared(&mut self) -> Result<(), Error> {
        let (value, key) = (self.stage.next(), self.id);
        let prepare = format!(
            "BEGIN; UPDATE register SET value = {value} WHERE key = {key} AND value < {value}; \
             PREPARE TRANSACTION 'c{key}v{value}'"
        );
        let invoked = self.stage.now();
        let mut result = self.run(&prepare).await;
        if result.is_ok() {
            result = self.run(&format!("COMMIT PREPARED 'c{key}v{value}'")).await;
        }
        // One that stays prepared keeps its lock; whoever cleans up decides.
        let outcome = if result.is_ok() { Outcome::Done } else { Outcome::Unknown };
        self.record(self.id, Op::Write(value), Level::Cluster, (invoked, outcome));
        result.map(drop)
    }

    async fn append(&mut self) -> Result<(), Error> {
        let (list, entry) = (self.random.random_range(0..2), self.stage.next());
        self.run(&format!("UPDATE list SET items = items || {entry}::bigint WHERE key = {list}"))
            .await
            .map(drop)
    }

    async fn count(&mut self) -> Result<(), Error> {
        let id = self.stage.next();
        let result = self.run(&format!("INSERT INTO effect VALUES ({id})")).await;
        self.records.executions.push(Execution { id, outcome: outcome_of(&result), effects: 0 });
        result.map(drop)
    }

    fn any_key(&mut self) -> u32 {
        if self.random.random_range(0..3) == 0 { self.id } else { self.random.random_range(0..KEYS) }
    }

    async fn read(&mut self, name: &str, level: Level) -> Result<(), Error> {
        let key = self.any_key();
        let sql = format!(
            "/* causeway: consistency={name} */ SELECT node(), value FROM register WHERE key = {key}"
        );
        self.read_by(&sql, key, level).await.map(drop)
    }

    async fn read_by(&mut self, sql: &str, key: u32, level: Level) -> Result<(u16, u64), Error> {
        let invoked = self.stage.now();
        let rows = self.run(sql).await?;
        let (node, value) = (served(&rows[0][0]), number(&rows[0][1]));
        self.record(key, Op::Read(value), level, (invoked, Outcome::Done)).served = Some(node);
        Ok((node.node, value))
    }

    async fn take_token(&mut self) -> Result<(), Error> {
        let asked = self.stage.now();
        let rows = self.run("SHOW causeway.fence").await?;
        self.token = Some((asked, rows[0][0].clone()));
        Ok(())
    }

    async fn read_after(&mut self) -> Result<(), Error> {
        let Some((asked, token)) = self.token.clone() else { return self.take_token().await };
        let key = self.any_key();
        self.run(&format!("SET causeway.after = '{token}'")).await?;
        let sql = format!("SELECT node(), value FROM register WHERE key = {key}");
        let read = self.read_by(&sql, key, Level::After(asked)).await;
        if self.connection.as_ref().is_some_and(|client| !client.is_closed()) {
            self.run("RESET ALL").await?;
            if self.habits.asynchronous && self.id.is_multiple_of(3) {
                self.run("SET synchronous_commit = off").await?;
            }
        }
        read.map(drop)
    }

    async fn read_lists(&mut self) -> Result<(), Error> {
        let level = if self.random.random_bool(0.5) { "cluster" } else { "eventual" };
        let sql = format!(
            "/* causeway: consistency={level} */ SELECT node(), \
             (SELECT items::text FROM list WHERE key = 0), (SELECT items::text FROM list WHERE key = 1)"
        );
        let rows = self.run(&sql).await?;
        let list = |text: &str| {
            let inner = text.trim_matches(['{', '}']);
            inner.split(',').filter(|entry| !entry.is_empty()).map(number).collect()
        };
        let lists = vec![list(&rows[0][1]), list(&rows[0][2])];
        self.records.snapshots.push(Snapshot { lists, replica: served(&rows[0][0]).replica });
        Ok(())
    }

    async fn transaction(&mut self) -> Result<(), Error> {
        let one_snapshot = self.random.random_bool(0.5);
        let begin =
            if one_snapshot { "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" } else { "BEGIN READ ONLY" };
        self.run(begin).await?;
        let mut reads = Vec::new();
        for number in 0..3 {
            let key = self.any_key();
            let sql = format!("SELECT node(), value FROM register WHERE key = {key}");
            // The first statement's snapshot shows what is acknowledged by then, later ones only that.
            let level = if one_snapshot && number > 0 { Level::Eventual } else { Level::Cluster };
            let (node, value) = self.read_by(&sql, key, level).await?;
            reads.push((node, key, value));
        }
        self.run("COMMIT").await?;
        self.records.transactions.push(Transaction { reads, one_snapshot });
        Ok(())
    }
}

/// After an ERROR nothing has happened; after a lost connection nobody knows.
fn outcome_of<T>(result: &Result<T, Error>) -> Outcome {
    match result {
        Ok(_) => Outcome::Done,
        Err(error) => match error.as_db_error() {
            Some(report) if report.severity() == "ERROR" => Outcome::Failed,
            _ => Outcome::Unknown,
        },
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// From what `node()` gives.
pub(crate) fn served(text: &str) -> Served {
    let port: i32 = text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"));
    Served { node: u16::try_from(port.unsigned_abs()).expect("a port"), replica: port < 0 }
}
