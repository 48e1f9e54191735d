use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use causeway_protocol::encode;
use causeway_protocol::report::{ErrorReport, Severity};
use tokio::time::{Instant, advance, pause, sleep};

use super::*;
use crate::backoff::Random;
use crate::config::{Config, Verification};
use crate::error::ConnectError;
use crate::fake::{Action, FakeServer, Greeting, error, freeze, settle, soon};
use crate::reason::CloseReason;
use crate::status::ServerState;

mod cancelling;
mod ending;
mod opening;
mod queueing;
mod seating;
mod sharing;

/// Gives the sockets time to carry what was sent; only where the clock runs.
async fn travel() {
    sleep(Duration::from_millis(30)).await;
}

fn closed(pool: &Pool, reason: CloseReason) -> u64 {
    pool.totals().closed().find(|&(other, _)| other == reason).unwrap().1
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn is_send<T: Send>() {}

fn value_is_send(_: impl Send) {}

#[test]
fn everything_can_move_between_threads() {
    is_send::<Pool>();
    is_send::<Lease>();
    is_send::<crate::CancelHandle>();
    is_send::<CheckoutError>();
    let pool = Pool::new(Config::new("localhost:1".parse().unwrap(), "shop", "app"));
    value_is_send(pool.checkout(Instant::now()));
}
