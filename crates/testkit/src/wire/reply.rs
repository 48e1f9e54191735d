//! The backend's messages as bytes, for a scripted server.

use super::request::{count, frame, text, value};

/// `AuthenticationOk`.
pub fn authentication_ok() -> Vec<u8> {
    frame(b'R', &0_u32.to_be_bytes())
}

/// `ParameterStatus`.
pub fn parameter_status(name: &str, value: &str) -> Vec<u8> {
    frame(b'S', &[text(name), text(value)].concat())
}

/// `BackendKeyData`.
pub fn key_data(pid: i32, secret: &[u8]) -> Vec<u8> {
    frame(b'K', &[pid.to_be_bytes().as_slice(), secret].concat())
}

/// `ReadyForQuery` with `b'I'`, `b'T'` or `b'E'`.
pub fn ready(status: u8) -> Vec<u8> {
    frame(b'Z', &[status])
}

/// `ParseComplete`.
pub fn parse_complete() -> Vec<u8> {
    frame(b'1', &[])
}

/// `BindComplete`.
pub fn bind_complete() -> Vec<u8> {
    frame(b'2', &[])
}

/// `CloseComplete`.
pub fn close_complete() -> Vec<u8> {
    frame(b'3', &[])
}

/// `NoData`.
pub fn no_data() -> Vec<u8> {
    frame(b'n', &[])
}

/// `PortalSuspended`.
pub fn portal_suspended() -> Vec<u8> {
    frame(b's', &[])
}

/// `EmptyQueryResponse`.
pub fn empty_query() -> Vec<u8> {
    frame(b'I', &[])
}

/// `RowDescription` of columns of type text.
pub fn row_description(names: &[&str]) -> Vec<u8> {
    let mut body = count(names.len()).to_vec();
    for name in names {
        body.extend(text(name));
        // No table, type 25 (text) of variable length, no modifier, text format.
        body.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 25, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
    }
    frame(b'T', &body)
}

/// `ParameterDescription`.
pub fn parameter_description(types: &[u32]) -> Vec<u8> {
    let types: Vec<u8> = types.iter().flat_map(|oid| oid.to_be_bytes()).collect();
    frame(b't', &[count(types.len() / 4).to_vec(), types].concat())
}

/// `DataRow` with values as text, `None` for NULL.
pub fn data_row(columns: &[Option<&str>]) -> Vec<u8> {
    let mut body = count(columns.len()).to_vec();
    for column in columns {
        body.extend(value(column.map(str::as_bytes)));
    }
    frame(b'D', &body)
}

/// `CommandComplete`, such as `SELECT 1`.
pub fn command_complete(tag: &str) -> Vec<u8> {
    frame(b'C', &text(tag))
}

/// `ErrorResponse` of severity ERROR.
pub fn error(code: &str, message: &str) -> Vec<u8> {
    report(b'E', "ERROR", code, message)
}

/// `ErrorResponse` of severity FATAL.
pub fn fatal(code: &str, message: &str) -> Vec<u8> {
    report(b'E', "FATAL", code, message)
}

/// `NoticeResponse`.
pub fn notice(code: &str, message: &str) -> Vec<u8> {
    report(b'N', "NOTICE", code, message)
}

fn report(tag: u8, severity: &str, code: &str, message: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, value) in [(b'S', severity), (b'V', severity), (b'C', code), (b'M', message)] {
        body.push(kind);
        body.extend(text(value));
    }
    body.push(0);
    frame(tag, &body)
}

/// `NotificationResponse`.
pub fn notification(pid: i32, channel: &str, payload: &str) -> Vec<u8> {
    frame(b'A', &[pid.to_be_bytes().to_vec(), text(channel), text(payload)].concat())
}

/// `CopyInResponse` in text format.
pub fn copy_in(columns: usize) -> Vec<u8> {
    frame(b'G', &copy_formats(columns))
}

/// `CopyOutResponse` in text format.
pub fn copy_out(columns: usize) -> Vec<u8> {
    frame(b'H', &copy_formats(columns))
}

fn copy_formats(columns: usize) -> Vec<u8> {
    [vec![0], count(columns).to_vec(), vec![0; columns * 2]].concat()
}

/// `CopyData`.
pub fn copy_data(bytes: &[u8]) -> Vec<u8> {
    frame(b'd', bytes)
}

/// `CopyDone`.
pub fn copy_done() -> Vec<u8> {
    frame(b'c', &[])
}
