//! The files of the section `tls`: certificates, and a key that nobody else may read.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use causeway_tls::{CertificateChain, CertificateError, TlsServer};

use super::model::{Tls, TlsMode};
use super::problem::KeyPath;
use super::raw;
use super::validate::Validation;

/// The longest file read: chains have a few kilobytes.
const MAX_BYTES: u64 = 1024 * 1024;

const ROOT: u32 = 0;

impl Validation<'_> {
    /// What the section means; `None` after a mistake in it, too.
    pub(super) fn tls(&mut self, tls: &raw::Tls) -> Option<Tls> {
        let path = KeyPath::default().key("tls");
        let (cert_file, key_file) = (&tls.cert_file.0, &tls.key_file.0);
        let chain = self.pem(Some(&tls.cert_file), &path.key("cert_file"), CertificateChain::from_pem);
        let key = self.key(&tls.key_file, &path.key("key_file"));
        match TlsServer::new(chain?, key?) {
            Ok(server) => Some(Tls { mode: tls.mode.unwrap_or(TlsMode::Allow), server }),
            Err(error @ CertificateError::Mismatch) => {
                self.refuse(path.key("key_file"), format!("{key_file}: {error} ({cert_file})"));
                None
            }
            Err(error) => {
                self.refuse(path.key("cert_file"), format!("{cert_file}: {error}"));
                None
            }
        }
    }
}

/// The whole of a file that `check` finds good once it is open.
pub(super) fn read(
    path: &Path,
    check: impl FnOnce(&Metadata) -> Result<(), String>,
) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("not a regular file".to_owned());
    }
    check(&metadata)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > MAX_BYTES) {
        return Err(format!("more than {MAX_BYTES} bytes are too long for a certificate or key"));
    }
    Ok(bytes)
}

/// As `check_ssl_key_file_permissions` (`src/backend/libpq/be-secure-common.c`): the key is the process user's alone, or
/// root's and readable by a group.
pub(super) fn private(file: &Metadata) -> Result<(), String> {
    let (owner, ours) = (file.uid(), rustix::process::geteuid().as_raw());
    let mode = file.mode() & 0o777;
    if owner != ours && owner != ROOT {
        return Err(format!(
            "the private key belongs to the user with id {owner}: it must be owned by root or by the user that runs \
             Causeway (id {ours})"
        ));
    }
    let allowed = if owner == ROOT { 0o640 } else { 0o600 };
    if mode & !(allowed | 0o100) == 0 {
        return Ok(());
    }
    Err(format!(
        "the private key has mode {mode:04o}: others could read it; run `chmod {allowed:04o}` on it (0600 or less, or \
         0640 or less if root owns it)"
    ))
}
