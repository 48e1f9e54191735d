//! From a socket to a session: login and verification.

use std::io;

use causeway_protocol::backend::{self, TransactionStatus, tag};
use causeway_protocol::buffer::Buffer;
use causeway_protocol::encode;
use causeway_protocol::frame::{self, Frame};
use causeway_protocol::handshake::client::{
    Channel, ClientHandshake, LoggedIn, Login, LoginError, MAX_LOGIN_FRAME_LEN, Secret, Step,
};
use causeway_protocol::report::Severity;
use causeway_tls::{ClientSession, ServerStream, TlsClient, buffers};
use secrecy::ExposeSecret;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::config::{Config, Verification};
use crate::conn::{Card, Opened, Parameters, Route};
use crate::error::ConnectError;

/// A verification's row.
type Row = Box<[Option<Box<str>>]>;

/// A socket and what was read from it.
pub(crate) struct Line {
    pub(crate) stream: ServerStream,
    pub(crate) inbound: Buffer,
}

/// What the answer to the verification query has shown so far.
#[derive(Default)]
struct Verdict {
    row: Option<Row>,
    objection: Option<ConnectError>,
}

/// Logs in and verifies.
pub(crate) async fn log_in(
    config: &Config,
    mut line: Line,
    route: Route,
    begun_at: Instant,
) -> Result<Opened, ConnectError> {
    let LoggedIn { parameters: reported, key, notices: _ } = shake_hands(config, &mut line).await?;
    let mut parameters = Parameters::default();
    for (name, value) in &reported {
        parameters.update(name, value);
    }
    let facts = match &config.verification {
        Some(verification) => verify(verification, &mut line, &mut parameters).await?,
        None => Row::default(),
    };
    let Line { stream, mut inbound } = line;
    // An idle connection needs no storage; if something has come already, it stays.
    buffers::give_back(&mut inbound);
    let (process_id, secret_key) = key.map(|key| (key.process_id, key.secret)).unwrap_or_default();
    let card = Card::new(route, process_id, secret_key, begun_at);
    Ok(Opened { stream, inbound, card, parameters, facts })
}

async fn shake_hands(config: &Config, line: &mut Line) -> Result<LoggedIn, ConnectError> {
    let secret = config
        .password
        .as_ref()
        .map_or(Secret::None, |password| Secret::Password(password.expose_secret().as_bytes().into()));
    let login = Login {
        user: (&*config.user).into(),
        database: (&*config.database).into(),
        parameters: config.parameters.clone(),
        secret,
        // Neither TLS nor a Unix socket shows the password to anybody else.
        allow_cleartext: config.allow_cleartext || !line.stream.is_exposed(),
        channel: Channel {
            end_point: line.stream.session().and_then(ClientSession::end_point).map(Into::into),
            required: config.tls.as_ref().is_some_and(TlsClient::requires_binding),
        },
    };
    let mut output = Vec::new();
    let mut handshake = ClientHandshake::start(login, &mut output);
    loop {
        line.send(&mut output).await?;
        line.receive().await?;
        let (step, answer) = advance(handshake, line).await?;
        output = answer;
        match step {
            Step::LoggedIn(logged_in) => return Ok(logged_in),
            Step::NeedBytes(next) => handshake = next,
        }
    }
}

/// Feeds the handshake with what was read.
async fn advance(handshake: ClientHandshake, line: &mut Line) -> Result<(Step, Vec<u8>), ConnectError> {
    // The answer to SCRAM's challenge takes milliseconds of hashing, which would hold up every session of this thread.
    if !is_scram_challenge(line.inbound.filled()) {
        let mut output = Vec::new();
        return Ok((handshake.read(&mut line.inbound, &mut output)?, output));
    }
    let mut inbound = std::mem::take(&mut line.inbound);
    let computed = spawn_blocking(move || {
        let mut output = Vec::new();
        let step = handshake.read(&mut inbound, &mut output);
        (step, inbound, output)
    });
    let (step, inbound, output) = computed.await.map_err(|_panicked| ConnectError::Aborted)?;
    line.inbound = inbound;
    Ok((step?, output))
}

/// Whether the next message is `AuthenticationSASLContinue`.
fn is_scram_challenge(bytes: &[u8]) -> bool {
    matches!(bytes, [tag::AUTHENTICATION, _, _, _, _, 0, 0, 0, 11, ..])
}

/// Runs the verification's query and has its row judged.
async fn verify(
    verification: &Verification,
    line: &mut Line,
    parameters: &mut Parameters,
) -> Result<Row, ConnectError> {
    let mut query = Vec::new();
    encode::query(&mut query, verification.query.as_bytes());
    line.send(&mut query).await?;
    let mut verdict = Verdict::default();
    loop {
        while let Some((frame, len)) =
            frame::split(line.inbound.filled(), MAX_LOGIN_FRAME_LEN).map_err(LoginError::from)?
        {
            let done = verdict.take(frame, parameters)?;
            line.inbound.consume(len);
            if done {
                let row = verdict.into_row()?;
                return (verification.accept)(&row).map(|()| row).map_err(ConnectError::Verification);
            }
        }
        line.receive().await?;
    }
}

// === impl Line ===

impl Line {
    async fn send(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        self.stream.send_all(output).await?;
        output.clear();
        Ok(())
    }

    /// Reads at least one byte.
    async fn receive(&mut self) -> io::Result<()> {
        if self.stream.fill(&mut self.inbound).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

// === impl Verdict ===

impl Verdict {
    /// Takes in one message of the answer; whether it was the last.
    fn take(&mut self, frame: Frame<'_>, parameters: &mut Parameters) -> Result<bool, ConnectError> {
        match frame.tag {
            tag::DATA_ROW if self.row.is_some() => {
                self.objection.get_or_insert_with(|| objection("the query returned several rows"));
            }
            tag::DATA_ROW => {
                let row = backend::data_row(frame.body).map_err(LoginError::from)?;
                self.row = Some(row.iter().map(|value| value.map(text)).collect());
            }
            tag::ERROR_RESPONSE => {
                let fields = backend::error_fields(frame.body).map_err(LoginError::from)?;
                // With anything above ERROR the session ends, and what the server says is about that.
                if fields.severity() != Some(Severity::Error) {
                    return Err(ConnectError::Refused(frame.body.into()));
                }
                self.objection.get_or_insert_with(|| objection(&text(fields.message())));
            }
            tag::PARAMETER_STATUS => {
                let (name, value) = backend::parameter_status(frame.body).map_err(LoginError::from)?;
                parameters.update(name, value);
            }
            tag::READY_FOR_QUERY => {
                let status = backend::ready_for_query(frame.body).map_err(LoginError::from)?;
                if status != TransactionStatus::Idle {
                    self.objection.get_or_insert_with(|| objection("the query left a transaction open"));
                }
                return Ok(true);
            }
            tag::ROW_DESCRIPTION
            | tag::COMMAND_COMPLETE
            | tag::NOTICE_RESPONSE
            | tag::EMPTY_QUERY_RESPONSE => {}
            got => {
                return Err(LoginError::Unexpected { expected: "the answer to a query", got }.into());
            }
        }
        Ok(false)
    }

    fn into_row(self) -> Result<Row, ConnectError> {
        match self.objection {
            Some(objection) => Err(objection),
            None => self.row.ok_or_else(|| objection("the query returned no row")),
        }
    }
}

fn objection(text: &str) -> ConnectError {
    ConnectError::Verification(text.into())
}

fn text(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(bytes).into()
}
