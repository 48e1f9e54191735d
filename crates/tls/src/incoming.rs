//! What has arrived and is not decrypted yet.

use causeway_protocol::buffer::Buffer;

use crate::buffers;

/// Bytes that have arrived and are not complete records yet. They are decrypted where they are.
#[derive(Default)]
pub(crate) struct Incoming {
    pub(crate) storage: Vec<u8>,
    start: usize,
    pub(crate) end: usize,
}

// === impl Incoming ===

impl Incoming {
    /// Everything in `input`, which is left without storage.
    pub(crate) fn take(&mut self, input: &mut Buffer) {
        let arrived = input.filled();
        if arrived.is_empty() {
            return;
        }
        self.storage = buffers::lend();
        if self.storage.len() < arrived.len() {
            self.storage.resize(arrived.len(), 0);
        }
        self.end = arrived.len();
        self.filled().copy_from_slice(arrived);
        input.consume(arrived.len());
        buffers::give_back(input);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Everything, to be decrypted where it is.
    pub(crate) fn filled(&mut self) -> &mut [u8] {
        self.storage.get_mut(self.start..self.end).unwrap_or_default()
    }

    /// Room behind what is at hand; less if that makes more than `limit`.
    pub(crate) fn room(&mut self, limit: usize) -> &mut [u8] {
        if self.start > 0 {
            self.storage.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let limit = limit.min(self.storage.len()).max(self.end);
        self.storage.get_mut(self.end..limit).unwrap_or_default()
    }

    pub(crate) fn discard(&mut self, n: usize) {
        self.start = self.start.saturating_add(n).min(self.end);
    }

    /// Gives the storage back if nothing is in it.
    pub(crate) fn rest(&mut self) {
        if self.is_empty() && !self.storage.is_empty() {
            (self.start, self.end) = (0, 0);
            buffers::put_back(std::mem::take(&mut self.storage));
        }
    }
}
