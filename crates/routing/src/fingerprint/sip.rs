//! SipHash-1-3 with a 128-bit result, of texts that come in whole words.
//!
//! The hash is that of <https://www.aumasson.jp/siphash/siphash.pdf> and its authors' 128-bit variant; only bytes that
//! are fewer than a word are missing, which are what costs most on short pieces.

#![expect(
    clippy::inline_always,
    reason = "the state of the hash stays in registers only if nothing is called"
)]

/// A hash under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sip {
    state: [u64; 4],
}

// === impl Sip ===

impl Sip {
    #[inline(always)]
    pub(super) fn new(key: &[u8; 16]) -> Self {
        let key = u128::from_le_bytes(*key);
        let [low, high] = halves(key);
        Self {
            state: [
                low ^ 0x736f_6d65_7073_6575,
                high ^ 0x646f_7261_6e64_6f6d ^ 0xee,
                low ^ 0x6c79_6765_6e65_7261,
                high ^ 0x7465_6462_7974_6573,
            ],
        }
    }

    #[inline(always)]
    pub(super) fn word(&mut self, word: u64) {
        self.state[3] ^= word;
        self.round();
        self.state[0] ^= word;
    }

    #[inline(always)]
    pub(super) fn finish(mut self, last: u64) -> u128 {
        self.word(last);
        self.state[2] ^= 0xee;
        let low = self.squeeze();
        self.state[1] ^= 0xdd;
        let high = self.squeeze();
        u128::from(low) | u128::from(high) << 64
    }

    #[inline(always)]
    fn squeeze(&mut self) -> u64 {
        (0..3).for_each(|_| self.round());
        self.state.iter().fold(0, |all, word| all ^ word)
    }

    #[inline(always)]
    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.state;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32).wrapping_add(d);
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        d = d.rotate_left(21) ^ a;
        c = c.rotate_left(32);
        self.state = [a, b, c, d];
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the halves are meant")]
fn halves(number: u128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use siphasher::sip128::{Hasher128, SipHasher13};

    use super::*;

    #[test]
    fn it_is_the_hash_of_the_same_bytes() {
        let key: [u8; 16] = std::array::from_fn(|i| u8::try_from(i * 17).unwrap());
        let (mut ours, mut theirs) = (Sip::new(&key), SipHasher13::new_with_key(&key));
        for n in 0..300_u64 {
            assert_eq!(ours.finish((8 * n) << 56), theirs.finish128().as_u128(), "{n} words");
            let word = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            ours.word(word);
            theirs.write(&word.to_le_bytes());
        }
    }
}
