//! How connections end.

use super::*;

/// A pool with so many idle connections.
async fn idle(config: Config, count: usize) -> Pool {
    let pool = Pool::new(config);
    let mut leases = Vec::new();
    for _ in 0..count {
        leases.push(pool.checkout(soon()).await.unwrap());
    }
    leases.into_iter().for_each(Lease::checkin);
    assert_eq!(pool.status().idle, count);
    pool
}

#[tokio::test]
async fn a_connection_closed_while_idle_is_not_lent() {
    let server = FakeServer::start().await;
    let pool = idle(server.config(2), 2).await;
    let newest = pool.servers().iter().map(|info| info.process_id).max().unwrap();
    server.act(newest, Action::HangUp).await;
    travel().await;
    assert_eq!(pool.try_checkout().unwrap().process_id(), 1);
    assert_eq!(closed(&pool, CloseReason::ServerClosed), 1);
}

#[tokio::test]
async fn a_fatal_message_stored_while_idle_is_never_delivered() {
    let server = FakeServer::start().await;
    let pool = idle(server.config(3), 3).await;
    for process_id in 1..=3 {
        let message =
            error(Severity::Fatal, *b"57P01", "terminating connection due to administrator command");
        server.act(process_id, Action::Send(message)).await;
        server.act(process_id, Action::HangUp).await;
    }
    travel().await;
    assert!(pool.try_checkout().is_none());
    assert_eq!(closed(&pool, CloseReason::ServerFatal), 3);
    for _ in 0..10 {
        let lease = pool.checkout(soon()).await.unwrap();
        assert!(lease.inbound.is_empty());
        assert_eq!(lease.process_id(), 4);
        lease.checkin();
    }
}

#[tokio::test]
async fn parameters_and_notices_that_come_while_idle_are_taken_in() {
    let server = FakeServer::start().await;
    let pool = idle(server.config(1), 1).await;
    let mut bytes = Vec::new();
    encode::parameter_status(&mut bytes, b"in_hot_standby", b"off");
    encode::notice_response(&mut bytes, &ErrorReport::notice("by the way ".repeat(200)));
    encode::parameter_status(&mut bytes, b"in_hot_standby", b"on");
    server.act(1, Action::Send(bytes)).await;
    travel().await;
    let lease = pool.try_checkout().unwrap();
    assert_eq!(lease.parameter("in_hot_standby"), Some(&b"on"[..]));
    assert!(lease.inbound.is_empty());
}

#[tokio::test]
async fn anything_else_that_comes_while_idle_ends_the_connection() {
    let mut row = Vec::new();
    encode::data_row(&mut row, [Some(&b"another client's"[..])]);
    let mut half = Vec::new();
    encode::parameter_status(&mut half, b"TimeZone", b"UTC");
    half.pop();
    let mut long = vec![b'N'];
    long.extend(100_000_u32.to_be_bytes());
    for bytes in [row, half, long, vec![b'N', 0, 0, 0, 1]] {
        let server = FakeServer::start().await;
        let pool = idle(server.config(1), 1).await;
        server.act(1, Action::Send(bytes)).await;
        travel().await;
        assert!(pool.try_checkout().is_none());
        assert_eq!(closed(&pool, CloseReason::Protocol), 1);
    }
}

#[tokio::test]
async fn a_checkin_with_an_answer_unread_is_a_discard() {
    let server = FakeServer::start().await;
    let pool = Pool::new(server.config(1));
    let mut lease = pool.checkout(soon()).await.unwrap();
    let mut row = Vec::new();
    encode::data_row(&mut row, [Some(&b"rest"[..])]);
    lease.inbound.extend(&row);
    lease.checkin();
    assert_eq!((pool.status().idle, closed(&pool, CloseReason::Protocol)), (0, 1));
    let mut lease = pool.checkout(soon()).await.unwrap();
    let mut aside = Vec::new();
    encode::parameter_status(&mut aside, b"TimeZone", b"UTC");
    lease.inbound.extend(&aside);
    lease.checkin();
    assert_eq!(pool.try_checkout().unwrap().parameter("TimeZone"), Some(&b"UTC"[..]));
}

#[tokio::test]
async fn dropping_a_lease_discards_its_connection_and_serves_the_next() {
    let server = FakeServer::start().await;
    let pool = Pool::new(server.config(1));
    let lease = pool.checkout(soon()).await.unwrap();
    let mut waiting = pin!(pool.checkout(soon()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    drop(lease);
    let lease = waiting.await.unwrap();
    assert_eq!(lease.process_id(), 2);
    assert_eq!(closed(&pool, CloseReason::Abandoned), 1);
    server.until("a good-bye", |log| log.terminated == 1).await;
    lease.discard(CloseReason::ServerClosed);
    travel().await;
    assert_eq!(server.log().terminated, 1, "no good-bye to a server that is gone");
    assert_eq!((server.log().open, pool.status().active), (0, 0));
}

#[tokio::test]
async fn connections_nobody_needs_are_closed_the_oldest_first() {
    let server = FakeServer::start().await;
    let config =
        Config { idle_timeout: Duration::from_mins(1), lifetime: Duration::ZERO, ..server.config(2) };
    let pool = idle(config, 2).await;
    pause();
    advance(Duration::from_secs(40)).await;
    let lease = pool.try_checkout().unwrap();
    let used = lease.process_id();
    lease.checkin();
    advance(Duration::from_secs(22)).await;
    server.until("one closed", |log| log.terminated == 1).await;
    assert_eq!(pool.servers().iter().map(|info| info.process_id).collect::<Vec<_>>(), [used]);
    advance(Duration::from_secs(40)).await;
    server.until("both closed", |log| log.terminated == 2).await;
    assert_eq!((pool.status().idle, closed(&pool, CloseReason::IdleTimeout)), (0, 2));
}

#[tokio::test]
async fn lifetimes_end_within_their_last_tenth_and_not_together() {
    let server = FakeServer::start().await;
    let lifetime = Duration::from_secs(1000);
    let config = Config { idle_timeout: Duration::ZERO, lifetime, seed: 3, ..server.config(20) };
    let pool = idle(config, 20).await;
    pause();
    advance(Duration::from_secs(895)).await;
    settle().await;
    assert_eq!(pool.status().idle, 20, "none before nine tenths");
    advance(Duration::from_secs(50)).await;
    settle().await;
    let left = pool.status().idle;
    assert!((1..20).contains(&left), "{left} left in the middle of the last tenth");
    advance(Duration::from_mins(1)).await;
    server.until("all closed", |log| log.terminated == 20).await;
    assert_eq!(closed(&pool, CloseReason::Lifetime), 20);
}

#[tokio::test]
async fn a_lease_past_its_lifetime_ends_at_checkin() {
    let server = FakeServer::start().await;
    let pool = Pool::new(Config { lifetime: Duration::from_secs(10), ..server.config(1) });
    let lease = pool.checkout(soon()).await.unwrap();
    pause();
    advance(Duration::from_secs(11)).await;
    lease.checkin();
    assert_eq!((pool.status().idle, closed(&pool, CloseReason::Lifetime)), (0, 1));
    server.until("a good-bye", |log| log.terminated == 1).await;
}

#[tokio::test]
async fn dead_idle_connections_are_found_without_a_checkout() {
    let server = FakeServer::start().await;
    let pool = idle(server.config(2), 2).await;
    server.act(1, Action::HangUp).await;
    travel().await;
    pause();
    advance(Duration::from_secs(2)).await;
    settle().await;
    assert_eq!((pool.status().idle, closed(&pool, CloseReason::ServerClosed)), (1, 1));
}

#[tokio::test]
async fn a_smaller_size_applies_to_idle_connections_now_and_to_lent_ones_at_checkin() {
    let server = FakeServer::start().await;
    let pool = idle(server.config(4), 4).await;
    let (one, two) = (pool.try_checkout().unwrap(), pool.try_checkout().unwrap());
    pool.reconfigure(server.config(1));
    assert_eq!((pool.status().idle, pool.status().active, pool.status().size), (0, 2, 1));
    one.checkin();
    assert_eq!((pool.status().idle, pool.status().active), (0, 1));
    two.checkin();
    assert_eq!((pool.status().idle, pool.status().active), (1, 0));
    assert_eq!(closed(&pool, CloseReason::Resized), 3);
}

#[tokio::test]
async fn a_larger_size_serves_those_who_wait() {
    let server = FakeServer::start().await;
    let pool = Pool::new(server.config(1));
    let held = pool.checkout(soon()).await.unwrap();
    let mut waiting = pin!(pool.checkout(soon()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    pool.reconfigure(server.config(2));
    assert_eq!(waiting.await.unwrap().process_id(), 2);
    held.checkin();
}

#[tokio::test]
async fn connections_of_another_identity_are_not_lent_again() {
    let server = FakeServer::start().await;
    let pool = idle(server.config(2), 2).await;
    let lease = pool.try_checkout().unwrap();
    let other = Config { password: Some("new".into()), ..server.config(2) };
    pool.reconfigure(other.clone());
    assert_eq!((pool.status().idle, pool.status().active), (0, 1));
    lease.checkin();
    assert_eq!((pool.status().active, closed(&pool, CloseReason::Reconfigured)), (0, 2));
    pool.checkout(soon()).await.unwrap().checkin();
    pool.reconfigure(Config { idle_timeout: Duration::from_secs(1), ..other });
    assert_eq!(pool.status().idle, 1, "other times do not make another identity");
}

#[tokio::test]
async fn a_connection_opened_under_the_old_configuration_comes_too_late() {
    let _frozen = freeze();
    let server = FakeServer::start().await;
    server.script([Greeting::Slow(Duration::from_millis(50))]);
    let pool = Pool::new(server.config(1));
    let mut waiting = pin!(pool.checkout(soon()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    server.until("connecting", |log| log.accepted == 1).await;
    pool.reconfigure(Config { user: "other".into(), ..server.config(1) });
    advance(Duration::from_millis(51)).await;
    let lease = waiting.await.unwrap();
    assert_eq!(lease.process_id(), 2);
    let most_open = server.log().most_open;
    assert_eq!((most_open, closed(&pool, CloseReason::Reconfigured)), (1, 1));
}

#[tokio::test]
async fn the_failure_of_an_old_configuration_is_told_to_nobody() {
    let _frozen = freeze();
    let server = FakeServer::start().await;
    server.script([Greeting::HangUpLater(Duration::from_millis(50))]);
    let pool = Pool::new(server.config(1));
    let mut waiting = pin!(pool.checkout(soon()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    server.until("connecting", |log| log.accepted == 1).await;
    pool.reconfigure(Config { user: "other".into(), ..server.config(1) });
    advance(Duration::from_millis(51)).await;
    assert_eq!(waiting.await.unwrap().process_id(), 2);
}

#[tokio::test]
async fn a_recycled_pool_starts_afresh() {
    let server = FakeServer::start().await;
    let pool = idle(server.config(2), 2).await;
    let lease = pool.try_checkout().unwrap();
    pool.recycle(CloseReason::Recycled);
    lease.checkin();
    assert_eq!((pool.status().idle, pool.status().active, closed(&pool, CloseReason::Recycled)), (0, 0, 2));
    assert_eq!(pool.checkout(soon()).await.unwrap().process_id(), 3);
}

#[tokio::test]
async fn a_closed_pool_refuses_and_empties() {
    let server = FakeServer::start().await;
    let pool = idle(server.config(2), 2).await;
    let (one, two) = (pool.try_checkout().unwrap(), pool.try_checkout().unwrap());
    one.checkin();
    let pool = pool.clone();
    pool.close(CloseReason::Shutdown);
    pool.close(CloseReason::PoolRemoved);
    assert!(pool.try_checkout().is_none());
    assert!(matches!(pool.checkout(soon()).await, Err(CheckoutError::Closed)));
    assert_eq!((pool.status().idle, pool.status().active), (0, 1));
    two.checkin();
    assert_eq!(pool.status().active, 0);
    assert_eq!(closed(&pool, CloseReason::Shutdown), 2, "the first reason stands");
    server.until("good-byes", |log| log.terminated == 2).await;
}

#[tokio::test]
async fn closing_tells_those_who_wait() {
    let server = FakeServer::start().await;
    server.script([Greeting::Welcome, Greeting::Slow(Duration::from_millis(50))]);
    let pool = Pool::new(server.config(2));
    let held = pool.checkout(soon()).await.unwrap();
    let mut waiting = pin!(pool.checkout(soon()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    pool.close(CloseReason::Shutdown);
    assert!(matches!(waiting.await, Err(CheckoutError::Closed)));
    held.discard(CloseReason::Shutdown);
    server.until("the one being opened is closed as well", |log| log.terminated == 2).await;
}

#[tokio::test]
async fn a_pool_that_is_dropped_closes_what_is_idle() {
    let server = FakeServer::start().await;
    let pool = idle(server.config(2), 2).await;
    let lease = pool.try_checkout().unwrap();
    let weak = Arc::downgrade(&pool.shared);
    drop(pool);
    assert_eq!(server.log().open, 2, "a lease keeps the pool");
    lease.checkin();
    assert!(weak.upgrade().is_none());
    server.until("closed", |log| log.open == 0).await;
}
