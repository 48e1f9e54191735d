//! Buffers that are lent to connections while bytes are in flight.

use std::cell::RefCell;

use causeway_protocol::buffer::Buffer;

/// The size of a lent buffer, in bytes: several of the 8 KiB pieces in which a server writes, so that one that runs
/// ahead is read in fewer calls.
pub const BUFFER_LEN: usize = 64 * 1024;

/// The length of a buffer of outgoing records: a batch of plaintext, what each of its four records adds, and a message
/// of TLS's own.
pub(crate) const OUTGOING_LEN: usize = BUFFER_LEN + 4 * 64 + 512;

/// How many unused buffers a thread keeps.
const KEPT_BUFFERS: usize = 64;

/// How many unused buffers for TLS records a thread keeps: they are held only from one write to the next.
const KEPT_OUTGOING: usize = 16;

thread_local! {
    /// Buffers that no connection of this thread uses; a connection without data in flight holds none.
    static UNUSED_BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    /// The same for TLS records on their way out, which are longer than what they hold.
    static UNUSED_OUTGOING: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer's storage from this thread's store.
pub fn lend() -> Vec<u8> {
    UNUSED_BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; BUFFER_LEN])
}

/// Gives the storage of an empty buffer back.
pub fn give_back(buffer: &mut Buffer) {
    if let Some(storage) = buffer.take_storage() {
        put_back(storage);
    }
}

/// Takes storage into this thread's store.
pub(crate) fn put_back(storage: Vec<u8>) {
    // One that has grown for a large message is not worth keeping.
    if storage.len() == BUFFER_LEN {
        UNUSED_BUFFERS.with_borrow_mut(|unused| keep(unused, storage, KEPT_BUFFERS));
    }
}

/// Room for `at_least` more bytes of TLS records, with storage from this thread's store.
pub(crate) fn room_for_records(outgoing: &mut Buffer, at_least: usize) -> &mut [u8] {
    if outgoing.capacity() == 0 {
        let storage = UNUSED_OUTGOING.with_borrow_mut(Vec::pop);
        *outgoing = Buffer::with_storage(storage.unwrap_or_else(|| vec![0; OUTGOING_LEN]));
    }
    outgoing.unfilled(at_least)
}

/// As [`give_back`], for TLS records.
pub(crate) fn give_back_outgoing(outgoing: &mut Buffer) {
    if let Some(storage) = outgoing.take_storage().filter(|storage| storage.len() == OUTGOING_LEN) {
        UNUSED_OUTGOING.with_borrow_mut(|unused| keep(unused, storage, KEPT_OUTGOING));
    }
}

fn keep(unused: &mut Vec<Vec<u8>>, storage: Vec<u8>, most: usize) {
    if unused.len() < most {
        unused.push(storage);
    }
}
