//! How connections are opened, and what happens when they cannot be.

use super::*;

#[tokio::test]
async fn a_failure_is_told_to_one_waiter_the_oldest() {
    let server = FakeServer::start().await;
    server.script([Greeting::Refuse(b"57P03"), Greeting::Slow(Duration::from_millis(30))]);
    let pool = Pool::new(server.config(2));
    let mut one = pin!(pool.checkout(soon()));
    let mut two = pin!(pool.checkout(soon()));
    assert!(poll_once(one.as_mut()).is_pending() && poll_once(two.as_mut()).is_pending());
    match one.await {
        Err(CheckoutError::Connect(refusal @ ConnectError::Refused(_))) => {
            assert_eq!(refusal.sqlstate(), Some(&b"57P03"[..]));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(two.await.unwrap().process_id(), 2);
    assert_eq!((pool.totals().failed, pool.totals().opened), (1, 1));
}

#[tokio::test]
async fn the_refusal_is_the_servers_own_message() {
    let server = FakeServer::start().await;
    server.script([Greeting::Refuse(b"3D000")]);
    let pool = Pool::new(server.config(1));
    let Err(CheckoutError::Connect(ConnectError::Refused(body))) = pool.checkout(soon()).await else {
        panic!("not refused");
    };
    assert_eq!(*body, error(Severity::Fatal, *b"3D000", "refused")[5..]);
}

#[tokio::test]
async fn a_checkout_within_the_backoff_is_answered_at_once_and_later_ones_try_again() {
    let _frozen = freeze();
    let server = FakeServer::start().await;
    server.script([Greeting::Refuse(b"3D000")]);
    let pool = Pool::new(server.config(1));
    pool.checkout(soon()).await.unwrap_err();
    match poll_once(pin!(pool.checkout(soon()))) {
        Poll::Ready(Err(CheckoutError::Connect(ConnectError::Refused(_)))) => {}
        other => panic!("{other:?}"),
    }
    settle().await;
    assert_eq!(server.log().accepted, 1, "the server was left alone");
    advance(Duration::from_millis(51)).await;
    pool.checkout(soon()).await.unwrap().checkin();
}

#[tokio::test]
async fn those_who_wait_are_tried_for_once_more_and_then_told() {
    let _frozen = freeze();
    let server = FakeServer::start().await;
    server.script([Greeting::HangUp, Greeting::HangUp, Greeting::Refuse(b"57P03"), Greeting::HangUp]);
    let pool = Pool::new(server.config(1));
    let mut waiting: Vec<_> = (0..5).map(|_| Box::pin(pool.checkout(soon()))).collect();
    for checkout in &mut waiting {
        assert!(poll_once(checkout.as_mut()).is_pending());
    }
    let mut told = Vec::new();
    server.until("a connection hung up", |log| log.accepted == 1 && log.open == 0).await;
    waiting.retain_mut(|checkout| match poll_once(checkout.as_mut()) {
        Poll::Ready(outcome) => {
            told.push(outcome);
            false
        }
        Poll::Pending => true,
    });
    assert_eq!((told.len(), waiting.len()), (1, 4));
    advance(Duration::from_millis(51)).await;
    for checkout in waiting {
        told.push(checkout.await);
    }
    assert!(
        told.iter().all(|outcome| matches!(outcome, Err(CheckoutError::Connect(ConnectError::Io { .. }))))
    );
    assert_eq!(server.log().accepted, 2);
}

#[tokio::test]
async fn one_retry_is_enough_when_the_server_comes_back() {
    let server = FakeServer::start().await;
    server.script([Greeting::HangUp]);
    let pool = Pool::new(server.config(1));
    let mut one = pin!(pool.checkout(soon()));
    let mut two = pin!(pool.checkout(soon()));
    assert!(poll_once(one.as_mut()).is_pending() && poll_once(two.as_mut()).is_pending());
    assert!(one.await.is_err());
    two.await.unwrap().checkin();
}

#[tokio::test]
async fn a_full_server_fails_nobody_while_a_connection_can_come_back() {
    let server = FakeServer::start().await;
    server.script([Greeting::Welcome]);
    server.script([Greeting::Refuse(b"53300"); 100]);
    let pool = Pool::new(server.config(2));
    let held = pool.checkout(soon()).await.unwrap();
    let mut waiting = pin!(pool.checkout(soon()));
    assert!(poll_once(waiting.as_mut()).is_pending());
    server.until("refused twice", |log| log.accepted >= 3).await;
    travel().await;
    held.checkin();
    assert_eq!(waiting.await.unwrap().process_id(), 1);
}

#[tokio::test]
async fn logins_are_made_a_few_at_a_time() {
    let server = FakeServer::start().await;
    server.script([Greeting::Slow(Duration::from_millis(20)); 10]);
    let pool = Pool::new(Config { max_connecting: 3, ..server.config(10) });
    let mut tasks = Vec::new();
    for _ in 0..10 {
        let pool = pool.clone();
        tasks.push(tokio::spawn(async move { pool.checkout(soon()).await.unwrap() }));
    }
    let mut leases = Vec::new();
    for task in tasks {
        leases.push(task.await.unwrap());
    }
    let log = server.log();
    assert_eq!((log.most_greeting, log.most_open), (3, 10));
    drop(log);
    drop(leases);
}

#[tokio::test]
async fn a_silent_server_is_given_up_at_the_connect_timeout() {
    let server = FakeServer::start().await;
    server.script([Greeting::Slow(Duration::from_mins(1))]);
    let pool = Pool::new(Config { connect_timeout: Duration::from_millis(50), ..server.config(1) });
    match pool.checkout(soon()).await {
        Err(CheckoutError::Connect(ConnectError::Timeout)) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_refused_socket_is_an_io_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().into();
    drop(listener);
    let pool = Pool::new(Config::new(address, "shop", "app"));
    match pool.checkout(soon()).await {
        Err(CheckoutError::Connect(ConnectError::Io { cause })) => {
            assert_eq!(cause.kind(), std::io::ErrorKind::ConnectionRefused);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn all_addresses_of_a_name_are_tried() {
    let server = FakeServer::start().await;
    // "localhost" may resolve to ::1 first, where nothing listens on this port.
    let address = format!("localhost:{}", server.address.port()).parse().unwrap();
    let pool = Pool::new(Config { address, ..server.config(1) });
    let lease = pool.checkout(soon()).await.unwrap();
    assert_eq!(*lease.peer(), server.address, "the peer is resolved");
}

/// Before the server has answered, it may crash and go back, and then let in who has waited.
#[tokio::test]
async fn a_connection_is_as_old_as_the_answer_to_its_login() {
    let server = FakeServer::start().await;
    let slow = Duration::from_millis(50);
    server.script([Greeting::Slow(slow)]);
    let pool = Pool::new(server.config(1));
    let before = Instant::now();
    let lease = pool.checkout(soon()).await.unwrap();
    assert!(lease.opened_at() >= before + slow && lease.opened_at() <= Instant::now());
}

#[tokio::test]
async fn what_the_server_said_at_login_is_kept() {
    let server = FakeServer::start().await;
    let parameters = vec![("application_name".into(), "test".into())];
    let pool = Pool::new(Config { parameters, ..server.config(1) });
    let before = Instant::now();
    let mut lease = pool.checkout(soon()).await.unwrap();
    assert!(lease.opened_at() >= before && lease.opened_at() <= Instant::now());
    assert_eq!((lease.process_id(), lease.secret_key()), (1, &[0, 0, 0, 1][..]));
    assert_eq!(lease.parameter("server_version"), Some(&b"15.0"[..]));
    lease.parameter_status(b"server_version", b"16.0");
    lease.parameter_status(b"TimeZone", b"UTC");
    let names: Vec<_> = lease.parameters().iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(names, [("server_version", &b"16.0"[..]), ("TimeZone", b"UTC")]);
    let startup = server.log().startups[0].clone();
    for expected in ["user\0app\0", "database\0shop\0", "application_name\0test\0"] {
        assert!(startup.windows(expected.len()).any(|window| window == expected.as_bytes()), "{expected}");
    }
    lease.count_transaction();
    lease.count_transaction();
    let info = pool.servers().pop().unwrap();
    assert_eq!((info.state, info.process_id, info.transactions), (ServerState::Active, 1, 2));
    assert_eq!(info.address, server.address);
}

fn verified(server: &FakeServer) -> Config {
    let verification = Verification {
        query: "SELECT system_identifier, note".into(),
        accept: Arc::new(|row| match row {
            [Some(system), None] if &**system == "7" => Ok(()),
            other => Err(format!("{other:?}").into()),
        }),
    };
    Config { verification: Some(verification), ..server.config(1) }
}

#[tokio::test]
async fn an_accepted_row_stays_with_the_connection() {
    let server = FakeServer::start().await;
    server.log().answer = Some(Ok(vec![Some("7"), None]));
    let pool = Pool::new(verified(&server));
    let lease = pool.checkout(soon()).await.unwrap();
    assert_eq!(lease.facts(), [Some("7".into()), None]);
    assert!(lease.inbound.is_empty());
}

#[tokio::test]
async fn a_server_that_does_not_verify_is_not_used() {
    let wrong = "[Some(\"8\"), None]";
    for (answer, complaint) in [
        (Some(Ok(vec![Some("8"), None])), wrong),
        (None, "the query returned no row"),
        (Some(Err(Severity::Error)), "not for you"),
    ] {
        let server = FakeServer::start().await;
        server.log().answer = answer;
        let pool = Pool::new(verified(&server));
        match pool.checkout(soon()).await {
            Err(CheckoutError::Connect(ConnectError::Verification(text))) => assert_eq!(&*text, complaint),
            other => panic!("{other:?}"),
        }
        assert_eq!(pool.status().active, 0);
    }
}

#[tokio::test]
async fn a_fatal_answer_to_the_verification_is_a_refusal() {
    let server = FakeServer::start().await;
    server.log().answer = Some(Err(Severity::Fatal));
    let pool = Pool::new(verified(&server));
    match pool.checkout(soon()).await {
        Err(CheckoutError::Connect(refusal @ ConnectError::Refused(_))) => {
            assert_eq!(refusal.sqlstate(), Some(&b"42501"[..]));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn sockets_notice_dead_peers_and_do_not_delay() {
    let server = FakeServer::start().await;
    let keepalive = crate::Keepalive {
        idle: Duration::from_secs(7),
        interval: Duration::from_secs(3),
        count: 2,
        user_timeout: Duration::from_secs(11),
    };
    let pool = Pool::new(Config { keepalive, ..server.config(1) });
    let lease = pool.checkout(soon()).await.unwrap();
    let causeway_tls::PlainSocket::Tcp(socket) = lease.stream.socket() else { panic!("not TCP") };
    assert!(socket.nodelay().unwrap());
    let socket = socket2::SockRef::from(socket);
    assert!(socket.keepalive().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap(), keepalive.idle);
    assert_eq!(socket.tcp_keepalive_interval().unwrap(), keepalive.interval);
    assert_eq!(socket.tcp_keepalive_retries().unwrap(), keepalive.count);
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(keepalive.user_timeout));
}
