//! Many clients on few server connections: whatever is asked, the answer is the asker's own, and money is neither made nor lost.

use std::time::Duration;

use causeway_testkit::wire::request::{bind, execute, parse, query, sync};
use causeway_testkit::wire::{Client, Message, cancel};
use causeway_tests::{Place, code, rows, tags, through, value};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// How long it lasts, in seconds; longer by this variable.
const SECONDS: u64 = 30;
const SECONDS_VARIABLE: &str = "CAUSEWAY_SOAK_SECONDS";
/// What the clients do is decided by this number, and another by this variable.
const SEED: u64 = 20_260_713;
const SEED_VARIABLE: &str = "CAUSEWAY_SOAK_SEED";

const CLIENTS: u64 = 32;
const PURSES: u64 = 20;

const SETUP: &str = "
    CREATE TABLE purse (id int PRIMARY KEY, amount int NOT NULL);
    INSERT INTO purse SELECT n, 1000 FROM generate_series(1, 20) AS n;
    CREATE FUNCTION remember(value text) RETURNS void LANGUAGE plpgsql AS
      $$ BEGIN PERFORM set_config('soak.remembered', value, false); END $$;
    CREATE FUNCTION locks(n int) RETURNS bool LANGUAGE sql AS 'SELECT pg_try_advisory_lock(n)';";

/// A number that says what comes next (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

/// One client that comes and goes, and what its session has set.
struct Asker {
    port: u16,
    database: String,
    number: u64,
    random: Random,
    tokens: u64,
    client: Option<Client>,
    remembered: String,
    own: String,
    prepared: bool,
}

impl Asker {
    async fn client(&mut self) -> &mut Client {
        if self.client.is_none() {
            self.client = Some(Client::login(self.port, "postgres", &self.database).await);
            (self.remembered, self.own, self.prepared) = (String::new(), String::new(), false);
        }
        self.client.as_mut().expect("it has just logged in")
    }

    fn token(&mut self) -> String {
        self.tokens += 1;
        format!("{}-{}", self.number, self.tokens)
    }

    async fn ask(&mut self, sql: &str) -> Vec<Message> {
        self.client().await.query(sql).await
    }

    /// Ends the session in one way or another, maybe with work under way.
    async fn leave(&mut self) {
        let how = self.random.below(4);
        let mut client = self.client.take().expect("a session");
        match how {
            0 => client.terminate().await,
            1 => drop(client),
            2 => {
                client.send(&[query("SELECT repeat('x', 100000) FROM generate_series(1, 50)")]).await;
                client.reset();
            }
            _ => {
                client.send(&[query("SELECT pg_sleep(0.1)")]).await;
                drop(client);
            }
        }
    }

    async fn step(&mut self) {
        match self.random.below(13) {
            0..3 => self.echo().await,
            3 | 4 => self.transfer().await,
            5 => self.remember().await,
            6 => self.set().await,
            7 => self.temporary().await,
            8 => self.lock().await,
            9 => self.cancelled().await,
            10 => self.timed_out().await,
            11 => self.pipelined().await,
            _ => {
                self.client().await;
                self.leave().await;
            }
        }
    }

    async fn echo(&mut self) {
        let token = self.token();
        assert_eq!(value(&self.ask(&format!("SELECT '{token}' FROM purse WHERE id = 1")).await), token);
        assert_eq!(value(&self.client().await.execute("SELECT $1::text", &[Some(&token)]).await), token);
        self.recall().await;
    }

    /// What this session has set is there, and nothing of another's.
    async fn recall(&mut self) {
        let sql = "SELECT coalesce(current_setting('soak.remembered', true), '') || '/' || \
                   coalesce(current_setting('soak.own', true), '') FROM purse WHERE id = 1";
        let got = value(&self.ask(sql).await);
        assert_eq!(got, format!("{}/{}", self.remembered, self.own), "client {}", self.number);
    }

    async fn remember(&mut self) {
        let token = self.token();
        self.client().await;
        let (begin, end) = if self.random.below(3) == 0 { ("BEGIN", "ROLLBACK") } else { ("", "") };
        self.ask(begin).await;
        assert_eq!(tags(&self.ask(&format!("SELECT remember('{token}')")).await), ["SELECT 1"]);
        self.ask(end).await;
        if begin.is_empty() {
            self.remembered = token;
        }
        self.recall().await;
    }

    async fn set(&mut self) {
        let token = self.token();
        self.client().await;
        assert_eq!(tags(&self.ask(&format!("SET soak.own = '{token}'")).await), ["SET"]);
        self.own = token;
        self.recall().await;
    }

    async fn transfer(&mut self) {
        let (from, to) = (1 + self.random.below(PURSES), 1 + self.random.below(PURSES));
        let (low, high) = (from.min(to), from.max(to));
        // Always in the same order, so that nobody waits in a circle.
        self.ask("BEGIN").await;
        self.ask(&format!("UPDATE purse SET amount = amount - 1 WHERE id = {low}")).await;
        if self.random.below(5) == 0 {
            return self.leave().await;
        }
        self.ask(&format!("UPDATE purse SET amount = amount + 1 WHERE id = {high}")).await;
        match self.random.below(5) {
            0 => drop(self.ask("ROLLBACK").await),
            1 => {
                let client = self.client.as_mut().expect("a session");
                client.send(&[query("COMMIT")]).await;
                self.client = None;
            }
            _ => assert_eq!(tags(&self.ask("COMMIT").await), ["COMMIT"]),
        }
    }

    async fn temporary(&mut self) {
        let token = self.token();
        self.ask(&format!("CREATE TEMP TABLE own AS SELECT '{token}' AS token")).await;
        assert_eq!(value(&self.ask("SELECT token FROM own").await), token);
        self.ask("DROP TABLE own").await;
        assert_eq!(code(&self.ask("SELECT token FROM own").await), "42P01");
    }

    async fn lock(&mut self) {
        let number = 1000 + self.number;
        let taken = value(&self.ask(&format!("SELECT locks({number})")).await);
        // A session of this client's that died with the lock may not be over yet.
        if taken == "t" {
            self.echo().await;
            assert_eq!(value(&self.ask(&format!("SELECT pg_advisory_unlock({number})")).await), "t");
        }
    }

    async fn cancelled(&mut self) {
        let (port, token) = (self.port, self.token());
        let client = self.client().await;
        let key = client.key();
        client.send(&[query(&format!("SELECT pg_sleep(2), '{token}'"))]).await;
        sleep(Duration::from_millis(20)).await;
        cancel(port, &key).await;
        let answer = client.until_ready().await;
        let cancelled = answer.iter().any(|message| message.tag == b'E');
        assert!(!cancelled || code(&answer) == "57014", "{answer:?}");
    }

    async fn timed_out(&mut self) {
        self.ask("BEGIN; SET LOCAL statement_timeout = '20ms'").await;
        assert_eq!(code(&self.ask("SELECT pg_sleep(2)").await), "57014");
        self.ask("ROLLBACK").await;
        self.recall().await;
    }

    async fn pipelined(&mut self) {
        let (first, second) = (self.token(), self.token());
        let sql = format!("SELECT $1::text || '{}'", self.number);
        let prepared = std::mem::replace(&mut self.prepared, true) && self.client.is_some();
        let mut requests = vec![];
        self.client().await;
        self.prepared = true;
        if !prepared {
            requests.extend([parse("s", &sql), sync()]);
        }
        for token in [&first, &second] {
            requests.extend([bind("", "s", &[Some(token)]), execute("", 0), sync()]);
        }
        let units = requests.iter().filter(|request| request.encode().first() == Some(&b'S')).count();
        let client = self.client.as_mut().expect("a session");
        client.send(&requests).await;
        let mut got = Vec::new();
        for _ in 0..units {
            got.extend(rows(&client.until_ready().await));
        }
        let want = [first, second].map(|token| vec![Some(format!("{token}{}", self.number))]);
        assert_eq!(got, want);
    }
}

fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[tokio::test]
async fn every_answer_is_the_askers_own() {
    let (seconds, seed) = (variable(SECONDS_VARIABLE, SECONDS), variable(SEED_VARIABLE, SEED));
    let settings = "pool: { size: 4, checkout_timeout: 60s }\n";
    through(settings, async |place: &Place| {
        place.admin_everywhere(SETUP).await;
        crate::pinning::knows_functions(place).await;
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut askers = JoinSet::new();
        for number in 0..CLIENTS {
            let mut asker = Asker {
                port: place.port(),
                database: place.database().to_owned(),
                number,
                random: Random(seed ^ (number << 32)),
                tokens: 0,
                client: None,
                remembered: String::new(),
                own: String::new(),
                prepared: false,
            };
            askers.spawn(async move {
                while Instant::now() < end {
                    asker.step().await;
                }
                asker.tokens
            });
        }
        let mut tokens = 0;
        while let Some(asked) = askers.join_next().await {
            tokens += asked.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        assert!(tokens > 10 * CLIENTS, "little was asked: {tokens}");
        // What was cut off in the middle is rolled back.
        place.admin_until("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'", "0").await;
        assert_eq!(place.admin("SELECT sum(amount) FROM purse").await, (PURSES * 1000).to_string());
        place
            .admin_until(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' \
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
                "0",
            )
            .await;
        let servers = "SELECT count(*) <= 4 FROM pg_stat_activity \
                       WHERE datname = current_database() AND application_name = '' AND pid <> pg_backend_pid()";
        assert_eq!(place.admin(servers).await, "t");
    })
    .await;
}
