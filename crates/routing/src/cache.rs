//! Classes already found, by text and by fingerprint.

mod front;
mod text;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::class::Class;
use crate::classify::{Limits, classify, classify_foreign};
use crate::fingerprint::{Fingerprint, Key, folded, kept, skeleton};
use crate::lexer::{Lexer, TokenKind};
use crate::reason::Reason;

use front::Front;
use text::TextHash;

/// The settings of a session that decide how its text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntaxOptions {
    /// `standard_conforming_strings`: when off, a backslash in any string escapes.
    pub standard_conforming_strings: bool,
    /// `client_encoding` is UTF8. In all others names would have to be converted before they mean anything.
    pub utf8: bool,
    /// In SJIS, BIG5, GBK and their like a byte that looks like ASCII may be half of a character.
    pub ascii_inside: bool,
}

/// How much a [`StatementCache`] may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Classes.
    pub entries: usize,
    /// Bytes, roughly.
    pub bytes: usize,
}

/// Classes already found: bounded, for one thread.
///
/// They are known by the fingerprint of their texts. What was used since the hand last passed stays (second chance), so that
/// a stream of statements seen once does not drive out those seen often. Finding a fingerprint takes reading the text token by
/// token; in front of that are two tables that take less. They hold what was seen again lately: texts of which every byte is
/// the same, and texts that differ in their constants alone.
pub struct StatementCache {
    limits: CacheLimits,
    parse: Limits,
    key: Key,
    texts: Front<Box<[u8]>>,
    skeletons: Front<Fingerprint>,
    text_hash: TextHash,
    entries: Vec<Entry>,
    places: HashMap<Fingerprint, usize, BuildHasherDefault<FingerprintHasher>>,
    hand: usize,
    bytes: usize,
    hits: u64,
    misses: u64,
    unjudged: Arc<Class>,
}

/// A text whose class is not in a cache: to be parsed, without the cache, and to be given to it then.
#[derive(Debug)]
pub struct Unknown {
    parse: Limits,
    name: Name,
}

/// A class that was not in the cache.
#[derive(Debug)]
pub struct Parsed {
    class: Arc<Class>,
    fingerprint: Option<Fingerprint>,
}

/// What a cache knows a text by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    /// Nothing: it is too long.
    None,
    /// Nothing: its names are in another encoding, in which ASCII is what it seems.
    Foreign,
    /// The fingerprint without literals.
    Folded(Fingerprint),
    /// The fingerprint with them.
    Kept(Fingerprint),
}

struct Entry {
    fingerprint: Fingerprint,
    class: Arc<Class>,
    bytes: usize,
    used: bool,
}

/// The longest text that is kept as it is.
const LONGEST_TEXT: usize = 2048;

/// A fingerprint is a keyed hash already.
#[derive(Default)]
struct FingerprintHasher(u64);

// === impl SyntaxOptions ===

impl Default for SyntaxOptions {
    fn default() -> Self {
        Self { standard_conforming_strings: true, utf8: true, ascii_inside: false }
    }
}

impl SyntaxOptions {
    /// Whether a text of this session means what the lexer takes it to mean.
    pub fn judges(self, sql: &[u8]) -> bool {
        self.standard_conforming_strings && (self.utf8 || sql.is_ascii())
    }
}

// === impl CacheLimits ===

impl Default for CacheLimits {
    fn default() -> Self {
        Self { entries: 4096, bytes: 8 << 20 }
    }
}

// === impl StatementCache ===

impl StatementCache {
    /// An empty cache; `key` must be a secret of this process.
    pub fn new(limits: CacheLimits, parse: Limits, key: Key) -> Self {
        // The tables in front have an eighth of the bytes each.
        let front = limits.bytes / 8;
        Self {
            limits: CacheLimits { bytes: limits.bytes - 2 * front, ..limits },
            parse,
            texts: Front::new(limits.entries / 4, front),
            skeletons: Front::new(limits.entries / 4, front),
            text_hash: TextHash::new(&key),
            key,
            entries: Vec::new(),
            places: HashMap::default(),
            hand: 0,
            bytes: 0,
            hits: 0,
            misses: 0,
            // What it leaves in the session cannot be told either.
            unjudged: Arc::new(Class::unknown(Reason::Encoding)),
        }
    }

    /// The class of a text, parsed only if no text of this fingerprint was seen lately.
    pub fn classify(&mut self, sql: &[u8], options: SyntaxOptions) -> Arc<Class> {
        match self.find(sql, options) {
            Ok(class) => class,
            Err(unknown) => self.add(unknown.parse(sql)),
        }
    }

    /// The class of a text, if it is known.
    ///
    /// # Errors
    ///
    /// When it has to be parsed: [`Unknown::parse`] takes a thousand times as long, and needs no cache, so that one behind a
    /// lock need not be held; then the outcome is [`added`](Self::add).
    #[inline]
    pub fn find(&mut self, sql: &[u8], options: SyntaxOptions) -> Result<Arc<Class>, Unknown> {
        if !options.judges(sql) {
            if options.standard_conforming_strings && !options.ascii_inside {
                return Err(Unknown { parse: self.parse, name: Name::Foreign });
            }
            return Ok(Arc::clone(&self.unjudged));
        }
        let hash = if sql.len() <= LONGEST_TEXT { self.text_hash.of(sql) } else { 0 };
        match self.texts.find(hash, |text| **text == *sql) {
            Some(class) => {
                self.hits += 1;
                Ok(Arc::clone(class))
            }
            None => self.find_by_tokens(sql, hash),
        }
    }

    /// Takes in a class that was not known, and gives it back.
    pub fn add(&mut self, parsed: Parsed) -> Arc<Class> {
        self.misses += 1;
        let Parsed { class, fingerprint } = parsed;
        // Somebody may have been faster.
        if let Some(fingerprint) = fingerprint.filter(|fingerprint| !self.places.contains_key(fingerprint)) {
            self.insert(fingerprint, &class);
        }
        class
    }

    /// What is not known by its text: each of the steps takes longer than the one before.
    #[inline(never)]
    fn find_by_tokens(&mut self, sql: &[u8], text: u64) -> Result<Arc<Class>, Unknown> {
        if sql.len() > self.parse.bytes {
            // Reading megabytes to find that they are too many would be a waste.
            return Err(Unknown { parse: self.parse, name: Name::None });
        }
        let skeleton = skeleton(sql, &self.key);
        if let Some(skeleton) = skeleton
            && let Some(class) = self.skeletons.find(skeleton.half(), |known| *known == skeleton)
        {
            self.hits += 1;
            let class = Arc::clone(class);
            self.offer_text(sql, text, &class);
            return Ok(class);
        }
        let name = match folded(sql, &self.key) {
            Some(fingerprint) => Name::Folded(fingerprint),
            None => Name::Kept(kept(sql, &self.key)),
        };
        let place = name.fingerprint().and_then(|fingerprint| self.places.get(&fingerprint));
        let Some(entry) = place.and_then(|place| self.entries.get_mut(*place)) else {
            return Err(Unknown { parse: self.parse, name });
        };
        self.hits += 1;
        entry.used = true;
        let class = Arc::clone(&entry.class);
        // A skeleton stands for all values of its constants.
        if let (Some(skeleton), Name::Folded(_)) = (skeleton, name) {
            self.skeletons.offer(skeleton.half(), 0, &class, || skeleton);
        }
        self.offer_text(sql, text, &class);
        Ok(class)
    }

    fn offer_text(&mut self, sql: &[u8], hash: u64, class: &Arc<Class>) {
        if sql.len() <= LONGEST_TEXT {
            self.texts.offer(hash, sql.len(), class, || sql.into());
        }
    }

    /// Statements found in the cache so far.
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// Statements parsed so far.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// Classes held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no class is held.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes held, roughly.
    pub fn bytes(&self) -> usize {
        self.bytes + self.texts.bytes() + self.skeletons.bytes()
    }

    fn insert(&mut self, fingerprint: Fingerprint, class: &Arc<Class>) {
        // What a map and a vector keep for an entry, besides the entry.
        const OVERHEAD: usize = size_of::<Entry>() + 2 * size_of::<(Fingerprint, usize)>();
        let bytes = class.bytes() + OVERHEAD;
        if bytes > self.limits.bytes || self.limits.entries == 0 {
            return;
        }
        while self.entries.len() >= self.limits.entries || self.bytes + bytes > self.limits.bytes {
            self.evict();
        }
        self.places.insert(fingerprint, self.entries.len());
        self.entries.push(Entry { fingerprint, class: Arc::clone(class), bytes, used: false });
        self.bytes += bytes;
    }

    /// Drops the first entry from the hand on that was not used since the hand passed it.
    fn evict(&mut self) {
        loop {
            if self.hand >= self.entries.len() {
                self.hand = 0;
            }
            match self.entries.get_mut(self.hand) {
                None => return,
                Some(entry) if entry.used => {
                    entry.used = false;
                    self.hand += 1;
                }
                Some(_) => break,
            }
        }
        let gone = self.entries.swap_remove(self.hand);
        self.places.remove(&gone.fingerprint);
        self.bytes -= gone.bytes;
        if let Some(moved) = self.entries.get(self.hand) {
            self.places.insert(moved.fingerprint, self.hand);
        }
    }
}

// === impl Unknown ===

impl Unknown {
    /// The class of the text, which must be the one that was asked for.
    pub fn parse(self, sql: &[u8]) -> Parsed {
        if matches!(self.name, Name::Foreign) {
            return Parsed { class: Arc::new(classify_foreign(sql, &self.parse)), fingerprint: None };
        }
        let class = Arc::new(classify(sql, &self.parse));
        let fingerprint = self.name.fingerprint().filter(|_| self.stands(sql, &class));
        Parsed { class, fingerprint }
    }

    /// Whether the class is that of all texts with this fingerprint.
    ///
    /// A text may be unreadable for the value of a constant: one that is no UTF-8, or a type modifier that is no number of
    /// the usual kind. No other text shall go to the primary for that.
    fn stands(&self, sql: &[u8], class: &Class) -> bool {
        match (self.name, class.reason) {
            (_, Reason::Encoding) => false,
            (Name::Folded(_), Reason::Unparsable) => {
                let plain = with_plain_constants(sql);
                classify(&plain, &self.parse).reason == Reason::Unparsable
            }
            _ => true,
        }
    }
}

/// The text with constants of which no value is more ordinary.
fn with_plain_constants(sql: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(sql.len());
    let mut end = 0;
    for token in Lexer::new(sql) {
        plain.extend_from_slice(sql.get(end..token.start).unwrap_or_default());
        let constant: Option<&[u8]> = match token.kind {
            TokenKind::Integer => Some(b" 1 "),
            TokenKind::Numeric => Some(b" 1.5 "),
            TokenKind::BitString => Some(b" B'1' "),
            TokenKind::HexString => Some(b" X'1' "),
            TokenKind::NationalString => Some(b" N'a' "),
            kind if kind.is_string() => Some(b" 'a' "),
            _ => None,
        };
        plain.extend_from_slice(constant.unwrap_or_else(|| token.text(sql)));
        end = token.end;
    }
    plain
}

// === impl Parsed ===

impl Parsed {
    /// The class.
    pub fn class(&self) -> &Arc<Class> {
        &self.class
    }
}

// === impl Name ===

impl Name {
    fn fingerprint(self) -> Option<Fingerprint> {
        match self {
            Self::None | Self::Foreign => None,
            Self::Folded(fingerprint) | Self::Kept(fingerprint) => Some(fingerprint),
        }
    }
}

// === impl FingerprintHasher ===

impl Hasher for FingerprintHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*b);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "half of a 128-bit hash is a 64-bit hash")]
    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}

#[cfg(test)]
mod tests;
