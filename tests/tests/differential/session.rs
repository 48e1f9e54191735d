//! A client that carries out units and keeps every answer, whatever happens to the connection.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use causeway_testkit::wire::{Message, Request, request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::program::{Copy, Unit};

/// After so long without an answer there is none.
const PATIENCE: Duration = Duration::from_secs(8);

/// What a client sees.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A message, without what differs by nature.
    Message(Message),
    /// The end of the stream. A reset is one too: the kernel sends it where a server closes with input unread.
    End,
    /// Nothing where something was due.
    Silence,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(message) => write!(f, "{message:?}"),
            Self::End => f.write_str("END"),
            Self::Silence => f.write_str("SILENCE"),
        }
    }
}

/// A connection and what has come of it.
pub(crate) struct Session<'a> {
    stream: TcpStream,
    unread: Vec<u8>,
    is_over: bool,
    tables: &'a BTreeSet<u32>,
}

impl<'a> Session<'a> {
    /// Logs in and returns what the server tells of itself, ordered by name. `tables` are the object ids of the
    /// tables that both runs share.
    pub(crate) async fn login(
        port: u16,
        parameters: &[(&str, &str)],
        tables: &'a BTreeSet<u32>,
    ) -> (Self, Vec<Answer>) {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
        stream.set_nodelay(true).expect("an option of the socket");
        let mut session = Self { stream, unread: Vec::new(), is_over: false, tables };
        session.write(&request::startup_packet(0x0003_0000, parameters)).await;
        let mut told = session.until_ready(|_| None).await;
        // The key is of the process; the order in which the parameters are reported says nothing.
        told.retain(|answer| !matches!(answer, Answer::Message(message) if message.tag == b'K'));
        told.sort_by_key(|answer| format!("{answer:?}"));
        (session, told)
    }

    /// Sends the unit, in its pieces if `split`, and returns all up to its `ReadyForQuery`.
    pub(crate) async fn carry_out(&mut self, unit: &Unit, split: bool) -> Vec<Answer> {
        let bytes = unit.bytes();
        let mut rest = bytes.as_slice();
        for size in unit.pieces.iter().filter(|_| split) {
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            self.write(piece).await;
            rest = after;
            sleep(Duration::from_millis(1)).await;
        }
        self.write(rest).await;
        let mut answers = self.until_ready(|message| (message.tag == b'G').then(|| copied(unit))).await;
        let has = |answers: &[Answer], tag: u8| {
            answers.iter().any(|answer| matches!(answer, Answer::Message(message) if message.tag == tag))
        };
        if has(&answers, b'G') && !unit.is_simple() {
            while !self.is_over && !has(&answers, b'I') {
                answers.extend(self.until_ready(|_| None).await);
            }
        }
        answers
    }

    /// Sends Terminate and returns what comes before the end. No COPY is under way then: Causeway ends one at once, where
    /// PostgreSQL first says what it thinks of a Terminate in the middle of data.
    pub(crate) async fn leave(mut self) -> Vec<Answer> {
        self.write(&request::terminate().encode()).await;
        let mut answers = Vec::new();
        while !self.is_over {
            answers.push(self.next().await);
        }
        answers
    }

    /// Everything up to the next `ReadyForQuery`, the end or silence; `reply` may have something to send.
    async fn until_ready(&mut self, reply: impl Fn(&Message) -> Option<Vec<Request>>) -> Vec<Answer> {
        let mut answers = Vec::new();
        while !self.is_over {
            let answer = self.next().await;
            let mut is_ready = false;
            if let Answer::Message(message) = &answer {
                is_ready = message.tag == b'Z';
                if let Some(requests) = reply(message) {
                    let bytes: Vec<u8> = requests.iter().flat_map(Request::encode).collect();
                    self.write(&bytes).await;
                }
            }
            answers.push(answer);
            if is_ready {
                break;
            }
        }
        answers
    }

    /// A server that has closed the connection takes nothing more; what it said before is still to be read.
    async fn write(&mut self, bytes: &[u8]) {
        drop(self.stream.write_all(bytes).await);
    }

    async fn next(&mut self) -> Answer {
        let answer = match timeout(PATIENCE, self.frame()).await {
            Ok(Some(message)) => return Answer::Message(self.without_chance(message)),
            Ok(None) => Answer::End,
            Err(_) => Answer::Silence,
        };
        self.is_over = true;
        answer
    }

    async fn frame(&mut self) -> Option<Message> {
        loop {
            if let [tag, a, b, c, d, ..] = *self.unread.as_slice() {
                let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).expect("a length") + 1;
                if self.unread.len() >= length {
                    let body = self.unread.drain(..length).skip(5).collect();
                    return Some(Message { tag, body });
                }
            }
            if self.stream.read_buf(&mut self.unread).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// The message without what differs by nature: the place in the server's source, the object ids of tables that
    /// the run has made, and the process id of a notification.
    fn without_chance(&self, mut message: Message) -> Message {
        match message.tag {
            b'E' | b'N' => {
                let fields = message.body.split(|byte| *byte == 0);
                let kept = fields.filter(|field| !matches!(field.first(), Some(b'F' | b'L' | b'R')));
                message.body = kept.collect::<Vec<_>>().join(&0);
            }
            b'T' => self.hide_own_tables(&mut message.body),
            b'A' => message.body[..4].fill(0),
            _ => {}
        }
        message
    }

    fn hide_own_tables(&self, body: &mut [u8]) {
        let mut at = 2;
        while let Some(length) = body[at..].iter().position(|byte| *byte == 0) {
            let table = at + length + 1;
            let id: [u8; 4] = body[table..table + 4].try_into().expect("four bytes");
            if !self.tables.contains(&u32::from_be_bytes(id)) {
                body[table..table + 4].fill(0);
            }
            at = table + 18;
        }
    }
}

/// What a client sends when it is asked for a COPY's data. In the extended protocol that is ended with a Sync, since the
/// unit's own may have been taken for part of the data, and an empty Query shows where the answers end.
fn copied(unit: &Unit) -> Vec<Request> {
    let mut requests = match unit.copy {
        Copy::Row(rows) => vec![request::copy_data(rows.as_bytes()), request::copy_done()],
        Copy::Fail => vec![request::copy_fail("enough")],
    };
    if !unit.is_simple() {
        requests.extend([request::sync(), request::query("")]);
    }
    requests
}
