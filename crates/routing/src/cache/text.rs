//! A quick hash of whole texts.

use crate::fingerprint::Key;

/// A hash that finds the place of a text whose bytes are compared then: it decides nothing, and is keyed only so that nobody
/// can aim texts at one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextHash {
    seed: u64,
    factor: u64,
}

// === impl TextHash ===

impl TextHash {
    pub(super) fn new(key: &Key) -> Self {
        let [seed, factor] = halves(u128::from_le_bytes(key.0));
        Self { seed, factor }
    }

    #[inline]
    pub(super) fn of(&self, text: &[u8]) -> u64 {
        let (blocks, rest) = text.as_chunks::<16>();
        let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
        // Spread over all bits, so that no byte of the text undoes a difference in length.
        let seed = self.seed ^ length.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut hash = blocks.iter().fold(seed, |hash, block| self.mix(hash, *block));
        if !rest.is_empty() {
            // Bytes that are read twice cost less than fewer of them.
            let last = text.last_chunk().copied().unwrap_or_else(|| padded(rest));
            hash = self.mix(hash, last);
        }
        hash
    }

    #[inline]
    fn mix(&self, hash: u64, block: [u8; 16]) -> u64 {
        let [low, high] = halves(u128::from_le_bytes(block));
        let [low, high] = halves(u128::from(low ^ self.factor) * u128::from(high ^ hash));
        low ^ high
    }
}

fn padded(rest: &[u8]) -> [u8; 16] {
    let mut block = [0; 16];
    if let Some(to) = block.get_mut(..rest.len()) {
        to.copy_from_slice(rest);
    }
    block
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves are meant")]
fn halves(number: u128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_byte_counts() {
        let hash = TextHash::new(&Key(*b"a key of 16 byte"));
        let mut seen = HashSet::new();
        for length in 0..70 {
            let mut text = vec![b'a'; length];
            assert!(seen.insert(hash.of(&text)));
            for at in 0..length {
                text[at] = b'b';
                assert!(seen.insert(hash.of(&text)), "{length} {at}");
                text[at] = b'a';
            }
        }
        assert_ne!(hash.of(b"a"), TextHash::new(&Key([8; 16])).of(b"a"));
    }
}
