//! Writing complete frames, in both directions.
//!
//! Every function appends to `out`. A text can hold any byte but NUL, which would end it early and shift the fields
//! behind it: a NUL is written as a space. Lists are cut at 65,535 entries, which is all their counts can say. A frame
//! beyond 4 GiB gets a length that the peer refuses; [`crate::frame::MAX_FRAME_LEN`] is far below.

use crate::backend::{self, Column, TransactionStatus};
use crate::frontend::{self, Target};
use crate::message::nul;
use crate::report::ErrorReport;
use crate::startup::{CANCEL_REQUEST, CancelKey, GSSENC_REQUEST, PROTOCOL_3_0, SSL_REQUEST};

// === from a client ===

/// `StartupMessage` of protocol 3.0; `parameters` include `user` and `database`.
pub fn startup<'a>(out: &mut Vec<u8>, parameters: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) {
    untagged(out, |out| {
        put_u32(out, PROTOCOL_3_0);
        for (name, value) in parameters {
            put_text(out, name);
            put_text(out, value);
        }
        out.push(0);
    });
}

/// `SSLRequest`
pub fn ssl_request(out: &mut Vec<u8>) {
    untagged(out, |out| put_u32(out, SSL_REQUEST));
}

/// `GSSENCRequest`
pub fn gssenc_request(out: &mut Vec<u8>) {
    untagged(out, |out| put_u32(out, GSSENC_REQUEST));
}

/// `CancelRequest`
pub fn cancel_request(out: &mut Vec<u8>, key: &CancelKey) {
    untagged(out, |out| {
        put_u32(out, CANCEL_REQUEST);
        put_i32(out, key.process_id);
        out.extend_from_slice(&key.secret);
    });
}

/// `PasswordMessage`
pub fn password(out: &mut Vec<u8>, password: &[u8]) {
    frame(out, frontend::tag::PASSWORD, |out| put_text(out, password));
}

/// `SASLInitialResponse`
pub fn sasl_initial_response(out: &mut Vec<u8>, mechanism: &[u8], response: Option<&[u8]>) {
    frame(out, frontend::tag::PASSWORD, |out| {
        put_text(out, mechanism);
        put_value(out, response);
    });
}

/// `SASLResponse`
pub fn sasl_response(out: &mut Vec<u8>, response: &[u8]) {
    frame(out, frontend::tag::PASSWORD, |out| out.extend_from_slice(response));
}

/// `Query`
#[inline]
pub fn query(out: &mut Vec<u8>, sql: &[u8]) {
    frame(out, frontend::tag::QUERY, |out| put_text(out, sql));
}

/// `Parse`
#[inline]
pub fn parse(out: &mut Vec<u8>, name: &[u8], sql: &[u8], types: impl IntoIterator<Item = u32>) {
    frame(out, frontend::tag::PARSE, |out| {
        put_text(out, name);
        put_text(out, sql);
        put_list(out, types, put_u32);
    });
}

/// `Bind` with formats and values.
pub fn bind(
    out: &mut Vec<u8>,
    (portal, statement): (&[u8], &[u8]),
    formats: &[i16],
    values: &[Option<&[u8]>],
    result_formats: &[i16],
) {
    frame(out, frontend::tag::BIND, |out| {
        put_text(out, portal);
        put_text(out, statement);
        put_list(out, formats.iter().copied(), put_i16);
        put_list(out, values.iter().copied(), put_value);
        put_list(out, result_formats.iter().copied(), put_i16);
    });
}

/// The start of a `Bind`: type, length and names. The caller sends the `rest_len` bytes that complete it, which
/// are the body of another `Bind` from [`frontend::BindNames::rest_at`] on.
#[inline]
pub fn bind_header(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], rest_len: usize) {
    let names = portal.len().saturating_add(statement.len()).saturating_add(2);
    out.push(frontend::tag::BIND);
    put_u32(out, length(rest_len.saturating_add(names).saturating_add(4)));
    put_text(out, portal);
    put_text(out, statement);
}

/// `Describe`
#[inline]
pub fn describe(out: &mut Vec<u8>, target: Target, name: &[u8]) {
    frame(out, frontend::tag::DESCRIBE, |out| put_named(out, target, name));
}

/// `Close`
#[inline]
pub fn close(out: &mut Vec<u8>, target: Target, name: &[u8]) {
    frame(out, frontend::tag::CLOSE, |out| put_named(out, target, name));
}

/// `Execute`; `max_rows` 0 means all.
#[inline]
pub fn execute(out: &mut Vec<u8>, portal: &[u8], max_rows: i32) {
    frame(out, frontend::tag::EXECUTE, |out| {
        put_text(out, portal);
        put_i32(out, max_rows);
    });
}

/// `Sync`
#[inline]
pub fn sync(out: &mut Vec<u8>) {
    empty(out, frontend::tag::SYNC);
}

/// `Flush`
pub fn flush(out: &mut Vec<u8>) {
    empty(out, frontend::tag::FLUSH);
}

/// `Terminate`
pub fn terminate(out: &mut Vec<u8>) {
    empty(out, frontend::tag::TERMINATE);
}

/// `CopyFail`
pub fn copy_fail(out: &mut Vec<u8>, reason: &[u8]) {
    frame(out, frontend::tag::COPY_FAIL, |out| put_text(out, reason));
}

// === from either side ===

/// `CopyData`
pub fn copy_data(out: &mut Vec<u8>, data: &[u8]) {
    frame(out, frontend::tag::COPY_DATA, |out| out.extend_from_slice(data));
}

/// `CopyDone`
pub fn copy_done(out: &mut Vec<u8>) {
    empty(out, frontend::tag::COPY_DONE);
}

/// A frame of any type with a body that is known to be right.
#[inline]
pub fn raw(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    frame(out, tag, |out| out.extend_from_slice(body));
}

// === from a server ===

/// `AuthenticationOk`
pub fn authentication_ok(out: &mut Vec<u8>) {
    authentication(out, 0, &[]);
}

/// `AuthenticationCleartextPassword`
pub fn authentication_cleartext_password(out: &mut Vec<u8>) {
    authentication(out, 3, &[]);
}

/// `AuthenticationMD5Password`
pub fn authentication_md5_password(out: &mut Vec<u8>, salt: [u8; 4]) {
    authentication(out, 5, &salt);
}

/// `AuthenticationSASL`
pub fn authentication_sasl(out: &mut Vec<u8>, mechanisms: &[&[u8]]) {
    frame(out, backend::tag::AUTHENTICATION, |out| {
        put_u32(out, 10);
        for mechanism in mechanisms {
            put_text(out, mechanism);
        }
        out.push(0);
    });
}

/// `AuthenticationSASLContinue`
pub fn authentication_sasl_continue(out: &mut Vec<u8>, data: &[u8]) {
    authentication(out, 11, data);
}

/// `AuthenticationSASLFinal`
pub fn authentication_sasl_final(out: &mut Vec<u8>, data: &[u8]) {
    authentication(out, 12, data);
}

/// `NegotiateProtocolVersion`; `version` is the whole number, such as [`PROTOCOL_3_0`].
pub fn negotiate_protocol_version(out: &mut Vec<u8>, version: u32, unknown_options: &[impl AsRef<[u8]>]) {
    frame(out, backend::tag::NEGOTIATE_PROTOCOL_VERSION, |out| {
        put_u32(out, version);
        put_u32(out, length(unknown_options.len()));
        for option in unknown_options {
            put_text(out, option.as_ref());
        }
    });
}

/// `BackendKeyData`
pub fn backend_key_data(out: &mut Vec<u8>, key: &CancelKey) {
    frame(out, backend::tag::BACKEND_KEY_DATA, |out| {
        put_i32(out, key.process_id);
        out.extend_from_slice(&key.secret);
    });
}

/// `ParameterStatus`
pub fn parameter_status(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    frame(out, backend::tag::PARAMETER_STATUS, |out| {
        put_text(out, name);
        put_text(out, value);
    });
}

/// `ReadyForQuery`
#[inline]
pub fn ready_for_query(out: &mut Vec<u8>, status: TransactionStatus) {
    out.extend_from_slice(&[backend::tag::READY_FOR_QUERY, 0, 0, 0, 5, status.as_byte()]);
}

/// `ErrorResponse`
pub fn error_response(out: &mut Vec<u8>, report: &ErrorReport) {
    frame(out, backend::tag::ERROR_RESPONSE, |out| put_report(out, report));
}

/// `NoticeResponse`
pub fn notice_response(out: &mut Vec<u8>, report: &ErrorReport) {
    frame(out, backend::tag::NOTICE_RESPONSE, |out| put_report(out, report));
}

/// `ParseComplete`
#[inline]
pub fn parse_complete(out: &mut Vec<u8>) {
    empty(out, backend::tag::PARSE_COMPLETE);
}

/// `BindComplete`
#[inline]
pub fn bind_complete(out: &mut Vec<u8>) {
    empty(out, backend::tag::BIND_COMPLETE);
}

/// `CloseComplete`
#[inline]
pub fn close_complete(out: &mut Vec<u8>) {
    empty(out, backend::tag::CLOSE_COMPLETE);
}

/// `NoData`
#[inline]
pub fn no_data(out: &mut Vec<u8>) {
    empty(out, backend::tag::NO_DATA);
}

/// `PortalSuspended`
pub fn portal_suspended(out: &mut Vec<u8>) {
    empty(out, backend::tag::PORTAL_SUSPENDED);
}

/// `EmptyQueryResponse`
pub fn empty_query_response(out: &mut Vec<u8>) {
    empty(out, backend::tag::EMPTY_QUERY_RESPONSE);
}

/// `ParameterDescription`
pub fn parameter_description(out: &mut Vec<u8>, types: impl IntoIterator<Item = u32>) {
    frame(out, backend::tag::PARAMETER_DESCRIPTION, |out| put_list(out, types, put_u32));
}

/// `RowDescription`
pub fn row_description(out: &mut Vec<u8>, columns: &[Column<'_>]) {
    frame(out, backend::tag::ROW_DESCRIPTION, |out| put_list(out, columns, put_column));
}

/// `DataRow`; `None` is NULL.
pub fn data_row<'a>(out: &mut Vec<u8>, values: impl IntoIterator<Item = Option<&'a [u8]>>) {
    frame(out, backend::tag::DATA_ROW, |out| put_list(out, values, put_value));
}

/// `CommandComplete`
#[inline]
pub fn command_complete(out: &mut Vec<u8>, tag: &[u8]) {
    frame(out, backend::tag::COMMAND_COMPLETE, |out| put_text(out, tag));
}

/// `NotificationResponse`
pub fn notification_response(out: &mut Vec<u8>, process_id: i32, channel: &[u8], payload: &[u8]) {
    frame(out, backend::tag::NOTIFICATION_RESPONSE, |out| {
        put_i32(out, process_id);
        put_text(out, channel);
        put_text(out, payload);
    });
}

/// `CopyInResponse`; every column has the format of the whole: 0 is text, 1 is binary.
pub fn copy_in_response(out: &mut Vec<u8>, format: u8, columns: u16) {
    copy_response(out, backend::tag::COPY_IN_RESPONSE, format, columns);
}

/// `CopyOutResponse`; every column has the format of the whole: 0 is text, 1 is binary.
pub fn copy_out_response(out: &mut Vec<u8>, format: u8, columns: u16) {
    copy_response(out, backend::tag::COPY_OUT_RESPONSE, format, columns);
}

// === private ===

#[inline]
fn empty(out: &mut Vec<u8>, tag: u8) {
    out.extend_from_slice(&[tag, 0, 0, 0, 4]);
}

#[inline]
fn frame(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[tag, 0, 0, 0, 0]);
    body(out);
    put_length(out, start.saturating_add(1));
}

#[inline]
fn untagged(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put_u32(out, 0);
    body(out);
    put_length(out, start);
}

/// Writes the length of everything from `start` on to there.
#[inline]
fn put_length(out: &mut [u8], start: usize) {
    let len = length(out.len().saturating_sub(start));
    if let Some(slot) = out.get_mut(start..).and_then(|written| written.first_chunk_mut()) {
        *slot = len.to_be_bytes();
    }
}

fn authentication(out: &mut Vec<u8>, code: u32, data: &[u8]) {
    frame(out, backend::tag::AUTHENTICATION, |out| {
        put_u32(out, code);
        out.extend_from_slice(data);
    });
}

fn copy_response(out: &mut Vec<u8>, tag: u8, format: u8, columns: u16) {
    frame(out, tag, |out| {
        out.push(format);
        put_list(out, (0..columns).map(|_| i16::from(format)), put_i16);
    });
}

fn put_report(out: &mut Vec<u8>, report: &ErrorReport) {
    let mut field = |kind: u8, text: &str| {
        out.push(kind);
        put_text(out, text.as_bytes());
    };
    // The order in which PostgreSQL sends them (`send_message_to_frontend` in src/backend/utils/error/elog.c).
    field(b'S', report.severity.as_str());
    field(b'V', report.severity.as_str());
    field(b'C', report.code.as_str());
    field(b'M', &report.message);
    if let Some(detail) = &report.detail {
        field(b'D', detail);
    }
    if let Some(hint) = &report.hint {
        field(b'H', hint);
    }
    if let Some(position) = report.position {
        field(b'P', &position.to_string());
    }
    out.push(0);
}

#[inline]
fn put_named(out: &mut Vec<u8>, target: Target, name: &[u8]) {
    out.push(target.as_byte());
    put_text(out, name);
}

fn put_column(out: &mut Vec<u8>, column: &Column<'_>) {
    put_text(out, column.name);
    put_u32(out, column.table_oid);
    put_i16(out, column.attribute);
    put_u32(out, column.type_oid);
    put_i16(out, column.type_len);
    put_i32(out, column.type_modifier);
    put_i16(out, column.format);
}

fn put_list<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, mut put: impl FnMut(&mut Vec<u8>, T)) {
    let start = out.len();
    let mut count = 0_u16;
    out.extend_from_slice(&count.to_be_bytes());
    for item in items.into_iter().take(usize::from(u16::MAX)) {
        put(out, item);
        count = count.saturating_add(1);
    }
    if let Some(slot) = out.get_mut(start..).and_then(|written| written.first_chunk_mut()) {
        *slot = count.to_be_bytes();
    }
}

#[inline]
fn put_value(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        None => put_i32(out, -1),
        Some(value) => {
            put_u32(out, length(value.len()));
            out.extend_from_slice(value);
        }
    }
}

#[inline]
fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let start = out.len();
    // Most names are empty.
    if !text.is_empty() {
        out.extend_from_slice(text);
        if nul(text).is_some() {
            out.iter_mut().skip(start).filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
        }
    }
    out.push(0);
}

#[inline]
fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

#[inline]
fn put_i32(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

#[inline]
fn put_i16(out: &mut Vec<u8>, value: i16) {
    out.extend_from_slice(&value.to_be_bytes());
}

#[inline]
fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
