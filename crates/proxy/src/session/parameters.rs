//! What a client was told of its settings by `ParameterStatus`.

use std::sync::Arc;

use causeway_routing::cache::SyntaxOptions;

/// What clients with the same start-up packet are told at login: name and value.
pub(crate) type Told = Arc<[(Box<str>, Box<[u8]>)]>;

/// A name and a value.
pub(crate) type Parameter = (Box<[u8]>, Box<[u8]>);

/// What one client was told.
#[derive(Debug)]
pub(crate) struct Parameters {
    greeting: Told,
    /// What has changed since.
    changed: Vec<Parameter>,
    /// How statements are to be read under these settings.
    pub(crate) syntax: SyntaxOptions,
}

// === impl Parameters ===

impl Parameters {
    /// A client that has just been greeted.
    pub(crate) fn new(greeting: Told) -> Self {
        let syntax = SyntaxOptions::default();
        let mut parameters = Self { greeting, changed: Vec::new(), syntax };
        let greeting = Arc::clone(&parameters.greeting);
        for (name, value) in greeting.iter() {
            parameters.read_syntax(name.as_bytes(), value);
        }
        parameters
    }

    /// Takes in a value that the client may be told; says whether it was told otherwise before.
    pub(crate) fn tell(&mut self, name: &[u8], value: &[u8]) -> bool {
        if let Some((_, known)) = self.changed.iter_mut().find(|(known, _)| **known == *name) {
            if **known == *value {
                return false;
            }
            *known = value.into();
        } else {
            let greeted = self.greeting.iter().find(|(known, _)| known.as_bytes() == name);
            if greeted.is_some_and(|(_, known)| **known == *value) {
                return false;
            }
            self.changed.push((name.into(), value.into()));
        }
        self.read_syntax(name, value);
        true
    }

    /// What the client was told last.
    pub(crate) fn value(&self, name: &[u8]) -> Option<&[u8]> {
        let changed = self.changed.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value);
        let greeted = || self.greeting.iter().find(|(known, _)| known.as_bytes() == name);
        changed.or_else(|| greeted().map(|(_, value)| &**value))
    }

    fn read_syntax(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"standard_conforming_strings" => self.syntax.standard_conforming_strings = value == b"on",
            b"client_encoding" => {
                // Those that only clients may have (`PG_ENCODING_BE_LAST` in src/include/mb/pg_wchar.h).
                const ASCII_INSIDE: [&[u8]; 7] =
                    [b"SJIS", b"BIG5", b"GBK", b"UHC", b"GB18030", b"JOHAB", b"SHIFT_JIS_2004"];
                self.syntax.utf8 = value.eq_ignore_ascii_case(b"UTF8");
                self.syntax.ascii_inside = ASCII_INSIDE.iter().any(|name| value.eq_ignore_ascii_case(name));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_from_the_last_word_is_news() {
        let greeting: Told = Arc::from([(Box::from("client_encoding"), Box::from(&b"UTF8"[..]))]);
        let mut parameters = Parameters::new(greeting);
        assert!(!parameters.tell(b"client_encoding", b"UTF8"));
        assert!(parameters.tell(b"client_encoding", b"LATIN1"));
        assert_eq!(parameters.value(b"client_encoding"), Some(&b"LATIN1"[..]));
        assert_eq!(parameters.value(b"TimeZone"), None);
        assert!(!parameters.syntax.utf8 && !parameters.syntax.ascii_inside);
        assert!(parameters.tell(b"client_encoding", b"SJIS") && parameters.syntax.ascii_inside);
        assert!(parameters.tell(b"client_encoding", b"LATIN1") && !parameters.syntax.ascii_inside);
        assert!(!parameters.tell(b"client_encoding", b"LATIN1"));
        assert!(parameters.tell(b"client_encoding", b"UTF8"));
        assert!(parameters.syntax.utf8);
        assert!(parameters.tell(b"TimeZone", b"UTC"));
    }
}
