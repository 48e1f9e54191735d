//! Who gets a connection, and when.

use super::*;

#[tokio::test]
async fn waiters_are_served_in_the_order_of_their_arrival() {
    let server = FakeServer::start().await;
    let pool = Pool::new(server.config(1));
    let held = pool.checkout(soon()).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..20 {
        let (pool, order) = (pool.clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let lease = pool.checkout(soon()).await.unwrap();
            order.lock().unwrap().push(number);
            tokio::task::yield_now().await;
            lease.checkin();
        }));
        tokio::task::yield_now().await;
    }
    assert_eq!(pool.status().waiting, 20);
    held.checkin();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
    assert_eq!(server.log().accepted, 1);
}

#[tokio::test]
async fn a_connection_given_back_goes_to_the_waiter_and_to_nobody_else() {
    let server = FakeServer::start().await;
    let pool = Pool::new(server.config(1));
    let held = pool.checkout(soon()).await.unwrap();
    let process_id = held.process_id();
    let mut waiting = pin!(pool.checkout(soon()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    held.checkin();
    assert_eq!(pool.status().idle, 0, "handed off, not laid down");
    assert!(pool.try_checkout().is_none());
    let mut latecomer = pin!(pool.checkout(soon()));
    assert!(poll_once(latecomer.as_mut()).is_pending());
    let lease = waiting.await.unwrap();
    assert_eq!(lease.process_id(), process_id);
    lease.checkin();
    assert_eq!(latecomer.await.unwrap().process_id(), process_id);
}

#[tokio::test]
async fn nobody_overtakes_a_waiter_through_the_fast_path() {
    let server = FakeServer::start().await;
    server.script([Greeting::Welcome, Greeting::Slow(Duration::from_millis(50))]);
    let pool = Pool::new(server.config(2));
    let held = pool.checkout(soon()).await.unwrap();
    let mut waiting = pin!(pool.checkout(soon()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    held.checkin();
    assert!(pool.try_checkout().is_none());
    waiting.await.unwrap().checkin();
    // The connection that was being opened for the waiter goes to the idle ones.
    server.until("both open", |_| pool.status().idle == 2).await;
    assert_eq!((pool.status().active, pool.status().connecting), (0, 0));
}

#[tokio::test]
async fn the_most_recently_used_connection_is_lent_first() {
    let server = FakeServer::start().await;
    let pool = Pool::new(server.config(3));
    let (one, two) = (pool.checkout(soon()).await.unwrap(), pool.checkout(soon()).await.unwrap());
    let (first, second) = (one.process_id(), two.process_id());
    two.checkin();
    one.checkin();
    let again = pool.try_checkout().unwrap();
    assert_eq!(again.process_id(), first);
    assert_eq!(pool.try_checkout().unwrap().process_id(), second);
    again.checkin();
}

#[tokio::test]
async fn the_deadline_ends_the_wait_and_leaves_the_queue() {
    let server = FakeServer::start().await;
    let pool = Pool::new(server.config(1));
    let held = pool.checkout(soon()).await.unwrap();
    pause();
    let began = Instant::now();
    let mut first = pin!(pool.checkout(began + Duration::from_secs(3)));
    assert!(poll_once(first.as_mut()).is_pending());
    advance(Duration::from_secs(1)).await;
    assert_eq!(pool.status().oldest_wait, Some(Duration::from_secs(1)));
    match first.await {
        Err(CheckoutError::Timeout { waited }) => assert_eq!(waited.as_secs(), 3),
        other => panic!("{other:?}"),
    }
    assert_eq!((pool.status().waiting, pool.totals().timed_out), (0, 1));
    held.checkin();
    assert_eq!(pool.status().idle, 1);
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let server = FakeServer::start().await;
    let pool = Pool::new(Config { max_waiters: 2, ..server.config(1) });
    let held = pool.checkout(soon()).await.unwrap();
    let mut one = Box::pin(pool.checkout(soon()));
    let mut two = Box::pin(pool.checkout(soon()));
    assert!(poll_once(one.as_mut()).is_pending() && poll_once(two.as_mut()).is_pending());
    match pool.checkout(soon()).await {
        Err(CheckoutError::QueueFull { waiters: 2 }) => {}
        other => panic!("{other:?}"),
    }
    drop(one);
    let mut three = pin!(pool.checkout(soon()));
    assert!(poll_once(three.as_mut()).is_pending(), "one that has left makes room");
    held.checkin();
    two.await.unwrap().checkin();
    three.await.unwrap().checkin();
    assert_eq!(pool.totals().refused, 1);
}

#[tokio::test]
async fn without_a_queue_connections_are_still_opened() {
    let server = FakeServer::start().await;
    let pool = Pool::new(Config { max_waiters: 0, ..server.config(2) });
    let one = pool.checkout(soon()).await.unwrap();
    let two = pool.checkout(soon()).await.unwrap();
    assert!(matches!(pool.checkout(soon()).await, Err(CheckoutError::QueueFull { waiters: 0 })));
    one.checkin();
    two.checkin();
}

#[tokio::test]
async fn a_waiter_that_leaves_with_its_grant_loses_nothing() {
    let server = FakeServer::start().await;
    let pool = Pool::new(server.config(1));
    let held = pool.checkout(soon()).await.unwrap();
    let mut leaving = Box::pin(pool.checkout(soon()));
    let mut staying = pin!(pool.checkout(soon()));
    assert!(poll_once(leaving.as_mut()).is_pending() && poll_once(staying.as_mut()).is_pending());
    held.checkin();
    // The connection is on its way to the first, which goes without looking.
    drop(leaving);
    let lease = staying.await.unwrap();
    assert_eq!(lease.process_id(), 1);
    let mut alone = Box::pin(pool.checkout(soon()));
    assert!(poll_once(alone.as_mut()).is_pending());
    lease.checkin();
    drop(alone);
    assert_eq!((pool.status().idle, pool.status().active), (1, 0));
    let log = server.log();
    assert_eq!((log.accepted, log.terminated), (1, 0));
}

#[tokio::test]
async fn a_client_that_leaves_does_not_end_the_opening_of_a_connection() {
    let _frozen = freeze();
    let server = FakeServer::start().await;
    server.script([Greeting::Slow(Duration::from_millis(30))]);
    let pool = Pool::new(server.config(1));
    let mut leaving = Box::pin(pool.checkout(soon()));
    assert!(poll_once(leaving.as_mut()).is_pending());
    server.until("connecting", |log| log.accepted == 1).await;
    drop(leaving);
    assert_eq!((pool.status().waiting, pool.status().connecting), (0, 1));
    advance(Duration::from_millis(31)).await;
    server.until("open", |_| pool.status().idle == 1).await;
    assert_eq!(pool.try_checkout().unwrap().process_id(), 1);
}

/// Two hundred clients that give back, discard, drop and leave, on several threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_connections_than_the_size() {
    let server = FakeServer::start().await;
    let pool = Pool::new(server.config(5));
    let mut tasks = VecDeque::new();
    for client in 0..200_u64 {
        let pool = pool.clone();
        tasks.push_back(tokio::spawn(async move {
            let mut random = Random::new(client);
            for _ in 0..10 {
                if random.below(8) == 0 {
                    // Leaves early.
                    drop(
                        tokio::time::timeout(Duration::from_micros(random.below(500)), pool.checkout(soon()))
                            .await,
                    );
                    continue;
                }
                let lease = pool.checkout(Instant::now() + Duration::from_secs(30)).await.unwrap();
                let status = pool.status();
                assert!(status.idle + status.active + status.connecting <= 5, "{status:?}");
                for _ in 0..random.below(3) {
                    tokio::task::yield_now().await;
                }
                match random.below(20) {
                    0 => lease.discard(CloseReason::UnknownState),
                    1 => drop(lease),
                    _ => lease.checkin(),
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    travel().await;
    let status = pool.status();
    assert_eq!((status.active, status.connecting, status.waiting), (0, 0, 0));
    assert!(status.idle <= 5 && closed(&pool, CloseReason::UnknownState) > 0);
    let totals = pool.totals();
    let ended: u64 = totals.closed().map(|(_, count)| count).sum();
    assert_eq!(totals.opened - ended, u64::try_from(status.idle).unwrap());
    assert!(pool.servers().iter().all(|server| server.state == ServerState::Idle));
}

/// The bound as the server sees it: a connection is opened only after the one it replaces is closed.
#[tokio::test]
async fn the_server_never_sees_more_than_the_size() {
    let server = FakeServer::start().await;
    let pool = Pool::new(Config { max_connecting: 8, ..server.config(3) });
    let mut tasks = Vec::new();
    for _ in 0..200 {
        let pool = pool.clone();
        tasks.push(tokio::spawn(async move {
            let lease = pool.checkout(soon()).await.unwrap();
            tokio::task::yield_now().await;
            lease.checkin();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(server.log().most_open <= 3, "{}", server.log().most_open);
}
