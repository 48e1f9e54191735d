//! What a client says.

use std::fmt;

use super::Key;
use super::message::Cursor;

/// A message of the frontend after start-up.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// Its type.
    pub tag: u8,
    /// What follows the length.
    pub body: Vec<u8>,
}

impl Request {
    /// The frame as it is sent.
    pub fn encode(&self) -> Vec<u8> {
        frame(self.tag, &self.body)
    }
}

/// `Q(SELECT 1)`, `P(s1: SELECT 1)`, `B(p <- s1)`, `D(S s1)`, `C(P p)`, `E(p 0)`; others are their letter alone.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cursor = Cursor(&self.body);
        match self.tag {
            b'Q' => write!(f, "Q({})", cursor.text()),
            b'P' => write!(f, "P({}: {})", cursor.text(), cursor.text()),
            b'B' => write!(f, "B({} <- {})", cursor.text(), cursor.text()),
            b'E' => write!(f, "E({} {})", cursor.text(), cursor.int32()),
            b'D' | b'C' => {
                let kind = cursor.take(1).first().copied().map_or('?', char::from);
                write!(f, "{}({kind} {})", char::from(self.tag), cursor.text())
            }
            tag => write!(f, "{}", char::from(tag)),
        }
    }
}

pub(crate) fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("a test's message is shorter than 4 GiB");
    [&[tag], length.to_be_bytes().as_slice(), body].concat()
}

pub(crate) fn text(value: &str) -> Vec<u8> {
    [value.as_bytes(), &[0]].concat()
}

pub(crate) fn count(items: usize) -> [u8; 2] {
    u16::try_from(items).expect("at most 65,535 items").to_be_bytes()
}

pub(crate) fn value(value: Option<&[u8]>) -> Vec<u8> {
    match value {
        None => (-1_i32).to_be_bytes().to_vec(),
        Some(bytes) => {
            let length = i32::try_from(bytes.len()).expect("a test's value is shorter than 2 GiB");
            [length.to_be_bytes().as_slice(), bytes].concat()
        }
    }
}

/// Any message at all.
pub fn raw(tag: u8, body: &[u8]) -> Request {
    Request { tag, body: body.to_vec() }
}

/// A simple Query.
pub fn query(sql: &str) -> Request {
    raw(b'Q', &text(sql))
}

/// Parse without parameter types.
pub fn parse(name: &str, sql: &str) -> Request {
    parse_typed(name, sql, &[])
}

/// Parse with the type OIDs of the parameters.
pub fn parse_typed(name: &str, sql: &str, types: &[u32]) -> Request {
    let types: Vec<u8> = types.iter().flat_map(|oid| oid.to_be_bytes()).collect();
    raw(b'P', &[text(name), text(sql), count(types.len() / 4).to_vec(), types].concat())
}

/// Bind with values as text, `None` for NULL, and results as text.
pub fn bind(portal: &str, statement: &str, values: &[Option<&str>]) -> Request {
    let values: Vec<Option<&[u8]>> = values.iter().map(|value| value.map(str::as_bytes)).collect();
    bind_formats(portal, statement, &[], &values, &[])
}

/// Bind with all it can carry; a format is 0 for text, 1 for binary.
pub fn bind_formats(
    portal: &str,
    statement: &str,
    formats: &[u16],
    values: &[Option<&[u8]>],
    results: &[u16],
) -> Request {
    let codes = |codes: &[u16]| -> Vec<u8> {
        count(codes.len()).into_iter().chain(codes.iter().flat_map(|code| code.to_be_bytes())).collect()
    };
    let mut body = [text(portal), text(statement), codes(formats), count(values.len()).to_vec()].concat();
    for one in values {
        body.extend(value(*one));
    }
    body.extend(codes(results));
    raw(b'B', &body)
}

/// Describe of a prepared statement.
pub fn describe_statement(name: &str) -> Request {
    raw(b'D', &[b"S", text(name).as_slice()].concat())
}

/// Describe of a portal.
pub fn describe_portal(name: &str) -> Request {
    raw(b'D', &[b"P", text(name).as_slice()].concat())
}

/// Execute; 0 rows means all.
pub fn execute(portal: &str, max_rows: i32) -> Request {
    raw(b'E', &[text(portal).as_slice(), &max_rows.to_be_bytes()].concat())
}

/// Close of a prepared statement.
pub fn close_statement(name: &str) -> Request {
    raw(b'C', &[b"S", text(name).as_slice()].concat())
}

/// Close of a portal.
pub fn close_portal(name: &str) -> Request {
    raw(b'C', &[b"P", text(name).as_slice()].concat())
}

/// Sync.
pub fn sync() -> Request {
    raw(b'S', &[])
}

/// Flush.
pub fn flush() -> Request {
    raw(b'H', &[])
}

/// `CopyData`.
pub fn copy_data(bytes: &[u8]) -> Request {
    raw(b'd', bytes)
}

/// `CopyDone`.
pub fn copy_done() -> Request {
    raw(b'c', &[])
}

/// `CopyFail`.
pub fn copy_fail(reason: &str) -> Request {
    raw(b'f', &text(reason))
}

/// Terminate.
pub fn terminate() -> Request {
    raw(b'X', &[])
}

/// `FunctionCall` by OID, values and result as text.
pub fn function_call(oid: u32, values: &[Option<&str>]) -> Request {
    let mut body = [oid.to_be_bytes().as_slice(), &count(0), &count(values.len())].concat();
    for one in values {
        body.extend(value(one.map(str::as_bytes)));
    }
    body.extend(count(0));
    raw(b'F', &body)
}

/// A `StartupMessage`; `version` is `0x0003_0000` for 3.0.
pub fn startup_packet(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend(text(name));
        body.extend(text(value));
    }
    body.push(0);
    untagged(&body)
}

/// `SSLRequest`.
pub fn ssl_request() -> Vec<u8> {
    untagged(&80_877_103_u32.to_be_bytes())
}

/// `GSSENCRequest`.
pub fn gss_request() -> Vec<u8> {
    untagged(&80_877_104_u32.to_be_bytes())
}

/// `CancelRequest`.
pub fn cancel_packet(key: &Key) -> Vec<u8> {
    untagged(&[&80_877_102_u32.to_be_bytes(), key.pid.to_be_bytes().as_slice(), &key.secret].concat())
}

fn untagged(body: &[u8]) -> Vec<u8> {
    frame(0, body).split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_print_what_they_hold() {
        let requests = [
            query("SELECT 1"),
            parse("s1", "SELECT $1"),
            bind("p", "s1", &[Some("1"), None]),
            describe_statement("s1"),
            execute("p", 2),
            close_portal("p"),
            sync(),
        ];
        let shown = "[Q(SELECT 1), P(s1: SELECT $1), B(p <- s1), D(S s1), E(p 2), C(P p), S]";
        assert_eq!(format!("{requests:?}"), shown);
    }

    #[test]
    fn packets_without_a_tag_have_the_documented_bytes() {
        assert_eq!(ssl_request(), [0, 0, 0, 8, 4, 210, 22, 47]);
        assert_eq!(gss_request(), [0, 0, 0, 8, 4, 210, 22, 48]);
        let key = Key { pid: 1, secret: vec![0, 0, 0, 2] };
        assert_eq!(cancel_packet(&key), [0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(startup_packet(0x0003_0000, &[("a", "b")]), b"\0\0\0\x0d\0\x03\0\0a\0b\0\0");
    }
}
