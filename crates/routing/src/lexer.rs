//! PostgreSQL's tokens, exactly as the server cuts them.
//!
//! The authority is `src/backend/parser/scan.l`. Every other tokenizer differs somewhere (a comment that ends at a
//! carriage return, `c$$` as an identifier, comments that nest), and each difference hides a statement from whoever
//! looks at the tokens; so the judges of this crate look at no others.
//!
//! `standard_conforming_strings` is taken to be on, and the text to be in an encoding whose multi-byte characters
//! contain no ASCII bytes; sessions where that does not hold are not judged by their text at all.

mod bytes;
mod glance;

use bytes::{CONTINUES_NUMBER, DIGIT, HORIZONTAL, IDENT, IDENT_START, OPERATOR, SPACE, find, is};

pub(crate) use bytes::{Part, Start, Word, eight, is_alone, start};
pub(crate) use glance::Filling;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// An unquoted identifier or keyword, in the client's spelling.
    Word,
    /// `"..."`.
    QuotedWord,
    /// `U&"..."`, without the UESCAPE clause that may follow.
    UnicodeWord,
    /// `'...'`.
    String,
    /// `E'...'`.
    EscapeString,
    /// `U&'...'`, without the UESCAPE clause that may follow.
    UnicodeString,
    /// `N'...'`.
    NationalString,
    /// `B'...'`.
    BitString,
    /// `X'...'`.
    HexString,
    /// `$tag$...$tag$`.
    DollarString,
    /// An integer in any base.
    Integer,
    /// A number with a point or an exponent.
    Numeric,
    /// `$1`.
    Parameter,
    /// An operator, single characters such as `+` and `=` included.
    Operator,
    /// `,`
    Comma,
    /// `;`
    Semicolon,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// `(`
    LeftParen,
    /// `)`
    RightParen,
    /// `[`
    LeftBracket,
    /// `]`
    RightBracket,
    /// `:`
    Colon,
    /// `::`
    Typecast,
    /// `:=`
    ColonEquals,
    /// `=>`
    EqualsGreater,
    /// A string, quoted identifier or comment that does not end.
    Unterminated,
    /// A byte that begins no token.
    Invalid,
}

/// One token: bytes `start..end` of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// Its first byte.
    pub start: usize,
    /// One past its last byte.
    pub end: usize,
}

/// An iterator over the tokens of a text. It allocates nothing and looks at no byte more than three times.
#[derive(Clone, Debug)]
pub struct Lexer<'a> {
    text: &'a [u8],
    position: usize,
    /// Up to here there are signs alone, cut off the end of an operator: each is a token, and none is looked at again.
    signs_until: usize,
}

// === impl Token ===

impl Token {
    /// The bytes of this token in `text`, which must be the text it was read from.
    pub fn text(self, text: &[u8]) -> &[u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

// === impl TokenKind ===

impl TokenKind {
    /// Whether this is a constant of any type.
    pub fn is_literal(self) -> bool {
        self.is_string() || matches!(self, Self::BitString | Self::HexString | Self::Integer | Self::Numeric)
    }

    /// Whether the grammar takes this where it wants a string constant (`Sconst`).
    pub fn is_string(self) -> bool {
        matches!(
            self,
            Self::String
                | Self::EscapeString
                | Self::UnicodeString
                | Self::NationalString
                | Self::DollarString
        )
    }

    /// Whether this may be a name.
    pub fn is_name(self) -> bool {
        matches!(self, Self::Word | Self::QuotedWord | Self::UnicodeWord)
    }
}

// === impl Lexer ===

impl<'a> Lexer<'a> {
    /// Tokens of `text`.
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, position: 0, signs_until: 0 }
    }

    #[inline]
    fn at(&self, offset: usize) -> u8 {
        // A NUL never occurs in a text (the protocol ends it there), and begins no token.
        self.text.get(self.position + offset).copied().unwrap_or(0)
    }

    #[inline]
    fn byte(&self, position: usize) -> u8 {
        self.text.get(position).copied().unwrap_or(0)
    }

    #[inline]
    fn past(&self, position: usize, mask: u8) -> usize {
        let mut position = position;
        while self.text.get(position).is_some_and(|b| is(*b, mask)) {
            position += 1;
        }
        position
    }

    /// The whole text.
    pub(crate) fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Past the last token taken.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// The same lexer, going on at `position`, which is past what it has read and not within a token.
    pub(crate) fn skip_to(self, position: usize) -> Self {
        Self { position, ..self }
    }

    /// The number at `position`, and its end; its first digit is a digit, not a point.
    pub(crate) fn number_at(text: &'a [u8], position: usize) -> (TokenKind, usize) {
        let lexer = Self { text, position, signs_until: 0 };
        lexer.decimal().unwrap_or_else(|| lexer.number())
    }

    /// The end of the string whose opening quote is at `position`; `None` when it does not end.
    pub(crate) fn string_at(text: &'a [u8], position: usize) -> Option<usize> {
        Self::new(text).string(position + 1, false)
    }

    /// The end of the quoted word whose opening quote is at `position`; `None` when it does not end.
    pub(crate) fn quoted_word_at(text: &'a [u8], position: usize) -> Option<usize> {
        Self::new(text).quoted_word(position + 1)
    }

    /// Past a comment that begins with `--`: it ends before a line feed or a carriage return.
    fn line_comment(&self, position: usize) -> usize {
        self.text
            .get(position..)
            .and_then(|rest| memchr::memchr2(b'\n', b'\r', rest))
            .map_or(self.text.len(), |n| position + n)
    }

    /// Past a comment that begins with `/*`; `None` when it does not end.
    fn block_comment(&self, start: usize) -> Option<usize> {
        let mut position = start + 2;
        let mut depth = 1_usize;
        while let Some(n) = memchr::memchr2(b'/', b'*', self.text.get(position..)?) {
            position += n;
            match (self.byte(position), self.byte(position + 1)) {
                (b'/', b'*') => {
                    depth += 1;
                    position += 2;
                }
                (b'*', b'/') => {
                    depth -= 1;
                    position += 2;
                    if depth == 0 {
                        return Some(position);
                    }
                }
                _ => position += 1,
            }
        }
        None
    }

    /// A token that takes a closer look than its first byte, `b`; or else where the comment here ends.
    fn other(&mut self, b: u8) -> Result<(TokenKind, usize), usize> {
        let start = self.position;
        let length = self.text.len();
        let closed =
            |kind, end: Option<usize>| end.map_or((TokenKind::Unterminated, length), |end| (kind, end));
        Ok(match (b, self.at(1)) {
            (b'-', b'-') => return Err(self.line_comment(start + 2)),
            (b'/', b'*') => match self.block_comment(start) {
                Some(end) => return Err(end),
                None => (TokenKind::Unterminated, length),
            },
            (b'e' | b'E', b'\'') => closed(TokenKind::EscapeString, self.string(start + 2, true)),
            (b'b' | b'B', b'\'') => closed(TokenKind::BitString, self.string(start + 2, false)),
            (b'x' | b'X', b'\'') => closed(TokenKind::HexString, self.string(start + 2, false)),
            (b'n' | b'N', b'\'') => closed(TokenKind::NationalString, self.string(start + 2, false)),
            (b'u' | b'U', b'&') if self.at(2) == b'\'' => {
                closed(TokenKind::UnicodeString, self.string(start + 3, false))
            }
            (b'u' | b'U', b'&') if self.at(2) == b'"' => {
                closed(TokenKind::UnicodeWord, self.quoted_word(start + 3))
            }
            (b'0'..=b'9', _) | (b'.', b'0'..=b'9') => self.number(),
            (b'\'', _) => closed(TokenKind::String, self.string(start + 1, false)),
            (b'"', _) => closed(TokenKind::QuotedWord, self.quoted_word(start + 1)),
            (b'$', _) => self.dollar(),
            (b'.', b'.') => (TokenKind::DotDot, start + 2),
            (b'.', _) => (TokenKind::Dot, start + 1),
            (b':', b':') => (TokenKind::Typecast, start + 2),
            (b':', b'=') => (TokenKind::ColonEquals, start + 2),
            (b':', _) => (TokenKind::Colon, start + 1),
            _ if is(b, IDENT_START) => (TokenKind::Word, self.past(start + 1, IDENT)),
            _ if is(b, OPERATOR) => self.operator(),
            _ => (TokenKind::Invalid, start + 1),
        })
    }

    /// Where a string literal goes on after its closing quote: past the opening quote of the next part, if only
    /// whitespace with at least one newline (and line comments) is in between (`quotecontinue` in scan.l).
    fn continuation(&self, mut position: usize) -> Option<usize> {
        let comment = |position| self.byte(position) == b'-' && self.byte(position + 1) == b'-';
        loop {
            position = self.past(position, HORIZONTAL);
            if !comment(position) {
                break;
            }
            position = self.line_comment(position);
        }
        if !matches!(self.byte(position), b'\n' | b'\r') {
            return None;
        }
        loop {
            position = self.past(position, SPACE);
            if !comment(position) {
                break;
            }
            position = self.line_comment(position);
        }
        (self.byte(position) == b'\'').then_some(position + 1)
    }

    /// The end of a string whose first byte after the opening quote is at `position`.
    fn string(&self, mut position: usize, backslash: bool) -> Option<usize> {
        loop {
            let rest = self.text.get(position..)?;
            let found = if backslash { memchr::memchr2(b'\'', b'\\', rest) } else { find(b'\'', rest) };
            position += found?;
            if self.byte(position) == b'\\' || self.byte(position + 1) == b'\'' {
                position += 2;
            } else {
                position += 1;
                match self.continuation(position) {
                    Some(next) => position = next,
                    None => return Some(position),
                }
            }
        }
    }

    fn quoted_word(&self, mut position: usize) -> Option<usize> {
        loop {
            position += find(b'"', self.text.get(position..)?)?;
            if self.byte(position + 1) != b'"' {
                return Some(position + 1);
            }
            position += 2;
        }
    }

    /// A token that begins with `$`.
    fn dollar(&self) -> (TokenKind, usize) {
        let start = self.position;
        if self.at(1).is_ascii_digit() {
            let mut end = start + 2;
            while self.byte(end).is_ascii_digit() {
                end += 1;
            }
            return (TokenKind::Parameter, end);
        }
        let mut end = start + 1;
        if is(self.byte(end), IDENT_START) {
            end += 1;
            while is(self.byte(end), IDENT) && self.byte(end) != b'$' {
                end += 1;
            }
        }
        if self.byte(end) != b'$' {
            return (TokenKind::Invalid, start + 1);
        }
        end += 1;
        let delimiter = &self.text[start..end];
        // Searching for each `$` by itself would be quadratic for "$a$ $a $a $a": the tag is compared at each
        // one, which costs its length only where the bytes agree, as memmem does better.
        match memchr::memmem::find(&self.text[end..], delimiter) {
            Some(n) => (TokenKind::DollarString, end + n + delimiter.len()),
            None => (TokenKind::Unterminated, self.text.len()),
        }
    }

    /// Digits with single underscores between them (PostgreSQL 16); `position` is past the first digit.
    fn digits(&self, mut position: usize, digit: impl Fn(u8) -> bool) -> usize {
        loop {
            let b = self.byte(position);
            if digit(b) {
                position += 1;
            } else if b == b'_' && digit(self.byte(position + 1)) {
                position += 2;
            } else {
                return position;
            }
        }
    }

    /// A decimal integer, as nearly all numbers are; `None` if it takes a closer look.
    #[inline]
    fn decimal(&self) -> Option<(TokenKind, usize)> {
        let end = self.past(self.position + 1, DIGIT);
        (!is(self.byte(end), CONTINUES_NUMBER)).then_some((TokenKind::Integer, end))
    }

    fn number(&self) -> (TokenKind, usize) {
        let start = self.position;
        let decimal = |b: u8| b.is_ascii_digit();
        if self.at(0) == b'0' {
            let digit: Option<fn(u8) -> bool> = match self.at(1) | 0x20 {
                b'x' => Some(|b| b.is_ascii_hexdigit()),
                b'o' => Some(|b| matches!(b, b'0'..=b'7')),
                b'b' => Some(|b| matches!(b, b'0' | b'1')),
                _ => None,
            };
            if let Some(digit) = digit {
                let end = self.digits(start + 2, digit);
                if end > start + 2 {
                    return (TokenKind::Integer, end);
                }
            }
        }
        let mut kind = TokenKind::Integer;
        let mut end = self.digits(start, decimal);
        // "1..2" is an integer and a range; "1." and ".5" are numbers.
        if self.byte(end) == b'.' && self.byte(end + 1) != b'.' {
            kind = TokenKind::Numeric;
            end += 1;
            if decimal(self.byte(end)) {
                end = self.digits(end, decimal);
            }
        }
        if self.byte(end) | 0x20 == b'e' {
            let sign = usize::from(matches!(self.byte(end + 1), b'+' | b'-'));
            if decimal(self.byte(end + 1 + sign)) {
                kind = TokenKind::Numeric;
                end = self.digits(end + 1 + sign, decimal);
            }
        }
        (kind, end)
    }

    /// An operator: as many operator characters as there are, cut where a comment begins, and without trailing
    /// signs unless it contains a character that no SQL operator has.
    fn operator(&mut self) -> (TokenKind, usize) {
        let start = self.position;
        if start < self.signs_until {
            return (TokenKind::Operator, start + 1);
        }
        let mut end = start + 1;
        while is(self.byte(end), OPERATOR) {
            if matches!((self.byte(end), self.byte(end + 1)), (b'/', b'*') | (b'-', b'-')) {
                break;
            }
            end += 1;
        }
        let text = &self.text[start..end];
        if let [body @ .., b'+' | b'-'] = text {
            let special =
                |b: &u8| matches!(b, b'~' | b'!' | b'@' | b'#' | b'^' | b'&' | b'|' | b'`' | b'?' | b'%');
            if !body.is_empty() && !body.iter().any(special) {
                // Without this a long row of signs would be read to its end for each of them.
                self.signs_until = end;
                end -= 1;
                while end - start > 1 && matches!(self.byte(end - 1), b'+' | b'-') {
                    end -= 1;
                }
            }
        }
        let kind =
            if self.text[start..end] == *b"=>" { TokenKind::EqualsGreater } else { TokenKind::Operator };
        (kind, end)
    }
}

impl Iterator for Lexer<'_> {
    type Item = Token;

    #[inline]
    fn next(&mut self) -> Option<Token> {
        let mut start = self.position;
        let (kind, end) = loop {
            let b = *self.text.get(start)?;
            match bytes::start(b) {
                Start::Space => start += 1,
                // Otherwise it may be the kind of a string.
                Start::Word if !matches!(self.byte(start + 1), b'\'' | b'&') => {
                    break (TokenKind::Word, self.past(start + 1, IDENT));
                }
                Start::Byte if is_alone(b, self.byte(start + 1)) => break (single(b), start + 1),
                Start::Digit => {
                    self.position = start;
                    break self.decimal().unwrap_or_else(|| self.number());
                }
                _ => {
                    self.position = start;
                    match self.other(b) {
                        Ok(found) => break found,
                        Err(past_comment) => start = past_comment,
                    }
                }
            }
        };
        // A backslash as the last byte of an E string would step past the end.
        let end = end.min(self.text.len());
        self.position = end;
        Some(Token { kind, start, end })
    }
}

/// The kind of a token of one byte that [`is_alone`].
const fn single(b: u8) -> TokenKind {
    match b {
        b',' => TokenKind::Comma,
        b';' => TokenKind::Semicolon,
        b'(' => TokenKind::LeftParen,
        b')' => TokenKind::RightParen,
        b'[' => TokenKind::LeftBracket,
        b']' => TokenKind::RightBracket,
        b'.' => TokenKind::Dot,
        _ => TokenKind::Operator,
    }
}

#[cfg(test)]
mod tests;
