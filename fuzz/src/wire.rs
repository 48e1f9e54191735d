//! Frames and the bodies in them.

use causeway_protocol::backend::{self, Authentication, ErrorFields};
use causeway_protocol::buffer::Buffer;
use causeway_protocol::encode;
use causeway_protocol::frame::{self, FrameError};
use causeway_protocol::frontend;
use causeway_protocol::startup::CancelKey;

use super::input::{Input, pieces};

/// However a stream is cut into reads, it has the same frames; and these, written again, are the stream.
///
/// The input: a byte for the limit, the lengths of the reads behind a byte with their number, the stream.
pub fn frames(data: &[u8]) {
    let mut input = Input::new(data);
    let limit = frame::HEADER_LEN + (usize::from(input.byte()) << 4);
    let lengths = input.piece();
    let stream = input.rest();

    let whole = follow(&[stream], limit);
    assert_eq!(follow(&pieces(stream, lengths), limit), whole, "cut into reads, the stream has other frames");
    let mut written = Vec::new();
    for (tag, body) in &whole.0 {
        encode::raw(&mut written, *tag, body);
        assert!(body.len() + frame::HEADER_LEN <= limit, "a frame over the limit");
    }
    assert!(stream.starts_with(&written), "the frames are not the stream's");
    if whole.1.is_none() {
        assert!(matches!(frame::split(&stream[written.len()..], limit), Ok(None)), "a frame was left");
    }
}

/// The frames that `reads` have, and what ended them.
fn follow(reads: &[&[u8]], limit: usize) -> (Vec<(u8, Vec<u8>)>, Option<FrameError>) {
    let mut buffer = Buffer::default();
    let mut frames = Vec::new();
    for read in reads {
        // As a connection does that lends its buffer out while it is idle.
        if let Some(storage) = buffer.take_storage() {
            buffer = Buffer::with_storage(storage);
        }
        buffer.unfilled(read.len())[..read.len()].copy_from_slice(read);
        buffer.commit(read.len());
        loop {
            match frame::split(buffer.filled(), limit) {
                Ok(Some((frame, len))) => {
                    frames.push((frame.tag, frame.body.to_vec()));
                    buffer.consume(len);
                }
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

/// No body of a server's message panics, and what a parser takes, written again, is the body.
pub fn backend_messages(body: &[u8]) {
    if let Ok(status) = backend::ready_for_query(body) {
        rewritten(body, |out| encode::ready_for_query(out, status));
    }
    if let Ok((name, value)) = backend::parameter_status(body) {
        rewritten(body, |out| encode::parameter_status(out, name, value));
    }
    if let Ok((process_id, secret)) = backend::backend_key_data(body) {
        let key = CancelKey { process_id, secret: secret.into() };
        rewritten(body, |out| encode::backend_key_data(out, &key));
    }
    if let Ok(tag) = backend::command_complete(body) {
        rewritten(body, |out| encode::command_complete(out, tag));
    }
    if let Ok(description) = backend::row_description(body) {
        let columns: Vec<_> = description.iter().collect();
        assert_eq!((columns.len(), columns.is_empty()), (description.len(), description.is_empty()));
        rewritten(body, |out| encode::row_description(out, &columns));
    }
    if let Ok(row) = backend::data_row(body) {
        assert_eq!((row.iter().count(), row.iter().next().is_none()), (row.len(), row.is_empty()));
        rewritten(body, |out| encode::data_row(out, row.iter()));
    }
    if let Ok(types) = backend::parameter_description(body) {
        assert_eq!(types.iter().count(), types.len());
        rewritten(body, |out| encode::parameter_description(out, types.iter()));
    }
    if let Ok(found) = backend::notification(body) {
        rewritten(body, |out| {
            encode::notification_response(out, found.process_id, found.channel, found.payload);
        });
    }
    if let Ok(copy) = backend::copy_response(body) {
        let codes: Vec<_> = copy.columns.iter().collect();
        let columns = u16::try_from(codes.len()).expect("the count has two bytes");
        // A server that mixes formats is followed, but never imitated.
        if codes.iter().all(|code| *code == i16::from(copy.format)) {
            rewritten(body, |out| encode::copy_in_response(out, copy.format, columns));
        }
    }
    if let Ok(negotiation) = backend::negotiation(body) {
        let options: Vec<_> = negotiation.options().collect();
        assert_eq!(u32::try_from(options.len()), Ok(negotiation.count));
        rewritten(body, |out| encode::negotiate_protocol_version(out, negotiation.version, &options));
    }
    if let Ok(fields) = backend::error_fields(body) {
        error_fields(body, &fields);
    }
    if let Ok(asked) = backend::authentication(body) {
        authentication(body, asked);
    }
}

fn error_fields(body: &[u8], fields: &ErrorFields<'_>) {
    let mut written = Vec::new();
    for (kind, text) in fields.iter() {
        written.push(kind);
        written.extend_from_slice(text);
        written.push(0);
        assert!(fields.get(kind).is_some());
    }
    written.push(0);
    assert_eq!(written, body, "the fields are not the message's");
    assert_eq!(fields.message(), fields.get(b'M').unwrap_or_default());
    assert_eq!(fields.code().as_str().len(), 5);
    if let Some(severity) = fields.severity() {
        assert!([b'V', b'S'].iter().any(|kind| fields.get(*kind) == Some(severity.as_str().as_bytes())));
    }
}

fn authentication(body: &[u8], asked: Authentication<'_>) {
    rewritten(body, |out| match asked {
        Authentication::Ok => encode::authentication_ok(out),
        Authentication::CleartextPassword => encode::authentication_cleartext_password(out),
        Authentication::Md5 { salt } => encode::authentication_md5_password(out, salt),
        Authentication::Sasl(mechanisms) => {
            encode::authentication_sasl(out, &mechanisms.iter().collect::<Vec<_>>());
        }
        Authentication::SaslContinue(data) => encode::authentication_sasl_continue(out, data),
        Authentication::SaslFinal(data) => encode::authentication_sasl_final(out, data),
        // Whatever follows the code is the server's and of no use here.
        Authentication::Unsupported(code) => {
            assert!(body.starts_with(&code.to_be_bytes()) && ![0, 3, 5, 10, 11, 12].contains(&code));
            encode::raw(out, backend::tag::AUTHENTICATION, body);
        }
    });
}

/// No body of a client's message panics, and what a parser takes, written again, is the body.
pub fn frontend_messages(body: &[u8]) {
    if let Ok(sql) = frontend::query(body) {
        rewritten(body, |out| encode::query(out, sql));
    }
    if let Ok(parse) = frontend::parse(body) {
        assert_eq!(parse.types.as_bytes().len(), 4 * parse.types.len());
        rewritten(body, |out| encode::parse(out, parse.name, parse.sql, parse.types.iter()));
    }
    for (named, write) in [
        (frontend::describe(body), encode::describe as fn(&mut Vec<u8>, frontend::Target, &[u8])),
        (frontend::close(body), encode::close),
    ] {
        if let Ok(named) = named {
            rewritten(body, |out| write(out, named.target, named.name));
        }
    }
    if let Ok(execute) = frontend::execute(body) {
        rewritten(body, |out| encode::execute(out, execute.portal, execute.max_rows));
    }
    if let Ok(password) = frontend::password(body) {
        rewritten(body, |out| encode::password(out, password));
    }
    if let Ok(initial) = frontend::sasl_initial_response(body) {
        rewritten(body, |out| encode::sasl_initial_response(out, initial.mechanism, initial.response));
    }
    if let Ok(reason) = frontend::copy_fail(body) {
        rewritten(body, |out| encode::copy_fail(out, reason));
    }
    if let Ok(oid) = frontend::function_call(body) {
        assert!(body.starts_with(&oid.to_be_bytes()));
    }
    rewritten(body, |out| encode::sasl_response(out, frontend::sasl_response(body)));
    bind(body);
}

fn bind(body: &[u8]) {
    let whole = frontend::bind_names(body);
    for cut in (0..body.len()).take(300) {
        let part = frontend::bind_names(&body[..cut]).expect("far below the bound");
        // The names are known as soon as both have ended, and stay what they are.
        assert!(part.is_none() || Ok(part) == whole, "the names change as more arrives");
    }
    let Ok(bind) = frontend::bind(body) else { return };
    let (portal, statement) = (bind.portal, bind.statement);
    let values: Vec<_> = bind.values().collect();
    assert_eq!(values.len(), usize::from(bind.count));
    let (formats, results) = (bind.formats.iter().collect::<Vec<_>>(), bind.result_formats.iter());
    let results: Vec<_> = results.collect();
    rewritten(body, |out| encode::bind(out, (portal, statement), &formats, &values, &results));

    let names = whole.expect("bind has found them").expect("bind has found them");
    assert_eq!((names.portal, names.statement), (portal, statement));
    rewritten(body, |out| {
        let rest = &body[names.rest_at..];
        encode::bind_header(out, portal, statement, rest.len());
        out.extend_from_slice(rest);
    });
}

/// What `write` writes is one frame with this body.
fn rewritten(body: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
    let mut out = Vec::new();
    write(&mut out);
    match frame::split(&out, frame::MAX_FRAME_LEN) {
        Ok(Some((frame, len))) => {
            assert_eq!(frame.body, body, "another body");
            assert_eq!(len, out.len(), "more than a frame");
        }
        other => panic!("not a frame: {other:?}"),
    }
}
