//! Vectors of bytes that a session needs only while it works.

use std::cell::RefCell;

/// How many unused vectors a thread keeps.
const KEPT: usize = 64;

/// Longer ones are not kept: a large message has passed, and that was it.
const KEPT_LEN: usize = 64 * 1024;

thread_local! {
    /// Vectors that no session of this thread uses; a session that rests holds none.
    static UNUSED: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Gives an empty vector storage that another session has used before, if there is some.
pub(crate) fn lend(vector: &mut Vec<u8>) {
    if vector.capacity() == 0
        && let Some(storage) = UNUSED.with_borrow_mut(Vec::pop)
    {
        *vector = storage;
    }
}

/// Takes the storage of an empty vector for others.
pub(crate) fn give_back(vector: &mut Vec<u8>) {
    if !vector.is_empty() || vector.capacity() == 0 {
        return;
    }
    let storage = std::mem::take(vector);
    if storage.capacity() <= KEPT_LEN {
        UNUSED.with_borrow_mut(|unused| {
            if unused.len() < KEPT {
                unused.push(storage);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_goes_round() {
        let mut first = Vec::with_capacity(100);
        let address = first.as_ptr();
        give_back(&mut first);
        assert_eq!(first.capacity(), 0);
        let mut second = Vec::new();
        lend(&mut second);
        assert_eq!(second.as_ptr(), address);
        second.push(1);
        give_back(&mut second);
        assert_eq!(second, [1], "what is in use stays");
    }

    #[test]
    fn large_storage_is_not_kept() {
        let mut large = Vec::with_capacity(KEPT_LEN + 1);
        give_back(&mut large);
        lend(&mut large);
        assert_eq!(large.capacity(), 0);
    }
}
