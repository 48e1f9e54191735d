//! Writes the seeds of the corpus: hand-made packets and scripts, and the statements of `tests/cases/classify.tsv`.
//!
//! `cargo run --example seeds` in `fuzz/`. What a fuzzer has found lies beside them and is left alone.

use std::fs;
use std::path::Path;

use causeway_protocol::backend::{Column, TransactionStatus};
use causeway_protocol::encode;
use causeway_protocol::frame::HEADER_LEN;
use causeway_protocol::frontend::Target;
use causeway_protocol::report::ErrorReport;
use causeway_protocol::sqlstate::SqlState;
use causeway_protocol::startup::CancelKey;

type Written = (&'static str, Vec<u8>);

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = root.join("corpus");
    let (backend, frontend) = (from_a_server(), from_a_client());
    let bodies = |messages: &[Written]| -> Vec<Written> {
        messages.iter().map(|(name, message)| (*name, message[HEADER_LEN..].to_vec())).collect()
    };
    write(&corpus.join("backend_messages"), &bodies(&backend));
    write(&corpus.join("frontend_messages"), &bodies(&frontend));
    write(&corpus.join("frames"), &streams(&backend, &frontend));
    write(&corpus.join("startup"), &first_packets());
    write(&corpus.join("server_handshake"), &client_scripts());
    write(&corpus.join("client_handshake"), &server_scripts());
    write(&corpus.join("scram"), &exchanges());
    write(&corpus.join("lexer"), &texts());
    write(&corpus.join("fingerprint"), &texts());
    write(&corpus.join("classify"), &shaped());
    statements(&root.join("../tests/cases/classify.tsv"), &corpus.join("classify"));
}

fn write(folder: &Path, files: &[Written]) {
    fs::create_dir_all(folder).expect("the folder can be made");
    for (name, contents) in files {
        fs::write(folder.join(format!("{name}.bin")), contents).expect("the file can be written");
    }
}

fn message(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn from_a_server() -> Vec<Written> {
    let key = CancelKey { process_id: 7, secret: vec![1; 32].into() };
    let report = ErrorReport::error(SqlState::SYNTAX_ERROR, "syntax error at or near \"x\"");
    let report = report.with_detail("detail").with_hint("hint").with_position(3);
    let columns = [Column::text(b"id"), Column { format: 1, type_oid: 23, ..Column::text(b"n") }];
    let values = [Some(&b"value"[..]), None, Some(b"")];
    vec![
        ("authentication_ok", message(encode::authentication_ok)),
        ("authentication_cleartext", message(encode::authentication_cleartext_password)),
        ("authentication_md5", message(|out| encode::authentication_md5_password(out, [1, 2, 3, 4]))),
        (
            "authentication_sasl",
            message(|out| encode::authentication_sasl(out, &[b"SCRAM-SHA-256-PLUS", b"SCRAM-SHA-256"])),
        ),
        (
            "authentication_continue",
            message(|out| encode::authentication_sasl_continue(out, b"r=x,s=eA==,i=1")),
        ),
        ("authentication_final", message(|out| encode::authentication_sasl_final(out, b"v=eA=="))),
        ("authentication_gss", message(|out| encode::raw(out, b'R', &[0, 0, 0, 7]))),
        ("backend_key_data", message(|out| encode::backend_key_data(out, &key))),
        ("command_complete", message(|out| encode::command_complete(out, b"INSERT 0 1"))),
        ("copy_in", message(|out| encode::copy_in_response(out, 1, 3))),
        ("copy_out", message(|out| encode::copy_out_response(out, 0, 2))),
        ("data_row", message(|out| encode::data_row(out, values))),
        ("data_row_empty", message(|out| encode::data_row(out, []))),
        ("error", message(|out| encode::error_response(out, &report))),
        ("negotiation", message(|out| encode::negotiate_protocol_version(out, 0x0003_0000, &["_pq_.a"]))),
        ("notice", message(|out| encode::notice_response(out, &ErrorReport::notice("a notice")))),
        ("notification", message(|out| encode::notification_response(out, 9, b"channel", b"payload"))),
        ("parameter_description", message(|out| encode::parameter_description(out, [23, 25, 0]))),
        ("parameter_status", message(|out| encode::parameter_status(out, b"TimeZone", b"UTC"))),
        ("ready", message(|out| encode::ready_for_query(out, TransactionStatus::InTransaction))),
        ("row_description", message(|out| encode::row_description(out, &columns))),
        ("empty", message(encode::parse_complete)),
    ]
}

fn from_a_client() -> Vec<Written> {
    let values = [Some(&b"value"[..]), None, Some(b"")];
    vec![
        ("query", message(|out| encode::query(out, b"SELECT 1"))),
        ("parse", message(|out| encode::parse(out, b"name", b"SELECT $1", [23, 25]))),
        ("bind", message(|out| encode::bind(out, (b"portal", b"name"), &[0, 1, 0], &values, &[1]))),
        ("bind_unnamed", message(|out| encode::bind(out, (b"", b""), &[], &[], &[]))),
        ("describe", message(|out| encode::describe(out, Target::Statement, b"name"))),
        ("close", message(|out| encode::close(out, Target::Portal, b"portal"))),
        ("execute", message(|out| encode::execute(out, b"portal", 5))),
        ("password", message(|out| encode::password(out, b"secret"))),
        (
            "sasl_initial",
            message(|out| encode::sasl_initial_response(out, b"SCRAM-SHA-256", Some(b"n,,n=,r=x"))),
        ),
        ("sasl_initial_bare", message(|out| encode::sasl_initial_response(out, b"SCRAM-SHA-256", None))),
        ("copy_fail", message(|out| encode::copy_fail(out, b"reason"))),
        ("function_call", message(|out| encode::raw(out, b'F', &[0, 0, 0, 9, 0, 0, 0, 0, 0, 0]))),
        ("sync", message(encode::sync)),
    ]
}

/// The limit, the number of reads, their lengths; then the stream.
fn streams(backend: &[Written], frontend: &[Written]) -> Vec<Written> {
    let all =
        |messages: &[Written]| messages.iter().flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<u8>>();
    let rows: Vec<u8> =
        (0..20).flat_map(|n| message(|out| encode::data_row(out, [Some(&[b'x'; 20][..n])]))).collect();
    let behind = |head: &[u8], stream: &[u8]| [head, stream].concat();
    vec![
        ("backend", behind(&[255, 5, 1, 2, 3, 40, 200], &all(backend))),
        ("frontend", behind(&[255, 3, 4, 1, 100], &all(frontend))),
        ("rows", behind(&[255, 12, 5, 5, 5, 1, 1, 1, 1, 1, 1, 30, 0, 9], &rows)),
        ("over_the_limit", behind(&[1, 2, 4, 20], &rows)),
        ("too_short", behind(&[255, 1, 3], b"Q\0\0\0\x03")),
        ("too_long", behind(&[255, 1, 3], b"Q\xff\xff\xff\xff")),
        ("incomplete", behind(&[255, 0], b"Q\0\0\0\x0dSELECT 1")),
    ]
}

fn first_packets() -> Vec<Written> {
    let key = CancelKey { process_id: 7, secret: vec![1; 4].into() };
    let startup = |parameters: &[(&str, &str)]| {
        let parameters = parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        message(|out| encode::startup(out, parameters))
    };
    let mut newer = startup(&[("user", "u"), ("_pq_.option", "1")]);
    newer[7] = 2;
    vec![
        ("ssl", message(encode::ssl_request)),
        ("gss", message(encode::gssenc_request)),
        ("cancel", message(|out| encode::cancel_request(out, &key))),
        ("startup", startup(&[("user", "u"), ("database", "d"), ("application_name", "psql")])),
        (
            "options",
            startup(&[
                ("user", "u"),
                ("options", "-c work_mem=4MB --search-path=a\\ b -e -fs -tpl -S 64"),
                ("Work_Mem", "8MB"),
            ]),
        ),
        ("replication", startup(&[("user", "u"), ("replication", "database"), ("database", "d")])),
        ("newer", newer),
        ("no_user", startup(&[("database", "d")])),
        ("not_utf8", message(|out| encode::startup(out, [(&b"user"[..], &b"\xff"[..])]))),
        ("tls", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc".to_vec()),
    ]
}

/// Whether TLS is offered, the way in, the number of reads, their lengths; then a byte for each message.
fn client_scripts() -> Vec<Written> {
    vec![
        ("scram", vec![0, 0, 3, 10, 30, 7, 0, 1, 2]),
        ("scram_in_steps", vec![0, 0, 1, 20, 3, 4, 0, 5, 6, 2]),
        ("wrong_proof", vec![0, 0, 0, 0, 1, 8, 60, 1]),
        ("unknown_user", vec![0, 1, 2, 5, 50, 0, 1, 2]),
        ("trust", vec![0, 2, 1, 9, 3, 0, 9, b'Q', 2, b'x', 0]),
        ("rejected", vec![0, 3, 0, 0]),
        ("tls", vec![1, 0, 1, 8, 3, 0, 1, 2]),
        ("cancel", vec![0, 0, 0, 11, 4, 1, 2, 3, 4]),
        ("option", [&[0, 2, 0, 7, 7][..], b"options", &[5], b"-c a=", &[0]].concat()),
        ("garbage", vec![0, 0, 0, 12, 5, 0xff, 0, 1, 2, 3]),
    ]
}

/// The secret, whether the password may be sent, the number of reads, their lengths; then a byte for each message.
fn server_scripts() -> Vec<Written> {
    vec![
        ("trust", vec![0, 0, 2, 3, 9, 0, 7, 3, b'U', b'T', b'C', 9, 4, 1, 2, 3, 4, 4]),
        ("cleartext", vec![1, 1, 0, 6, 0, 8, 4]),
        ("cleartext_refused", vec![1, 0, 0, 6, 0, 4]),
        ("md5", vec![1, 0, 1, 4, 5, 0, 4]),
        ("scram", vec![2, 0, 4, 7, 60, 5, 5, 1, 2, 3, 0, 4]),
        ("scram_with_a_password", vec![1, 0, 0, 1, 2, 3, 0, 4]),
        ("impostor", vec![2, 0, 0, 1, 2, 11, 1, 9, 1, 1, 0, 4]),
        ("no_proof", vec![2, 0, 0, 1, 2, 0, 4]),
        ("refused", vec![0, 0, 0, 0, 10]),
        ("negotiation", vec![0, 0, 0, 14, 0, 4]),
    ]
}

/// Whether the user is known, what is tried, and what that takes.
fn exchanges() -> Vec<Written> {
    let verifier = b"SCRAM-SHA-256$4096:c2FsdA==$Yw3NKWbEM2aRElRIu7JbT/QSpJxzLbLIq8G4WBvXEN0=\
                     :ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
    let messages = |first: &str, last: &str| {
        let len = u8::try_from(first.len()).expect("it is short");
        [&[1, 1, len], first.as_bytes(), last.as_bytes()].concat()
    };
    vec![
        ("right", vec![1, 0, 4, 0, 0]),
        ("changed_first", vec![1, 0, 0, 9, 1]),
        ("changed_challenge", vec![1, 0, 1, 60, 1]),
        ("changed_proof", vec![1, 0, 2, 100, 1]),
        ("changed_final", vec![1, 0, 3, 9, 1]),
        ("unknown_user", vec![0, 0, 4, 0, 0]),
        ("messages", messages("n,,n=user,r=nonce", "c=biws,r=nonce,p=eA==")),
        ("channel_binding", messages("p=tls-server-end-point,,n=,r=nonce", "")),
        ("extension", messages("y,,m=x,n=,r=nonce", "")),
        ("identity", messages("n,a=x,n=,r=nonce", "")),
        ("verifier", [&[1, 2][..], verifier].concat()),
    ]
}

/// What tokenizers disagree about.
fn texts() -> Vec<Written> {
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ("comments", text("SELECT /* a /* b */ c */ 1 -- d\r, 2 --\n")),
        ("dollars", text("SELECT $$a$$, $t$ ; $$ $t$, c$$, $1, $1$$b$$ FROM c$$")),
        ("strings", text("SELECT 'a'\n'; b', 'it''s', e'\\'', U&'\\0061' UESCAPE '!', N'x', B'1', X'1F'")),
        (
            "string_parts",
            text("SELECT 'a' 'b', 'c' -- '\n 'd', e'\\'' \r'e' /* */\n'f', B'0'\n'1', U&'a' \x0c\n'b'"),
        ),
        ("words", text("SELECT \"a\"\"b\", U&\"d!0061ta\" UESCAPE '!', \u{e9}t\u{e9}, a$1 FROM t")),
        ("numbers", text("SELECT 1, 1., .5, 1.5e-3, 0x1F, 0o17, 0b11, 1_000, 1..2, 1a, 0x")),
        ("operators", text("SELECT a+-b, a@-b, a*/* c */b, a--b\n-c, a=>b, a:=b, a::b, |/ 25.0 @> <-> !~~")),
        ("unterminated", text("SELECT 'a")),
        ("keys", text("SELECT set_config('a', 'b', true), \"current_setting\"('c')")),
    ]
}

/// Words by their numbers.
fn shaped() -> Vec<Written> {
    vec![
        ("words_1", [&[1][..], &(0..40).collect::<Vec<u8>>()].concat()),
        ("words_2", vec![1, 1, 4, 2, 5, 3, 6, 13, 7, 15, 1, 8]),
        ("words_3", vec![1, 16, 5, 17, 10, 1, 6, 2, 5, 11, 1, 12, 2, 5, 34, 35]),
    ]
}

/// One file for each statement.
fn statements(cases: &Path, folder: &Path) {
    let text = fs::read_to_string(cases).expect("the cases are there");
    for line in text.lines().skip(1) {
        let mut fields = line.split('\t');
        let (Some(id), Some(sql)) = (fields.next(), fields.next()) else { continue };
        fs::write(folder.join(format!("{id}.bin")), unescape(sql)).expect("the file can be written");
    }
}

/// Undoes the escapes that `tests/cases/README.md` lists.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some('f') => out.push('\u{c}'),
                Some('v') => out.push('\u{b}'),
                Some('u') => {
                    let code: String = chars.by_ref().take(4).collect();
                    out.extend(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32));
                }
                other => out.extend(other),
            },
            c => out.push(c),
        }
    }
    out
}
