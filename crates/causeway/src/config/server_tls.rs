//! The sections `server_tls`: how connections to the nodes are encrypted, and whom to believe there.

use causeway_tls::{
    Authorities, CertificateChain, CertificateError, ClientOptions, Mode, PrivateKey, Revocations, TlsClient,
};
use serde::Deserialize;

use super::problem::KeyPath;
use super::scalars::Word;
use super::tls::{private, read};
use super::validate::Validation;

/// What the section holds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a map with the mode and the ca_file of TLS")]
pub(super) struct ServerTls {
    mode: Option<ModeName>,
    ca_file: Option<Word>,
    crl_file: Option<Word>,
    cert_file: Option<Word>,
    key_file: Option<Word>,
    channel_binding: Option<BindingName>,
}

/// libpq's `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ModeName {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// libpq's `channel_binding`, less `disable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BindingName {
    Prefer,
    Require,
}

impl Validation<'_> {
    /// What the section means: `None` for no TLS, and after a mistake in it.
    pub(super) fn server_tls(&mut self, section: &ServerTls, path: &KeyPath) -> Option<TlsClient> {
        let mode = match section.mode.unwrap_or(ModeName::VerifyFull) {
            ModeName::Disable => return None,
            ModeName::Allow => Mode::Allow,
            ModeName::Prefer => Mode::Prefer,
            ModeName::Require => Mode::Require,
            ModeName::VerifyCa => Mode::VerifyCa,
            ModeName::VerifyFull => Mode::VerifyFull,
        };
        if matches!(mode, Mode::VerifyCa | Mode::VerifyFull) && section.ca_file.is_none() {
            let message =
                format!("the key `ca_file` is missing: {} needs to know whom to believe", mode.as_str());
            self.refuse(path.clone(), message);
            return None;
        }
        let require_binding = section.channel_binding == Some(BindingName::Require);
        if require_binding && matches!(mode, Mode::Allow | Mode::Prefer) {
            let message = format!("cannot be had with `mode: {}`, which does without TLS", mode.as_str());
            self.refuse(path.key("channel_binding"), message);
        }
        if section.crl_file.is_some() && section.ca_file.is_none() {
            self.refuse(path.key("crl_file"), "means nothing without `ca_file`");
        }
        let authorities = self.pem(section.ca_file.as_ref(), &path.key("ca_file"), Authorities::from_pem);
        let revocations = self.pem(section.crl_file.as_ref(), &path.key("crl_file"), Revocations::from_pem);
        let identity = match (&section.cert_file, &section.key_file) {
            (None, None) => None,
            (Some(cert_file), Some(key_file)) => {
                let chain = self.pem(Some(cert_file), &path.key("cert_file"), CertificateChain::from_pem);
                let key = self.key(key_file, &path.key("key_file"));
                Some((chain?, key?))
            }
            _ => {
                self.refuse(path.clone(), "`cert_file` and `key_file` belong together: expected both");
                return None;
            }
        };
        let options = ClientOptions { mode, authorities, revocations, identity, require_binding };
        match TlsClient::new(options) {
            Ok(client) => Some(client),
            // A file that could not be read has been reported.
            Err(CertificateError::NoCertificate) => None,
            Err(error) => {
                self.refuse(path.key("cert_file"), error.to_string());
                None
            }
        }
    }

    /// What a PEM file holds; `None` after a mistake.
    pub(super) fn pem<T>(
        &mut self,
        file: Option<&Word>,
        path: &KeyPath,
        parse: impl FnOnce(&[u8]) -> Result<T, CertificateError>,
    ) -> Option<T> {
        let file = &file?.0;
        let text = read(&self.directory.join(file), |_| Ok(()));
        match text.and_then(|text| parse(&text).map_err(|error| error.to_string())) {
            Ok(parsed) => Some(parsed),
            Err(message) => {
                self.refuse(path.clone(), format!("{file}: {message}"));
                None
            }
        }
    }

    /// A private key that nobody else may read; `None` after a mistake.
    pub(super) fn key(&mut self, file: &Word, path: &KeyPath) -> Option<PrivateKey> {
        let text = read(&self.directory.join(&file.0), private);
        match text.and_then(|text| PrivateKey::from_pem(&text).map_err(|error| error.to_string())) {
            Ok(key) => Some(key),
            Err(message) => {
                self.refuse(path.clone(), format!("{}: {message}", file.0));
                None
            }
        }
    }
}
