//! The process id that a client is told: its server's own, wherever there are enough of them.

use causeway_testkit::wire::Client;
use causeway_tests::{Place, everywhere, through};

const OWN: &str = "SELECT pg_backend_pid()";

fn told(client: &Client) -> String {
    client.key().pid.to_string()
}

#[tokio::test]
async fn a_client_is_told_the_process_that_serves_it() {
    everywhere("pool: { size: 3 }\n", async |place: &Place| {
        let mut clients = [place.client().await, place.client().await, place.client().await];
        for round in 0..3 {
            for client in &mut clients {
                let same = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {}", told(client));
                assert_eq!(client.one(&same).await, "1");
                // Not asked for: that pins.
                client.query(&format!("UPDATE shop.item SET qty = qty WHERE id = {round}")).await;
                let last = format!(
                    "SELECT query LIKE 'UPDATE %= {round}' FROM pg_stat_activity WHERE pid = {}",
                    told(client)
                );
                assert_eq!(place.admin(&last).await, "t", "round {round}");
            }
        }
        for client in &mut clients {
            assert_eq!(client.one(OWN).await, told(client));
        }
    })
    .await;
}

#[tokio::test]
async fn whoever_waits_for_a_lock_is_found_by_what_it_was_told() {
    everywhere("", async |place: &Place| {
        let (mut first, mut second, mut watcher) =
            (place.client().await, place.client().await, place.client().await);
        first.query("BEGIN; UPDATE shop.item SET qty = qty WHERE id = 1").await;
        second
            .send(&[causeway_testkit::wire::request::query("UPDATE shop.item SET qty = qty WHERE id = 1")])
            .await;
        let blockers = format!("SELECT pg_blocking_pids({})", told(&second));
        let want = format!("{{{}}}", told(&first));
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
        while watcher.one(&blockers).await != want {
            assert!(tokio::time::Instant::now() < deadline, "{want} does not show up as the blocker");
        }
        first.query("ROLLBACK").await;
        second.until_ready().await;
    })
    .await;
}

#[tokio::test]
async fn notifications_name_their_sender() {
    everywhere("", async |place: &Place| {
        let (mut listener, mut sender) = (place.client().await, place.client().await);
        listener.query("LISTEN news").await;
        sender.query("NOTIFY news, 'one'").await;
        let own = listener.query("NOTIFY news, 'two'").await;
        let sent_by = |message: &causeway_testkit::wire::Message| {
            let id: [u8; 4] = message.body[..4].try_into().expect("a process id");
            i32::from_be_bytes(id).to_string()
        };
        let mut seen: Vec<String> = own.iter().filter(|message| message.tag == b'A').map(sent_by).collect();
        while seen.len() < 2 {
            let message = listener.recv().await;
            assert_eq!(message.tag, b'A', "{message:?}");
            seen.push(sent_by(&message));
        }
        assert_eq!(seen, [told(&sender), told(&listener)]);
    })
    .await;
}

#[tokio::test]
async fn more_clients_than_connections_have_numbers_that_are_nobodys() {
    through("pool: { size: 2 }\n", async |place: &Place| {
        let mut clients = Vec::new();
        for _ in 0..6 {
            clients.push(place.client().await);
        }
        let mut numbers: Vec<i32> = clients.iter().map(|client| client.key().pid).collect();
        let of_servers = numbers.iter().filter(|number| **number < 1 << 22).count();
        assert_eq!(of_servers, 2, "{numbers:?}");
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 6, "no two are alike");
        for client in &mut clients {
            assert_eq!(client.one("UPDATE shop.item SET qty = qty WHERE id = 1 RETURNING id").await, "1");
        }
        // The process of one that leaves is the next one's.
        let free = clients.swap_remove(clients.iter().position(|c| c.key().pid < 1 << 22).expect("one"));
        let number = free.key().pid;
        free.terminate().await;
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
        while place.client().await.key().pid != number {
            assert!(tokio::time::Instant::now() < deadline, "{number} stays taken");
        }
    })
    .await;
}
