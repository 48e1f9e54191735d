//! SCRAM-SHA-256 as a server does it.
//!
//! RFC 5802 and RFC 7677, with PostgreSQL's reading of them (`src/backend/libpq/auth-scram.c`): the user name in the
//! exchange is ignored, since the start-up message has named the user. Randomness comes from the caller.

use std::fmt;
use std::str;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use crate::report::ErrorReport;
use crate::sqlstate::SqlState;

pub mod client;

/// The mechanism's name.
pub const MECHANISM: &str = "SCRAM-SHA-256";
/// The name of the same, bound to a TLS session.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";
/// Random bytes in a server's nonce.
pub const NONCE_LEN: usize = 18;
/// Rounds of hashing in verifiers made here, as in PostgreSQL.
pub const DEFAULT_ITERATIONS: u32 = 4096;

const SALT_LEN: usize = 16;
/// The most rounds [`Verifier::parse`] takes: a client would have to compute them all.
const MAX_ITERATIONS: u32 = 10_000_000;

/// A key of SCRAM-SHA-256.
pub type Key = [u8; 32];

/// What a server stores about a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    iterations: u32,
    salt: Box<[u8]>,
    stored_key: Key,
    server_key: Key,
}

/// What it takes to log in as a client, without the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// Proves knowledge of the password to a server.
    pub client_key: Key,
    /// Proves the server's knowledge of the verifier.
    pub server_key: Key,
}

/// What a client says about binding the exchange to a TLS session (RFC 5802, section 6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// It can't.
    Unsupported,
    /// It could, but the server does not offer it. A server that does knows then that somebody is in the middle.
    NotOffered,
    /// By the hash of the server's certificate (`tls-server-end-point`).
    EndPoint(Box<[u8]>),
}

/// The text is no verifier of SCRAM-SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a SCRAM-SHA-256 verifier")]
pub struct VerifierError;

/// An exchange that waits for the client's first message.
#[derive(Debug)]
pub struct Exchange {
    verifier: Verifier,
    nonce: [u8; NONCE_LEN],
    known_user: bool,
    offered: Offer,
}

/// What a client that does TLS is offered to bind its exchange to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Offer {
    /// Nothing: there is no TLS, or no hash of the certificate.
    #[default]
    Nothing,
    /// The hash of the server's certificate, and the client has not chosen yet.
    EndPoint(Box<[u8]>),
    /// The same, and the client has chosen the mechanism that binds to it.
    Chosen(Box<[u8]>),
}

/// An exchange that waits for the client's proof.
#[derive(Debug)]
pub struct AwaitProof {
    verifier: Verifier,
    known_user: bool,
    binding: Binding,
    client_first_bare: String,
    server_first: String,
    nonce: String,
}

/// The client has proved that it knows the password.
#[derive(Debug, PartialEq, Eq)]
pub struct Verified {
    /// What proves to the client that the server knows the verifier.
    pub server_final: String,
    /// What the exchange has revealed: enough to log in elsewhere with the same verifier.
    pub keys: Keys,
}

/// The exchange has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// A message is not what the RFC says.
    #[error("malformed SCRAM message")]
    Malformed(&'static str),
    /// The client asks for what is not offered.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The client says that binding was not offered to it, which it was.
    #[error("SCRAM channel binding negotiation error")]
    Downgrade,
    /// The client is bound to another session than this: somebody is in the middle.
    #[error("SCRAM channel binding check failed")]
    Binding,
    /// The proof is wrong, or the user is not known: the two look alike.
    #[error("wrong password")]
    WrongProof,
}

// === impl Verifier ===

impl Verifier {
    /// The verifier in PostgreSQL's form, `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`.
    ///
    /// # Errors
    ///
    /// When it has another form.
    pub fn parse(text: &str) -> Result<Self, VerifierError> {
        Self::try_parse(text).ok_or(VerifierError)
    }

    /// The verifier of `password`, which goes through `SASLprep` unless it is not fit for that: then, as in
    /// PostgreSQL, its bytes count. Takes as long as `iterations` hashes.
    pub fn derive(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let salted = salted_password(&prepare(password), salt, iterations);
        let client_key = hmac(&salted, &[b"Client Key"]);
        Self {
            iterations,
            salt: salt.into(),
            stored_key: sha256(&[&client_key]),
            server_key: hmac(&salted, &[b"Server Key"]),
        }
    }

    /// A verifier for a user that does not exist: the same at every attempt with the same `secret`, so that the
    /// answer does not tell the user from others. No password fits it; pass `known_user: false` along anyway.
    pub fn mock(secret: &[u8], user: &str) -> Self {
        let user = user.as_bytes();
        let salt = hmac(secret, &[b"salt", user]);
        Self {
            iterations: DEFAULT_ITERATIONS,
            salt: salt.iter().take(SALT_LEN).copied().collect(),
            stored_key: hmac(secret, &[b"stored key", user]),
            server_key: hmac(secret, &[b"server key", user]),
        }
    }

    /// Whether `password` is the one of this verifier. Takes as long as the verifier's iterations.
    pub fn matches(&self, password: &[u8]) -> bool {
        let other = Self::derive(password, &self.salt, self.iterations);
        self.stored_key.ct_eq(&other.stored_key).into()
    }

    fn try_parse(text: &str) -> Option<Self> {
        let (parameters, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let iterations =
            iterations.parse().ok().filter(|iterations| (1..=MAX_ITERATIONS).contains(iterations))?;
        let key = |text: &str| Key::try_from(STANDARD.decode(text).ok()?).ok();
        Some(Self {
            iterations,
            salt: STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty())?.into(),
            stored_key: key(stored_key)?,
            server_key: key(server_key)?,
        })
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encode = |bytes: &[u8]| STANDARD.encode(bytes);
        let (salt, stored, server) = (encode(&self.salt), encode(&self.stored_key), encode(&self.server_key));
        write!(f, "{MECHANISM}${}:{salt}${stored}:{server}", self.iterations)
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

// === impl Binding ===

impl Binding {
    /// The header of the client-first-message.
    const fn header(&self) -> &'static str {
        match self {
            Self::Unsupported => "n,,",
            Self::NotOffered => "y,,",
            Self::EndPoint(_) => "p=tls-server-end-point,,",
        }
    }

    /// The attribute `c` of the client-final-message: the header again, and what the exchange is bound to.
    fn attribute(&self) -> String {
        let mut bound = self.header().as_bytes().to_vec();
        if let Self::EndPoint(hash) = self {
            bound.extend_from_slice(hash);
        }
        STANDARD.encode(bound)
    }
}

// === impl Offer ===

impl Offer {
    /// What the client's flag means for the mechanism it has chosen (`read_client_first_message` in
    /// `src/backend/libpq/auth-scram.c`).
    fn judge(&self, flag: &str) -> Result<Binding, ScramError> {
        match (self, flag) {
            (Self::Chosen(hash), "p=tls-server-end-point") => Ok(Binding::EndPoint(hash.clone())),
            (Self::Chosen(_), _) if flag.starts_with("p=") => {
                Err(ScramError::Unsupported("unsupported SCRAM channel-binding type"))
            }
            (Self::Chosen(_), "n" | "y") => Err(ScramError::Malformed(
                "The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding data.",
            )),
            (_, "n") => Ok(Binding::Unsupported),
            (Self::Nothing, "y") => Ok(Binding::NotOffered),
            // It was offered: somebody in the middle has taken it from the list.
            (Self::EndPoint(_), "y") => Err(ScramError::Downgrade),
            _ if flag.starts_with("p=") => Err(ScramError::Malformed(
                "The client selected SCRAM-SHA-256 without channel binding, \
                 but the SCRAM message includes channel binding data.",
            )),
            _ => Err(ScramError::Malformed("Unexpected channel-binding flag.")),
        }
    }
}

// === impl Exchange ===

impl Exchange {
    /// An exchange about `verifier`, with a fresh random `nonce`. With `known_user` false it takes the same course
    /// and fails at its end, whatever the proof.
    pub const fn new(verifier: Verifier, nonce: [u8; NONCE_LEN], known_user: bool) -> Self {
        Self { verifier, nonce, known_user, offered: Offer::Nothing }
    }

    /// The same, in a TLS session in whose server's certificate has this hash.
    #[must_use]
    pub fn with_end_point(mut self, hash: Option<Box<[u8]>>) -> Self {
        self.offered = hash.map_or(Offer::Nothing, Offer::EndPoint);
        self
    }

    /// The mechanisms that are offered, the best first.
    pub const fn mechanisms(&self) -> &'static [&'static [u8]] {
        const BOTH: &[&[u8]] = &[MECHANISM_PLUS.as_bytes(), MECHANISM.as_bytes()];
        const PLAIN: &[&[u8]] = &[MECHANISM.as_bytes()];
        match self.offered {
            Offer::Nothing => PLAIN,
            Offer::EndPoint(_) | Offer::Chosen(_) => BOTH,
        }
    }

    /// Takes the client's choice of a mechanism; `None` if that was not offered.
    pub fn choose(mut self, mechanism: &[u8]) -> Option<Self> {
        if !self.mechanisms().contains(&mechanism) {
            return None;
        }
        if mechanism == MECHANISM_PLUS.as_bytes()
            && let Offer::EndPoint(hash) = self.offered
        {
            self.offered = Offer::Chosen(hash);
        }
        Some(self)
    }

    /// Takes the client-first-message; the answer is the server-first-message.
    ///
    /// # Errors
    ///
    /// When it is malformed, binds to something else than was offered, or asks for an authorization identity or an
    /// extension.
    pub fn client_first(self, message: &[u8]) -> Result<(AwaitProof, String), ScramError> {
        let message = text(message)?;
        let (flag, rest) =
            message.split_once(',').ok_or(ScramError::Malformed("The message has no header."))?;
        let (identity, bare) =
            rest.split_once(',').ok_or(ScramError::Malformed("The message has no header."))?;
        let binding = self.offered.judge(flag)?;
        if !identity.is_empty() {
            return Err(ScramError::Unsupported(
                "client uses authorization identity, but it is not supported",
            ));
        }
        if bare.starts_with("m=") {
            return Err(ScramError::Unsupported("client requires an unsupported SCRAM extension"));
        }
        let mut attributes = bare.split(',');
        attribute(&mut attributes, "n=")?;
        let client_nonce = attribute(&mut attributes, "r=")?;
        if client_nonce.is_empty() || !client_nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ScramError::Malformed("Non-printable characters in SCRAM nonce."));
        }

        let Self { verifier, nonce, known_user, .. } = self;
        let nonce = format!("{client_nonce}{}", STANDARD.encode(nonce));
        let server_first =
            format!("r={nonce},s={},i={}", STANDARD.encode(&verifier.salt), verifier.iterations);
        let client_first_bare = bare.to_owned();
        let answer = server_first.clone();
        let next = AwaitProof { verifier, known_user, binding, client_first_bare, server_first, nonce };
        Ok((next, answer))
    }
}

// === impl AwaitProof ===

impl AwaitProof {
    /// Takes the client-final-message and checks its proof, in a time that does not depend on how wrong it is.
    ///
    /// # Errors
    ///
    /// [`ScramError::WrongProof`] when the password is wrong or the user not known; another one when the message
    /// is malformed or belongs to another exchange.
    pub fn client_final(self, message: &[u8]) -> Result<Verified, ScramError> {
        let message = text(message)?;
        // The proof is the last attribute, and base64 has no comma.
        let (without_proof, proof) =
            message.rsplit_once(",p=").ok_or(ScramError::Malformed("The message has no proof."))?;
        let mut attributes = without_proof.split(',');
        if attribute(&mut attributes, "c=")? != self.binding.attribute() {
            return Err(match self.binding {
                Binding::EndPoint(_) => ScramError::Binding,
                _ => ScramError::Malformed("Unexpected SCRAM channel-binding attribute."),
            });
        }
        if attribute(&mut attributes, "r=")? != self.nonce {
            return Err(ScramError::Malformed("Nonce does not match."));
        }
        let mut client_key: Key = STANDARD
            .decode(proof)
            .ok()
            .and_then(|proof| proof.try_into().ok())
            .ok_or(ScramError::Malformed("Malformed proof in client-final-message."))?;

        let Self { verifier, known_user, client_first_bare, server_first, .. } = self;
        let auth_message = format!("{client_first_bare},{server_first},{without_proof}");
        let signature = hmac(&verifier.stored_key, &[auth_message.as_bytes()]);
        for (byte, mask) in client_key.iter_mut().zip(signature) {
            *byte ^= mask;
        }
        let proven = sha256(&[&client_key]).ct_eq(&verifier.stored_key) & Choice::from(u8::from(known_user));
        if !bool::from(proven) {
            return Err(ScramError::WrongProof);
        }
        let server_signature = hmac(&verifier.server_key, &[auth_message.as_bytes()]);
        Ok(Verified {
            server_final: format!("v={}", STANDARD.encode(server_signature)),
            keys: Keys { client_key, server_key: verifier.server_key },
        })
    }
}

// === impl ScramError ===

impl ScramError {
    /// What PostgreSQL tells the client; for [`Self::WrongProof`] the user's name is in the message.
    pub fn report(&self, user: &str) -> ErrorReport {
        match self {
            Self::Malformed(detail) => {
                ErrorReport::fatal(SqlState::PROTOCOL_VIOLATION, "malformed SCRAM message")
                    .with_detail(*detail)
            }
            Self::Downgrade => ErrorReport::fatal(SqlState::INVALID_AUTHORIZATION, self.to_string())
                .with_detail(
                    "The client supports SCRAM channel binding but thinks the server does not. \
                 However, this server does support channel binding.",
                ),
            Self::Binding => ErrorReport::fatal(SqlState::INVALID_AUTHORIZATION, self.to_string()),
            Self::Unsupported(message) => ErrorReport::fatal(SqlState::FEATURE_NOT_SUPPORTED, *message),
            Self::WrongProof => ErrorReport::fatal(
                SqlState::INVALID_PASSWORD,
                format!("password authentication failed for user \"{user}\""),
            ),
        }
    }
}

// === private ===

fn text(message: &[u8]) -> Result<&str, ScramError> {
    let text = str::from_utf8(message).map_err(|_| ScramError::Malformed("The message is not UTF-8."))?;
    if text.contains('\0') {
        return Err(ScramError::Malformed("Message length does not match input length."));
    }
    Ok(text)
}

fn attribute<'a>(
    attributes: &mut impl Iterator<Item = &'a str>,
    name: &'static str,
) -> Result<&'a str, ScramError> {
    attributes
        .next()
        .and_then(|attribute| attribute.strip_prefix(name))
        .ok_or(ScramError::Malformed("Expected attribute not found."))
}

fn prepare(password: &[u8]) -> Vec<u8> {
    str::from_utf8(password)
        .ok()
        .and_then(|password| stringprep::saslprep(password).ok())
        .map_or_else(|| password.to_vec(), |prepared| prepared.into_owned().into_bytes())
}

/// `Hi` of RFC 5802: PBKDF2 with HMAC-SHA-256 and one block of output.
fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> Key {
    let keyed = keyed(password);
    let round = |parts: &[&[u8]]| -> Key { keyed_hash(keyed.clone(), parts) };
    let mut previous = round(&[salt, &1_u32.to_be_bytes()]);
    let mut salted = previous;
    for _ in 1..iterations {
        previous = round(&[&previous]);
        for (byte, mask) in salted.iter_mut().zip(previous) {
            *byte ^= mask;
        }
    }
    salted
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> Key {
    keyed_hash(keyed(key), parts)
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    // RFC 2104: a key longer than a block is hashed, a shorter one padded with zeros. Done here, it can't fail.
    let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
    let hashed;
    let key = if key.len() > block.len() {
        hashed = sha256(&[key]);
        &hashed
    } else {
        key
    };
    for (slot, byte) in block.iter_mut().zip(key) {
        *slot = *byte;
    }
    Hmac::new(&block)
}

fn keyed_hash(mut mac: Hmac<Sha256>, parts: &[&[u8]]) -> Key {
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn sha256(parts: &[&[u8]]) -> Key {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests;
