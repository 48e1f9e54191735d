//! Real client libraries against Causeway: the programs of `tests/drivers`, each with more clients than there are
//! server connections.
//!
//! A driver that is not installed is left out with a word on standard error; under `CI` that is a failure for those
//! that a machine must have.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use causeway_tests::{Place, through};
use tokio::process::Command;
use tokio::time::timeout;

/// Longer than the longest run, so that a hang is told from slowness.
const LIMIT: Duration = Duration::from_mins(3);
const SETTINGS: &str = "pool: { size: 4 }\n";

/// Every step that each program must report.
const STEPS: &[&str] =
    &["schema", "queries", "prepared", "transactions", "read only", "errors", "copy", "types"];

/// Whether a machine without the driver fails the test.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needed {
    InCi,
    Nowhere,
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers")
}

/// Where `tests/drivers/install` puts what it downloads.
fn installed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/drivers")
}

/// Says on the real standard error, which the test harness does not swallow, that a driver is not tried.
fn left_out(driver: &str, needed: Needed, missing: &Path) {
    let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(
        !(in_ci && needed == Needed::InCi),
        "{driver} is not installed: {} is missing",
        missing.display()
    );
    let message =
        format!("left out: {driver} ({} is missing; `make drivers` brings it)\n", missing.display());
    std::io::stderr().write_all(message.as_bytes()).expect("standard error takes a line");
}

/// Runs `command` with host, port, database and user behind it, and checks what it printed.
async fn conforms(mut command: Command, place: &Place) {
    command.args(["127.0.0.1", &place.port().to_string(), place.database(), "postgres"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let running = command.spawn().expect("the program starts").wait_with_output();
    let output = timeout(LIMIT, running).await.expect("the program ends").expect("it can be waited for");
    let text = String::from_utf8_lossy(&output.stdout);
    let everything = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}:\n{everything}", output.status);
    for step in STEPS {
        assert!(text.lines().any(|line| line == format!("ok {step}")), "no step `{step}`:\n{everything}");
    }
    assert_eq!(text.lines().last(), Some("done"), "{everything}");
}

/// Reads ran on both replicas, and nothing but reads ran there.
async fn split_is_right(place: &Place) {
    let [primary, first, second] =
        [place.queries_on("pg-0").await, place.queries_on("pg-1").await, place.queries_on("pg-2").await];
    assert!(primary > 0 && first > 0 && second > 0, "pg-0 {primary}, pg-1 {first}, pg-2 {second}");
    // Equal weights give equal shares; latencies of a busy machine pull them apart a little.
    let percent = 100 * first / (first + second);
    assert!((20..=80).contains(&percent), "pg-1 {first}, pg-2 {second}");
    // The servers' own word on it: rows change on the primary only, and no pool grew over its size.
    let wrote = "SELECT tup_inserted > 0 FROM pg_stat_database WHERE datname = current_database()";
    place.admin_until(wrote, "t").await;
    let connections = "SELECT count(*) <= 4 FROM pg_stat_activity WHERE datname = current_database() \
                       AND pid <> pg_backend_pid()";
    // Reading the catalogue takes a connection of its own for a moment.
    place.admin_until(connections, "t").await;
    for replica in place.sandbox().replicas() {
        let answer = replica.sql(place.database(), connections).await.expect("the replica answers");
        assert_eq!(
            answer.trim_end(),
            "t",
            "more server connections than the pool may have on {}",
            replica.name()
        );
    }
}

async fn driver(make: impl Fn() -> Command) {
    through(SETTINGS, async |place: &Place| {
        conforms(make(), place).await;
        split_is_right(place).await;
        place.is_unpinned(90).await;
    })
    .await;
}

async fn python(driver_name: &str, program: &str, package: &str) {
    let interpreter = installed().join("venv/bin/python");
    let has_package = interpreter.exists()
        && std::process::Command::new(&interpreter)
            .args(["-c", &format!("import {package}")])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
    if !has_package {
        return left_out(driver_name, Needed::InCi, &interpreter);
    }
    driver(|| {
        let mut command = Command::new(&interpreter);
        command.arg(programs().join(program));
        command
    })
    .await;
}

#[tokio::test]
async fn psycopg() {
    python("psycopg 3", "psycopg3.py", "psycopg").await;
}

#[tokio::test]
async fn asyncpg() {
    python("asyncpg", "asyncpg_client.py", "asyncpg").await;
}

#[tokio::test]
async fn node_postgres() {
    let modules = installed().join("node/node_modules");
    if !modules.join("pg").exists() {
        return left_out("node-postgres", Needed::InCi, &modules);
    }
    driver(|| {
        let mut command = Command::new("node");
        command.arg("--no-deprecation").arg(programs().join("node_postgres.js")).env("NODE_PATH", &modules);
        command
    })
    .await;
}

#[tokio::test]
async fn jdbc() {
    let jar = Path::new("/usr/share/java/postgresql.jar");
    let has_java = std::process::Command::new("javac").arg("-version").output().is_ok();
    if !jar.exists() || !has_java {
        return left_out("JDBC", Needed::Nowhere, if has_java { jar } else { Path::new("javac") });
    }
    driver(|| {
        let mut command = Command::new("java");
        command.arg("-cp").arg(jar).arg(programs().join("Jdbc.java"));
        command
    })
    .await;
}

#[tokio::test]
async fn pgx() {
    let package = Path::new("/usr/share/gocode/src/github.com/jackc/pgx/v4");
    let has_go = std::process::Command::new("go").arg("version").output().is_ok();
    if !package.exists() || !has_go {
        return left_out("pgx", Needed::Nowhere, if has_go { package } else { Path::new("go") });
    }
    let folder = installed().join("go");
    let binary = folder.join("pgx");
    let built = Command::new("go")
        .args(["build", "-o"])
        .args([&binary, &programs().join("pgx/main.go")])
        .envs([("GO111MODULE", "off"), ("GOPATH", "/usr/share/gocode"), ("GOFLAGS", "-buildvcs=false")])
        .env("GOCACHE", folder.join("cache"))
        .output()
        .await
        .expect("go runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    driver(|| Command::new(&binary)).await;
}

#[tokio::test]
async fn tokio_postgres() {
    through(SETTINGS, async |place: &Place| {
        let source =
            format!("host=127.0.0.1 port={} user=postgres dbname={}", place.port(), place.database());
        let mut tasks = Vec::new();
        for number in 0..32_i32 {
            let source = source.clone();
            tasks.push(tokio::spawn(async move {
                let (mut client, connection) =
                    tokio_postgres::connect(&source, tokio_postgres::NoTls).await.expect("a login");
                let connection = tokio::spawn(connection);
                tokio_client(&mut client, number)
                    .await
                    .unwrap_or_else(|error| panic!("client {number}: {error:?}"));
                drop(client);
                connection.await.expect("the connection's task ends").expect("it ends well");
            }));
        }
        for task in tasks {
            task.await.expect("every client is served");
        }
        split_is_right(place).await;
        place.is_unpinned(90).await;
    })
    .await;
}

type Parameter<'a> = &'a (dyn tokio_postgres::types::ToSql + Sync);

/// Writes, reads its writes, pipelines, and rolls back.
async fn tokio_client(client: &mut tokio_postgres::Client, number: i32) -> Result<(), tokio_postgres::Error> {
    let sum = client.prepare("SELECT $1::int + $2::int").await?;
    let write = client.prepare("INSERT INTO shop.audit(note) VALUES ($1)").await?;
    let count = client.prepare("SELECT count(*) FROM shop.audit WHERE note = $1").await?;
    let note = format!("client {number}");
    for round in 0..40_i32 {
        client.execute(&write, &[&note]).await?;
        let own: i64 = client.query_one(&count, &[&note]).await?.get(0);
        assert_eq!(own, i64::from(round) + 1, "own writes");
        // Sent at once, answered in order.
        let (first, second): ([Parameter<'_>; 2], [Parameter<'_>; 2]) =
            ([&round, &number], [&number, &round]);
        let (first, second) = tokio::join!(client.query_one(&sum, &first), client.query_one(&sum, &second));
        assert_eq!((first?.get::<_, i32>(0), second?.get::<_, i32>(0)), (round + number, number + round));
        for _ in 0..4 {
            assert_eq!(client.query_one(&sum, &[&round, &1]).await?.get::<_, i32>(0), round + 1);
        }
    }
    let transaction = client.transaction().await?;
    transaction.execute(&write, &[&"lost"]).await?;
    transaction.rollback().await?;
    assert_eq!(client.query_one(&count, &[&"lost"]).await?.get::<_, i64>(0), 0);
    Ok(())
}
