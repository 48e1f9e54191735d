//! PostgreSQL's own tools against Causeway: `pgbench`, `pg_dump`, `psql`.

use std::process::{Output, Stdio};
use std::time::Duration;

use causeway_testkit::sandbox::Binaries;
use causeway_testkit::wire::request::query;
use causeway_testkit::wire::{Client, summary};
use causeway_tests::{ONE_CONNECTION, Place, everywhere, through};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

const LIMIT: Duration = Duration::from_mins(2);

/// Runs a tool against `port`, with its options before the database's name.
async fn tool(name: &str, port: u16, database: &str, options: &[&str]) -> Output {
    let options: Vec<&str> = options.iter().copied().chain([database]).collect();
    bare_tool(name, port, &options).await
}

/// Runs a tool against `port`.
async fn bare_tool(name: &str, port: u16, options: &[&str]) -> Output {
    let program = Binaries::find().expect("PostgreSQL is installed").program(name);
    let mut command = Command::new(program);
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres"]).args(options);
    // What the person who runs the tests has set is not what is tested.
    command.env_remove("PGOPTIONS").env_remove("PGDATABASE").env("PGCONNECT_TIMEOUT", "20");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let running = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}")).wait_with_output();
    timeout(LIMIT, running).await.expect("the tool ends").expect("it can be waited for")
}

/// What a tool printed, after it succeeded.
async fn succeeds(name: &str, port: u16, database: &str, options: &[&str]) -> String {
    let output = tool(name, port, database, options).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {options:?}: {}\n{errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Causeway with the tables of pgbench behind it, made through it.
async fn with_pgbench(settings: &str, body: impl AsyncFn(&Place)) {
    through(settings, async |place: &Place| {
        succeeds("pgbench", place.port(), place.database(), &["-i", "-q", "-s", "1"]).await;
        place.admin_everywhere("SELECT 1").await;
        body(place).await;
    })
    .await;
}

/// Queries of this run's database on each node so far.
async fn queries(place: &Place) -> [u64; 3] {
    [place.queries_on("pg-0").await, place.queries_on("pg-1").await, place.queries_on("pg-2").await]
}

/// How many queries each node got for one `sql`.
async fn queries_of(place: &Place, client: &mut Client, sql: &str) -> [u64; 3] {
    let before = queries(place).await;
    client.query(sql).await;
    let after = queries(place).await;
    [0, 1, 2].map(|node| after[node] - before[node])
}

#[tokio::test]
async fn pgbench_reads_run_on_the_replicas() {
    // Other tests write a lot at the same time: at a level that has to wait, some reads would fall back.
    let settings = "pool: { size: 4 }\nconsistency: { default: eventual }\n";
    with_pgbench(settings, async |place: &Place| {
        // The tables are new: until the catalogue has them, reads of them are the primary's.
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut client = place.client().await;
        while queries_of(place, &mut client, "SELECT abalance FROM pgbench_accounts WHERE aid = 1").await[0]
            > 0
        {
            assert!(Instant::now() < deadline, "new tables stay unknown");
            sleep(Duration::from_millis(50)).await;
        }
        for protocol in ["simple", "extended", "prepared"] {
            let before = queries(place).await;
            let options = ["-n", "-S", "-M", protocol, "-c", "32", "-j", "2", "-t", "125"];
            let report = succeeds("pgbench", place.port(), place.database(), &options).await;
            assert!(report.contains("number of transactions actually processed: 4000/4000"), "{report}");
            assert!(report.contains("number of failed transactions: 0 "), "{report}");
            let after = queries(place).await;
            let [primary, first, second] = [0, 1, 2].map(|node| after[node] - before[node]);
            // pgbench itself looks at the tables before it starts.
            assert!(primary <= 8, "{protocol}: {primary} queries on the primary");
            assert!(first + second >= 4000, "{protocol}: pg-1 {first}, pg-2 {second}");
            let percent = 100 * first / (first + second);
            // Equal weights give equal shares while the nodes are equally fast, which on a busy machine they are not.
            assert!((20..=80).contains(&percent), "{protocol}: pg-1 {first}, pg-2 {second}");
        }
        place.is_unpinned(100).await;
    })
    .await;
}

#[tokio::test]
async fn pgbench_writes_run_on_the_primary_alone() {
    // In prepared mode pgbench waits for each Parse in a thread that holds the transactions of other clients: with
    // fewer server connections than clients it would wait for itself.
    with_pgbench("pool: { size: 16 }\n", async |place: &Place| {
        let before = place.count("causeway_queries_total", "replica").await;
        for protocol in ["simple", "extended", "prepared"] {
            let options = ["-n", "-M", protocol, "-c", "16", "-j", "2", "-t", "40"];
            let report = succeeds("pgbench", place.port(), place.database(), &options).await;
            assert!(report.contains("number of transactions actually processed: 640/640"), "{report}");
            assert!(report.contains("number of failed transactions: 0 "), "{report}");
        }
        let after = place.count("causeway_queries_total", "replica").await;
        assert!(after - before <= 24, "{} queries of write transactions on replicas", after - before);
        // TPC-B's own invariant: what was moved is in all four tables.
        let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history) \
                    AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(tbalance) FROM pgbench_tellers) \
                    AND (SELECT count(*) FROM pgbench_history) = 1920";
        assert_eq!(place.admin(sums).await, "t");
    })
    .await;
}

#[tokio::test]
async fn pgbench_mixed_scripts_split_by_statement() {
    with_pgbench("pool: { size: 4 }\n", async |place: &Place| {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("mixed.sql");
        // Each client its own row: a read must see the write before it.
        let text = "\\set delta random(1, 1000)\n\
                    UPDATE pgbench_tellers SET tbalance = :delta, filler = :'delta' WHERE tid = :client_id + 1;\n\
                    SELECT 1 / (tbalance = :delta)::int FROM pgbench_tellers WHERE tid = :client_id + 1;\n\
                    SELECT abalance FROM pgbench_accounts WHERE aid = :delta;\n";
        std::fs::write(&script, text.replace(":'delta'", ":delta")).expect("the script is written");
        let script = script.to_str().expect("a path in UTF-8");
        for protocol in ["simple", "extended", "prepared"] {
            let options = ["-n", "-M", protocol, "-f", script, "-c", "10", "-j", "2", "-t", "50"];
            let report = succeeds("pgbench", place.port(), place.database(), &options).await;
            assert!(report.contains("number of transactions actually processed: 500/500"), "{report}");
        }
        assert!(place.count("causeway_queries_total", "replica").await > 0, "some reads used a replica");
    })
    .await;
}

#[tokio::test]
async fn pgbench_with_a_connection_for_each_transaction() {
    with_pgbench("pool: { size: 2 }\n", async |place: &Place| {
        let options = ["-n", "-C", "-S", "-c", "8", "-j", "2", "-t", "40"];
        let report = succeeds("pgbench", place.port(), place.database(), &options).await;
        assert!(report.contains("number of transactions actually processed: 320/320"), "{report}");
        let sessions = "SELECT count(*) <= 2 FROM pg_stat_activity WHERE datname = current_database() \
                        AND pid <> pg_backend_pid()";
        assert_eq!(place.admin(sessions).await, "t", "server connections are kept, not made");
    })
    .await;
}

#[tokio::test]
async fn pg_dump_through_the_port_equals_pg_dump_direct() {
    with_pgbench(ONE_CONNECTION, async |place: &Place| {
        let direct = place.sandbox().primary().port();
        for options in
            [&["-s"][..], &[][..], &["--inserts", "-t", "shop.*"], &["-a", "--serializable-deferrable"]]
        {
            let want = dump(direct, place.database(), options).await;
            assert!(want.len() > 3, "{options:?}: there is something to dump");
            assert_eq!(dump(place.port(), place.database(), options).await, want, "{options:?}");
            // The empty search_path of the dump does not stay behind.
            let mut app = place.client().await;
            assert_eq!(app.one("SHOW search_path").await, "\"$user\", public");
            assert_eq!(app.one("SELECT count(*) FROM pgbench_branches").await, "1");
        }
        // And back in, through the port.
        let mut app = place.client().await;
        app.query("CREATE TABLE restored (id int, filler text)").await;
        app.query("INSERT INTO restored SELECT i, repeat('r', 50) FROM generate_series(1, 5000) i").await;
        let text = succeeds("pg_dump", place.port(), place.database(), &["-t", "restored", "--clean"]).await;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("restored.sql");
        std::fs::write(&file, text).expect("the dump is written");
        app.query("TRUNCATE restored").await;
        let file = file.to_str().expect("a path in UTF-8");
        succeeds("psql", place.port(), place.database(), &["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", file])
            .await;
        assert_eq!(app.one("SELECT count(*) FROM restored").await, "5000");
    })
    .await;
}

/// A dump's lines, without the key that newer versions of `pg_dump` make up for each run.
async fn dump(port: u16, database: &str, options: &[&str]) -> Vec<String> {
    let text = succeeds("pg_dump", port, database, options).await;
    let random = |line: &&str| line.starts_with("\\restrict ") || line.starts_with("\\unrestrict ");
    text.lines().filter(|line| !random(line)).map(str::to_owned).collect()
}

#[tokio::test]
async fn psql_shows_the_same() {
    let scripts = [
        "\\d shop.item",
        "\\dt shop.*",
        "\\df shop.f_peek",
        "\\l+ template1",
        "\\dx",
        "SELECT * FROM shop.item ORDER BY id",
        "SELECT * FROM shop.v_stock ORDER BY 1; SELECT no_such_col; SELECT 2",
        "BEGIN; SELECT 1; COMMIT",
        "\\copy (SELECT id, sku FROM shop.item ORDER BY id) TO STDOUT",
        "\\set FETCH_COUNT 100\nSELECT sum(i) FROM (SELECT generate_series(1, 1000) i) s",
        "SELECT sku FROM shop.item WHERE id = $1 \\bind 1 \\g",
        "SELECT format('SELECT %s', i) FROM generate_series(1, 3) i \\gexec",
        "SELECT 1 AS a, 'x' AS b \\gdesc",
        "\\errverbose\nSELECT 1/0;\n\\errverbose",
    ];
    let answers = std::sync::Mutex::new(Vec::new());
    everywhere("pool: { size: 2 }\n", async |place: &Place| {
        let folder = tempfile::tempdir().expect("a folder");
        for (number, script) in scripts.iter().enumerate() {
            let file = folder.path().join("script.sql");
            std::fs::write(&file, format!("{script}\n;\n")).expect("the script is written");
            let file = file.to_str().expect("a path in UTF-8");
            let output = tool("psql", place.port(), place.database(), &["-X", "-f", file]).await;
            // Where the file is, and in which line, does not matter; psql 15 lacks \bind, equally on both sides.
            let text = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr).replace(file, "script")
            );
            let mut answers = answers.lock().expect("nobody panicked");
            if place.is_direct() {
                answers.push(text);
            } else {
                assert_eq!(text, answers[number], "{script}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn libpq_finds_a_read_write_session() {
    through("", async |place: &Place| {
        for (attributes, fits) in [("any", true), ("read-write", true), ("primary", true), ("standby", false)]
        {
            let source = format!(
                "host=127.0.0.1 port={} user=postgres dbname={} target_session_attrs={attributes}",
                place.port(),
                place.database()
            );
            let program = Binaries::find().expect("PostgreSQL is installed").program("psql");
            let output =
                Command::new(program).args(["-XAtc", "SELECT 1", &source]).output().await.expect("psql runs");
            assert_eq!(output.status.success(), fits, "{attributes}: {output:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn replication_connections_pass() {
    everywhere("", async |place: &Place| {
        let replicate = async |name: &str, options: &[&str]| {
            let output = bare_tool(name, place.port(), options).await;
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{name} {options:?}: {}\n{errors}", output.status);
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let folder = place.sandbox().directory().join(format!("replication-{}", place.port()));
        let (backup, log) = (folder.join("backup"), folder.join("log"));
        std::fs::create_dir_all(&log).expect("a folder for the log");
        let backup_name = backup.display().to_string();
        replicate("pg_basebackup", &["-D", &backup_name, "-X", "stream", "-c", "fast", "--no-sync"]).await;
        for file in ["PG_VERSION", "backup_manifest", "pg_wal"] {
            assert!(backup.join(file).exists(), "the backup has no {file}");
        }
        let position = place.admin("SELECT pg_current_wal_lsn()").await;
        let log_name = log.display().to_string();
        replicate("pg_receivewal", &["-D", &log_name, "--no-loop", "--no-sync", "--endpos", &position]).await;
        assert!(std::fs::read_dir(&log).expect("a folder").count() > 0, "no log was received");

        let slot = format!("slot_{}", place.port());
        let logical = ["-d", place.database(), "--slot", &slot];
        let with = |options: &[&'static str]| -> Vec<&str> { [&logical, options].concat() };
        replicate("pg_recvlogical", &with(&["--create-slot", "-P", "test_decoding"])).await;
        let mut client = place.client().await;
        client.query("INSERT INTO shop.audit(note) VALUES ('decoded')").await;
        let position = place.admin("SELECT pg_current_wal_insert_lsn()").await;
        place.admin("SELECT pg_logical_emit_message(true, 'end', 'of the test')").await;
        let start = [&logical[..], &["--start", "--no-loop", "-f", "-", "--endpos", &position]].concat();
        let changes = replicate("pg_recvlogical", &start).await;
        assert!(changes.contains("table shop.audit: INSERT") && changes.contains("'decoded'"), "{changes}");
        replicate("pg_recvlogical", &with(&["--drop-slot"])).await;

        // A connection to a database speaks SQL as well, and is the server's own in everything.
        let (mut walsender, _) = place.client_with(&[("replication", "database"), ("application_name", "w")]).await;
        assert_eq!(summary(&walsender.query("IDENTIFY_SYSTEM").await), "T D C Z(I)");
        assert_eq!(walsender.one("SELECT pg_is_in_recovery()").await, "f");
        assert_eq!(walsender.one("SHOW application_name").await, "w");
        let process = walsender.one("SELECT pg_backend_pid()").await;
        assert_eq!(walsender.key().pid.to_string(), process);
        walsender.send(&[query("SELECT pg_sleep(60)")]).await;
        place.admin_until("SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)' AND application_name = 'w'", "1").await;
        Client::connect(place.port()).await.cancel(&walsender.key()).await;
        assert_eq!(summary(&walsender.until_ready().await), "T E(57014) Z(I)");
        walsender.terminate().await;
        std::fs::remove_dir_all(&folder).expect("it can be removed");
    })
    .await;
}
