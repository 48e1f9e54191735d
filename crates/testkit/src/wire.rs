//! The wire protocol, message by message, for tests that care about each of them.
//!
//! Nothing here comes from the project's own protocol crate: an encoder and a decoder that are wrong in the same way
//! would agree with each other.

mod client;
mod login;
mod message;
mod reader;
pub mod reply;
pub mod request;
mod stream;

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

pub use client::{Client, Key};
pub use message::{Message, summary};
pub use request::Request;

pub(crate) use reader::Reader;

/// How long anything is waited for before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Sends a `CancelRequest` on a connection of its own and returns what came back before the other side closed it:
/// nothing, if all is well.
pub async fn cancel(port: u16, key: &Key) -> Vec<u8> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connecting to cancel");
    cancel_over(stream, key).await
}

/// As [`cancel`], on a connection that was made for it.
async fn cancel_over(mut stream: impl AsyncRead + AsyncWrite + Unpin, key: &Key) -> Vec<u8> {
    stream.write_all(&request::cancel_packet(key)).await.expect("sending a CancelRequest");
    stream.flush().await.expect("sending a CancelRequest");
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    // A reset is an end as well.
    drop(ended.expect("the connection of a CancelRequest was not closed"));
    answer
}
