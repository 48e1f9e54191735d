//! Whose writes a read sees, by consistency level.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_testkit::{Causeway, Sandbox, SandboxConfig, wire::Client};
use causeway_tests::{code, count, reads_use_replicas, start, tags, value};
use tokio::time::{Instant, sleep};

pub(crate) const READ: &str = "SELECT n FROM counter";

/// Servers with one counter.
pub(crate) async fn servers(replicas: usize) -> Sandbox {
    let sandbox = Sandbox::start(SandboxConfig::with_replicas(replicas)).await.expect("the servers start");
    let create = "CREATE TABLE counter (n int NOT NULL); INSERT INTO counter VALUES (0)";
    sandbox.primary().sql("postgres", create).await.expect("a table");
    sandbox.replicas_caught_up().await.expect("the replicas catch up");
    sandbox
}

pub(crate) async fn session(causeway: &Causeway) -> Client {
    Client::login(causeway.port(), "postgres", "postgres").await
}

async fn by_replicas(causeway: &Causeway) -> u64 {
    count(causeway, "causeway_routing_decisions_total", &[("target", "replica")]).await
}

async fn reads(causeway: &Causeway, level: &str, outcome: &str) -> u64 {
    count(causeway, "causeway_fenced_reads_total", &[("level", level), ("outcome", outcome)]).await
}

async fn pause_replay(sandbox: &Sandbox, function: &str) {
    for replica in sandbox.replicas() {
        replica.sql("postgres", &format!("SELECT pg_wal_replay_{function}()")).await.expect("replay obeys");
    }
}

/// Each write is acknowledged to one session, and read by another through another Causeway, at once.
#[tokio::test]
async fn cluster_sees_what_anybody_was_told() {
    let sandbox = servers(2).await;
    let (one, other) = (start(&sandbox, "").await, start(&sandbox, "").await);
    reads_use_replicas(&other, "postgres", READ).await;
    let (mut writer, mut reader) = (session(&one).await, session(&other).await);
    let before = by_replicas(&other).await;
    for n in 1..=500 {
        assert_eq!(tags(&writer.query(&format!("UPDATE counter SET n = {n}")).await), ["UPDATE 1"]);
        let seen = if n % 2 == 0 {
            value(&reader.query(READ).await)
        } else {
            value(&reader.execute(READ, &[]).await)
        };
        assert_eq!(seen, n.to_string());
    }
    let served = by_replicas(&other).await - before;
    assert!(served >= 400, "replicas served {served} of 500 reads");
    other.stop().await;
    one.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

async fn overlapped(causeway: &Causeway, outcome: &str) -> u64 {
    count(causeway, "causeway_overlapped_reads_total", &[("outcome", outcome)]).await
}

/// Reads that are sent before it is known what they must see show all of it nevertheless.
#[tokio::test]
async fn reads_that_run_ahead_see_what_anybody_was_told() {
    let sandbox = servers(2).await;
    let ahead = "consistency: { overlap: auto }\n";
    let (one, other) = (start(&sandbox, "").await, start(&sandbox, ahead).await);
    reads_use_replicas(&other, "postgres", READ).await;
    let (mut writer, mut reader) = (session(&one).await, session(&other).await);
    let read = async |reader: &mut Client, n: i32| match n % 3 {
        0 => value(&reader.query(READ).await),
        1 => value(&reader.execute(READ, &[]).await),
        // An answer of many messages, some of which do not come with the first read.
        _ => {
            let many = "SELECT n, repeat('x', 1000) FROM counter, generate_series(1, 200)";
            value(&reader.query(many).await)
        }
    };
    let before = reads(&other, "cluster", "direct").await;
    for n in 0..60 {
        assert_eq!(read(&mut reader, n).await, "0");
    }
    assert!(overlapped(&other, "covered").await >= 40, "while nothing is written nearly all are good");
    assert!(reads(&other, "cluster", "direct").await >= before + 40);
    for n in 1..=300 {
        assert_eq!(tags(&writer.query(&format!("UPDATE counter SET n = {n}")).await), ["UPDATE 1"]);
        assert_eq!(read(&mut reader, n).await, n.to_string());
    }
    let discarded = overlapped(&other, "discarded").await;
    assert!((3..=150).contains(&discarded), "{discarded} of 300, which were tried more and more rarely");
    // What fails, fails once, and the session goes on.
    assert_eq!(
        code(&reader.query("SELECT 1 / n FROM counter WHERE n < 0 OR 1 / (n - 300) > 0").await),
        "22012"
    );
    assert_eq!(read(&mut reader, 0).await, "300");
    // A read that nobody waits for to the end of is ended, where it ran for nothing.
    for n in 301..=304 {
        writer.query(&format!("UPDATE counter SET n = {n}")).await;
        let slow = "SELECT n FROM counter, pg_sleep(0.3)";
        assert_eq!(value(&reader.query(slow).await), n.to_string());
    }
    // A read is no write: nothing has to be asked at the levels that go by those.
    reader.query("SET causeway.consistency = 'router'").await;
    read(&mut reader, 0).await;
    let asked = count(&other, "causeway_fences_wanted_total", &[]).await;
    for _ in 0..20 {
        read(&mut reader, 0).await;
    }
    assert_eq!(count(&other, "causeway_fences_wanted_total", &[]).await, asked);
    other.stop().await;
    one.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

/// A replica that is kept for those who do not mind answers nobody else, nor does anybody wait for it.
#[tokio::test]
async fn a_replica_may_be_limited_to_levels() {
    let sandbox = servers(2).await;
    let kept = format!("name: {},", sandbox.nodes()[2].name());
    let yaml = causeway_testkit::yaml_for(&sandbox);
    assert!(yaml.contains(&kept), "{yaml}");
    let yaml = yaml.replace(&kept, &format!("{kept} levels: [eventual, bounded],"));
    let causeway = causeway_tests::start_yaml(&sandbox, &yaml, 3).await;
    reads_use_replicas(&causeway, "postgres", READ).await;
    // What is behind is waited for, and only the other one is asked.
    let paused = sandbox.nodes()[1].sql("postgres", "SELECT pg_wal_replay_pause()").await;
    paused.expect("replay obeys");
    let mut client = session(&causeway).await;
    let answered = async |node: usize| {
        let backend = sandbox.nodes()[node].name();
        count(&causeway, "causeway_queries_total", &[("backend", backend)]).await
    };
    let (strict, lax) = (answered(1).await, answered(2).await);
    client.query("UPDATE counter SET n = 1").await;
    assert_eq!(value(&client.query(READ).await), "1");
    assert!(reads(&causeway, "cluster", "fallback").await >= 1, "the primary answers in the end");
    let resumed = sandbox.nodes()[1].sql("postgres", "SELECT pg_wal_replay_resume()").await;
    resumed.expect("replay obeys");
    sandbox.replicas_caught_up().await.expect("the replicas catch up");
    for _ in 0..20 {
        assert_eq!(value(&client.query(READ).await), "1");
    }
    assert_eq!(answered(2).await, lax);
    assert!(answered(1).await > strict);
    client.query("SET causeway.consistency = 'eventual'").await;
    for _ in 0..40 {
        client.query(READ).await;
    }
    assert!(answered(2).await > lax);
    causeway.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

/// A transaction on a replica takes a new snapshot for each statement.
#[tokio::test]
async fn a_read_only_transaction_sees_what_was_written_in_between() {
    let sandbox = servers(1).await;
    let causeway = start(&sandbox, "").await;
    reads_use_replicas(&causeway, "postgres", READ).await;
    let (mut writer, mut reader) = (session(&causeway).await, session(&causeway).await);
    for n in 1..=50 {
        reader.query("BEGIN READ ONLY").await;
        assert_eq!(value(&reader.query(READ).await), (n - 1).to_string());
        writer.query(&format!("UPDATE counter SET n = {n}")).await;
        assert_eq!(value(&reader.query(READ).await), n.to_string());
        reader.query("COMMIT").await;
    }
    reader.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await;
    assert_eq!(value(&reader.query(READ).await), "50");
    writer.query("UPDATE counter SET n = 51").await;
    assert_eq!(value(&reader.query(READ).await), "50", "its snapshot stays");
    reader.query("COMMIT").await;
    assert!(by_replicas(&causeway).await >= 100, "the transactions ran on the replica");
    causeway.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

#[tokio::test]
async fn what_no_replica_shows_is_read_on_the_primary() {
    let sandbox = servers(2).await;
    let causeway = start(&sandbox, "consistency: { wait: 30ms, fallback_limit: 2 }\n").await;
    reads_use_replicas(&causeway, "postgres", READ).await;
    pause_replay(&sandbox, "pause").await;
    let mut writer = session(&causeway).await;
    writer.query("UPDATE counter SET n = 7").await;
    let asked = Instant::now();
    let readers = (0..8).map(|_| async {
        let mut reader = session(&causeway).await;
        value(&reader.query(READ).await)
    });
    for seen in futures_util::future::join_all(readers).await {
        assert_eq!(seen, "7");
    }
    assert!(asked.elapsed() >= Duration::from_millis(30), "they waited for a replica first");
    assert!(reads(&causeway, "cluster", "fallback").await >= 8);
    // At a level that does not mind, a replica serves.
    let mut lax = session(&causeway).await;
    lax.query("SET causeway.consistency = 'eventual'").await;
    let before = by_replicas(&causeway).await;
    assert_eq!(value(&lax.query(READ).await), "0");
    assert_eq!(by_replicas(&causeway).await, before + 1);
    // What was served to whom, and how old it was.
    let stale = async |level, least| {
        let labels = [("level", level), ("le", least)];
        let fresh = count(&causeway, "causeway_read_staleness_seconds_bucket", &labels).await;
        count(&causeway, "causeway_read_staleness_seconds_count", &[("level", level)]).await - fresh
    };
    assert_eq!(stale("eventual", "0.025").await, 1, "it was written more than 30 ms ago");
    assert_eq!(stale("cluster", "0.0001").await, 0);
    pause_replay(&sandbox, "resume").await;
    causeway.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

#[tokio::test]
async fn a_read_that_may_not_fall_back_waits_or_fails() {
    let sandbox = servers(1).await;
    let strict = start(&sandbox, "consistency: { wait: 30ms, fallback: error }\n").await;
    let patient = start(&sandbox, "consistency: { wait: 30ms, fallback: wait }\n").await;
    reads_use_replicas(&strict, "postgres", READ).await;
    reads_use_replicas(&patient, "postgres", READ).await;
    pause_replay(&sandbox, "pause").await;
    let mut writer = session(&strict).await;
    writer.query("UPDATE counter SET n = 7").await;
    let refused = writer.query(READ).await;
    assert_eq!(code(&refused), "55000");
    let detail = refused[0].field(b'D').unwrap_or_default();
    assert!(detail.contains("must show") && detail.contains("Waited"), "{detail}");
    // The session goes on.
    assert_eq!(tags(&writer.query("UPDATE counter SET n = 8").await), ["UPDATE 1"]);
    let mut waiting = session(&patient).await;
    let resume = async {
        sleep(Duration::from_millis(300)).await;
        pause_replay(&sandbox, "resume").await;
    };
    let (answer, ()) = tokio::join!(waiting.query(READ), resume);
    assert_eq!(value(&answer), "8");
    patient.stop().await;
    strict.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

#[tokio::test]
async fn levels_are_chosen_by_settings_and_comments() {
    let sandbox = servers(1).await;
    let causeway = start(&sandbox, "").await;
    reads_use_replicas(&causeway, "postgres", READ).await;
    let mut a = session(&causeway).await;
    let show = "SHOW causeway.consistency";
    assert_eq!(value(&a.query(show).await), "cluster");
    assert_eq!(tags(&a.query("SET causeway.consistency TO 'bounded(2s)'").await), ["SET"]);
    assert_eq!(value(&a.query(show).await), "bounded(2s)");
    a.query("BEGIN").await;
    a.query("SET causeway.consistency = 'primary'").await;
    assert_eq!(value(&a.query(show).await), "primary");
    a.query("ROLLBACK").await;
    assert_eq!(value(&a.query(show).await), "bounded(2s)");
    assert_eq!(tags(&a.query("RESET causeway.consistency").await), ["RESET"]);
    assert_eq!(value(&a.query(show).await), "cluster");
    for (sql, wrong) in [
        ("SET causeway.consistency = 'strong'", "22023"),
        ("SET causeway.speed = 'high'", "42704"),
        ("SET causeway.fence = '1:1:0/0'", "55P02"),
    ] {
        assert_eq!(code(&a.query(sql).await), wrong, "{sql}");
        assert_eq!(code(&a.execute(sql, &[]).await), wrong, "{sql}");
    }
    // A wrong value fails the transaction, as it does with PostgreSQL's own settings.
    a.query("BEGIN").await;
    a.query("SET causeway.consistency = 'strong'").await;
    assert_eq!(tags(&a.query("COMMIT").await), ["ROLLBACK"]);
    // A statement's own comment, and the route.
    let primary =
        async || count(&causeway, "causeway_routing_decisions_total", &[("reason", "level_primary")]).await;
    let before = primary().await;
    a.query("/* causeway: consistency=primary */ SELECT n FROM counter").await;
    a.execute("/* causeway: route=primary */ SELECT n FROM counter", &[]).await;
    a.query("SET causeway.route = 'primary'").await;
    a.query(READ).await;
    assert_eq!(primary().await, before + 3);
    // As a start-up parameter.
    let login =
        [("user", "postgres"), ("database", "postgres"), ("options", "-c causeway.consistency=eventual")];
    let (mut b, _) = Client::login_with(causeway.port(), &login).await;
    assert_eq!(value(&b.query(show).await), "eventual");
    causeway.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

#[tokio::test]
async fn a_token_is_good_everywhere() {
    let sandbox = servers(2).await;
    let (one, other) =
        (start(&sandbox, "").await, start(&sandbox, "consistency: { default: eventual }\n").await);
    reads_use_replicas(&other, "postgres", READ).await;
    let (mut writer, mut reader) = (session(&one).await, session(&other).await);
    for n in 1..=100 {
        writer.query(&format!("UPDATE counter SET n = {n}")).await;
        let token = value(&writer.query("SHOW causeway.fence").await);
        reader.query(&format!("SET causeway.after = '{token}'")).await;
        assert_eq!(value(&reader.query(READ).await), n.to_string());
    }
    assert!(by_replicas(&other).await >= 80);
    // A token of the future, and one of another cluster.
    let token = value(&writer.query("SHOW causeway.fence").await);
    let (lineage, _) = token.rsplit_once(':').expect("a position at its end");
    for token in [format!("{lineage}:FFFFFF/0"), "1:1:0/0".to_owned()] {
        reader.query(&format!("SET causeway.after = '{token}'")).await;
        for read in [READ, "SELECT n FROM counter FOR UPDATE", "BEGIN"] {
            assert_eq!(code(&reader.query(read).await), "55000", "{token}: {read}");
        }
        assert_eq!(tags(&reader.query("RESET causeway.after").await), ["RESET"]);
        assert_eq!(tags(&reader.query("BEGIN").await), ["BEGIN"]);
        reader.query("ROLLBACK").await;
        reader.query(&format!("SET causeway.after = '{token}'")).await;
    }
    other.allow_log("the node does not serve");
    one.allow_log("the node does not serve");
    // Nor does it help that no replica is there to be asked.
    for replica in sandbox.replicas() {
        replica.stop(causeway_testkit::StopMode::Fast).await.expect("the replica stops");
    }
    assert_eq!(code(&reader.query(READ).await), "55000");
    let token = value(&writer.query("SHOW causeway.fence").await);
    reader.query(&format!("SET causeway.after = '{token}'")).await;
    assert_eq!(value(&reader.query(READ).await), "100");
    other.stop().await;
    one.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

/// Levels `router` and `session` ask the primary for nothing while nothing is written.
#[tokio::test]
async fn router_and_session_see_their_own_writes() {
    let sandbox = servers(2).await;
    for level in ["router", "session"] {
        let causeway = start(&sandbox, &format!("consistency: {{ default: {level} }}\n")).await;
        reads_use_replicas(&causeway, "postgres", READ).await;
        let mut a = session(&causeway).await;
        let mut b = session(&causeway).await;
        for n in 1..=100 {
            a.query(&format!("UPDATE counter SET n = {n}")).await;
            let reader = if level == "router" { &mut b } else { &mut a };
            assert_eq!(value(&reader.query(READ).await), n.to_string(), "{level}");
        }
        let waited = reads(&causeway, level, "waited").await;
        for _ in 0..200 {
            a.query(READ).await;
        }
        assert!(
            reads(&causeway, level, "waited").await <= waited + 1,
            "an old fence serves at level {level}"
        );
        causeway.stop().await;
    }
    sandbox.stop().await.expect("the servers stop");
}

/// Readers never see a counter go back, whichever replicas answer them.
#[tokio::test]
async fn reads_of_a_session_are_monotonic() {
    let sandbox = servers(2).await;
    let causeway = start(&sandbox, "consistency: { default: session }\n").await;
    reads_use_replicas(&causeway, "postgres", READ).await;
    let over = Arc::new(AtomicBool::new(false));
    let mut writer = session(&causeway).await;
    let write = async {
        for n in 1..=300 {
            writer.query(&format!("UPDATE counter SET n = {n}")).await;
            if n % 20 == 0 {
                let replica = &sandbox.replicas()[n / 20 % 2];
                replica.sql("postgres", "SELECT pg_wal_replay_pause()").await.expect("replay pauses");
                sleep(Duration::from_millis(20)).await;
                replica.sql("postgres", "SELECT pg_wal_replay_resume()").await.expect("replay resumes");
            }
        }
        over.store(true, Ordering::SeqCst);
    };
    let read = async |mut reader: Client| {
        let mut last = 0;
        while !over.load(Ordering::SeqCst) {
            let seen: i32 = value(&reader.query(READ).await).parse().expect("a number");
            assert!(seen >= last, "{seen} after {last}");
            last = seen;
        }
    };
    let (one, two) = (session(&causeway).await, session(&causeway).await);
    tokio::join!(write, read(one), read(two));
    causeway.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

/// `EXPLAIN ROUTE` answers by what a read would have to see; databases and users have their own patience.
#[tokio::test]
async fn a_route_is_explained_by_positions() {
    let sandbox = servers(2).await;
    let yaml = causeway_testkit::yaml_for(&sandbox).replace(
        "  \"*\": { cluster: main }\n",
        "  \"*\": { cluster: main, consistency: { fallback: error, wait: 20ms } }\n",
    );
    let settings = "admin: { users: [postgres] }\nusers: { lax: { consistency: { fallback: primary } } }\n";
    sandbox.primary().sql("postgres", "CREATE ROLE lax LOGIN SUPERUSER").await.expect("a role");
    sandbox.replicas_caught_up().await.expect("the replicas catch up");
    let causeway = causeway_tests::start_yaml(&sandbox, &(yaml + settings), 3).await;
    reads_use_replicas(&causeway, "postgres", READ).await;
    let mut console = causeway.client("postgres", "causeway").await;
    let mut explain = async || {
        let answer = console.query(&format!("EXPLAIN ROUTE DATABASE postgres {READ}")).await;
        causeway_tests::rows(&answer)[0]
            .iter()
            .map(|text| text.clone().unwrap_or_default())
            .collect::<Vec<_>>()
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    let told = loop {
        let told = explain().await;
        if told[1] == "replica" {
            break told;
        }
        assert!(Instant::now() < deadline, "{told:?}");
    };
    assert_eq!((told[0].as_str(), told[3].as_str(), told[4].as_str()), ("read", "read", "cluster"));
    assert!(told[5].split(':').count() == 3 && told[6].contains(": covers"), "{told:?}");
    pause_replay(&sandbox, "pause").await;
    let mut writer = session(&causeway).await;
    writer.query("UPDATE counter SET n = 7").await;
    let told = explain().await;
    assert_eq!((told[1].as_str(), told[2].as_str(), told[3].as_str()), ("primary", "pg-0", "fence"));
    assert_eq!(told[6].matches(": is behind").count(), 2, "{told:?}");
    assert_eq!(code(&writer.query(READ).await), "55000", "the database does not fall back");
    let mut lax = Client::login(causeway.port(), "lax", "postgres").await;
    assert_eq!(value(&lax.query(READ).await), "7", "the user does");
    pause_replay(&sandbox, "resume").await;
    causeway.stop().await;
    sandbox.stop().await.expect("the servers stop");
}
