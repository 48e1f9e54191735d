//! The handshake with a client, to whom this side is the server.

use std::mem;

use crate::buffer::Buffer;
use crate::encode;
use crate::frame::{self, FrameError, HEADER_LEN};
use crate::frontend::{self, MalformedMessage};
use crate::report::ErrorReport;
use crate::scram::{self, AwaitProof, Exchange, Keys, ScramError, Verifier};
use crate::sqlstate::SqlState;
use crate::startup::{
    self, CancelKey, GSSENC_REQUEST, PROTOCOL_3_0, Packet, SSL_REQUEST, Startup, StartupError,
};

/// The longest frame a client may send before it is authenticated, in bytes (`PG_MAX_SASL_MESSAGE_LENGTH`).
pub const MAX_SASL_FRAME_LEN: usize = 1024 + HEADER_LEN;

/// A handshake that waits for bytes from the client.
#[derive(Debug)]
pub struct ServerHandshake {
    state: State,
}

/// How a handshake goes on. In every case the bytes appended to the output are sent first.
#[derive(Debug)]
pub enum Step {
    /// The client has to send more.
    NeedBytes(ServerHandshake),
    /// The next bytes from the client are TLS; what is decrypted of them goes, in a fresh buffer, to this handshake.
    StartTls(ServerHandshake),
    /// A cancel request: there is no answer, the connection is closed.
    Cancel(CancelKey),
    /// The client has said who it is; the caller decides how it has to prove that.
    NeedMethod(AwaitMethod),
    /// The client is who it says.
    Accepted(Accepted),
}

/// A handshake that waits for the caller's choice of an authentication method.
#[derive(Debug)]
pub struct AwaitMethod {
    startup: Box<Startup>,
}

/// How a client is authenticated.
#[derive(Debug)]
pub enum Method {
    /// Not at all.
    Trust,
    /// By SCRAM-SHA-256.
    ScramSha256 {
        /// The user's verifier, or [`Verifier::mock`] if there is none.
        verifier: Verifier,
        /// Fresh random bytes.
        nonce: [u8; scram::NONCE_LEN],
        /// Whether the verifier is a real user's. Otherwise the exchange takes its course and fails like a wrong
        /// password.
        known_user: bool,
        /// Inside TLS the hash of our certificate (`tls-server-end-point`), to which the client may bind its proof.
        end_point: Option<Box<[u8]>>,
    },
    /// No proof would do.
    Reject(ErrorReport),
}

/// A client that is let in, and has been sent `AuthenticationOk`.
#[derive(Debug)]
pub struct Accepted {
    /// What it asked for.
    pub startup: Box<Startup>,
    /// What SCRAM has revealed: enough to log in at a server as this user.
    pub keys: Option<Keys>,
}

/// The client is not let in. The output holds what it is told; the connection is closed next.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Its first packet is not acceptable.
    #[error("the start-up packet is not acceptable")]
    Startup(#[from] StartupError),
    /// Bytes came behind a request for TLS. They were not encrypted, but would be taken for such.
    #[error("received unencrypted data after SSL request")]
    UnencryptedData,
    /// What it sent is no frame, or too long a one.
    #[error("the client does not send frames")]
    Frame(#[from] FrameError),
    /// It sent something else than was asked for.
    #[error("expected {expected}, got message type {got}")]
    Unexpected {
        /// What was asked for.
        expected: &'static str,
        /// The type of the message that came.
        got: u8,
    },
    /// A message has a broken body.
    #[error("the client sent a malformed message")]
    Malformed(#[from] MalformedMessage),
    /// It chose a SASL mechanism that was not offered.
    #[error("client selected an invalid SASL authentication mechanism")]
    Mechanism,
    /// It failed to prove who it is.
    #[error("SCRAM authentication of user \"{user}\" failed")]
    Scram {
        /// The user it claims to be.
        user: Box<str>,
        /// Why.
        source: ScramError,
    },
    /// The caller rejected it.
    #[error("rejected: {0}")]
    Rejected(ErrorReport),
}

#[derive(Debug)]
enum State {
    Startup(AwaitStartup),
    /// For `SASLInitialResponse`.
    Mechanism(Box<Startup>, Exchange),
    /// For the client-first-message, which was not in the `SASLInitialResponse`.
    ClientFirst(Box<Startup>, Exchange),
    /// For the client-final-message.
    Proof(Box<Startup>, AwaitProof),
}

/// Which requests for encryption may still come.
#[derive(Debug)]
struct AwaitStartup {
    offers_tls: bool,
    may_ask_tls: bool,
    may_ask_gss: bool,
}

// === impl ServerHandshake ===

impl ServerHandshake {
    /// A handshake on a fresh connection.
    pub const fn new(offers_tls: bool) -> Self {
        Self { state: State::Startup(AwaitStartup { offers_tls, may_ask_tls: true, may_ask_gss: true }) }
    }

    /// A handshake inside TLS that began without `SSLRequest`.
    pub const fn in_direct_tls() -> Self {
        Self {
            state: State::Startup(AwaitStartup { offers_tls: false, may_ask_tls: false, may_ask_gss: false }),
        }
    }

    /// Consumes the complete messages in `input`, up to the next step.
    ///
    /// # Errors
    ///
    /// When the client is not let in. What it is told is in `output` already.
    pub fn read(self, input: &mut Buffer, output: &mut Vec<u8>) -> Result<Step, Refusal> {
        told(self.advance(input, output), output)
    }

    fn advance(self, input: &mut Buffer, output: &mut Vec<u8>) -> Result<Step, Refusal> {
        let mut state = self.state;
        loop {
            let (next, consumed) = match state {
                State::Startup(waiting) => return waiting.advance(input, output),
                State::Mechanism(startup, exchange) => {
                    let Some((body, consumed)) = response(input.filled(), "SASL response")? else {
                        return Ok(need_bytes(State::Mechanism(startup, exchange)));
                    };
                    let initial = frontend::sasl_initial_response(body)?;
                    let exchange = exchange.choose(initial.mechanism).ok_or(Refusal::Mechanism)?;
                    let next = if let Some(message) = initial.response {
                        challenge(startup, exchange, message, output)?
                    } else {
                        encode::authentication_sasl_continue(output, b"");
                        State::ClientFirst(startup, exchange)
                    };
                    (next, consumed)
                }
                State::ClientFirst(startup, exchange) => {
                    let Some((body, consumed)) = response(input.filled(), "SASL response")? else {
                        return Ok(need_bytes(State::ClientFirst(startup, exchange)));
                    };
                    (challenge(startup, exchange, body, output)?, consumed)
                }
                State::Proof(startup, exchange) => {
                    let Some((body, consumed)) = response(input.filled(), "SASL response")? else {
                        return Ok(need_bytes(State::Proof(startup, exchange)));
                    };
                    let accepted = verify(startup, exchange, body, output)?;
                    input.consume(consumed);
                    return Ok(Step::Accepted(accepted));
                }
            };
            input.consume(consumed);
            state = next;
        }
    }
}

// === impl AwaitStartup ===

impl AwaitStartup {
    fn advance(mut self, input: &mut Buffer, output: &mut Vec<u8>) -> Result<Step, Refusal> {
        while let Some((packet, consumed)) = startup::parse(input.filled())? {
            input.consume(consumed);
            match packet {
                Packet::Ssl => {
                    // PostgreSQL takes a second request for a version it does not have.
                    if !mem::take(&mut self.may_ask_tls) {
                        return Err(StartupError::version(SSL_REQUEST).into());
                    }
                    if self.offers_tls {
                        return self.start_tls(input, output);
                    }
                    output.push(b'N');
                    waited_for_answer(input)?;
                }
                Packet::GssEnc => {
                    if !mem::take(&mut self.may_ask_gss) {
                        return Err(StartupError::version(GSSENC_REQUEST).into());
                    }
                    output.push(b'N');
                    waited_for_answer(input)?;
                }
                Packet::Cancel(key) => return Ok(Step::Cancel(key)),
                Packet::Startup(startup) => {
                    if startup.needs_negotiation() {
                        let unknown: Vec<_> =
                            startup.unknown_protocol_options.iter().map(|name| name.as_bytes()).collect();
                        encode::negotiate_protocol_version(output, PROTOCOL_3_0, &unknown);
                    }
                    return Ok(Step::NeedMethod(AwaitMethod { startup }));
                }
            }
        }
        Ok(need_bytes(State::Startup(self)))
    }

    fn start_tls(self, input: &Buffer, output: &mut Vec<u8>) -> Result<Step, Refusal> {
        waited_for_answer(input)?;
        output.push(b'S');
        let state = State::Startup(Self { may_ask_gss: false, ..self });
        Ok(Step::StartTls(ServerHandshake { state }))
    }
}

// === impl AwaitMethod ===

impl AwaitMethod {
    /// Who the client says it is, and what it asks for.
    pub const fn startup(&self) -> &Startup {
        &self.startup
    }

    /// Goes on with the caller's choice. Messages that `input` holds already are consumed.
    ///
    /// # Errors
    ///
    /// When the client is not let in. What it is told is in `output` already.
    pub fn resume(self, method: Method, input: &mut Buffer, output: &mut Vec<u8>) -> Result<Step, Refusal> {
        match method {
            Method::Trust => {
                encode::authentication_ok(output);
                Ok(Step::Accepted(Accepted { startup: self.startup, keys: None }))
            }
            Method::ScramSha256 { verifier, nonce, known_user, end_point } => {
                let exchange = Exchange::new(verifier, nonce, known_user).with_end_point(end_point);
                encode::authentication_sasl(output, exchange.mechanisms());
                ServerHandshake { state: State::Mechanism(self.startup, exchange) }.read(input, output)
            }
            Method::Reject(report) => told(Err(Refusal::Rejected(report)), output),
        }
    }
}

// === impl Refusal ===

impl Refusal {
    /// What the client is told; nothing if it does not seem to speak this protocol.
    pub fn report(&self) -> Option<ErrorReport> {
        let violation = |text: String| ErrorReport::fatal(SqlState::PROTOCOL_VIOLATION, text);
        Some(match self {
            Self::Startup(error) => return error.report(),
            Self::UnencryptedData => violation(self.to_string()).with_detail(
                "This could be either a client-software bug or evidence of an attempted man-in-the-middle attack.",
            ),
            Self::Frame(error) => violation(error.to_string()),
            Self::Malformed(error) => violation(error.problem.to_string()),
            Self::Unexpected { .. } | Self::Mechanism => violation(self.to_string()),
            Self::Scram { user, source } => source.report(user),
            Self::Rejected(report) => report.clone(),
        })
    }
}

// === private ===

/// A client that asks for encryption sends nothing before it has its answer, even if that is no (`ProcessStartupPacket`
/// in `src/backend/postmaster/postmaster.c`). CVE-2021-23222: an attacker in the middle could put commands ahead of the
/// client's.
fn waited_for_answer(input: &Buffer) -> Result<(), Refusal> {
    if input.is_empty() { Ok(()) } else { Err(Refusal::UnencryptedData) }
}

fn told(result: Result<Step, Refusal>, output: &mut Vec<u8>) -> Result<Step, Refusal> {
    if let Some(report) = result.as_ref().err().and_then(Refusal::report) {
        encode::error_response(output, &report);
    }
    result
}

const fn need_bytes(state: State) -> Step {
    Step::NeedBytes(ServerHandshake { state })
}

/// The body of the password message at the start of `bytes`, and the length of its frame.
fn response<'a>(bytes: &'a [u8], expected: &'static str) -> Result<Option<(&'a [u8], usize)>, Refusal> {
    // The type first: a long message of another type is not a long password.
    if let Some(&got) = bytes.first().filter(|tag| **tag != frontend::tag::PASSWORD) {
        return Err(Refusal::Unexpected { expected, got });
    }
    Ok(frame::split(bytes, MAX_SASL_FRAME_LEN)?.map(|(frame, len)| (frame.body, len)))
}

fn challenge(
    startup: Box<Startup>,
    exchange: Exchange,
    message: &[u8],
    output: &mut Vec<u8>,
) -> Result<State, Refusal> {
    let (next, answer) = exchange
        .client_first(message)
        .map_err(|source| Refusal::Scram { user: startup.user.clone(), source })?;
    encode::authentication_sasl_continue(output, answer.as_bytes());
    Ok(State::Proof(startup, next))
}

fn verify(
    startup: Box<Startup>,
    exchange: AwaitProof,
    message: &[u8],
    output: &mut Vec<u8>,
) -> Result<Accepted, Refusal> {
    let verified = exchange
        .client_final(message)
        .map_err(|source| Refusal::Scram { user: startup.user.clone(), source })?;
    encode::authentication_sasl_final(output, verified.server_final.as_bytes());
    encode::authentication_ok(output);
    Ok(Accepted { startup, keys: Some(verified.keys) })
}

#[cfg(test)]
mod tests;
