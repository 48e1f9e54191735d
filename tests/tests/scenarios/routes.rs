//! Where statements go by configuration, hint and request.

use std::time::Duration;

use causeway_routing::builtin::{self, Effect};
use causeway_testkit::wire::Client;
use causeway_tests::{Place, code, count, directly, rows, through};
use tokio::time::{Instant, sleep};

/// Runs a statement and says on which side it was counted, and how often it had to run again.
async fn served(place: &Place, client: &mut Client, sql: &str) -> &'static str {
    let counts = async || {
        let retries = count(place.causeway(), "causeway_retries_total", &[]).await;
        [place.count("causeway_queries_total", "replica").await, retries]
    };
    let before = counts().await;
    let answer = client.query(sql).await;
    assert_ne!(answer[0].tag, b'E', "{sql}: {answer:?}");
    let after = counts().await;
    match (after[0] - before[0], after[1] - before[1]) {
        (1, 0) => "replica",
        (0, 0) => "primary",
        _ => "retried",
    }
}

const FORCED: &str = "routing:
  functions: { shop.f_unlabelled_read: read, f_peek: primary, \"shop.f_tou*\": read }
  tables: { \"shop.ev_*\": primary, shop.secret: read, shop.scratch: read }
";

#[tokio::test]
async fn the_configuration_knows_better_than_the_catalogue() {
    let eventual = "consistency: { default: eventual }\n";
    through(&(eventual.to_owned() + FORCED), async |place: &Place| {
        let mut client = place.client().await;
        for (sql, wanted) in [
            ("SELECT shop.f_unlabelled_read()", "replica"),
            ("SELECT shop.f_peek()", "primary"),
            // A partition; the table that has it; a policy that is a function; an unlogged table.
            ("SELECT count(*) FROM shop.ev_2024", "primary"),
            ("SELECT count(*) FROM shop.ev", "primary"),
            ("SELECT count(*) FROM shop.secret", "replica"),
            ("SELECT count(*) FROM shop.scratch", "primary"),
            ("SELECT shop.f_unlabelled_read() FROM shop.item FOR UPDATE", "primary"),
            // It writes whatever is said of it: the replica's word is the last, and is remembered.
            ("SELECT shop.f_touch()", "retried"),
            ("SELECT shop.f_touch()", "primary"),
        ] {
            assert_eq!(served(place, &mut client, sql).await, wanted, "{sql}");
        }
        assert_eq!(place.admin("SELECT count(*) FROM shop.audit").await, "2", "each of them ran once");
        let configured = [("database", place.database()), ("reason", "configured")];
        assert_eq!(count(place.causeway(), "causeway_routing_decisions_total", &configured).await, 3);

        // What was found out by the old rules does not outlive them.
        place.causeway().reload(&(causeway_testkit::yaml_for(place.sandbox()) + eventual)).await;
        let deadline = Instant::now() + Duration::from_secs(10);
        while served(place, &mut client, "SELECT shop.f_peek()").await != "replica" {
            assert!(Instant::now() < deadline, "the label counts again");
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(served(place, &mut client, "SELECT shop.f_unlabelled_read()").await, "primary");
        assert_eq!(served(place, &mut client, "SELECT count(*) FROM shop.ev").await, "replica");
    })
    .await;
}

#[tokio::test]
async fn who_asks_for_a_replica_gets_one_unless_it_writes() {
    through("consistency: { default: eventual }\n", async |place: &Place| {
        let mut client = place.client().await;
        let doubtful = "SELECT shop.f_unlabelled_read()";
        assert_eq!(served(place, &mut client, doubtful).await, "primary");
        assert_eq!(
            served(place, &mut client, &format!("/* causeway: route=replica */ {doubtful}")).await,
            "replica"
        );
        assert_eq!(served(place, &mut client, "SELECT pg_is_in_recovery()").await, "primary");
        client.query("SET causeway.route = replica").await;
        assert_eq!(client.one("SHOW causeway.route").await, "replica");
        assert_eq!(client.one("SELECT pg_is_in_recovery()").await, "t");
        for (sql, wanted) in [
            (doubtful, "replica"),
            ("SHOW transaction_read_only", "replica"),
            ("SELECT count(*) FROM shop.secret", "replica"),
            ("SELECT count(*) FROM shop.scratch", "primary"),
            ("UPDATE shop.item SET qty = qty WHERE id = 1", "primary"),
            ("SELECT nextval('shop.ticket_seq')", "primary"),
            ("SELECT * FROM shop.item FOR UPDATE", "primary"),
            ("/* causeway: route=auto */ SELECT shop.f_unlabelled_read()", "primary"),
            ("/* causeway: route=primary */ SELECT 1", "primary"),
            // Nobody knows before it was tried.
            ("SELECT shop.f_touch()", "retried"),
            ("SELECT shop.f_touch()", "primary"),
        ] {
            assert_eq!(served(place, &mut client, sql).await, wanted, "{sql}");
        }
        assert_eq!(place.admin("SELECT count(*) FROM shop.audit").await, "2");
        let answer = client.execute(doubtful, &[]).await;
        assert_eq!(causeway_tests::value(&answer), "4");
        client.query("BEGIN").await;
        assert_eq!(client.one("SELECT pg_is_in_recovery()").await, "f", "a transaction that may write");
        client.query("COMMIT").await;
        assert_eq!(code(&client.query("SET causeway.route = standby").await), "22023");
        client.query("SET LOCAL causeway.route = auto; RESET causeway.route").await;
        assert_eq!(served(place, &mut client, doubtful).await, "primary");
        let (mut standby, _) = place.client_with(&[("options", "-c causeway.route=replica")]).await;
        assert_eq!(standby.parameter("in_hot_standby"), Some("on"));
        assert_eq!(standby.one("SHOW in_hot_standby").await, "on");
        assert_eq!(standby.one("SHOW transaction_read_only").await, "on");
        assert_eq!(client.parameter("in_hot_standby"), Some("off"));
    })
    .await;
}

/// What the server at hand has and the tables do not; and what they think better of than its catalogue says.
#[tokio::test]
async fn the_tables_know_what_the_server_has() {
    // From harmless to worst, as the letters that the queries print.
    const WORSE: &str = "rnesbw";
    fn letter(effect: Effect) -> char {
        match effect {
            Effect::Harmless => 'r',
            Effect::NodeLocal => 'n',
            Effect::NodeEffect => 'e',
            Effect::Session => 's',
            Effect::WritesSession => 'b',
            Effect::Writes => 'w',
        }
    }
    let queries = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/routing/src/builtin");
    directly(async |place: &Place| {
        let mut client = place.client().await;
        for table in ["functions", "relations", "types", "operators"] {
            let text = std::fs::read_to_string(format!("{queries}/{table}.sql")).expect("the query");
            let sql: Vec<_> = text.lines().filter(|line| !line.starts_with(['\\', '-'])).collect();
            let printed = rows(&client.query(&sql.join("\n")).await);
            assert!(printed.len() > 50, "{table}: {printed:?}");
            let mut wrong = Vec::new();
            for row in printed {
                let field = |n: usize| row.get(n).cloned().flatten();
                let name = field(0).expect("a name");
                let known = match table {
                    "functions" => builtin::function(&name).map(letter),
                    "relations" => {
                        let (schema, name) = name.split_once('.').expect("a schema");
                        builtin::relation(schema, name).map(letter)
                    }
                    "types" => builtin::is_type(&name).then_some('r'),
                    _ => builtin::is_operator(&name).then_some('r'),
                };
                let printed = field(1).and_then(|verdict| verdict.chars().next()).unwrap_or('r');
                let rank = |letter: char| WORSE.find(letter).expect("a known verdict");
                if known.is_none_or(|known| rank(known) < rank(printed)) {
                    wrong.push(format!("{name}: {known:?}, and the server says {printed}"));
                }
            }
            assert!(wrong.is_empty(), "{table}.tsv is not true for this server: {wrong:#?}");
        }
    })
    .await;
}

/// Each read of the corpus reaches a replica, and none of them is refused there.
#[tokio::test]
async fn the_reads_of_the_corpus_are_served_by_replicas() {
    through("consistency: { default: eventual }\n", async |place: &Place| {
        let mut cases = crate::texts::cases();
        cases.retain(|case| case.expected == "read" && case.before.is_empty());
        assert!(cases.len() > 90, "only {} reads", cases.len());
        let mut client = place.client().await;
        let mut elsewhere = Vec::new();
        for case in &cases {
            let by = served(place, &mut client, &case.sql).await;
            if by != "replica" {
                elsewhere.push(format!("{} by {by}: {}", case.id, case.sql));
            }
        }
        assert!(elsewhere.is_empty(), "{} of {}: {elsewhere:#?}", elsewhere.len(), cases.len());
    })
    .await;
}
