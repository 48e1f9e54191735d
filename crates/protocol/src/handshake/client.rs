//! The handshake with a server, to whom this side is the client.

use std::fmt;
use std::io;

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};

use crate::backend::{self, Authentication, ErrorFields, MalformedMessage, tag};
use crate::buffer::Buffer;
use crate::encode;
use crate::frame::{self, Frame, FrameError};
use crate::scram::client::{AwaitServerFinal, AwaitServerFirst};
use crate::scram::{Binding, Keys, MECHANISM, MECHANISM_PLUS, NONCE_LEN, ScramError};
use crate::startup::CancelKey;

/// The longest frame a server may send before it is ready, in bytes.
pub const MAX_LOGIN_FRAME_LEN: usize = 64 * 1024;
/// How many bytes of settings and notices are kept from before the server is ready.
pub const MAX_COLLECTED: usize = 1024 * 1024;

/// Whom to log in as, and how.
#[derive(Clone, Debug)]
pub struct Login {
    /// The user.
    pub user: Box<str>,
    /// The database.
    pub database: Box<str>,
    /// The other start-up parameters.
    pub parameters: Vec<(Box<str>, Box<str>)>,
    /// What proves who the user is.
    pub secret: Secret,
    /// Whether the password may be sent as it is.
    pub allow_cleartext: bool,
    /// What SCRAM can be bound to.
    pub channel: Channel,
}

/// What a SCRAM exchange can be bound to, so that nobody in the middle can pass it on.
#[derive(Clone, Debug, Default)]
pub struct Channel {
    /// The hash of the server's certificate (`tls-server-end-point`); `None` without TLS.
    pub end_point: Option<Box<[u8]>>,
    /// Whether a login that is not bound to it has failed.
    pub required: bool,
}

/// What proves who a user is.
#[derive(Clone)]
pub enum Secret {
    /// Nothing: the server has to trust.
    None,
    /// A password.
    Password(Box<[u8]>),
    /// The keys a client has revealed by SCRAM, and fresh random bytes.
    ScramKeys(Keys, [u8; NONCE_LEN]),
}

/// A handshake that waits for bytes from the server.
#[derive(Debug)]
pub struct ClientHandshake {
    credentials: Box<Credentials>,
    state: State,
    collected: usize,
    logged_in: LoggedIn,
}

/// How a handshake goes on. In every case the bytes appended to the output are sent first.
#[derive(Debug)]
pub enum Step {
    /// The server has to send more.
    NeedBytes(ClientHandshake),
    /// The server is ready for queries.
    LoggedIn(LoggedIn),
}

/// The name and the value of a setting the server reports.
pub type Parameter = (Box<[u8]>, Box<[u8]>);

/// What a server has said on the way to its first `ReadyForQuery`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedIn {
    /// The values of its reported settings, in the order in which they were first reported.
    pub parameters: Vec<Parameter>,
    /// How to cancel its queries, if it can.
    pub key: Option<CancelKey>,
    /// The bodies of its notices.
    pub notices: Vec<Box<[u8]>>,
}

/// The login has failed; the connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The server says no.
    #[error("the server refused the login: {0}")]
    Refused(ErrorBody),
    /// The server asks for a method that is not known here.
    #[error("authentication method {0} is not supported")]
    UnsupportedMethod(Box<str>),
    /// The server asks for a password, and the secret is none.
    #[error("the server asks for a password, and there is none")]
    PasswordRequired,
    /// The server asks for the password as it is, which is not allowed.
    #[error("the server asks for the password in clear text, which is not allowed")]
    CleartextNotAllowed,
    /// The server does not prove that it is at the other end of this TLS session, which is asked of it.
    #[error("the server does not offer SCRAM-SHA-256-PLUS, and channel binding is required")]
    BindingRequired,
    /// The exchange with the password has failed on this side: the server may be an impostor.
    #[error("SCRAM authentication failed")]
    Password(#[source] io::Error),
    /// The exchange with keys has failed on this side: the server may be an impostor.
    #[error("SCRAM authentication failed")]
    Keys(#[from] ScramError),
    /// The server sent what can't come now.
    #[error("expected {expected}, got message type {got}")]
    Unexpected {
        /// What could have come.
        expected: &'static str,
        /// The type of the message that came.
        got: u8,
    },
    /// A message has a broken body.
    #[error("the server sent a malformed message")]
    Malformed(#[from] MalformedMessage),
    /// What it sent is no frame, or too long a one.
    #[error("the server does not send frames")]
    Frame(#[from] FrameError),
    /// Settings and notices exceed [`MAX_COLLECTED`].
    #[error("the server sent more than {MAX_COLLECTED} bytes before it was ready")]
    TooMuch,
}

/// The body of an `ErrorResponse`, to forward or to read.
#[derive(Clone, PartialEq, Eq)]
pub struct ErrorBody(Box<[u8]>);

#[derive(Debug)]
struct Credentials {
    user: Box<str>,
    secret: Secret,
    allow_cleartext: bool,
    channel: Channel,
}

#[derive(Debug)]
enum State {
    /// For a request, or `AuthenticationOk` at once.
    Request,
    /// For `AuthenticationSASLContinue`.
    Challenge(ScramClient),
    /// For `AuthenticationSASLFinal`.
    Final(ScramFinal),
    /// For `AuthenticationOk`.
    Ok,
    /// For `ReadyForQuery`.
    Ready,
}

enum ScramClient {
    Password(Box<ScramSha256>),
    Keys(Box<AwaitServerFirst>),
}

enum ScramFinal {
    Password(Box<ScramSha256>),
    Keys(AwaitServerFinal),
}

// === impl ClientHandshake ===

impl ClientHandshake {
    /// Appends the start-up message to `output`.
    pub fn start(login: Login, output: &mut Vec<u8>) -> Self {
        let names = [("user", &login.user), ("database", &login.database)];
        let others = login.parameters.iter().map(|(name, value)| (&**name, value));
        let all = names.into_iter().chain(others).map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        encode::startup(output, all);
        let Login { user, secret, allow_cleartext, channel, .. } = login;
        Self {
            credentials: Box::new(Credentials { user, secret, allow_cleartext, channel }),
            state: State::Request,
            collected: 0,
            logged_in: LoggedIn::default(),
        }
    }

    /// Consumes the complete messages in `input`, up to and with `ReadyForQuery`. With a password and SCRAM, one
    /// call computes as many hashes as the server says, at most 100,000.
    ///
    /// # Errors
    ///
    /// When the login has failed.
    pub fn read(mut self, input: &mut Buffer, output: &mut Vec<u8>) -> Result<Step, LoginError> {
        while let Some((Frame { tag, body }, len)) = frame::split(input.filled(), MAX_LOGIN_FRAME_LEN)? {
            match (tag, &self.state) {
                (tag::ERROR_RESPONSE, _) => {
                    backend::error_fields(body)?;
                    return Err(LoginError::Refused(ErrorBody(body.into())));
                }
                // These two come whenever the server likes.
                (tag::NOTICE_RESPONSE, _) => self.take_notice(body)?,
                (tag::PARAMETER_STATUS, _) => self.take_parameter(body)?,
                (tag::AUTHENTICATION, _) => {
                    let asked = backend::authentication(body)?;
                    self.state = self.state.answer(asked, &self.credentials, output)?;
                }
                (tag::BACKEND_KEY_DATA, State::Ready) => {
                    let (process_id, secret) = backend::backend_key_data(body)?;
                    self.logged_in.key = Some(CancelKey { process_id, secret: secret.into() });
                }
                (tag::READY_FOR_QUERY, State::Ready) => {
                    backend::ready_for_query(body)?;
                    input.consume(len);
                    return Ok(Step::LoggedIn(self.logged_in));
                }
                _ => return Err(unexpected(self.state.expected(), tag)),
            }
            input.consume(len);
        }
        Ok(Step::NeedBytes(self))
    }

    fn take_notice(&mut self, body: &[u8]) -> Result<(), LoginError> {
        backend::error_fields(body)?;
        self.collect(body)?;
        self.logged_in.notices.push(body.into());
        Ok(())
    }

    fn take_parameter(&mut self, body: &[u8]) -> Result<(), LoginError> {
        let (name, value) = backend::parameter_status(body)?;
        self.collect(body)?;
        let parameters = &mut self.logged_in.parameters;
        match parameters.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, known)) => *known = value.into(),
            None => parameters.push((name.into(), value.into())),
        }
        Ok(())
    }

    fn collect(&mut self, body: &[u8]) -> Result<(), LoginError> {
        self.collected = self.collected.saturating_add(body.len());
        if self.collected > MAX_COLLECTED { Err(LoginError::TooMuch) } else { Ok(()) }
    }
}

// === impl State ===

impl State {
    fn answer(
        self,
        asked: Authentication<'_>,
        credentials: &Credentials,
        output: &mut Vec<u8>,
    ) -> Result<Self, LoginError> {
        let unbound_will_do = !credentials.channel.required;
        match (self, asked) {
            // Whoever lets us in without a proof of its own could be anybody.
            (
                Self::Request,
                Authentication::Ok | Authentication::CleartextPassword | Authentication::Md5 { .. },
            ) if !unbound_will_do => Err(LoginError::BindingRequired),
            (Self::Request | Self::Ok, Authentication::Ok) => Ok(Self::Ready),
            (Self::Request, Authentication::CleartextPassword) => {
                let password = credentials.password()?;
                if !credentials.allow_cleartext {
                    return Err(LoginError::CleartextNotAllowed);
                }
                encode::password(output, password);
                Ok(Self::Ok)
            }
            (Self::Request, Authentication::Md5 { salt }) => {
                let hash = md5_hash(credentials.user.as_bytes(), credentials.password()?, salt);
                encode::password(output, hash.as_bytes());
                Ok(Self::Ok)
            }
            (Self::Request, Authentication::Sasl(mechanisms)) => {
                let offers = |name: &str| mechanisms.iter().any(|mechanism| mechanism == name.as_bytes());
                let (name, binding) = match &credentials.channel.end_point {
                    Some(hash) if offers(MECHANISM_PLUS) => (MECHANISM_PLUS, Binding::EndPoint(hash.clone())),
                    _ if credentials.channel.required => return Err(LoginError::BindingRequired),
                    _ if !offers(MECHANISM) => {
                        let offered: Vec<_> = mechanisms.iter().map(String::from_utf8_lossy).collect();
                        return Err(LoginError::UnsupportedMethod(offered.join(", ").into()));
                    }
                    Some(_) => (MECHANISM, Binding::NotOffered),
                    None => (MECHANISM, Binding::Unsupported),
                };
                let (client, message) = ScramClient::start(&credentials.secret, binding)?;
                encode::sasl_initial_response(output, name.as_bytes(), Some(&message));
                Ok(Self::Challenge(client))
            }
            (Self::Challenge(client), Authentication::SaslContinue(data)) => {
                let (client, message) = client.challenge(data)?;
                encode::sasl_response(output, &message);
                Ok(Self::Final(client))
            }
            (Self::Final(client), Authentication::SaslFinal(data)) => client.finish(data).map(|()| Self::Ok),
            (Self::Request, Authentication::Unsupported(code)) => {
                Err(LoginError::UnsupportedMethod(code.to_string().into()))
            }
            (state, _) => Err(unexpected(state.expected(), tag::AUTHENTICATION)),
        }
    }

    const fn expected(&self) -> &'static str {
        match self {
            Self::Request => "an authentication request",
            Self::Challenge(_) => "AuthenticationSASLContinue",
            Self::Final(_) => "AuthenticationSASLFinal",
            Self::Ok => "AuthenticationOk",
            Self::Ready => "ReadyForQuery",
        }
    }
}

// === impl Credentials ===

impl Credentials {
    fn password(&self) -> Result<&[u8], LoginError> {
        match &self.secret {
            Secret::Password(password) => Ok(password),
            // Keys prove nothing to a server that asks for the password itself or its MD5 hash.
            Secret::None | Secret::ScramKeys(..) => Err(LoginError::PasswordRequired),
        }
    }
}

// === impl ScramClient ===

impl ScramClient {
    fn start(secret: &Secret, binding: Binding) -> Result<(Self, Vec<u8>), LoginError> {
        match secret {
            Secret::None => Err(LoginError::PasswordRequired),
            Secret::Password(password) => {
                let binding = match binding {
                    Binding::Unsupported => ChannelBinding::unsupported(),
                    Binding::NotOffered => ChannelBinding::unrequested(),
                    Binding::EndPoint(hash) => ChannelBinding::tls_server_end_point(hash.into()),
                };
                let scram = ScramSha256::new(password, binding);
                let message = scram.message().to_vec();
                Ok((Self::Password(Box::new(scram)), message))
            }
            Secret::ScramKeys(keys, nonce) => {
                let (client, message) = AwaitServerFirst::start(keys.clone(), *nonce, binding);
                Ok((Self::Keys(Box::new(client)), message.into_bytes()))
            }
        }
    }

    fn challenge(self, data: &[u8]) -> Result<(ScramFinal, Vec<u8>), LoginError> {
        match self {
            Self::Password(mut scram) => {
                scram.update(data).map_err(LoginError::Password)?;
                let message = scram.message().to_vec();
                Ok((ScramFinal::Password(scram), message))
            }
            Self::Keys(client) => {
                let (client, message) = client.server_first(data)?;
                Ok((ScramFinal::Keys(client), message.into_bytes()))
            }
        }
    }
}

impl fmt::Debug for ScramClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScramClient")
    }
}

// === impl ScramFinal ===

impl ScramFinal {
    fn finish(self, data: &[u8]) -> Result<(), LoginError> {
        match self {
            Self::Password(mut scram) => scram.finish(data).map_err(LoginError::Password),
            Self::Keys(client) => client.server_final(data).map_err(LoginError::Keys),
        }
    }
}

impl fmt::Debug for ScramFinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScramFinal")
    }
}

// === impl Secret ===

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Password(_) => "Password",
            Self::ScramKeys(..) => "ScramKeys",
        })
    }
}

// === impl LoggedIn ===

impl LoggedIn {
    /// The value of the reported setting `name`.
    pub fn parameter(&self, name: &str) -> Option<&[u8]> {
        self.parameters.iter().find(|(known, _)| **known == *name.as_bytes()).map(|(_, value)| &**value)
    }
}

// === impl ErrorBody ===

impl ErrorBody {
    /// The body as it came.
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The fields in it.
    pub const fn fields(&self) -> ErrorFields<'_> {
        ErrorFields::checked(&self.0)
    }
}

impl fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fields();
        write!(f, "{} ({})", String::from_utf8_lossy(fields.message()), fields.code())
    }
}

impl fmt::Debug for ErrorBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ErrorBody({self})")
    }
}

const fn unexpected(expected: &'static str, got: u8) -> LoginError {
    LoginError::Unexpected { expected, got }
}

#[cfg(test)]
mod tests;
