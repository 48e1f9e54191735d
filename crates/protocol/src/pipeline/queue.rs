//! The requests owed, in order.

use std::collections::VecDeque;

use super::{Origin, Owed, Request};

/// As many as a statement usually owes are kept in place.
const IN_PLACE: usize = 8;
const LAST: usize = IN_PLACE.wrapping_sub(1);

/// What a place holds that is not in use.
const NOTHING: Owed = Owed { request: Request::Sync, origin: Origin::Client, token: 0 };

/// The requests owed, in order: a ring, and behind it what does not fit in there.
#[derive(Debug)]
pub(super) struct Queue {
    ring: [Owed; IN_PLACE],
    first: usize,
    /// How many are in the ring.
    len: usize,
    /// Empty unless the ring is full.
    rest: VecDeque<Owed>,
}

// === impl Queue ===

impl Default for Queue {
    fn default() -> Self {
        Self { ring: [NOTHING; IN_PLACE], first: 0, len: 0, rest: VecDeque::new() }
    }
}

impl Queue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.saturating_add(self.rest.len())
    }

    #[inline]
    pub(super) fn front(&self) -> Option<Owed> {
        if self.is_empty() { None } else { Some(self.head()) }
    }

    /// The first one; anything if there is none. Without an option around it, it stays in registers.
    #[inline]
    pub(super) fn head(&self) -> Owed {
        self.ring.get(self.first & LAST).copied().unwrap_or(NOTHING)
    }

    #[inline]
    pub(super) fn push(&mut self, owed: Owed) {
        if self.len >= IN_PLACE {
            return self.rest.push_back(owed);
        }
        if let Some(place) = self.ring.get_mut(self.first.wrapping_add(self.len) & LAST) {
            *place = owed;
        }
        self.len = self.len.wrapping_add(1);
    }

    #[inline]
    pub(super) fn drop_front(&mut self) {
        self.first = self.first.wrapping_add(1);
        self.len = self.len.saturating_sub(1);
        if !self.rest.is_empty() {
            self.refill();
        }
    }

    pub(super) fn pop(&mut self) -> Option<Owed> {
        let owed = self.front()?;
        self.drop_front();
        Some(owed)
    }

    #[inline]
    pub(super) fn pop_if(&mut self, wanted: impl FnOnce(Owed) -> bool) -> Option<Owed> {
        if wanted(self.front()?) { self.pop() } else { None }
    }

    /// Drops those of which `keep` says no; it is asked in order.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(Owed) -> bool) {
        for _ in 0..self.len() {
            if let Some(owed) = self.pop()
                && keep(owed)
            {
                self.push(owed);
            }
        }
    }

    /// Whether one of them is as wanted.
    pub(super) fn any(&self, wanted: impl Fn(Owed) -> bool) -> bool {
        let in_ring = |at: usize| self.ring.get(self.first.wrapping_add(at) & LAST).copied();
        (0..self.len).filter_map(in_ring).chain(self.rest.iter().copied()).any(wanted)
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.rest.clear();
    }

    #[cold]
    fn refill(&mut self) {
        if let Some(owed) = self.rest.pop_front() {
            self.push(owed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owed(token: u32) -> Owed {
        Owed { request: Request::Parse, origin: Origin::Client, token }
    }

    #[test]
    fn order_is_kept_however_many_there_are() {
        for backlog in [0, 1, 7, 8, 9, 30] {
            let (mut queue, mut model) = (Queue::default(), VecDeque::new());
            for token in 0..100 {
                queue.push(owed(token));
                model.push_back(owed(token));
                while model.len() > backlog {
                    assert_eq!(queue.front(), model.front().copied());
                    assert_eq!(queue.pop(), model.pop_front());
                }
                assert_eq!(queue.is_empty(), model.is_empty());
            }
            queue.retain(|owed| owed.token % 3 > 0);
            model.retain(|owed| owed.token % 3 > 0);
            while let Some(expected) = model.pop_front() {
                assert_eq!(queue.pop(), Some(expected), "{backlog}");
            }
            assert_eq!(queue.pop(), None);
        }
    }

    #[test]
    fn nothing_is_left_after_a_clear() {
        let mut queue = Queue::default();
        (0..20).for_each(|token| queue.push(owed(token)));
        queue.clear();
        assert!(queue.is_empty() && queue.front().is_none());
        queue.push(owed(7));
        assert_eq!((queue.pop(), queue.pop()), (Some(owed(7)), None));
    }
}
