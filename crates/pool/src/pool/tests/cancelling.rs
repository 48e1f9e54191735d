//! Cancel requests and the connection they are for.

use super::*;
use crate::cancel::CancelOutcome;

#[tokio::test]
async fn a_connection_is_held_back_until_the_cancel_request_is_over() {
    let _frozen = freeze();
    let server = FakeServer::start().await;
    server.log().cancel_takes = Duration::from_millis(50);
    let pool = Pool::new(server.config(1));
    let lease = pool.checkout(soon()).await.unwrap();
    let handle = lease.cancel_handle();
    let cancelling = tokio::spawn(async move { handle.cancel(soon()).await });
    server.until("the request", |log| log.cancels.len() == 1).await;
    lease.checkin();
    assert!(pool.try_checkout().is_none());
    assert_eq!(pool.servers()[0].state, ServerState::BeingCanceled);
    let mut waiting = pin!(pool.checkout(soon()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    settle().await;
    assert!(!cancelling.is_finished() && poll_once(waiting.as_mut()).is_pending());
    advance(Duration::from_millis(51)).await;
    let next = waiting.await.unwrap();
    assert_eq!(cancelling.await.unwrap().unwrap(), CancelOutcome::Delivered);
    assert_eq!(next.process_id(), 1, "the same connection, afterwards");
    let key = server.log().cancels[0].clone();
    assert_eq!((key.process_id, &*key.secret), (1, next.secret_key()));
}

#[tokio::test]
async fn a_handle_is_good_for_its_own_lease_alone() {
    let server = FakeServer::start().await;
    let pool = Pool::new(server.config(1));
    let lease = pool.checkout(soon()).await.unwrap();
    let old = lease.cancel_handle();
    lease.checkin();
    assert_eq!(old.cancel(soon()).await.unwrap(), CancelOutcome::LeaseOver);
    let lease = pool.checkout(soon()).await.unwrap();
    assert_eq!(old.cancel(soon()).await.unwrap(), CancelOutcome::LeaseOver);
    assert_eq!(lease.cancel_handle().cancel(soon()).await.unwrap(), CancelOutcome::Delivered);
    lease.discard(CloseReason::ClientGone);
    let lease = pool.checkout(soon()).await.unwrap();
    assert_eq!(old.cancel(soon()).await.unwrap(), CancelOutcome::LeaseOver);
    lease.checkin();
    assert_eq!(server.log().cancels.len(), 1);
}

#[tokio::test]
async fn a_request_of_unknown_outcome_costs_the_connection() {
    let _frozen = freeze();
    let server = FakeServer::start().await;
    server.log().cancel_takes = Duration::from_mins(1);
    let pool = Pool::new(server.config(1));
    for (round, checkin_first) in [(1, false), (2, true)] {
        let mut lease = Some(pool.checkout(soon()).await.unwrap());
        let handle = lease.as_ref().unwrap().cancel_handle();
        let cancelling = tokio::spawn(async move { handle.cancel(soon()).await });
        server.until("the request", |log| log.cancels.len() == round).await;
        if checkin_first {
            lease.take().unwrap().checkin();
        }
        advance(Duration::from_secs(21)).await;
        let error = cancelling.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        lease.into_iter().for_each(Lease::checkin);
        assert_eq!(
            (pool.status().active, closed(&pool, CloseReason::CancelUncertain)),
            (0, u64::try_from(round).unwrap())
        );
    }
}

#[tokio::test]
async fn a_request_that_was_never_sent_costs_nothing() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: crate::Address = listener.local_addr().unwrap().into();
    let pool = Pool::new(Config::new(address, "shop", "app"));
    let mut checkout = pin!(pool.checkout(soon()));
    assert!(poll_once(checkout.as_mut()).is_pending());
    // A server that takes one connection and then no more.
    let (mut socket, _) = listener.accept().await.unwrap();
    drop(listener);
    let mut welcome = Vec::new();
    encode::authentication_ok(&mut welcome);
    encode::ready_for_query(&mut welcome, causeway_protocol::backend::TransactionStatus::Idle);
    tokio::io::AsyncWriteExt::write_all(&mut socket, &welcome).await.unwrap();
    let lease = checkout.await.unwrap();
    let error = lease.cancel_handle().cancel(soon()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    lease.checkin();
    assert_eq!(pool.status().idle, 1);
}

#[tokio::test]
async fn a_discard_does_not_wait_for_a_cancel_request() {
    let _frozen = freeze();
    let server = FakeServer::start().await;
    server.log().cancel_takes = Duration::from_millis(60);
    let pool = Pool::new(server.config(1));
    let lease = pool.checkout(soon()).await.unwrap();
    let handle = lease.cancel_handle();
    let cancelling = tokio::spawn(async move { handle.cancel(soon()).await });
    server.until("the request", |log| log.cancels.len() == 1).await;
    lease.discard(CloseReason::ClientGone);
    // The next connection takes the same slot; the end of the old request must not touch it.
    let next = pool.checkout(soon()).await.unwrap();
    assert_eq!(next.process_id(), 2);
    advance(Duration::from_millis(61)).await;
    cancelling.await.unwrap().unwrap();
    next.checkin();
    assert_eq!(pool.try_checkout().unwrap().process_id(), 2);
}

#[tokio::test]
async fn a_bare_request_waits_for_the_servers_close() {
    let server = FakeServer::start().await;
    server.log().cancel_takes = Duration::from_millis(50);
    let began = Instant::now();
    crate::cancel(&server.address, 77, &[1, 2, 3, 4], soon()).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert_eq!(server.log().cancels[0].process_id, 77);
}
