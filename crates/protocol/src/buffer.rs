//! A reusable window of bytes between a socket and the code that looks at frames.

use std::mem;

/// Bytes read from a socket and not consumed yet, in one piece.
///
/// The storage is initialised once and reused; an empty buffer can give its storage back, so that an idle
/// connection holds none.
#[derive(Debug, Default)]
pub struct Buffer {
    storage: Vec<u8>,
    start: usize,
    end: usize,
}

// === impl Buffer ===

impl Buffer {
    /// An empty buffer over `storage`, whose contents do not matter.
    pub fn with_storage(storage: Vec<u8>) -> Self {
        Self { storage, start: 0, end: 0 }
    }

    /// The bytes read and not consumed.
    #[inline]
    pub fn filled(&self) -> &[u8] {
        self.storage.get(self.start..self.end).unwrap_or_default()
    }

    /// How many bytes are read and not consumed.
    #[inline]
    pub fn len(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Whether nothing is left to consume.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Bytes of storage, used or not.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.storage.len()
    }

    /// Room for at least `at_least` more bytes; all the room there is.
    ///
    /// The consumed part is reclaimed by moving what is filled to the front, and the storage grows only when
    /// that is not enough.
    #[inline]
    pub fn unfilled(&mut self, at_least: usize) -> &mut [u8] {
        if self.storage.len().saturating_sub(self.end) < at_least {
            self.compact();
            let wanted = self.end.saturating_add(at_least);
            if self.storage.len() < wanted {
                self.storage.resize(wanted, 0);
            }
        }
        self.storage.get_mut(self.end..).unwrap_or_default()
    }

    /// Marks `n` bytes of [`Self::unfilled`] as read; more than there are counts as all of them.
    #[inline]
    pub fn commit(&mut self, n: usize) {
        self.end = self.end.saturating_add(n).min(self.storage.len());
    }

    /// Appends `bytes`, growing as needed.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) {
        let room = self.unfilled(bytes.len());
        if let Some(target) = room.get_mut(..bytes.len()) {
            target.copy_from_slice(bytes);
        }
        self.commit(bytes.len());
    }

    /// Drops the first `n` filled bytes; more than there are drops all of them.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        self.start = self.start.saturating_add(n).min(self.end);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Gives the storage away if nothing is filled.
    pub fn take_storage(&mut self) -> Option<Vec<u8>> {
        (self.is_empty() && !self.storage.is_empty()).then(|| {
            self.start = 0;
            self.end = 0;
            mem::take(&mut self.storage)
        })
    }

    fn compact(&mut self) {
        if self.start > 0 {
            self.storage.copy_within(self.start..self.end, 0);
            self.end = self.len();
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_over_compaction_and_growth() {
        let mut buffer = Buffer::with_storage(vec![0; 8]);
        buffer.extend(b"abcdef");
        buffer.consume(4);
        assert_eq!(buffer.unfilled(5).len(), 6, "the consumed part is room again");
        buffer.extend(b"ghijklmnop");
        assert_eq!(buffer.filled(), b"efghijklmnop");
        buffer.consume(100);
        assert!(buffer.is_empty());
        assert_eq!(buffer.take_storage().map(|s| s.len()), Some(12));
        assert!(buffer.take_storage().is_none());
    }
}
