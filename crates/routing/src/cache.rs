//! Classes already found, by fingerprint.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::class::{Class, Command, Kind, PinReason};
use crate::classify::{Limits, classify};
use crate::fingerprint::{Fingerprint, Key, fingerprint};
use crate::reason::Reason;

/// The settings of a session that decide how its text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntaxOptions {
    /// `standard_conforming_strings`: when off, a backslash in any string escapes.
    pub standard_conforming_strings: bool,
    /// `client_encoding` is UTF8. In SJIS, BIG5 or GBK a byte that looks like ASCII may be half of a character; in all
    /// others names would have to be converted before they mean anything.
    pub utf8: bool,
}

/// How much a [`StatementCache`] may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Classes.
    pub entries: usize,
    /// Bytes, roughly.
    pub bytes: usize,
}

/// Classes already found, by fingerprint: bounded, for one thread.
///
/// What was used since the hand last passed stays (second chance), so that a stream of statements seen once does not
/// drive out those seen often.
pub struct StatementCache {
    limits: CacheLimits,
    parse: Limits,
    key: Key,
    entries: Vec<Entry>,
    places: HashMap<Fingerprint, usize, BuildHasherDefault<FingerprintHasher>>,
    hand: usize,
    bytes: usize,
    hits: u64,
    misses: u64,
    unjudged: Arc<Class>,
}

struct Entry {
    fingerprint: Fingerprint,
    class: Arc<Class>,
    bytes: usize,
    used: bool,
}

/// A fingerprint is a keyed hash already.
#[derive(Default)]
struct FingerprintHasher(u64);

// === impl SyntaxOptions ===

impl Default for SyntaxOptions {
    fn default() -> Self {
        Self { standard_conforming_strings: true, utf8: true }
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
        Self {
            limits,
            parse,
            key,
            entries: Vec::new(),
            places: HashMap::default(),
            hand: 0,
            bytes: 0,
            hits: 0,
            misses: 0,
            unjudged: Arc::new(Class {
                // What it leaves in the session cannot be told either.
                commands: Box::new([Command::Pin(PinReason::Other)]),
                ..Class::plain(Kind::WriteSession, Reason::Encoding)
            }),
        }
    }

    /// The class of a text, parsed only if no text of this fingerprint was seen lately.
    pub fn classify(&mut self, sql: &[u8], options: SyntaxOptions) -> Arc<Class> {
        if !options.judges(sql) {
            return Arc::clone(&self.unjudged);
        }
        if sql.len() > self.parse.bytes {
            // Hashing megabytes to find that they are too many would be a waste.
            return Arc::new(classify(sql, &self.parse));
        }
        let fingerprint = fingerprint(sql, &self.key);
        if let Some(entry) = self.places.get(&fingerprint).and_then(|place| self.entries.get_mut(*place)) {
            self.hits += 1;
            entry.used = true;
            return Arc::clone(&entry.class);
        }
        self.misses += 1;
        let class = Arc::new(classify(sql, &self.parse));
        self.insert(fingerprint, &class);
        class
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
        self.bytes
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
mod tests {
    use super::*;

    fn cache(entries: usize, bytes: usize) -> StatementCache {
        StatementCache::new(CacheLimits { entries, bytes }, Limits::default(), Key([1; 16]))
    }

    #[test]
    fn literals_share_an_entry() {
        let mut cache = cache(8, 1 << 20);
        let one = cache.classify(b"SELECT a FROM t WHERE b = 1", SyntaxOptions::default());
        let two = cache.classify(b"select a from t where b = 22", SyntaxOptions::default());
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!((cache.hits(), cache.misses(), cache.len()), (1, 1, 1));
    }

    #[test]
    fn it_stays_within_its_bounds_and_keeps_what_is_used() {
        let mut cache = cache(16, 1 << 20);
        for n in 0..1000 {
            cache.classify(b"SELECT hot", SyntaxOptions::default());
            cache.classify(format!("SELECT column_{n}").as_bytes(), SyntaxOptions::default());
            assert!(cache.len() <= 16);
        }
        assert_eq!(cache.misses(), 1001);
        assert_eq!(cache.hits(), 999);
        assert_eq!(cache.places.len(), cache.entries.len());
        assert_eq!(cache.bytes, cache.entries.iter().map(|entry| entry.bytes).sum::<usize>());
    }

    #[test]
    fn bytes_are_bounded_too() {
        let mut cache = cache(1000, 4000);
        for n in 0..100 {
            cache.classify(format!("SELECT * FROM table_{n}").as_bytes(), SyntaxOptions::default());
            assert!(cache.bytes() <= 4000);
        }
        assert!(cache.len() > 1);
    }

    #[test]
    fn what_the_session_reads_differently_is_not_judged() {
        let mut cache = cache(8, 1 << 20);
        let backslash = SyntaxOptions { standard_conforming_strings: false, utf8: true };
        assert_eq!(cache.classify(b"SELECT 1", backslash).reason, Reason::Encoding);
        let latin = SyntaxOptions { standard_conforming_strings: true, utf8: false };
        assert_eq!(cache.classify(b"SELECT '\xe4'", latin).reason, Reason::Encoding);
        assert_eq!(cache.classify(b"SELECT 1", latin).kind, Kind::Read);
    }
}
