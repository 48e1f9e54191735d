//! Names and constants as the server reads them from tokens.

use crate::lexer::{Token, TokenKind};

/// The longest identifier: the server cuts longer ones (`NAMEDATALEN` - 1).
const LONGEST_NAME: usize = 63;

/// A position in the tokens of one statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    sql: &'a str,
    tokens: &'a [Token],
    position: usize,
}

// === impl Cursor ===

impl<'a> Cursor<'a> {
    pub(crate) fn new(sql: &'a str, tokens: &'a [Token]) -> Self {
        Self { sql, tokens, position: 0 }
    }

    /// The whole text, of which the tokens are a part.
    pub(crate) fn sql(&self) -> &'a str {
        self.sql
    }

    pub(crate) fn peek(&self) -> Option<Token> {
        self.tokens.get(self.position).copied()
    }

    pub(crate) fn next(&mut self) -> Option<Token> {
        let token = self.peek()?;
        self.position += 1;
        Some(token)
    }

    pub(crate) fn at_end(&self) -> bool {
        self.position >= self.tokens.len()
    }

    /// The tokens not yet taken.
    pub(crate) fn rest(&self) -> &'a [Token] {
        self.tokens.get(self.position..).unwrap_or_default()
    }

    /// The text of the tokens not yet taken, as the client wrote it.
    pub(crate) fn rest_text(&self) -> &'a str {
        match (self.rest().first(), self.rest().last()) {
            (Some(first), Some(last)) => self.sql.get(first.start..last.end).unwrap_or_default(),
            _ => "",
        }
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.peek().is_some_and(|token| is_word(token, self.sql, word))
    }

    pub(crate) fn is_word_at(&self, offset: usize, word: &str) -> bool {
        self.tokens.get(self.position + offset).is_some_and(|token| is_word(*token, self.sql, word))
    }

    pub(crate) fn is_kind(&self, kind: TokenKind) -> bool {
        self.peek().is_some_and(|token| token.kind == kind)
    }

    /// Takes `word` if it is next.
    pub(crate) fn eat(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.position += usize::from(found);
        found
    }

    /// Takes all of `words` if they are next.
    pub(crate) fn eat_all(&mut self, words: &[&str]) -> bool {
        let found = words.iter().enumerate().all(|(offset, word)| self.is_word_at(offset, word));
        self.position += if found { words.len() } else { 0 };
        found
    }

    /// Takes one of `words` if it is next.
    pub(crate) fn eat_any(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.eat(word))
    }

    pub(crate) fn eat_kind(&mut self, kind: TokenKind) -> bool {
        let found = self.is_kind(kind);
        self.position += usize::from(found);
        found
    }

    /// Takes `=`, if it is next.
    pub(crate) fn eat_equals(&mut self) -> bool {
        let found = self.peek().is_some_and(|token| {
            token.kind == TokenKind::Operator && token.text(self.sql.as_bytes()) == b"="
        });
        self.position += usize::from(found);
        found
    }

    /// Takes a name and folds it.
    pub(crate) fn name(&mut self) -> Option<Box<str>> {
        let name = name(self.peek()?, self.sql)?;
        self.position += 1;
        Some(name)
    }

    /// Takes everything up to the parenthesis that closes the one just taken, and that one; gives what is inside.
    pub(crate) fn parenthesised(&mut self) -> Option<&'a [Token]> {
        let start = self.position;
        let mut depth = 1_usize;
        while let Some(token) = self.next() {
            match token.kind {
                TokenKind::LeftParen => depth += 1,
                TokenKind::RightParen => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return self.tokens.get(start..self.position - 1);
            }
        }
        None
    }
}

/// Whether `token` is this unquoted word.
pub(crate) fn is_word(token: Token, sql: &str, word: &str) -> bool {
    token.kind == TokenKind::Word && token.text(sql.as_bytes()).eq_ignore_ascii_case(word.as_bytes())
}

/// A name as the server folds it; `None` for what is no name, for names that the server would cut, and for
/// Unicode-escaped ones, whose meaning a later token decides.
pub(crate) fn name(token: Token, sql: &str) -> Option<Box<str>> {
    let text = sql.get(token.start..token.end)?;
    let name = match token.kind {
        TokenKind::Word => text.to_ascii_lowercase(),
        TokenKind::QuotedWord => text.strip_prefix('"')?.strip_suffix('"')?.replace("\"\"", "\""),
        _ => return None,
    };
    (!name.is_empty() && name.len() <= LONGEST_NAME).then(|| name.into_boxed_str())
}

/// The name that `U&"..."` spells with this escape character.
pub(crate) fn unicode_name(token: Token, sql: &str, escape: char) -> Option<Box<str>> {
    let text = sql.get(token.start + 3..token.end)?.strip_suffix('"')?.replace("\"\"", "\"");
    let name = unescape(&text, escape)?;
    (!name.is_empty() && name.len() <= LONGEST_NAME).then(|| name.into_boxed_str())
}

/// Resolves `\` with four hexadecimal digits and `\+` with six; surrogate pairs and anything malformed are left to the server.
fn unescape(text: &str, escape: char) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(escape) {
        out.push_str(before);
        if let Some(after) = after.strip_prefix(escape) {
            out.push(escape);
            rest = after;
            continue;
        }
        let (digits, length) = match after.strip_prefix('+') {
            Some(long) => (long, 6),
            None => (after, 4),
        };
        let code = digits.get(..length).filter(|code| code.bytes().all(|b| b.is_ascii_hexdigit()))?;
        out.push(char::from_u32(u32::from_str_radix(code, 16).ok()?).filter(|c| *c != '\0')?);
        rest = digits.get(length..)?;
    }
    out.push_str(rest);
    Some(out)
}

/// The value of a string constant; `None` for spellings whose value takes more than undoubling quotes to find.
pub(crate) fn string(token: Token, sql: &str) -> Option<Box<str>> {
    let text = sql.get(token.start..token.end)?;
    let body = match token.kind {
        TokenKind::String => text.strip_prefix('\''),
        TokenKind::EscapeString if !text.contains('\\') => text.get(2..),
        TokenKind::DollarString => {
            let tag = text.get(..=text.get(1..)?.find('$')? + 1)?;
            return Some(text.strip_prefix(tag)?.strip_suffix(tag)?.into());
        }
        _ => None,
    }?;
    let body = body.strip_suffix('\'')?;
    let mut out = String::with_capacity(body.len());
    let mut rest = body;
    while let Some((before, after)) = rest.split_once('\'') {
        out.push_str(before);
        out.push('\'');
        // A single quote here means that the constant goes on over a newline.
        rest = after.strip_prefix('\'')?;
    }
    out.push_str(rest);
    Some(out.into_boxed_str())
}
