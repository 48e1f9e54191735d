//! The few fields of a certificate that the TLS library keeps to itself (RFC 5280, section 4.1).
//!
//! The certificates come from the other side: nothing here trusts a length or a text in them.

use std::time::Duration;

use sha2::{Digest as _, Sha224, Sha256, Sha384, Sha512};

const INTEGER: u8 = 0x02;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// `[0]`, as something that holds elements: the version, and the hash among the parameters of RSASSA-PSS.
const FIRST: u8 = 0xA0;

/// 2.5.4.3, `id-at-commonName`.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// From when to when a certificate is valid, since the epoch of Unix. Times before that are that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first moment.
    pub not_before: Duration,
    /// The last.
    pub not_after: Duration,
}

/// A hash of the SHA-2 family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// The rest of a sequence of DER's elements.
struct Elements<'a>(&'a [u8]);

/// The parts that are looked at.
struct Certificate<'a> {
    validity: &'a [u8],
    subject: &'a [u8],
    /// Of the signature: an algorithm's name, and its parameters.
    algorithm: &'a [u8],
}

/// From when to when `certificate` (DER) is valid; `None` if it is none.
pub fn validity(certificate: &[u8]) -> Option<Validity> {
    let mut times = Elements(Certificate::parse(certificate)?.validity);
    Some(Validity { not_before: times.time()?, not_after: times.time()? })
}

/// The first common name of the subject of `certificate` (DER). `None` if it has none, or one that is not text: a zero
/// byte in it has been used to pass for somebody else.
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let mut names = Elements(Certificate::parse(certificate)?.subject);
    while let Some(relative) = names.take(SET) {
        let mut attributes = Elements(relative);
        while let Some(attribute) = attributes.take(SEQUENCE) {
            let mut parts = Elements(attribute);
            if parts.take(OBJECT_IDENTIFIER)? == COMMON_NAME {
                let (kind, value) = parts.next()?;
                return text(kind, value);
            }
        }
    }
    None
}

/// The hash of `certificate` (DER) by the function of its signature, but SHA-256 for MD5 and SHA-1 (RFC 5929, section
/// 4.1); `None` where the signature has no one hash (Ed25519), for which no binding is defined.
pub fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let mut algorithm = Elements(Certificate::parse(certificate)?.algorithm);
    let name = algorithm.take(OBJECT_IDENTIFIER)?;
    let hash = signature_hash(name, algorithm.next().map(|(_, parameters)| parameters))?;
    Some(match hash {
        Hash::Sha224 => Sha224::digest(certificate).to_vec(),
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

fn signature_hash(algorithm: &[u8], parameters: Option<&[u8]>) -> Option<Hash> {
    // 1.2.840.113549.1.1, PKCS #1.
    if let Some([kind]) = algorithm.strip_prefix(&[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01]) {
        return match kind {
            // MD5 and SHA-1, too weak for this.
            4 | 5 | 11 => Some(Hash::Sha256),
            10 => pss_hash(parameters?),
            12 => Some(Hash::Sha384),
            13 => Some(Hash::Sha512),
            14 => Some(Hash::Sha224),
            _ => None,
        };
    }
    // 1.2.840.10045.4, ECDSA.
    match algorithm.strip_prefix(&[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04])? {
        [3, 1] => Some(Hash::Sha224),
        [1] | [3, 2] => Some(Hash::Sha256),
        [3, 3] => Some(Hash::Sha384),
        [3, 4] => Some(Hash::Sha512),
        _ => None,
    }
}

/// Without a word it is SHA-1 (RFC 4055, section 3.1), which counts as SHA-256.
fn pss_hash(parameters: &[u8]) -> Option<Hash> {
    let Some(hash) = Elements(parameters).take(FIRST) else { return Some(Hash::Sha256) };
    let name = Elements(Elements(hash).take(SEQUENCE)?).take(OBJECT_IDENTIFIER)?;
    // 2.16.840.1.101.3.4.2.
    match name.strip_prefix(&[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02])? {
        [1] => Some(Hash::Sha256),
        [2] => Some(Hash::Sha384),
        [3] => Some(Hash::Sha512),
        [4] => Some(Hash::Sha224),
        _ => None,
    }
}

/// The text of a `DirectoryString`.
fn text(kind: u8, value: &[u8]) -> Option<String> {
    let text = match kind {
        // UTF8String, NumericString, PrintableString, IA5String.
        0x0C | 0x12 | 0x13 | 0x16 => str::from_utf8(value).ok()?.to_owned(),
        // TeletexString, taken for ISO 8859-1 as everybody does.
        0x14 => value.iter().copied().map(char::from).collect(),
        // BMPString.
        0x1E => {
            let (units, rest) = value.as_chunks::<2>();
            let units: Vec<u16> = units.iter().copied().map(u16::from_be_bytes).collect();
            String::from_utf16(&units).ok().filter(|_| rest.is_empty())?
        }
        _ => return None,
    };
    (!text.contains('\0')).then_some(text)
}

// === impl Certificate ===

impl<'a> Certificate<'a> {
    fn parse(der: &'a [u8]) -> Option<Self> {
        let mut outer = Elements(Elements(der).take(SEQUENCE)?);
        let mut inner = Elements(outer.take(SEQUENCE)?);
        inner.take(FIRST);
        inner.take(INTEGER)?;
        let _signature = inner.take(SEQUENCE)?;
        let _issuer = inner.take(SEQUENCE)?;
        let validity = inner.take(SEQUENCE)?;
        let subject = inner.take(SEQUENCE)?;
        Some(Self { validity, subject, algorithm: outer.take(SEQUENCE)? })
    }
}

// === impl Elements ===

impl<'a> Elements<'a> {
    /// The content of the next element if it is of this kind; it stays otherwise.
    fn take(&mut self, kind: u8) -> Option<&'a [u8]> {
        if self.0.first() != Some(&kind) {
            return None;
        }
        self.next().map(|(_, content)| content)
    }

    /// The kind of the next element, and its content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&kind, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7F => (usize::from(first), rest),
            // Four bytes are more than any certificate has.
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
                let length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((kind, content))
    }

    /// A `Time`.
    fn time(&mut self) -> Option<Duration> {
        let (kind, text) = self.next()?;
        let (year, rest) = match kind {
            // Two digits: 1950 to 2049.
            UTC_TIME => {
                let (year, rest) = text.split_at_checked(2)?;
                let year = number(year)?;
                (year + if year < 50 { 2000 } else { 1900 }, rest)
            }
            GENERALIZED_TIME => {
                let (year, rest) = text.split_at_checked(4)?;
                (number(year)?, rest)
            }
            _ => return None,
        };
        let (digits, _) = rest.strip_suffix(b"Z")?.as_chunks::<2>();
        let [month, day, hour, minute, second] = digits else { return None };
        let seconds = (number(hour)? * 60 + number(minute)?) * 60 + number(second)?;
        let days = days(year, number(month)?, number(day)?)?;
        Some(Duration::from_secs(u64::try_from(days * 86_400 + seconds).unwrap_or(0)))
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    let all = digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits).ok().filter(|_| all)?.parse().ok()
}

/// Days since 1970-01-01, by the calendar's 400 years of 146,097 days, each year taken to begin in March.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month < 3 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

#[cfg(test)]
mod tests;
