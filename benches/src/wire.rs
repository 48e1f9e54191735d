//! What is done for each message.

use std::hint::black_box;

use causeway_protocol::pipeline::{Origin, Pipeline, Request};
use causeway_protocol::{encode, frame, frontend};

use crate::Kernel;

/// The length of a read from a server that runs ahead.
const READ_LEN: usize = 64 * 1024;
/// Bytes of a `DataRow` with one column, its value apart.
const ROW_OVERHEAD: usize = 11;

pub(crate) fn kernels() -> Vec<Kernel> {
    let mut kernels: Vec<_> = [11, 20, 100, 1000, 8000].into_iter().map(scan).collect();
    kernels.extend([simple(), extended(), bind_names()]);
    kernels
}

/// The headers of a read full of rows, as the relay walks them.
fn scan(len: usize) -> Kernel {
    let value = vec![b'x'; len - ROW_OVERHEAD];
    let mut read = Vec::new();
    let mut rows = 0;
    while read.len() + len <= READ_LEN {
        encode::data_row(&mut read, [Some(&value[..])]);
        rows += 1;
    }
    Kernel::new(format!("scan/{len}"), "message", rows, move || {
        assert_eq!(black_box(frame::rows(black_box(&read), 0)).count, rows.into());
    })
}

/// The accounts of a Query with one row.
fn simple() -> Kernel {
    let mut pipeline = Pipeline::default();
    Kernel::new("pipeline/simple", "unit", 1, move || {
        pipeline.push(black_box(Request::Query), Origin::Client, 0);
        answered(&mut pipeline, black_box(b"TDCZ"));
    })
}

/// The accounts of a statement run by the extended protocol, with one row.
fn extended() -> Kernel {
    let mut pipeline = Pipeline::default();
    let requests = [Request::Parse, Request::Bind, Request::DescribePortal, Request::Execute, Request::Sync];
    Kernel::new("pipeline/extended", "unit", 1, move || {
        for (token, request) in (0..).zip(black_box(requests)) {
            pipeline.push(request, Origin::Client, token);
        }
        answered(&mut pipeline, black_box(b"12TDCZ"));
    })
}

fn answered(pipeline: &mut Pipeline, tags: &[u8]) {
    for tag in tags {
        assert!(black_box(pipeline.answer(*tag)).is_ok(), "an answer that is owed");
    }
    assert!(pipeline.is_quiescent(), "nothing is owed");
}

/// The names of a Bind message, all that has to be read of it.
fn bind_names() -> Kernel {
    let mut bind = Vec::new();
    encode::bind(&mut bind, (b"", b"P0_1"), &[0], &[Some(b"12345")], &[0]);
    let body = bind.split_off(frame::HEADER_LEN);
    Kernel::new("bind_names", "message", 1, move || {
        assert!(black_box(frontend::bind_names(black_box(&body))).is_ok(), "the names are there");
    })
}
