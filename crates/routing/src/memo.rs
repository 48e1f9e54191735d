//! A judgement remembered, for as long as it holds.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::reason::Reason;

/// The number of a catalogue, which no other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Never zero.
    high: u64,
    /// Without the bits that [`Memo`] needs for the judgement.
    low: u64,
}

/// The last judgement on the names of a class, and the catalogue that gave it: sessions share a class, and so they do what
/// was found out about it.
///
/// It is a shortcut and no part of what a class is: two classes that differ in it alone are equal, and a clone begins without.
#[derive(Default)]
pub struct Memo {
    high: AtomicU64,
    low: AtomicU64,
}

/// The bits of [`Memo::low`] that hold a judgement: zero, or one more than the index of a reason.
const JUDGEMENT: u64 = 0xffff;

// === impl Identity ===

impl Identity {
    /// `None` for the few numbers that stand for no catalogue.
    #[expect(clippy::cast_possible_truncation, reason = "the halves are meant")]
    pub(crate) fn new(number: u128) -> Option<Self> {
        let (high, low) = ((number >> 64) as u64, number as u64);
        // Two numbers that share one half shall not share one of the words.
        let low = low ^ high.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (high != 0).then_some(Self { high, low: low & !JUDGEMENT })
    }
}

// === impl Memo ===

impl Memo {
    /// The judgement that the catalogue of this number gave.
    ///
    /// The two words may be those of two judgements that were written at the same time; then they are those of two catalogues,
    /// and do not fit either.
    #[inline]
    pub(crate) fn recall(&self, by: Identity) -> Option<Result<(), Reason>> {
        let low = self.low.load(Ordering::Relaxed);
        if self.high.load(Ordering::Relaxed) != by.high || low & !JUDGEMENT != by.low {
            return None;
        }
        match usize::try_from(low & JUDGEMENT).ok()?.checked_sub(1) {
            None => Some(Ok(())),
            Some(reason) => Reason::ALL.get(reason).map(|reason| Err(*reason)),
        }
    }

    /// Whether the last judgement was this one, whoever gave it.
    pub(crate) fn is(&self, judgement: Result<(), Reason>) -> bool {
        self.low.load(Ordering::Relaxed) & JUDGEMENT == word(judgement)
    }

    /// Forgets the last judgement.
    pub(crate) fn clear(&self) {
        self.high.store(0, Ordering::Relaxed);
        self.low.store(0, Ordering::Relaxed);
    }

    pub(crate) fn note(&self, by: Identity, judgement: Result<(), Reason>) {
        self.low.store(by.low | word(judgement), Ordering::Relaxed);
        self.high.store(by.high, Ordering::Relaxed);
    }
}

fn word(judgement: Result<(), Reason>) -> u64 {
    judgement.map_or_else(|reason| reason.index() as u64 + 1, |()| 0)
}

impl Clone for Memo {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Memo {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Memo {}

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memo")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judgement_is_that_of_one_catalogue() {
        let memo = Memo::default();
        let [one, two, three] = [1 << 64 | 1 << 16, 2 << 64 | 1 << 16, 1 << 64 | 2 << 16]
            .map(|n: u128| Identity::new(n).unwrap());
        assert_eq!(memo.recall(one), None);
        for reason in Reason::ALL {
            memo.note(one, Err(*reason));
            assert_eq!(memo.recall(one), Some(Err(*reason)));
        }
        memo.note(one, Ok(()));
        assert_eq!([one, two, three].map(|by| memo.recall(by)), [Some(Ok(())), None, None]);
        memo.note(two, Err(Reason::RowSecurity));
        assert_eq!([one, two].map(|by| memo.recall(by)), [None, Some(Err(Reason::RowSecurity))]);
    }

    #[test]
    fn no_number_without_a_high_half() {
        assert_eq!(Identity::new(u128::from(u64::MAX)), None);
        assert!(Identity::new(u128::MAX).is_some());
    }
}
