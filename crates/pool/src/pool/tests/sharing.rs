//! Pools under a common bound.

use super::*;
use crate::quota::Quota;

async fn two_pools(limit: usize) -> (FakeServer, Pool, Pool, Arc<Quota>) {
    let server = FakeServer::start().await;
    let quota = Quota::new("all", limit);
    let config =
        || Config { quotas: vec![Quota::new("none", usize::MAX), Arc::clone(&quota)], ..server.config(5) };
    let (one, other) = (Pool::new(config()), Pool::new(config()));
    (server, one, other, quota)
}

#[tokio::test]
async fn an_idle_connection_of_another_pool_makes_room() {
    let (server, one, other, quota) = two_pools(2).await;
    let (a, b) = (one.checkout(soon()).await.unwrap(), one.checkout(soon()).await.unwrap());
    a.checkin();
    b.checkin();
    assert!(quota.is_reached());
    let lease = other.checkout(soon()).await.unwrap();
    assert_eq!((one.status().idle, closed(&one, CloseReason::Quota)), (1, 1));
    lease.checkin();
    travel().await;
    let log = server.log();
    assert_eq!((log.most_open, log.open), (2, 2));
}

#[tokio::test]
async fn a_connection_given_back_makes_room_and_the_bound_holds() {
    let (server, one, other, _quota) = two_pools(1).await;
    let held = one.checkout(soon()).await.unwrap();
    let mut waiting = pin!(other.checkout(soon()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    assert!(other.reached_quota().is_some_and(|quota| quota.name() == "all"));
    held.checkin();
    waiting.await.unwrap().checkin();
    assert_eq!((one.status().idle, other.status().idle), (0, 1));
    travel().await;
    assert_eq!(server.log().most_open, 1);
}

#[tokio::test]
async fn pools_that_both_have_much_to_do_take_turns() {
    let (server, one, other, _quota) = two_pools(2).await;
    let mut tasks = Vec::new();
    for number in 0..40 {
        let pool = if number % 2 == 0 { one.clone() } else { other.clone() };
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let lease = pool.checkout(soon()).await.unwrap();
                tokio::task::yield_now().await;
                lease.checkin();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    travel().await;
    let most = server.log().most_open;
    assert!(most <= 2, "{most} connections");
}

#[tokio::test]
async fn a_waiter_that_leaves_and_a_failed_attempt_hold_no_place() {
    let (server, one, other, quota) = two_pools(1).await;
    server.script([Greeting::HangUp]);
    one.checkout(soon()).await.unwrap_err();
    assert!(!quota.is_reached());
    let held = other.checkout(soon()).await.unwrap();
    let soon = Instant::now() + Duration::from_millis(200);
    assert!(matches!(
        one.checkout(soon).await,
        Err(CheckoutError::Timeout { .. } | CheckoutError::Connect(_))
    ));
    held.checkin();
    drop((one, other));
    travel().await;
    assert!(!quota.is_reached());
}

#[tokio::test]
async fn a_bound_that_is_lowered_holds_as_connections_come_back() {
    let (_server, one, _other, quota) = two_pools(3).await;
    let mut leases = Vec::new();
    for _ in 0..3 {
        leases.push(one.checkout(soon()).await.unwrap());
    }
    quota.set_limit(1);
    leases.into_iter().for_each(Lease::checkin);
    assert_eq!((one.status().idle, closed(&one, CloseReason::Quota)), (1, 2));
}
