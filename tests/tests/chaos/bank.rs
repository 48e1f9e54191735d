//! Tellers: they move money between accounts, each time with a token that no other transfer has.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

use crate::Random;

/// How many accounts there are, and what is in each at first.
pub(crate) const ACCOUNTS: u64 = 50;
pub(crate) const MONEY: u64 = 1000;

/// Longer than any statement may be held: `primary_wait` and TCP's verdict on a dead connection together.
const STUCK: Duration = Duration::from_mins(1);

/// What the tellers were told of each transfer, by its token.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// It is done.
    pub(crate) acknowledged: Vec<String>,
    /// It is not done.
    pub(crate) refused: Vec<String>,
    /// How many of the refused ones the server ended to resolve a deadlock: transfers take their accounts in any order.
    pub(crate) deadlocks: usize,
    /// It may be done or not.
    pub(crate) unknown: Vec<String>,
    /// What reads have failed with.
    pub(crate) failed_reads: Vec<String>,
    pub(crate) reads: usize,
}

/// One client.
pub(crate) struct Teller {
    port: u16,
    name: String,
    random: Random,
    transfers: u64,
    session: Option<(Client, JoinHandle<()>)>,
    ledger: Ledger,
}

/// What an error says of the transfer that it ended.
enum Outcome {
    Refused,
    Unknown,
}

// === impl Ledger ===

impl Ledger {
    pub(crate) fn add(&mut self, other: Self) {
        self.acknowledged.extend(other.acknowledged);
        self.refused.extend(other.refused);
        self.deadlocks += other.deadlocks;
        self.unknown.extend(other.unknown);
        self.failed_reads.extend(other.failed_reads);
        self.reads += other.reads;
    }
}

// === impl Teller ===

impl Teller {
    pub(crate) fn new(port: u16, name: String, random: Random) -> Self {
        Self { port, name, random, transfers: 0, session: None, ledger: Ledger::default() }
    }

    pub(crate) async fn work(mut self, until: Instant) -> Ledger {
        while Instant::now() < until {
            let step = timeout(STUCK, self.step()).await;
            assert!(step.is_ok(), "{}: nobody answers for a minute", self.name);
        }
        if let Some((client, connection)) = self.session.take() {
            drop(client);
            connection.await.expect("a connection's task ends");
        }
        self.ledger
    }

    async fn step(&mut self) {
        let lost = self.session.as_ref().is_none_or(|(client, _)| client.is_closed());
        if lost && !self.connect().await {
            sleep(Duration::from_millis(50)).await;
            return;
        }
        match self.random.below(10) {
            0..3 => self.read().await,
            3..7 => self.transfer_at_once().await,
            _ => self.transfer_in_steps().await,
        }
        sleep(Duration::from_millis(self.random.below(10))).await;
    }

    /// Logins need the primary: that they fail while there is none is no loss.
    async fn connect(&mut self) -> bool {
        let source = format!("host=127.0.0.1 port={} user=bank dbname=bank", self.port);
        let Ok((client, connection)) = tokio_postgres::connect(&source, NoTls).await else { return false };
        let connection = tokio::spawn(async move { drop(connection.await) });
        self.session = Some((client, connection));
        true
    }

    fn client(&self) -> &Client {
        &self.session.as_ref().expect("it has connected").0
    }

    /// At every moment there is as much money as ever.
    async fn read(&mut self) {
        let sum = "SELECT sum(amount)::text AS total FROM account";
        let answer = if self.random.below(2) == 0 {
            self.client().simple_query(sum).await.map(|messages| {
                messages.iter().find_map(|message| match message {
                    SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                    _ => None,
                })
            })
        } else {
            self.client().query_one(sum, &[]).await.map(|row| row.get(0))
        };
        self.ledger.reads += 1;
        match answer {
            Ok(total) => assert_eq!(total, Some((ACCOUNTS * MONEY).to_string()), "{}", self.name),
            Err(error) => self.ledger.failed_reads.push(format!("{error:?}")),
        }
    }

    fn transfer(&mut self) -> (String, u64, u64) {
        self.transfers += 1;
        let from = self.random.below(ACCOUNTS);
        let to = (from + 1 + self.random.below(ACCOUNTS - 1)) % ACCOUNTS;
        (format!("{}-{}", self.name, self.transfers), from, to)
    }

    /// One statement, one transaction.
    async fn transfer_at_once(&mut self) {
        let (token, from, to) = self.transfer();
        let sql = format!(
            "WITH noted AS (INSERT INTO done VALUES ('{token}') RETURNING token) \
             UPDATE account SET amount = amount + CASE id WHEN {from} THEN -1 ELSE 1 END \
             FROM noted WHERE id IN ({from}, {to})"
        );
        let ended = self.client().simple_query(&sql).await.map(drop);
        self.note(token, ended, true);
    }

    /// A transaction of several statements: what fails before COMMIT is not done.
    async fn transfer_in_steps(&mut self) {
        let (token, from, to) = self.transfer();
        let steps = [
            "BEGIN".to_owned(),
            format!("INSERT INTO done VALUES ('{token}')"),
            format!("UPDATE account SET amount = amount - 1 WHERE id = {from}"),
            format!("UPDATE account SET amount = amount + 1 WHERE id = {to}"),
        ];
        for step in steps {
            if let Err(error) = self.client().simple_query(&step).await {
                self.note(token, Err(error), false);
                // Fails as well if the session is lost.
                self.client().simple_query("ROLLBACK").await.ok();
                return;
            }
        }
        let ended = self.client().simple_query("COMMIT").await.map(drop);
        self.note(token, ended, true);
    }

    fn note(&mut self, token: String, ended: Result<(), Error>, may_be_done: bool) {
        if ended.as_ref().is_err_and(|error| error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED)) {
            self.ledger.deadlocks += 1;
        }
        match ended.map_err(|error| judge(&error, may_be_done)) {
            Ok(()) => self.ledger.acknowledged.push(token),
            Err(Outcome::Refused) => self.ledger.refused.push(token),
            Err(Outcome::Unknown) => self.ledger.unknown.push(token),
        }
    }
}

/// `may_be_done`: the statement was one that makes it so.
fn judge(error: &Error, may_be_done: bool) -> Outcome {
    let Some(report) = error.as_db_error() else {
        return if may_be_done { Outcome::Unknown } else { Outcome::Refused };
    };
    let is_error = report.parsed_severity() == Some(Severity::Error);
    if !may_be_done || is_error && report.code().code() != "40003" || says_no(report) {
        return Outcome::Refused;
    }
    if report.code().code() == "08006" {
        let detail = report.detail().unwrap_or_default();
        assert!(
            detail.contains("is not known"),
            "an outcome that is not known, and not said to be: {report:?}"
        );
    }
    Outcome::Unknown
}

/// In Causeway's words.
fn says_no(report: &DbError) -> bool {
    let detail = report.detail().unwrap_or_default();
    detail.contains("Nothing that writes was under way") || detail.contains("No transaction was under way")
}
