//! Choices made by whoever made up the bytes.

/// Takes choices from the front of some bytes. Where they have run out, every choice is the first one.
#[derive(Clone, Debug)]
pub struct Input<'a>(&'a [u8]);

// === impl Input ===

impl<'a> Input<'a> {
    /// All of `data`.
    pub fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// Whether nothing is left to choose by.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// As many bytes as the next one says, or what is left of them.
    pub fn piece(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (piece, rest) = self.0.split_at(len);
        self.0 = rest;
        piece
    }

    /// Everything that is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// `bytes` as they might come out of a socket: pieces as long as `lengths` say, and at last what remains.
pub fn pieces<'a>(mut bytes: &'a [u8], lengths: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for len in lengths {
        let (piece, rest) = bytes.split_at(usize::from(*len).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces.push(bytes);
    pieces
}
