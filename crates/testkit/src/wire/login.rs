//! The client's side of authentication.

use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};

use super::message::Cursor;
use super::request::{Request, raw, text};

/// Answers the server's authentication requests with a password.
pub(super) struct Login<'a> {
    password: Option<&'a str>,
    exchange: Option<ScramSha256>,
}

impl<'a> Login<'a> {
    pub(super) fn new(password: Option<&'a str>) -> Self {
        Self { password, exchange: None }
    }

    /// What to answer to the body of an Authentication message; `None` if nothing.
    pub(super) fn answer(&mut self, body: &[u8]) -> Option<Request> {
        let mut cursor = Cursor(body);
        let kind = cursor.int32();
        let rest = cursor.0;
        match kind {
            0 => None,
            3 => Some(raw(b'p', &text(self.password()))),
            10 => {
                let offered = String::from_utf8_lossy(rest);
                assert!(
                    offered.split('\0').any(|name| name == SCRAM_SHA_256),
                    "mechanisms offered: {offered:?}"
                );
                let exchange = ScramSha256::new(self.password().as_bytes(), ChannelBinding::unsupported());
                let first = exchange.message().to_vec();
                self.exchange = Some(exchange);
                let length = i32::try_from(first.len()).expect("a SCRAM message is short");
                Some(raw(b'p', &[text(SCRAM_SHA_256), length.to_be_bytes().to_vec(), first].concat()))
            }
            11 => {
                let exchange = self.exchange.as_mut().expect("SASL goes on only after it began");
                exchange.update(rest).expect("the server's first SCRAM message");
                Some(raw(b'p', exchange.message()))
            }
            12 => {
                let mut exchange = self.exchange.take().expect("SASL ends only after it began");
                exchange.finish(rest).expect("the server's SCRAM signature");
                None
            }
            other => panic!("authentication request {other} is not known to the test client"),
        }
    }

    fn password(&self) -> &'a str {
        self.password.expect("the server asks for a password and the test gave none")
    }
}
