//! Where statements go by configuration, hint and request.

use std::time::Duration;

use causeway_testkit::wire::Client;
use causeway_tests::{Place, count, through};
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
