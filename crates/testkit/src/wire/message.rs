//! What a server says.

use std::fmt;

/// A message of the backend.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Its type.
    pub tag: u8,
    /// What follows the length.
    pub body: Vec<u8>,
}

impl Message {
    /// The SQLSTATE of an `ErrorResponse` or `NoticeResponse`, empty for anything else.
    pub fn code(&self) -> &str {
        self.field(b'C').unwrap_or_default()
    }

    /// A field of an `ErrorResponse` or `NoticeResponse`, such as `b'M'` for the text.
    pub fn field(&self, which: u8) -> Option<&str> {
        if !matches!(self.tag, b'E' | b'N') {
            return None;
        }
        let fields = self.body.split(|byte| *byte == 0);
        fields.filter_map(|field| field.split_first()).find_map(|(kind, text)| {
            (*kind == which).then(|| std::str::from_utf8(text).unwrap_or("(not UTF-8)"))
        })
    }

    /// The columns of a `DataRow` as text, `None` for NULL.
    pub fn columns(&self) -> Vec<Option<String>> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        self.values().into_iter().map(|value| value.map(text)).collect()
    }

    /// The columns of a `DataRow` as they came, `None` for NULL.
    pub fn values(&self) -> Vec<Option<Vec<u8>>> {
        assert_eq!(self.tag, b'D', "{self:?} is no DataRow");
        let mut cursor = Cursor(&self.body);
        let count = cursor.int16();
        (0..count)
            .map(|_| {
                let length = usize::try_from(cursor.int32()).ok()?;
                Some(cursor.take(length).to_vec())
            })
            .collect()
    }

    /// The column names of a `RowDescription`.
    pub fn names(&self) -> Vec<String> {
        assert_eq!(self.tag, b'T', "{self:?} is no RowDescription");
        let mut cursor = Cursor(&self.body);
        let count = cursor.int16();
        (0..count)
            .map(|_| {
                let name = cursor.text();
                cursor.take(18);
                name
            })
            .collect()
    }

    /// The tag of a `CommandComplete`, such as `SELECT 1`.
    pub fn command(&self) -> String {
        assert_eq!(self.tag, b'C', "{self:?} is no CommandComplete");
        Cursor(&self.body).text()
    }

    /// The transaction status of a `ReadyForQuery`: `I`, `T` or `E`.
    pub fn status(&self) -> char {
        assert_eq!(self.tag, b'Z', "{self:?} is no ReadyForQuery");
        self.body.first().copied().map_or('?', char::from)
    }

    /// Name and value of a `ParameterStatus`.
    pub fn parameter(&self) -> (String, String) {
        assert_eq!(self.tag, b'S', "{self:?} is no ParameterStatus");
        let mut cursor = Cursor(&self.body);
        (cursor.text(), cursor.text())
    }

    /// Process id, channel and payload of a `NotificationResponse`.
    pub fn notification(&self) -> (i32, String, String) {
        assert_eq!(self.tag, b'A', "{self:?} is no NotificationResponse");
        let mut cursor = Cursor(&self.body);
        (cursor.int32(), cursor.text(), cursor.text())
    }

    /// The message in the words of [`summary`].
    pub fn short(&self) -> String {
        match self.tag {
            b'E' | b'N' => format!("{}({})", char::from(self.tag), self.code()),
            b'Z' => format!("Z({})", self.status()),
            b'S' => format!("S({})", self.parameter().0),
            b'A' => format!("A({})", self.notification().1),
            tag => char::from(tag).to_string(),
        }
    }
}

/// `1 2 D(a, null) C(SELECT 1) Z(I) E(22012 division by zero)`.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = match self.tag {
            b'E' | b'N' => format!("{} {}", self.code(), self.field(b'M').unwrap_or_default()),
            b'C' => self.command(),
            b'D' => row(&self.columns()),
            b'T' => self.names().join(", "),
            b'S' => {
                let (name, value) = self.parameter();
                format!("{name}={value}")
            }
            b'A' => {
                let (_, channel, payload) = self.notification();
                format!("{channel}={payload}")
            }
            b'd' => format!("{} bytes", self.body.len()),
            b'K' => Cursor(&self.body).int32().to_string(),
            b'R' => match Cursor(&self.body).int32() {
                0 => "ok".to_owned(),
                kind => kind.to_string(),
            },
            b'v' => format!("{:#x}", Cursor(&self.body).int32()),
            _ => return f.write_str(&self.short()),
        };
        write!(f, "{}({inner})", char::from(self.tag))
    }
}

fn row(columns: &[Option<String>]) -> String {
    let shown: Vec<String> = columns
        .iter()
        .map(|column| match column {
            None => "null".to_owned(),
            Some(text) if text.len() > 60 => format!("{} bytes", text.len()),
            Some(text) => text.clone(),
        })
        .collect();
    shown.join(", ")
}

/// The types of the messages in one line, such as `1 2 T D C Z(I)`, with the SQLSTATE of errors and notices, the name
/// of parameters, the channel of notifications and the transaction status. More than three rows (`D`) or pieces of a
/// COPY (`d`) in a row are counted: `D*200`.
pub fn summary(messages: &[Message]) -> String {
    let mut words: Vec<String> = Vec::new();
    for run in messages.chunk_by(|a, b| a.tag == b.tag && matches!(a.tag, b'D' | b'd')) {
        match run {
            [first, ..] if run.len() > 3 => words.push(format!("{}*{}", first.short(), run.len())),
            _ => words.extend(run.iter().map(Message::short)),
        }
    }
    words.join(" ")
}

/// Reads a body from the front; what is missing reads as zero or empty, so that `Debug` never fails.
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl Cursor<'_> {
    pub(crate) fn take(&mut self, length: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(crate) fn int16(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().unwrap_or_default())
    }

    pub(crate) fn int32(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap_or_default())
    }

    pub(crate) fn text(&mut self) -> String {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let text = String::from_utf8_lossy(self.take(length)).into_owned();
        self.take(1);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::reply;

    fn message(bytes: &[u8]) -> Message {
        Message { tag: bytes[0], body: bytes[5..].to_vec() }
    }

    #[test]
    fn messages_print_what_they_hold() {
        let messages: Vec<Message> = [
            reply::parse_complete(),
            reply::bind_complete(),
            reply::row_description(&["a", "b"]),
            reply::data_row(&[Some("x"), None]),
            reply::command_complete("SELECT 1"),
            reply::error("22012", "division by zero"),
            reply::parameter_status("TimeZone", "UTC"),
            reply::notification(7, "ev", "1"),
            reply::ready(b'T'),
        ]
        .iter()
        .map(|bytes| message(bytes))
        .collect();
        assert_eq!(
            format!("{messages:?}"),
            "[1, 2, T(a, b), D(x, null), C(SELECT 1), E(22012 division by zero), S(TimeZone=UTC), A(ev=1), Z(T)]"
        );
        assert_eq!(summary(&messages), "1 2 T D C E(22012) S(TimeZone) A(ev) Z(T)");
        assert_eq!(messages[5].field(b'S'), Some("ERROR"));
        assert_eq!(messages[5].field(b'q'), None);
        assert_eq!(messages[7].notification(), (7, "ev".to_owned(), "1".to_owned()));
    }

    #[test]
    fn long_runs_of_rows_are_counted() {
        let row = message(&reply::data_row(&[None]));
        assert_eq!(summary(&vec![row.clone(); 3]), "D D D");
        assert_eq!(summary(&vec![row; 4]), "D*4");
    }

    #[test]
    fn a_broken_body_still_prints() {
        let broken = Message { tag: b'D', body: vec![0, 3, 0, 0, 0, 9, b'x'] };
        assert_eq!(format!("{broken:?}"), "D(x, , )");
    }
}
