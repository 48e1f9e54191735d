//! Changes of primary: clean and lossy promotions, old primaries that go on, and the operator's way out.

use std::time::Duration;

use causeway_testkit::wire::Client;
use causeway_testkit::{Causeway, Node, Sandbox, Signal, StopMode};
use causeway_tests::{code, count, reads_use_replicas, rows, serving, start, tags, value};
use tokio::time::{Instant, sleep};

use crate::levels::{READ, servers, session};

const PATIENCE: Duration = Duration::from_secs(20);

/// What Causeway complains of while nodes come and go.
const COMPLAINTS: [&str; 8] = [
    "the node does not serve",
    "there is no primary",
    "there is still no primary",
    "catalogue not loaded",
    "Connection error",
    "could not be flushed",
    "the lineage was accepted",
    "nudge",
];

async fn causeway(sandbox: &Sandbox, settings: &str) -> Causeway {
    let causeway = start(sandbox, settings).await;
    for part in COMPLAINTS {
        causeway.allow_log(part);
    }
    reads_use_replicas(&causeway, "postgres", READ).await;
    causeway
}

/// A session that chooses its level.
async fn session_at(causeway: &Causeway, level: &str) -> Client {
    let mut session = session(causeway).await;
    session.query(&format!("SET causeway.consistency = '{level}'")).await;
    session
}

fn node<'a>(sandbox: &'a Sandbox, name: &str) -> &'a Node {
    sandbox.node(name).expect("the node is there")
}

/// Waits until Causeway's primary is this node.
async fn led_by(causeway: &Causeway, node: &str) {
    let mut console = causeway.client("postgres", "causeway").await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = console.query("SHOW EPOCH").await;
        if rows(&shown)[0][5].as_deref() == Some(node) {
            break;
        }
        assert!(Instant::now() < deadline, "{node} is not the primary: {shown:?}");
        sleep(Duration::from_millis(10)).await;
    }
    console.terminate().await;
}

async fn queries_on(causeway: &Causeway, node: &str) -> u64 {
    count(causeway, "causeway_queries_total", &[("backend", node)]).await
}

async fn lost(causeway: &Causeway) -> u64 {
    count(causeway, "causeway_fences_lost_total", &[]).await
}

/// `postgres` may use the console.
const ADMIN: &str = "admin: { users: [postgres] }\n";

/// Keeps this replica from getting anything more.
async fn cut_off(replica: &Node) {
    replica.sql("postgres", "ALTER SYSTEM SET primary_conninfo = ''").await.expect("the setting is made");
    replica.sql("postgres", "SELECT pg_reload_conf()").await.expect("the setting is loaded");
    let deadline = Instant::now() + PATIENCE;
    let receiver = "SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'";
    while replica.sql("postgres", receiver).await.expect("the replica answers").trim() != "0" {
        assert!(Instant::now() < deadline, "the replica still streams");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn ends(sandbox: Sandbox, causeway: Causeway) {
    causeway.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

/// T8: nothing is lost, so nobody is told that something was; what is in the middle of something is told.
#[tokio::test]
async fn a_clean_promotion_is_a_pause() {
    let sandbox = servers(2).await;
    let causeway = causeway(&sandbox, ADMIN).await;
    let mut writers = Vec::new();
    for level in ["cluster", "router", "session"] {
        let mut writer = session_at(&causeway, level).await;
        assert_eq!(tags(&writer.query("UPDATE counter SET n = n + 1").await), ["UPDATE 1"]);
        writers.push((level, writer));
    }
    let token = value(&writers[0].1.query("SHOW causeway.fence").await);
    let mut readers = Vec::new();
    for level in ["session", "eventual"] {
        let mut reader = session_at(&causeway, level).await;
        assert_eq!(value(&reader.query(READ).await), "3");
        readers.push(reader);
    }
    let (mut busy, mut listening) = (session(&causeway).await, session(&causeway).await);
    busy.query("BEGIN; UPDATE counter SET n = 100").await;
    listening.query("LISTEN news").await;
    sandbox.replicas_caught_up().await.expect("the replicas catch up");
    node(&sandbox, "pg-2").follow(node(&sandbox, "pg-1")).await.expect("the other replica follows");
    node(&sandbox, "pg-1").promote().await.expect("the promotion succeeds");
    led_by(&causeway, "pg-1").await;

    for (client, hint) in [(&mut busy, "Connect again"), (&mut listening, "LISTEN again")] {
        let told = client.until_eof().await;
        assert_eq!((code(&told), told[0].field(b'V')), ("57P01", Some("FATAL")));
        assert!(told[0].field(b'H').is_some_and(|text| text.contains(hint)), "{told:?}");
    }
    for (level, writer) in &mut writers {
        assert_eq!(value(&writer.query(READ).await), "3", "{level}");
    }
    for reader in &mut readers {
        assert_eq!(value(&reader.query(READ).await), "3");
    }
    let mut heir = session(&causeway).await;
    assert_eq!(tags(&heir.query("UPDATE counter SET n = n + 1").await), ["UPDATE 1"]);
    assert_eq!(node(&sandbox, "pg-1").sql("postgres", READ).await.expect("a value").trim(), "4");
    serving(&causeway, 2).await;
    // A token from before is as good as ever, also on a replica.
    heir.query(&format!("SET causeway.after = '{token}'")).await;
    let on_replica = queries_on(&causeway, "pg-2").await;
    assert_eq!(value(&heir.query(READ).await), "4");
    assert!(queries_on(&causeway, "pg-2").await > on_replica);
    assert_eq!(lost(&causeway).await, 0);
    ends(sandbox, causeway).await;
}

/// T9: the new primary has not all of what was acknowledged, and the old one goes on.
#[tokio::test]
async fn a_lossy_promotion_is_told_once() {
    let sandbox = servers(2).await;
    let causeway = causeway(&sandbox, ADMIN).await;
    let adopting = start(&sandbox, &format!("{ADMIN}consistency: {{ lost_writes: adopt }}\n")).await;
    for part in COMPLAINTS {
        adopting.allow_log(part);
    }
    let (old, new) = (node(&sandbox, "pg-0"), node(&sandbox, "pg-1"));
    let (mut early, mut idle) = (session(&causeway).await, session(&causeway).await);
    early.query("UPDATE counter SET n = 1").await;
    idle.query(READ).await;
    let early_token = value(&early.query("SHOW causeway.fence").await);
    sandbox.replicas_caught_up().await.expect("the replicas catch up");
    cut_off(new).await;
    let mut late = Vec::new();
    for level in ["cluster", "router", "session"] {
        let mut session = session_at(&causeway, level).await;
        assert_eq!(tags(&session.query("UPDATE counter SET n = n + 1").await), ["UPDATE 1"]);
        late.push(session);
    }
    let mut adopted = session(&adopting).await;
    adopted.query("UPDATE counter SET n = n + 1").await;
    let late_token = value(&late[0].query("SHOW causeway.fence").await);
    // The other replica has, and shows, what will be lost.
    let mut seer = session_at(&causeway, "session").await;
    let deadline = Instant::now() + PATIENCE;
    while value(&seer.query(READ).await) != "5" {
        assert!(Instant::now() < deadline, "the other replica does not catch up");
        sleep(Duration::from_millis(10)).await;
    }
    late.push(seer);
    new.promote().await.expect("the promotion succeeds");
    led_by(&causeway, "pg-1").await;
    led_by(&adopting, "pg-1").await;
    let zombie = queries_on(&causeway, "pg-0").await;
    // The numbers of the old timeline go past those of the new one.
    old.sql("postgres", "CREATE TABLE more AS SELECT generate_series(1, 30000)").await.expect("it goes on");

    for session in &mut late {
        let told = session.query(READ).await;
        assert_eq!(code(&told), "40003");
        assert_eq!(value(&session.query(READ).await), "1", "it is said once");
        assert_eq!(tags(&session.query("UPDATE counter SET n = n").await), ["UPDATE 1"]);
    }
    assert_eq!(value(&early.query(READ).await), "1", "what has survived is not lost");
    assert_eq!(value(&idle.query(READ).await), "1");
    assert_eq!(value(&adopted.query(READ).await), "1");
    assert_eq!((lost(&causeway).await, lost(&adopting).await), (4, 1));

    early.query(&format!("SET causeway.after = '{early_token}'")).await;
    assert_eq!(value(&early.query(READ).await), "1");
    early.query(&format!("SET causeway.after = '{late_token}'")).await;
    assert_eq!(code(&early.query(READ).await), "55000");
    for level in ["cluster", "eventual", "bounded(1h)"] {
        let mut reader = session_at(&causeway, level).await;
        for _ in 0..20 {
            assert_eq!(value(&reader.query(READ).await), "1", "{level}");
        }
    }
    assert_eq!(queries_on(&causeway, "pg-0").await, zombie, "nothing goes to the old primary");
    adopting.stop().await;
    ends(sandbox, causeway).await;
}

/// T10: after a restart, with nothing but the old primary in reach.
#[tokio::test]
async fn an_old_primary_is_refused_after_a_restart_until_it_is_accepted() {
    let sandbox = servers(1).await;
    let state = sandbox.directory().join("state");
    std::fs::create_dir(&state).expect("a folder");
    let yaml =
        causeway_testkit::yaml_for(&sandbox).replace("    monitor:", "    primary_wait: 300ms\n    monitor:");
    let yaml = format!("{yaml}{ADMIN}state_dir: \"{}\"\n", state.display());
    let first = Causeway::start(&yaml).await;
    for part in COMPLAINTS {
        first.allow_log(part);
    }
    serving(&first, 2).await;
    node(&sandbox, "pg-1").promote().await.expect("the promotion succeeds");
    led_by(&first, "pg-1").await;
    first.stop().await;
    node(&sandbox, "pg-1").stop(StopMode::Immediate).await.expect("it stops");

    let second = Causeway::start_unready(&yaml).await;
    for part in COMPLAINTS {
        second.allow_log(part);
    }
    let shown = epoch(&second, &["show"]);
    assert!(shown.contains("timeline 2, written by pg-1") && shown.contains("after 1 up to "), "{shown}");
    let mut client = Client::connect(second.port()).await;
    let refused = client.startup(&[("user", "postgres"), ("database", "postgres")]).await;
    assert_eq!(code(&refused), "57P03");
    let text = |field| refused.last().and_then(|error| error.field(field)).unwrap_or_default().to_owned();
    let complaint = "node \"pg-0\" takes writes on timeline 1, but timeline 2 was seen";
    assert!(text(b'D').contains(complaint), "{refused:?}");
    assert!(text(b'H').contains("causeway epoch accept main"), "{refused:?}");
    let mut console = second.client("postgres", "causeway").await;
    assert_eq!(rows(&console.query("SHOW EPOCH").await)[0][6].as_deref(), Some(complaint));
    assert_eq!(code(&console.query("EPOCH ACCEPT other").await), "42704");
    assert_eq!(tags(&console.query("EPOCH ACCEPT main").await), ["EPOCH"]);
    let mut client = session(&second).await;
    assert_eq!(tags(&client.query("UPDATE counter SET n = 5").await), ["UPDATE 1"]);
    let deadline = Instant::now() + PATIENCE;
    while !epoch(&second, &["show", "main"]).contains("timeline 1, written by pg-0") {
        assert!(Instant::now() < deadline, "what was accepted is kept");
    }
    ends(sandbox, second).await;
}

/// Runs `causeway epoch` on this one's configuration.
fn epoch(causeway: &Causeway, arguments: &[&str]) -> String {
    let program = std::fs::read_link(format!("/proc/{}/exe", causeway.pid())).expect("the running program");
    let mut command = std::process::Command::new(program);
    let output = command.arg("epoch").args(arguments).arg("-c").arg(causeway.config_path()).output();
    let output = output.expect("the program runs");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Two servers make the same timeline at the same position, as happens when neither knows of the other.
#[tokio::test]
async fn two_nodes_on_one_timeline_are_no_primary() {
    let sandbox = servers(2).await;
    let yaml = format!("{ADMIN}consistency: {{ wait: 20ms }}\n");
    let causeway = causeway(&sandbox, &yaml).await;
    let quick =
        causeway_testkit::yaml_for(&sandbox).replace("    monitor:", "    primary_wait: 300ms\n    monitor:");
    sandbox.replicas_caught_up().await.expect("the replicas catch up");
    let (one, other) = (node(&sandbox, "pg-1"), node(&sandbox, "pg-2"));
    node(&sandbox, "pg-0").stop(StopMode::Immediate).await.expect("the old primary stops");
    one.promote().await.expect("the promotion succeeds");
    led_by(&causeway, "pg-1").await;
    causeway.reload(&(quick + &yaml)).await;
    let mut client = session_at(&causeway, "cluster").await;
    one.stop(StopMode::Immediate).await.expect("the new primary stops");
    other.promote().await.expect("the promotion succeeds");
    causeway.wait_for_log("split brain").await;
    for sql in ["UPDATE counter SET n = 1", READ] {
        let refused = client.query(sql).await;
        assert_eq!(code(&refused), "57P03", "{sql}");
        let detail = refused[0].field(b'D').unwrap_or_default();
        assert!(detail.contains("split brain: node \"pg-2\" takes writes on timeline 2"), "{detail}");
    }
    // With both in reach it is no better.
    one.start().await.expect("it starts");
    causeway.wait_for_log("several nodes take writes").await;
    assert_eq!(code(&client.query("UPDATE counter SET n = 1").await), "57P03");
    let mut console = causeway.client("postgres", "causeway").await;
    assert_eq!(code(&console.query("EPOCH ACCEPT main").await), "55000", "it cannot be told which");
    one.stop(StopMode::Immediate).await.expect("it stops again");
    let deadline = Instant::now() + PATIENCE;
    while tags(&console.query("EPOCH ACCEPT main").await) != ["EPOCH"]
        || code_of_write(&mut client).await.is_some()
    {
        assert!(Instant::now() < deadline, "the operator's word counts");
        sleep(Duration::from_millis(50)).await;
    }
    ends(sandbox, causeway).await;
}

async fn code_of_write(client: &mut Client) -> Option<String> {
    let answer = client.query("UPDATE counter SET n = 1").await;
    answer.iter().find(|message| message.tag == b'E').map(|error| error.code().to_owned())
}

/// What an upgrade looks like: the same name and another system.
#[tokio::test]
async fn another_system_is_refused_until_it_is_accepted() {
    let (before, after) = (servers(0).await, servers(0).await);
    let state = before.directory().join("state");
    std::fs::create_dir(&state).expect("a folder");
    let yaml = |sandbox: &Sandbox| {
        let yaml = causeway_testkit::yaml_for(sandbox)
            .replace("    monitor:", "    primary_wait: 300ms\n    monitor:");
        format!("{yaml}{ADMIN}state_dir: \"{}\"\n", state.display())
    };
    let first = Causeway::start(&yaml(&before)).await;
    serving(&first, 1).await;
    first.stop().await;
    let second = Causeway::start_unready(&yaml(&after)).await;
    for part in COMPLAINTS {
        second.allow_log(part);
    }
    let mut client = Client::connect(second.port()).await;
    let refused = client.startup(&[("user", "postgres"), ("database", "postgres")]).await;
    assert_eq!(code(&refused), "57P03");
    let detail = refused.last().and_then(|error| error.field(b'D')).unwrap_or_default();
    assert!(detail.contains("node \"pg-0\" takes writes for system "), "{detail}");
    // What it is kept for is for the next start; the running one is told on its console.
    let accepted = epoch(&second, &["accept", "main"]);
    assert!(accepted.starts_with("accepted: main: system "), "{accepted}");
    assert_eq!(epoch(&second, &["accept", "other"]), "no cluster is called \"other\"\n");
    second.stop().await;
    let third = Causeway::start(&yaml(&after)).await;
    let mut client = session(&third).await;
    assert_eq!(tags(&client.query("UPDATE counter SET n = 5").await), ["UPDATE 1"]);
    third.stop().await;
    before.stop().await.expect("the servers stop");
    after.stop().await.expect("the servers stop");
}

/// The shortcut to the last replica must not serve what a standby refuses.
#[tokio::test]
async fn a_session_that_becomes_serializable_leaves_its_replica() {
    let sandbox = servers(1).await;
    let causeway = causeway(&sandbox, "").await;
    let mut reader = session_at(&causeway, "session").await;
    let by_replica = async || queries_on(&causeway, "pg-1").await;
    let before = by_replica().await;
    assert_eq!(value(&reader.query(READ).await), "0");
    assert_eq!(by_replica().await, before + 1, "the replica serves the session");
    reader.query("SET default_transaction_isolation = 'serializable'").await;
    let before = by_replica().await;
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        assert_eq!(value(&reader.query(READ).await), "0");
    }
    assert_eq!(by_replica().await, before, "a standby knows no serializable transactions");
    reader.query("RESET default_transaction_isolation").await;
    let deadline = Instant::now() + PATIENCE;
    while by_replica().await == before {
        assert_eq!(value(&reader.query(READ).await), "0");
        assert!(Instant::now() < deadline, "the replica serves it again");
    }
    ends(sandbox, causeway).await;
}

/// A crash restart takes a replica back to what it had replayed at its last restart point, and further on from there.
#[tokio::test]
async fn reads_stay_monotonic_when_a_replica_crashes() {
    let sandbox = servers(2).await;
    let causeway = causeway(&sandbox, "").await;
    for part in ["57P0", "server closed", "lost", "refused"] {
        causeway.allow_log(part);
    }
    let victim = node(&sandbox, "pg-1");
    let (mut writer, mut reader) = (session(&causeway).await, session_at(&causeway, "session").await);
    let (mut last, mut reads) = (0, 0);
    for round in 1..=3 {
        let until = Instant::now() + Duration::from_secs(3);
        let mut killed = false;
        while Instant::now() < until {
            writer.query("UPDATE counter SET n = n + 1").await;
            for _ in 0..3 {
                let answer = reader.query(READ).await;
                if answer.iter().any(|message| message.tag == b'E') {
                    // What was under way on the replica is lost with it; the session may be.
                    reader = session_at(&causeway, "session").await;
                    last = 0;
                    continue;
                }
                let seen: i64 = value(&answer).parse().expect("a number");
                assert!(seen >= last, "{seen} after {last} in round {round}");
                (last, reads) = (seen, reads + 1);
            }
            if !killed && Instant::now() + Duration::from_secs(2) > until {
                killed = true;
                let child = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walreceiver' OR pid = pg_backend_pid() LIMIT 1";
                let pid = victim
                    .sql("postgres", child)
                    .await
                    .expect("a child")
                    .trim()
                    .parse()
                    .expect("a process id");
                causeway_testkit::sandbox::signal(pid, Signal::KILL).ok();
            }
        }
        let deadline = Instant::now() + PATIENCE;
        while victim.sql("postgres", "SELECT 1").await.is_err() {
            assert!(Instant::now() < deadline, "the replica recovers");
            sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(reads > 300, "only {reads} reads");
    ends(sandbox, causeway).await;
}
