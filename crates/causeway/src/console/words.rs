//! Splits a console statement into words.

/// One word and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// In lower case, unless it was quoted.
    pub(super) text: String,
    /// The word as written.
    pub(super) written: String,
    /// The offset of the first byte after it.
    pub(super) end: usize,
}

/// The statement without white space around it and without the semicolon at its end.
pub(super) fn trimmed(sql: &str) -> &str {
    let sql = sql.trim();
    sql.strip_suffix(';').unwrap_or(sql).trim_end()
}

/// The first `most` words of `sql`. A word in double quotes may hold anything; a quote in it is doubled.
pub(super) fn words(sql: &str, most: usize) -> Vec<Word> {
    let mut words = Vec::new();
    let mut position = 0;
    while words.len() < most {
        let Some(rest) = sql.get(position..) else { break };
        let start = position + (rest.len() - rest.trim_start().len());
        let Some(rest) = sql.get(start..).filter(|rest| !rest.is_empty()) else { break };
        let word = if let Some(quoted) = rest.strip_prefix('"') {
            quoted_word(quoted, start)
        } else {
            let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let (written, _) = rest.split_at(length);
            let end = start + length;
            Word { text: written.to_ascii_lowercase(), written: written.to_owned(), end }
        };
        position = word.end;
        words.push(word);
    }
    words
}

/// A quoted word, its opening quote at `start`; it ends with the text if it is not closed.
fn quoted_word(quoted: &str, start: usize) -> Word {
    let mut text = String::new();
    let mut characters = quoted.char_indices().peekable();
    while let Some((position, character)) = characters.next() {
        if character != '"' {
            text.push(character);
        } else if characters.next_if(|(_, next)| *next == '"').is_some() {
            text.push('"');
        } else {
            return Word { written: text.clone(), text, end: start + 1 + position + 1 };
        }
    }
    Word { written: text.clone(), text, end: start + 1 + quoted.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_folded_unless_quoted() {
        let texts = |sql| words(sql, 9).into_iter().map(|word| word.text).collect::<Vec<_>>();
        assert_eq!(texts("  SHOW\n Pools "), ["show", "pools"]);
        assert_eq!(texts("KILL \"My \"\"DB\"\"\" x"), ["kill", "My \"DB\"", "x"]);
        assert_eq!(texts("\"open"), ["open"]);
        assert_eq!(texts(""), Vec::<String>::new());
        assert_eq!(texts("é \"ü\""), ["é", "ü"]);
    }

    #[test]
    fn the_rest_can_be_found() {
        let sql = "explain route database \"a b\" SELECT  1";
        let word = words(sql, 4).pop().unwrap();
        assert_eq!(&sql[word.end..], " SELECT  1");
        assert_eq!(trimmed(" SHOW POOLS ; "), "SHOW POOLS");
    }
}
