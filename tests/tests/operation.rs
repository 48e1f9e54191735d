//! What an operator does: passwords, the console, reloads and stops under load, the files of `deploy/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use causeway_testkit::wire::{Client, summary};
use causeway_testkit::{Authentication, Causeway, Sandbox, SandboxConfig, Signal, yaml_for};
use causeway_tests::{Place, code, rows, start, tags, through, value};
use tokio::time::sleep;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The program, built by the harness when it first starts one.
async fn program(sandbox: &Sandbox) -> PathBuf {
    let causeway = start(sandbox, "").await;
    let program = fs::read_link(format!("/proc/{}/exe", causeway.pid())).expect("the running program");
    causeway.stop().await;
    program
}

#[tokio::test]
async fn passwords_are_checked_at_both_ends() {
    let authentication = Authentication::Scram { password: "right".to_owned() };
    let config = SandboxConfig { authentication, ..SandboxConfig::with_replicas(1) };
    let sandbox = Sandbox::start(config).await.expect("the servers start");
    for sql in ["CREATE ROLE app LOGIN PASSWORD 'app''s'", "CREATE ROLE stranger LOGIN PASSWORD 'x'"] {
        sandbox.primary().sql("postgres", sql).await.expect("a role");
    }
    sandbox.replicas_caught_up().await.expect("the replica catches up");
    let yaml = yaml_for(&sandbox).replace("method: trust", "method: scram-sha-256")
        + "  app: { password: \"app's\" }\n  postman: { password: nobody }\n";
    let causeway = causeway_tests::start_yaml(&sandbox, &yaml, 2).await;
    causeway.allow_log("auth");
    causeway.allow_log("login");
    for (user, password) in [("postgres", "right"), ("app", "app's")] {
        let mut client = Client::connect(causeway.port()).await.password(password);
        client.startup(&[("user", user), ("database", "postgres")]).await;
        for _ in 0..4 {
            assert_eq!(client.one("SELECT current_user").await, user);
        }
    }
    // A wrong password, a user that Causeway does not know, one that no server knows: the same words for all at login.
    let mut refusals = Vec::new();
    for (user, password) in [("app", "wrong"), ("stranger", "x"), ("nobody", "x"), ("postman", "wrong")] {
        let mut client = Client::connect(causeway.port()).await.password(password);
        let answer = client.startup(&[("user", user), ("database", "postgres")]).await;
        let refused = answer.last().expect("an answer");
        assert_eq!((refused.code(), refused.field(b'V')), ("28P01", Some("FATAL")), "{user}: {answer:?}");
        refusals.push(refused.field(b'M').expect("a message").replace(user, "USER"));
        client.expect_eof().await;
    }
    assert!(refusals.windows(2).all(|pair| pair[0] == pair[1]), "{refusals:?}");
    let mut known_here_alone = Client::connect(causeway.port()).await.password("nobody");
    let answer = known_here_alone.startup(&[("user", "postman"), ("database", "postgres")]).await;
    assert!(["28P01", "28000"].contains(&code(&answer)), "{answer:?}");
    causeway.stop().await;
    sandbox.stop().await.expect("the servers stop");
}

#[tokio::test]
async fn the_console_answers_both_protocols() {
    through("admin: { users: [postgres] }\n", async |place: &Place| {
        for database in ["causeway", "pgbouncer"] {
            let mut console = Client::login(place.port(), "postgres", database).await;
            for command in
                ["SHOW NODES", "SHOW POOLS", "SHOW CLIENTS", "SHOW SERVERS", "SHOW CONFIG", "SHOW VERSION"]
            {
                let simple = console.query(command).await;
                assert_eq!(
                    simple.last().map(causeway_testkit::wire::Message::status),
                    Some('I'),
                    "{command}"
                );
                assert!(!rows(&simple).is_empty(), "{command}: {simple:?}");
                let extended = console.execute(command, &[]).await;
                assert_eq!(
                    extended.first().map(|message| message.tag),
                    Some(b'1'),
                    "{command}: {extended:?}"
                );
                assert!(!rows(&extended).is_empty(), "{command}: {extended:?}");
            }
            let wrong = console.query("SHOW NONSENSE").await;
            assert_eq!(summary(&wrong), format!("E({}) Z(I)", code(&wrong)));
        }
        let mut stranger = Client::connect(place.port()).await;
        let answer = stranger.startup(&[("user", "shop_reader"), ("database", "causeway")]).await;
        assert!(code(&answer).starts_with("28") || code(&answer) == "42501", "{answer:?}");
    })
    .await;
}

#[tokio::test]
async fn a_reload_under_load_fails_nobody() {
    let sandbox = causeway_testkit::shared_cluster().await;
    let database = causeway_tests::shop_database(sandbox).await;
    let causeway = start(sandbox, "pool: { size: 2 }\n").await;
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let mut client = causeway.client("postgres", &database).await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..150 {
                assert_eq!(client.one("SELECT count(*) FROM shop.item").await, "4");
                let write = client.query("BEGIN; UPDATE shop.item SET qty = qty WHERE id = 1; COMMIT").await;
                assert_eq!(tags(&write), ["BEGIN", "UPDATE 1", "COMMIT"]);
            }
        }));
    }
    let text = fs::read_to_string(causeway.config_path()).expect("the configuration");
    for size in [4, 1, 3] {
        causeway.reload(&text.replace("size: 2", &format!("size: {size}"))).await;
        sleep(Duration::from_millis(100)).await;
    }
    for task in tasks {
        task.await.expect("no client notices");
    }
    causeway.stop().await;
}

#[tokio::test]
async fn a_stop_lets_transactions_end() {
    let sandbox = causeway_testkit::shared_cluster().await;
    let database = causeway_tests::shop_database(sandbox).await;
    let causeway = start(sandbox, "").await;
    let mut busy = causeway.client("postgres", &database).await;
    let mut idle = causeway.client("postgres", &database).await;
    assert_eq!(tags(&busy.query("BEGIN").await), ["BEGIN"]);
    busy.query("INSERT INTO shop.audit(note) VALUES ('drained')").await;
    causeway.signal(Signal::TERM);
    let farewell = idle.until_eof().await;
    assert_eq!((summary(&farewell).as_str(), farewell[0].field(b'V')), ("E(57P01)", Some("FATAL")));
    sleep(Duration::from_millis(300)).await;
    assert!(causeway.is_running(), "a transaction is open");
    assert_eq!(value(&busy.query("SELECT note FROM shop.audit").await), "drained");
    busy.send(&[causeway_testkit::wire::request::query("COMMIT")]).await;
    let end = busy.until_eof().await;
    assert_eq!(tags(&end), ["COMMIT"], "{end:?}");
    assert!(causeway.wait_exit().await.success());
    let kept =
        sandbox.primary().sql(&database, "SELECT count(*) FROM shop.audit WHERE note = 'drained'").await;
    assert_eq!(kept.expect("the primary answers").trim_end(), "1");
}

#[tokio::test]
async fn nodes_that_cannot_be_reached_are_said_to_be() {
    let [port]: [u16; 1] =
        causeway_testkit::sandbox::free_ports(1).expect("a free port").try_into().expect("one port");
    let yaml = format!(
        "clusters:\n  main:\n    nodes:\n      - {{ name: gone, address: \"127.0.0.1:{port}\" }}\n    \
         monitor: {{ user: postgres, database: postgres }}\n    primary_wait: 500ms\n\
         auth: {{ rules: [ {{ address: \"127.0.0.0/8\", method: trust }} ] }}\n\
         databases: {{ \"*\": {{ cluster: main }} }}\nstate_dir: /tmp\nadmin: {{ users: [postgres] }}\n"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let yaml = yaml.replace("/tmp", folder.path().to_str().expect("a path in UTF-8"));
    let sandbox = causeway_testkit::shared_cluster().await;
    let program = program(sandbox).await;
    let config = folder.path().join("causeway.yaml");
    let [listen, http]: [u16; 2] =
        causeway_testkit::sandbox::free_ports(2).expect("free ports").try_into().expect("two ports");
    fs::write(&config, format!("listen: [\"127.0.0.1:{listen}\"]\nhttp: \"127.0.0.1:{http}\"\n{yaml}"))
        .expect("the configuration is written");
    let mut process = tokio::process::Command::new(program)
        .args(["run", "-c"])
        .arg(&config)
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("causeway starts");
    let address = format!("127.0.0.1:{listen}").parse().expect("an address");
    let mut connected = Client::try_connect(address).await;
    for _ in 0..100 {
        if connected.is_ok() {
            break;
        }
        sleep(Duration::from_millis(50)).await;
        connected = Client::try_connect(address).await;
    }
    let mut client = connected.expect("clients are taken without a primary");
    let answer = client.startup(&[("user", "postgres"), ("database", "postgres")]).await;
    let refused = answer.last().expect("an answer");
    assert!(["57P03", "08001", "08006"].contains(&refused.code()), "{answer:?}");
    assert_eq!(refused.field(b'V'), Some("FATAL"));
    // The console goes on.
    let mut console = Client::login(listen, "postgres", "causeway").await;
    assert_eq!(rows(&console.query("SHOW NODES").await).len(), 1);
    process.kill().await.expect("it can be ended");
}

#[tokio::test]
async fn the_example_configuration_is_accepted() {
    let sandbox = causeway_testkit::shared_cluster().await;
    let program = program(sandbox).await;
    let folder = tempfile::tempdir().expect("a folder");
    let own = |name: &str| folder.path().join(name).display().to_string();
    for name in ["monitor.pw", "app.pw"] {
        fs::write(own(name), "secret\n").expect("a password file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(own(name), mode).expect("its mode");
    }
    let example = fs::read_to_string(root().join("deploy/causeway.yaml")).expect("the example");
    let example = example
        .replace("/etc/causeway/monitor.pw", &own("monitor.pw"))
        .replace("/etc/causeway/app.pw", &own("app.pw"))
        .replace("/var/lib/causeway", &folder.path().display().to_string());
    fs::write(own("causeway.yaml"), example).expect("the example is written");
    let output =
        Command::new(&program).args(["check", "-c", &own("causeway.yaml")]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_configuration_mistake_is_refused_with_its_place() {
    let sandbox = causeway_testkit::shared_cluster().await;
    let yaml = yaml_for(sandbox) + "pool: { sise: 4 }\n";
    let Err(refusal) = Causeway::try_start(&yaml).await else { panic!("an unknown key is accepted") };
    assert_eq!(refusal.status.code(), Some(78));
    assert!(refusal.log.contains("causeway.yaml:") && refusal.log.contains("size"), "{}", refusal.log);
    let yaml = yaml_for(sandbox) + "consistency: { default: strong }\n";
    let Err(refusal) = Causeway::try_start(&yaml).await else { panic!("an unknown level is accepted") };
    assert!(
        refusal.log.contains("consistency.default") && refusal.log.contains("bounded"),
        "{}",
        refusal.log
    );
}

#[tokio::test]
async fn a_pause_holds_clients_back_and_a_drain_takes_a_replica_out() {
    through("admin: { users: [postgres] }\n", async |place: &Place| {
        let database = place.database();
        let mut busy = Client::login(place.port(), "postgres", database).await;
        assert_eq!(tags(&busy.query("BEGIN").await), ["BEGIN"]);
        let mut pauser = Client::login(place.port(), "postgres", "causeway").await;
        let pause = format!("PAUSE \"{database}\"");
        let paused = tokio::spawn(async move { tags(&pauser.query(&pause).await) });
        let mut console = Client::login(place.port(), "postgres", "causeway").await;
        let mut other = Client::login(place.port(), "postgres", database).await;
        place.causeway().wait_for_log("clients are held back").await;
        let held = tokio::spawn(async move { other.one("SELECT 7").await });
        sleep(Duration::from_millis(500)).await;
        assert!(!paused.is_finished() && !held.is_finished(), "a transaction is open");
        assert_eq!(tags(&busy.query("COMMIT").await), ["COMMIT"]);
        assert_eq!(paused.await.expect("the pause"), ["PAUSE"]);
        sleep(Duration::from_millis(500)).await;
        assert!(!held.is_finished(), "the database is paused");
        let open = rows(&console.query("SHOW SERVERS").await).len();
        assert_eq!(open, 0, "every server connection is closed");
        assert_eq!(tags(&console.query(&format!("RESUME \"{database}\"")).await), ["RESUME"]);
        assert_eq!(held.await.expect("the read"), "7");

        let replica = place.sandbox().replicas()[0].name().to_owned();
        let reads = async || {
            let labels = [("backend", replica.as_str()), ("role", "replica")];
            place.causeway().metric("causeway_queries_total", &labels).await
        };
        assert_eq!(tags(&console.query(&format!("DRAIN {replica}")).await), ["DRAIN"]);
        let before = reads().await;
        for _ in 0..20 {
            assert_eq!(busy.one("SELECT count(*) FROM shop.item").await, "4");
        }
        assert!((reads().await - before).abs() < 0.5, "a drained node gets no reads");
        assert_eq!(tags(&console.query(&format!("UNDRAIN {replica}")).await), ["UNDRAIN"]);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while reads().await < before + 0.5 {
            busy.one("SELECT count(*) FROM shop.item").await;
            assert!(tokio::time::Instant::now() < deadline, "the node is used again");
        }
        let primary = place.sandbox().primary().name().to_owned();
        assert_eq!(code(&console.query(&format!("DRAIN {primary}")).await), "55000");
        for part in ["clients are held back", "clients go on", "a node's reads"] {
            place.causeway().allow_log(part);
        }
    })
    .await;
}

#[tokio::test]
async fn a_live_check_tells_what_the_servers_lack() {
    let sandbox = causeway_testkit::shared_cluster().await;
    let program = program(sandbox).await;
    let directory = tempfile::tempdir().expect("a folder");
    let file = directory.path().join("causeway.yaml");
    let check = async |yaml: &str| {
        fs::write(&file, yaml).expect("the file can be written");
        let output = tokio::process::Command::new(&program)
            .args(["check", "--live", "-c"])
            .arg(&file)
            .output()
            .await
            .expect("it runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
    };
    let yaml = yaml_for(sandbox);
    let (status, text) = check(&yaml).await;
    assert_eq!(status, Some(0), "{text}");
    for part in
        ["good: pg-0 is the primary", "can serve reads", "a replica, PostgreSQL", "hot_standby_feedback"]
    {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    sandbox.primary().sql("postgres", "CREATE ROLE curious LOGIN").await.expect("a role");
    sandbox.replicas_caught_up().await.expect("the replicas catch up");
    let (status, text) = check(&yaml.replace("monitor: { user: postgres", "monitor: { user: curious")).await;
    assert_eq!(status, Some(69), "{text}");
    assert!(text.contains("wrong: curious lacks the role pg_monitor: GRANT pg_monitor TO curious"), "{text}");
    sandbox.primary().sql("postgres", "DROP ROLE curious").await.expect("the role goes");
    let nobody = yaml.replace(&format!(":{}\"", sandbox.primary().port()), ":1\"");
    let (status, text) = check(&nobody).await;
    assert_eq!(status, Some(69), "{text}");
    assert!(text.contains("no answer") && text.contains("wrong: no node takes writes"), "{text}");
}
