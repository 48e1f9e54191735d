//! What bytes are to the lexer, one by one and eight at a time.

#![expect(clippy::inline_always, reason = "what is done for every few bytes must not be called")]

/// What a byte begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// Nothing.
    Space,
    /// A word, or a string with its kind ahead of it.
    Word,
    /// A token of this byte alone, unless what follows makes it a longer one ([`FOLLOWERS`]).
    Byte,
    /// A number.
    Digit,
    /// A string.
    Quote,
    /// A quoted word.
    DoubleQuote,
    /// It takes a closer look.
    Other,
}

const fn begins(b: u8) -> Start {
    match b {
        b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => Start::Space,
        b',' | b';' | b'(' | b')' | b'[' | b']' | b'.' => Start::Byte,
        b'0'..=b'9' => Start::Digit,
        b'\'' => Start::Quote,
        b'"' => Start::DoubleQuote,
        _ if classes(b) & IDENT_START != 0 => Start::Word,
        _ if classes(b) & OPERATOR != 0 => Start::Byte,
        _ => Start::Other,
    }
}

/// The classes of bytes that make a token longer than its first byte.
const fn followers(b: u8) -> u8 {
    match b {
        b'.' => DIGIT | POINT,
        // More of the operator, or a comment.
        _ if classes(b) & OPERATOR != 0 => OPERATOR,
        _ => 0,
    }
}

/// Character classes of scan.l.
const fn classes(b: u8) -> u8 {
    match b {
        b' ' | b'\t' | 0x0b | 0x0c => SPACE | HORIZONTAL,
        b'\n' | b'\r' => SPACE,
        // Behind decimal digits these make a number another one: a point, an exponent, a separator, a base.
        b'_' | b'b' | b'B' | b'e' | b'E' | b'o' | b'O' | b'x' | b'X' => {
            IDENT_START | IDENT | CONTINUES_NUMBER
        }
        b'a'..=b'z' | b'A'..=b'Z' | 0x80..=0xff => IDENT_START | IDENT,
        b'0'..=b'9' => IDENT | DIGIT,
        b'$' => IDENT,
        b'.' => CONTINUES_NUMBER | POINT,
        b'~' | b'!' | b'@' | b'#' | b'^' | b'&' | b'|' | b'`' | b'?' | b'+' | b'-' | b'*' | b'/' | b'%'
        | b'<' | b'>' | b'=' => OPERATOR,
        _ => 0,
    }
}

pub(super) const SPACE: u8 = 1;
pub(super) const HORIZONTAL: u8 = 2;
pub(super) const IDENT_START: u8 = 4;
pub(super) const IDENT: u8 = 8;
pub(super) const OPERATOR: u8 = 16;
pub(super) const DIGIT: u8 = 32;
pub(super) const CONTINUES_NUMBER: u8 = 64;
const POINT: u8 = 128;

/// A value for each byte.
macro_rules! table {
    ($name:ident: $type:ty = $value:ident) => {
        const $name: [$type; 256] = {
            let mut table = [$value(0); 256];
            let mut b = 0_usize;
            while b < 256 {
                table[b] = $value(b.to_le_bytes()[0]);
                b += 1;
            }
            table
        };
    };
}

table!(CLASSES: u8 = classes);
table!(STARTS: Start = begins);
table!(FOLLOWERS: u8 = followers);

/// What `b` begins.
#[inline]
pub(crate) fn start(b: u8) -> Start {
    STARTS[usize::from(b)]
}

/// Whether `b`, which begins a [`Start::Byte`], is a token of its own before `next`.
#[inline]
pub(crate) fn is_alone(b: u8, next: u8) -> bool {
    !is(next, FOLLOWERS[usize::from(b)])
}

/// Whether `b` is of one of the classes in `mask`.
#[inline]
pub(super) fn is(b: u8, mask: u8) -> bool {
    CLASSES[usize::from(b)] & mask != 0
}

/// The same byte eight times.
const fn all(b: u8) -> u64 {
    u64::MAX / 0xff * b as u64
}

const HIGH: u64 = all(0x80);

/// The eight bytes of `text` from `at` on, the first one lowest; zeros where it has ended.
#[inline]
pub(crate) fn eight(text: &[u8], at: usize) -> u64 {
    match text.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => u64::from_le_bytes(last(text, at)),
    }
}

/// The last bytes of `text`, from `at` on, of which there are fewer than asked for; then zeros.
#[inline(never)]
fn last<const N: usize>(text: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    let rest = text.get(at..).unwrap_or_default();
    if let Some(to) = bytes.get_mut(..rest.len()) {
        to.copy_from_slice(rest);
    }
    bytes
}

/// Where `b` is first.
///
/// Most strings and quoted names are short: what a search of any length takes to get going would be most of their cost.
#[inline]
pub(super) fn find(b: u8, text: &[u8]) -> Option<usize> {
    const LONG: usize = 32;
    let mut at = 0;
    while at < LONG {
        let bytes = text.get(at..).and_then(|rest| rest.first_chunk());
        let Some(bytes) = bytes else { break };
        let other = u64::from_le_bytes(*bytes) ^ all(b);
        // The lowest bit set is the high bit of the first zero; above it there may be others that are none.
        let zeros = other.wrapping_sub(all(1)) & !other & HIGH;
        if zeros != 0 {
            return Some(at + places(zeros));
        }
        at += 8;
    }
    memchr::memchr(b, text.get(at..)?).map(|found| at + found)
}

/// Eight bytes in which a word may end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    /// ASCII letters in lower case, and all other bytes as they are; the first one lowest.
    lower: u64,
    /// The high bit of each byte that no word contains.
    ends: u64,
}

/// Some bytes of a word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The bytes, and zeros.
    pub(crate) text: u64,
    /// How many of the word there are up to its end; `None` if it goes on.
    pub(crate) length: Option<usize>,
}

// === impl Word ===

impl Word {
    /// The bytes of a word from `at` on.
    #[inline(always)]
    pub(crate) fn at(text: &[u8], at: usize) -> Self {
        let eight = eight(text, at);
        // Bytes beyond ASCII belong to words, and are neither upper nor lower case.
        let ascii = !eight & HIGH;
        // Without the high bits, so that no sum carries into the next byte. Of each pair of sums one has a high bit where
        // the byte is at least the first, and the other where it is beyond the last of a range.
        let low = eight & !HIGH;
        let folded = low | all(0x20);
        let letter = ((folded + all(0x80 - b'a')) ^ (folded + all(0x7f - b'z'))) & ascii;
        let digit = (low + all(0x80 - b'0')) ^ (low + all(0x7f - b'9'));
        let neither = ((low ^ all(b'_')) + all(0x7f)) & ((low ^ all(b'$')) + all(0x7f));
        // 0x80 moved to 0x20, the bit in which the cases differ.
        Self { lower: eight | letter >> 2, ends: ascii & neither & !(letter | digit) }
    }

    /// As many bytes of the eight as there are.
    #[inline(always)]
    pub(crate) fn whole(self) -> Part {
        if self.ends == 0 {
            return Part { text: self.lower, length: None };
        }
        Part { text: self.lower & up_to(self.ends) >> 8, length: Some(places(self.ends)) }
    }

    /// As many of the first seven, in the upper seven of the eight.
    #[inline(always)]
    pub(crate) fn head(self) -> Part {
        let ends = self.ends & (u64::MAX >> 8);
        let text = (self.lower << 8) & up_to(ends);
        Part { text, length: (ends != 0).then(|| places(ends)) }
    }
}

/// All bits up to the lowest one that is set; all there are if none is.
#[inline(always)]
fn up_to(bits: u64) -> u64 {
    bits ^ bits.wrapping_sub(1)
}

/// How many bytes are below the one with the lowest bit that is set.
#[inline]
fn places(bits: u64) -> usize {
    (bits.trailing_zeros() >> 3) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bytes_at_once_are_what_they_are_one_by_one() {
        for first in 0..=255_u8 {
            for step in [0, 1, 31, 64, 127] {
                let bytes: [u8; 8] =
                    std::array::from_fn(|i| first.wrapping_add(u8::try_from(i * step % 256).unwrap()));
                let length = bytes.iter().position(|b| !is(*b, IDENT));
                let mut lower = bytes.map(|b| b.to_ascii_lowercase());
                lower[length.unwrap_or(8)..].fill(0);
                let whole = Word::at(&bytes, 0).whole();
                assert_eq!((whole.text.to_le_bytes(), whole.length), (lower, length), "{bytes:?}");
                let head = Word::at(&bytes, 0).head();
                let shifted = u64::from_le_bytes(lower) << 8;
                let length = length.filter(|length| *length < 7);
                assert_eq!((head.text, head.length), (shifted, length), "{bytes:?}");
            }
        }
    }

    #[test]
    fn what_is_searched_is_found_first() {
        for length in 0..80 {
            let text: Vec<u8> = (0..length).map(|i| if i % 2 == 0 { b'&' } else { b'(' }).collect();
            assert_eq!(find(b'\'', &text), None);
            for at in 0..text.len() {
                let mut text = text.clone();
                text[at..].fill(b'\'');
                assert_eq!(find(b'\'', &text), Some(at));
            }
        }
    }

    #[test]
    fn a_text_ends_in_zeros() {
        let text: Vec<u8> = (1..=20).collect();
        for at in 0..22 {
            let mut expected = [0; 8];
            for (to, from) in expected.iter_mut().zip(text.iter().skip(at)) {
                *to = *from;
            }
            assert_eq!(eight(&text, at).to_le_bytes(), expected);
        }
    }
}
