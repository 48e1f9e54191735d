//! One Causeway follows another (SIGUSR2) while clients work.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use causeway_testkit::Causeway;
use causeway_testkit::sandbox::Binaries;
use causeway_testkit::wire::{Message, cancel, request};
use causeway_tests::{Place, code, count, tags, through};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

/// Longer than anything here should take.
const LIMIT: Duration = Duration::from_secs(30);

/// Runs pgbench to its end; returns its report.
async fn pgbench(port: u16, database: String, options: &str) -> String {
    let program = Binaries::find().expect("PostgreSQL is installed").program("pgbench");
    let mut command = Command::new(program);
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres"]);
    command.args(options.split(' ')).arg(database).env_remove("PGOPTIONS");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let running = command.spawn().expect("pgbench starts").wait_with_output();
    let output = timeout(LIMIT, running).await.expect("pgbench ends").expect("it can be waited for");
    let (report, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{options}: {}\n{errors}\n{report}", output.status);
    assert!(report.contains("number of failed transactions: 0 "), "{options}: {report}");
    report.into_owned()
}

async fn first_ends(causeway: &Causeway) {
    let deadline = Instant::now() + LIMIT;
    while causeway.first_is_running() {
        assert!(Instant::now() < deadline, "the former process does not end");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn no_transaction_fails_while_one_follows_the_other() {
    through("pool: { size: 6 }\n", async |place: &Place| {
        let (port, database) = (place.port(), place.database().to_owned());
        pgbench_tables(place).await;
        let run = |options: &'static str| tokio::spawn(pgbench(port, database.clone(), options));
        // Sessions that stay in three protocols, and clients that connect for each transaction.
        let runs = [
            run("-n -c 4 -T 4 -M simple"),
            run("-n -c 4 -T 4 -M extended"),
            run("-n -S -c 4 -T 4 -M prepared"),
            run("-n -S -C -c 4 -T 4"),
        ];
        for _ in 0..2 {
            sleep(Duration::from_secs(1)).await;
            place.causeway().hand_over().await;
        }
        for run in runs {
            let report = run.await.expect("pgbench was run");
            assert!(!report.contains("number of transactions actually processed: 0"), "{report}");
        }
        first_ends(place.causeway()).await;
        let moved =
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)";
        assert_eq!(place.admin(moved).await, "t");
    })
    .await;
}

async fn pgbench_tables(place: &Place) {
    let program = Binaries::find().expect("PostgreSQL is installed").program("pgbench");
    let port = place.sandbox().primary().port().to_string();
    let made = Command::new(program)
        .args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-i", "-q", "-s", "1", place.database()])
        .stderr(Stdio::null())
        .status();
    assert!(made.await.expect("pgbench runs").success());
    place.admin_everywhere("SELECT 1").await;
}

#[tokio::test]
async fn who_stays_with_the_former_process_can_be_cancelled_and_goes_in_peace() {
    through("", async |place: &Place| {
        let mut open = place.client().await;
        assert_eq!(tags(&open.query("BEGIN; INSERT INTO shop.audit(note) VALUES ('before')").await).len(), 2);
        let mut slow = place.client().await;
        let key = slow.key();
        slow.send(&[request::query("SELECT pg_sleep(60)")]).await;
        place.causeway().hand_over().await;
        // The request comes in at the new process, which does not know the key.
        assert!(cancel(place.port(), &key).await.is_empty());
        let answer = timeout(LIMIT, slow.until_ready()).await.expect("the statement is cancelled");
        assert_eq!(code(&answer), "57014");
        assert_eq!(count(place.causeway(), "causeway_cancels_total", &[("result", "passed_on")]).await, 1);
        assert!(place.causeway().first_is_running(), "a transaction is open there");
        assert_eq!(tags(&open.query("COMMIT").await), ["COMMIT"]);
        assert_eq!(open.query("SELECT 1").await.last().map(Message::status), Some('I'), "it may stay");
        open.terminate().await;
        slow.terminate().await;
        first_ends(place.causeway()).await;
    })
    .await;
}

#[tokio::test]
async fn a_process_that_does_not_come_up_changes_nothing() {
    through("timeouts: { handover_timeout: 1s }\n", async |place: &Place| {
        let causeway = place.causeway();
        let text = fs::read_to_string(causeway.config_path()).expect("the configuration");
        fs::write(causeway.config_path(), text.clone() + "nonsense: 1\n").expect("it can be written");
        causeway.allow_log("nonsense");
        causeway.allow_log("this process keeps serving");
        causeway.signal(causeway_testkit::Signal::USR2);
        causeway.wait_for_log("handover_failed").await;
        let mut client = place.client().await;
        assert_eq!(client.one("SELECT 1").await, "1");
        // With the file in order the next one takes over, and whoever stays too long is told to connect again.
        fs::write(causeway.config_path(), text).expect("it can be written");
        causeway.hand_over().await;
        assert_eq!(client.one("SELECT 2").await, "2");
        let farewell = timeout(LIMIT, client.until_eof()).await.expect("it is told to leave");
        assert_eq!(code(&farewell), "57P01");
        first_ends(causeway).await;
        assert_eq!(place.client().await.one("SELECT 3").await, "3");
    })
    .await;
}
