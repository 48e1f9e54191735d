//! A small table in front of a cache: of what was seen more than once lately.

use std::sync::Arc;

use crate::class::Class;

/// How many entries may have one place in the table.
const WAYS: usize = 2;

/// Classes by keys of a kind: bounded, and nothing is ever moved or rehashed.
///
/// What is seen once is only noted, as a stream of texts that are all new must neither drive out the others nor be copied.
/// An entry leaves for a new one only if it was not used since the last attempt.
#[derive(Debug)]
pub(super) struct Front<K> {
    /// As many as a power of two, or none.
    sets: Vec<Set<K>>,
    limit: usize,
    bytes: usize,
    /// The set to take from when bytes are short.
    hand: usize,
}

#[derive(Debug)]
struct Set<K> {
    /// The hash that was missed last.
    noted: u64,
    slots: [Option<Slot<K>>; WAYS],
}

#[derive(Debug)]
struct Slot<K> {
    hash: u64,
    key: K,
    class: Arc<Class>,
    bytes: usize,
    used: bool,
}

// === impl Front ===

impl<K> Front<K> {
    /// An empty table of at most so many entries and bytes.
    pub(super) fn new(entries: usize, limit: usize) -> Self {
        let sets = (entries / WAYS).checked_ilog2().map_or(0, |bits| 1_usize << bits);
        let sets = (0..sets).map(|_| Set { noted: 0, slots: [None, None] }).collect();
        Self { sets, limit, bytes: 0, hand: 0 }
    }

    /// Bytes held, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The class of the key with this hash of which `is` says yes.
    #[inline]
    pub(super) fn find(&mut self, hash: u64, is: impl Fn(&K) -> bool) -> Option<&Arc<Class>> {
        let set = place(&mut self.sets, hash)?;
        set.slots.iter_mut().flatten().find(|slot| slot.hash == hash && is(&slot.key)).map(|slot| {
            slot.used = true;
            &slot.class
        })
    }

    /// Takes in a key that was not found, unless it is the first time; `bytes` of its own, besides the class.
    pub(super) fn offer(&mut self, hash: u64, bytes: usize, class: &Arc<Class>, key: impl FnOnce() -> K) {
        let Some(set) = place(&mut self.sets, hash) else { return };
        if set.noted != hash {
            set.noted = hash;
            return;
        }
        let bytes = bytes + size_of::<Slot<K>>() + class.bytes();
        if bytes > self.limit {
            return;
        }
        let Some(slot) = set.slots.iter_mut().find(|slot| slot.as_ref().is_none_or(|slot| !slot.used)) else {
            set.slots.iter_mut().flatten().for_each(|slot| slot.used = false);
            return;
        };
        let gone = slot.replace(Slot { hash, key: key(), class: Arc::clone(class), bytes, used: true });
        self.bytes = self.bytes + bytes - gone.map_or(0, |gone| gone.bytes);
        while self.bytes > self.limit {
            self.shrink();
        }
    }

    /// Drops what was not used in the next set.
    fn shrink(&mut self) {
        self.hand = (self.hand + 1) & (self.sets.len() - 1);
        let Some(set) = self.sets.get_mut(self.hand) else { return };
        for slot in &mut set.slots {
            match slot {
                Some(entry) if entry.used => entry.used = false,
                _ => self.bytes -= slot.take().map_or(0, |gone| gone.bytes),
            }
        }
    }
}

#[inline]
fn place<K>(sets: &mut [Set<K>], hash: u64) -> Option<&mut Set<K>> {
    let mask = sets.len().wrapping_sub(1);
    #[expect(clippy::cast_possible_truncation, reason = "some bits of a hash are a hash")]
    sets.get_mut(hash as usize & mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Kind;
    use crate::reason::Reason;

    fn class() -> Arc<Class> {
        Arc::new(Class::plain(Kind::Read, Reason::Read))
    }

    fn seen(front: &mut Front<u64>, key: u64) -> bool {
        let found = front.find(key, |known| *known == key).is_some();
        if !found {
            front.offer(key, 0, &class(), || key);
        }
        found
    }

    #[test]
    fn what_is_seen_twice_is_known() {
        let mut front = Front::new(8, 1 << 20);
        assert_eq!([1, 1, 1, 1].map(|key| seen(&mut front, key)), [false, false, true, true]);
        assert!(front.find(1, |_| false).is_none(), "a hash alone proves nothing");
    }

    #[test]
    fn new_texts_do_not_drive_out_what_is_used() {
        let mut front = Front::new(8, 1 << 20);
        for key in [1, 1, 2, 2] {
            seen(&mut front, key);
        }
        for n in 3..10_000 {
            assert!(seen(&mut front, 1) && seen(&mut front, 2));
            seen(&mut front, n);
        }
    }

    #[test]
    fn what_is_no_longer_used_leaves() {
        let mut front = Front::new(2, 1 << 20);
        for key in [1, 1, 2, 2] {
            seen(&mut front, key);
        }
        for _ in 0..4 {
            seen(&mut front, 3);
        }
        assert!(seen(&mut front, 3));
    }

    #[test]
    fn bytes_are_bounded() {
        let limit = 4000;
        let mut front = Front::new(1024, limit);
        for key in 0..1000 {
            seen(&mut front, key);
            seen(&mut front, key);
            let held: usize =
                front.sets.iter().flat_map(|set| set.slots.iter().flatten()).map(|slot| slot.bytes).sum();
            assert!(front.bytes() <= limit && front.bytes() == held);
        }
        assert!(front.bytes() > limit / 2);
        assert!(seen(&mut front, 999));
    }

    #[test]
    fn a_table_without_room_holds_nothing() {
        for mut front in [Front::new(0, 1 << 20), Front::new(1, 1 << 20), Front::new(8, 10)] {
            assert_eq!([1, 1, 1].map(|key| seen(&mut front, key)), [false; 3]);
        }
    }
}
