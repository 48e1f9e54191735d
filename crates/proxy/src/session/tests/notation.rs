//! Messages as short words, so that an exchange can be read: `P s: SELECT 1 | B :s | E | S`.
//!
//! From the client: `Q sql`, `P name: sql`, `B portal:statement`, `D S name`, `D P name`, `E portal` or
//! `E portal/rows`, `C S name`, `C P name`, `S` (Sync), `H` (Flush), `d data`, `c`, `f reason`, `F` (FunctionCall),
//! `X`. From the server: `1 2 3 n s I t T c G H W V`, `D value`, `C tag`, `Z I`, `E code message` (`E! ..` is FATAL),
//! `N text`, `S name=value`, `A channel`, `d data`.

use causeway_protocol::backend::{self, Column, TransactionStatus};
use causeway_protocol::encode;
use causeway_protocol::frame;
use causeway_protocol::frontend::{self, Target};

fn words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = text.split('|').map(|part| part.strip_prefix(' ').unwrap_or(part));
    let parts = parts.map(|part| part.strip_suffix(' ').unwrap_or(part)).filter(|part| !part.is_empty());
    parts.map(|part| part.split_once(' ').unwrap_or((part, "")))
}

/// Client messages.
pub(super) fn from_client(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for (tag, rest) in words(text) {
        one_from_client(&mut out, tag, rest);
    }
    out
}

fn one_from_client(out: &mut Vec<u8>, tag: &str, rest: &str) {
    let named = || {
        let (target, name) = rest.split_once(' ').unwrap_or((rest, ""));
        let target = if target == "S" { Target::Statement } else { Target::Portal };
        (target, name.as_bytes())
    };
    match tag {
        "Q" => encode::query(out, rest.as_bytes()),
        "P" => {
            let (name, sql) = rest.split_once(':').expect("P name: sql");
            encode::parse(out, name.as_bytes(), sql.strip_prefix(' ').unwrap_or(sql).as_bytes(), []);
        }
        "B" => {
            let (portal, statement) = rest.split_once(':').expect("B portal:statement");
            encode::bind(out, (portal.as_bytes(), statement.as_bytes()), &[], &[], &[]);
        }
        "D" => {
            let (target, name) = named();
            encode::describe(out, target, name);
        }
        "C" => {
            let (target, name) = named();
            encode::close(out, target, name);
        }
        "E" => {
            let (portal, rows) = rest.split_once('/').unwrap_or((rest, "0"));
            encode::execute(out, portal.as_bytes(), rows.parse().expect("E portal/rows"));
        }
        "S" => encode::sync(out),
        "H" => encode::flush(out),
        "d" => encode::copy_data(out, rest.as_bytes()),
        "c" => encode::copy_done(out),
        "f" => encode::copy_fail(out, rest.as_bytes()),
        "F" => encode::raw(out, b'F', &[0; 10]),
        "X" => encode::terminate(out),
        _ => panic!("no client message: {tag} {rest}"),
    }
}

/// Server messages.
pub(super) fn from_server(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for (tag, rest) in words(text) {
        one_from_server(&mut out, tag, rest);
    }
    out
}

fn one_from_server(out: &mut Vec<u8>, tag: &str, rest: &str) {
    match tag {
        "1" => encode::parse_complete(out),
        "2" => encode::bind_complete(out),
        "3" => encode::close_complete(out),
        "n" => encode::no_data(out),
        "s" => encode::portal_suspended(out),
        "I" => encode::empty_query_response(out),
        "t" => encode::parameter_description(out, []),
        "T" => encode::row_description(out, &[Column::text(b"x")]),
        "c" => encode::copy_done(out),
        "d" => encode::copy_data(out, rest.as_bytes()),
        "G" => encode::copy_in_response(out, 0, 1),
        "H" => encode::copy_out_response(out, 0, 1),
        "W" => encode::raw(out, b'W', &[0, 0, 0]),
        "V" => encode::raw(out, b'V', &(-1_i32).to_be_bytes()),
        "D" => encode::data_row(out, [Some(rest.as_bytes())]),
        "C" => encode::command_complete(out, rest.as_bytes()),
        "Z" => encode::ready_for_query(out, status(rest)),
        "E" => error(out, b'E', "ERROR", rest),
        "E!" => error(out, b'E', "FATAL", rest),
        "N" => error(out, b'N', "NOTICE", &format!("00000 {rest}")),
        "S" => {
            let (name, value) = rest.split_once('=').expect("S name=value");
            encode::parameter_status(out, name.as_bytes(), value.as_bytes());
        }
        "A" => encode::notification_response(out, 7, rest.as_bytes(), b""),
        _ => panic!("no server message: {tag} {rest}"),
    }
}

fn status(text: &str) -> TransactionStatus {
    TransactionStatus::from_byte(text.as_bytes()[0]).expect("a transaction status")
}

fn error(out: &mut Vec<u8>, tag: u8, severity: &str, rest: &str) {
    let (code, message) = rest.split_once(' ').unwrap_or((rest, ""));
    let body = format!("S{severity}\0V{severity}\0C{code}\0M{message}\0\0");
    encode::raw(out, tag, body.as_bytes());
}

/// Names of server-side statements are shown as `#` and their number.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if text.len() > 200 { format!("({} bytes)", text.len()) } else { text.replace("causeway_", "#") }
}

fn show(bytes: &[u8], one: fn(u8, &[u8]) -> String) -> String {
    let (mut at, mut shown) = (0, Vec::new());
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let Ok(Some((frame, len))) = frame::split(rest, frame::MAX_FRAME_LEN) else {
            shown.push(format!("({} bytes of {})", rest.len(), char::from(rest[0])));
            break;
        };
        shown.push(one(frame.tag, frame.body).trim_end().to_owned());
        at += len;
    }
    shown.join(" | ")
}

/// What a server has been sent.
pub(super) fn to_server(bytes: &[u8]) -> String {
    show(bytes, |tag, body| {
        let target = |target| if target == Target::Statement { "S" } else { "P" };
        match tag {
            b'Q' => format!("Q {}", text(frontend::query(body).unwrap())),
            b'P' => {
                let parse = frontend::parse(body).unwrap();
                format!("P {}: {}", text(parse.name), text(parse.sql))
            }
            b'B' => {
                let names = frontend::bind_names(body).unwrap().unwrap();
                format!("B {}:{}", text(names.portal), text(names.statement))
            }
            b'D' => {
                let named = frontend::describe(body).unwrap();
                format!("D {} {}", target(named.target), text(named.name))
            }
            b'C' => {
                let named = frontend::close(body).unwrap();
                format!("C {} {}", target(named.target), text(named.name))
            }
            b'E' => {
                let execute = frontend::execute(body).unwrap();
                let rows =
                    if execute.max_rows > 0 { format!("/{}", execute.max_rows) } else { String::new() };
                format!("E {}{rows}", text(execute.portal))
            }
            b'd' => format!("d {}", text(body)),
            b'f' => format!("f {}", text(frontend::copy_fail(body).unwrap())),
            _ => char::from(tag).to_string(),
        }
    })
}

/// What a client has been sent.
pub(super) fn to_client(bytes: &[u8]) -> String {
    show(bytes, |tag, body| match tag {
        b'D' => {
            let row = backend::data_row(body).unwrap();
            format!(
                "D {}",
                row.iter().map(|value| text(value.unwrap_or_default())).collect::<Vec<_>>().join(",")
            )
        }
        b'C' => format!("C {}", text(backend::command_complete(body).unwrap())),
        b'Z' => format!("Z {}", text(body)),
        b'd' => format!("d {}", text(body)),
        b'E' => {
            let fields = backend::error_fields(body).unwrap();
            let fatal = fields.severity() == Some(causeway_protocol::report::Severity::Fatal);
            let mark = if fatal { "!" } else { "" };
            format!("E{mark} {} {}", fields.code(), text(fields.message()))
        }
        b'N' => format!("N {}", text(backend::error_fields(body).unwrap().message())),
        b'S' => {
            let (name, value) = backend::parameter_status(body).unwrap();
            format!("S {}={}", text(name), text(value))
        }
        b'A' => format!("A {}", text(backend::notification(body).unwrap().channel)),
        _ => char::from(tag).to_string(),
    })
}
