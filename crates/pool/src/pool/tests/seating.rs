//! Connections that are a client's own.

use super::*;

#[tokio::test]
async fn each_has_a_process_of_its_own_until_there_is_no_room() {
    let server = FakeServer::start().await;
    let pool = Pool::new(server.config(2));
    let one = pool.seat(soon()).await.unwrap();
    let two = pool.seat(soon()).await.unwrap();
    assert_ne!(one.process_id(), two.process_id());
    assert_eq!(pool.status().idle, 2, "a seat is no loan");
    assert!(pool.seat(soon()).await.is_none());
    let freed = one.process_id();
    drop(one);
    assert_eq!(pool.seat(soon()).await.unwrap().process_id(), freed);
    assert_eq!(server.log().accepted, 2);
}

#[tokio::test]
async fn the_own_connection_is_lent_if_it_is_idle_and_another_if_not() {
    let server = FakeServer::start().await;
    let pool = Pool::new(server.config(2));
    let one = pool.seat(soon()).await.unwrap();
    let two = pool.seat(soon()).await.unwrap();
    for seat in [&one, &two, &one] {
        let lease = pool.try_checkout_seat(seat).unwrap();
        assert_eq!(lease.process_id(), seat.process_id());
        lease.checkin();
    }
    let borrowed = pool.try_checkout_seat(&two).unwrap();
    let instead = pool.try_checkout_seat(&two).unwrap();
    assert_eq!(instead.process_id(), one.process_id());
    assert!(pool.try_checkout_seat(&two).is_none());
    borrowed.checkin();
    instead.checkin();
}

#[tokio::test]
async fn a_seat_ends_with_its_connection() {
    let server = FakeServer::start().await;
    let pool = Pool::new(server.config(1));
    let seat = pool.seat(soon()).await.unwrap();
    pool.try_checkout_seat(&seat).unwrap().discard(CloseReason::UnknownState);
    let next = pool.checkout(soon()).await.unwrap();
    assert_ne!(next.process_id(), seat.process_id());
    let process_id = next.process_id();
    next.checkin();
    let other = pool.seat(soon()).await.unwrap();
    assert_eq!(other.process_id(), process_id, "what takes its place in the books is nobody's");
    drop(seat);
    assert!(pool.seat(soon()).await.is_none(), "the old seat does not free the new one");
}

#[tokio::test]
async fn nobody_overtakes_a_waiter_by_a_seat() {
    let server = FakeServer::start().await;
    let pool = Pool::new(server.config(1));
    let seat = pool.seat(soon()).await.unwrap();
    let held = pool.try_checkout_seat(&seat).unwrap();
    let mut waiting = pin!(pool.checkout(soon()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    held.checkin();
    assert!(pool.try_checkout_seat(&seat).is_none());
    waiting.await.unwrap().checkin();
}

#[tokio::test]
async fn those_who_seek_are_let_go_when_none_can_be_opened() {
    let server = FakeServer::start().await;
    server.script([Greeting::Slow(Duration::from_millis(30)), Greeting::HangUp]);
    let pool = Pool::new(server.config(3));
    let mut left = Box::pin(pool.seat(soon()));
    assert!(poll_once(left.as_mut()).is_pending());
    drop(left);
    // The connection that was being opened for the one that left is for the next.
    let seat = pool.seat(soon()).await.unwrap();
    assert_eq!(seat.process_id(), 1);
    assert!(pool.seat(soon()).await.is_none(), "refused");
    assert!(pool.seat(soon()).await.is_none(), "not asked for within the backoff");
    pool.close(CloseReason::PoolRemoved);
    assert!(pool.seat(soon()).await.is_none());
}

#[tokio::test]
async fn a_closed_pool_lets_go_of_those_who_seek() {
    let server = FakeServer::start().await;
    server.script([Greeting::Slow(Duration::from_secs(5))]);
    let pool = Pool::new(server.config(1));
    let mut seeking = pin!(pool.seat(soon()));
    assert!(poll_once(seeking.as_mut()).is_pending());
    pool.close(CloseReason::PoolRemoved);
    assert!(seeking.await.is_none());
}
