//! SCRAM-SHA-256 as a client that has the keys and not the password.
//!
//! A client that has proved its password to a [`super::Exchange`] has revealed [`Keys`]; with them the proxy logs in
//! at every server which stores the same verifier.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq as _;

use super::{Binding, Keys, NONCE_LEN, ScramError, attribute, hmac, sha256, text};

/// An exchange that waits for the server's first message.
pub struct AwaitServerFirst {
    keys: Keys,
    nonce: String,
    binding: Binding,
}

/// An exchange that waits for the server's proof.
pub struct AwaitServerFinal {
    signature: [u8; 32],
}

// === impl AwaitServerFirst ===

impl AwaitServerFirst {
    /// An exchange with a fresh random `nonce`, and the client-first-message.
    pub fn start(keys: Keys, nonce: [u8; NONCE_LEN], binding: Binding) -> (Self, String) {
        let nonce = STANDARD.encode(nonce);
        let message = format!("{}n=,r={nonce}", binding.header());
        (Self { keys, nonce, binding }, message)
    }

    /// Takes the server-first-message; the answer is the client-final-message.
    ///
    /// # Errors
    ///
    /// When it is malformed or belongs to another exchange.
    pub fn server_first(self, message: &[u8]) -> Result<(AwaitServerFinal, String), ScramError> {
        let Self { keys, nonce, binding } = self;
        let message = text(message)?;
        // Salt and iterations would lead from the password to the keys, which are here already.
        let combined = attribute(&mut message.split(','), "r=")?;
        if combined.len() <= nonce.len() || !combined.starts_with(&nonce) {
            return Err(ScramError::Malformed("Nonce does not match."));
        }
        let without_proof = format!("c={},r={combined}", binding.attribute());
        let auth_message = format!("n=,r={nonce},{message},{without_proof}");
        let mut proof = hmac(&sha256(&[&keys.client_key]), &[auth_message.as_bytes()]);
        for (byte, mask) in proof.iter_mut().zip(keys.client_key) {
            *byte ^= mask;
        }
        let signature = hmac(&keys.server_key, &[auth_message.as_bytes()]);
        Ok((AwaitServerFinal { signature }, format!("{without_proof},p={}", STANDARD.encode(proof))))
    }
}

impl fmt::Debug for AwaitServerFirst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwaitServerFirst").finish_non_exhaustive()
    }
}

// === impl AwaitServerFinal ===

impl AwaitServerFinal {
    /// Takes the server-final-message and checks that the server knows the verifier.
    ///
    /// # Errors
    ///
    /// When it is malformed or wrong.
    pub fn server_final(self, message: &[u8]) -> Result<(), ScramError> {
        let proof = attribute(&mut text(message)?.split(','), "v=")?;
        let proof =
            STANDARD.decode(proof).map_err(|_| ScramError::Malformed("Malformed server signature."))?;
        if bool::from(proof.ct_eq(&self.signature)) { Ok(()) } else { Err(ScramError::WrongProof) }
    }
}

impl fmt::Debug for AwaitServerFinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwaitServerFinal").finish_non_exhaustive()
    }
}
