//! Walking rows in place finds what taking one frame after the other finds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use causeway_protocol::frame::{self, Header, MAX_FRAME_LEN, Rows};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// What [`frame::rows`] says, by [`frame::header`] alone.
fn one_by_one(input: &[u8], at: usize) -> Rows {
    let mut rows = Rows { count: 0, end: at.min(input.len()), missing: 0 };
    while let Some(rest) = input.get(rows.end..) {
        match frame::header(rest) {
            Ok(Some(Header { tag: b'D' | b'd', len })) => {
                rows.count += 1;
                if len > rest.len() {
                    return Rows { end: input.len(), missing: len - rest.len(), ..rows };
                }
                rows.end += len;
            }
            _ => break,
        }
    }
    rows
}

fn message(tag: u8, body: usize) -> Vec<u8> {
    let len = u32::try_from(body + 4).unwrap();
    [&[tag][..], &len.to_be_bytes(), &vec![b'D'; body]].concat()
}

/// A message as a server sends it, and now and then one with a length that is none.
fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let tag = prop_oneof![
        10 => Just(b'D'),
        5 => Just(b'd'),
        1 => prop::sample::select(b"CZTNE".to_vec()),
        1 => any::<u8>(),
    ];
    let length = prop_oneof![
        1 => 0..4_u32,
        1 => Just(u32::try_from(MAX_FRAME_LEN).unwrap() - 1),
        1 => Just(u32::try_from(MAX_FRAME_LEN).unwrap()),
        1 => any::<u32>(),
    ];
    prop_oneof![
        30 => (tag.clone(), 0..40_usize).prop_map(|(tag, body)| message(tag, body)),
        1 => (tag, length).prop_map(|(tag, length)| [&[tag][..], &length.to_be_bytes()].concat()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_messages_cut_anywhere(
        messages in vec(any_message(), 0..20),
        cut in any::<Index>(),
        at in any::<Index>(),
    ) {
        let whole = messages.concat();
        let input = &whole[..cut.index(whole.len() + 1)];
        prop_assert_eq!(frame::rows(input, 0), one_by_one(input, 0));
        let at = at.index(whole.len() + 1);
        prop_assert_eq!(frame::rows(input, at), one_by_one(input, at));
    }

    #[test]
    fn of_any_bytes(input in vec(prop_oneof![Just(b'D'), Just(0), 0..9_u8, any::<u8>()], 0..100), at in 0..120_usize) {
        prop_assert_eq!(frame::rows(&input, at), one_by_one(&input, at));
    }

    /// Rows that arrive in pieces are counted once, and all their bytes are theirs.
    #[test]
    fn in_pieces(bodies in vec(0..30_usize, 1..20), cuts in vec(any::<Index>(), 0..8)) {
        let whole: Vec<u8> = bodies.iter().flat_map(|body| message(b'D', *body)).collect();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(whole.len() + 1)).collect();
        cuts.push(whole.len());
        cuts.sort_unstable();
        let (mut begin, mut passing, mut count) = (0, 0, 0);
        for cut in cuts {
            // The rest of a row that was counted before.
            let passed = passing.min(cut - begin);
            begin += passed;
            passing -= passed;
            let rows = frame::rows(&whole[begin..cut], 0);
            count += rows.count;
            begin += rows.end;
            if rows.missing > 0 {
                prop_assert_eq!(begin, cut);
                passing = rows.missing;
            }
        }
        prop_assert_eq!((begin, passing, count), (whole.len(), 0, u64::try_from(bodies.len()).unwrap()));
    }
}

#[test]
fn the_longest_row_is_one_and_a_longer_one_is_none() {
    let header = |len: usize| [&b"d"[..], &u32::try_from(len - 1).unwrap().to_be_bytes()].concat();
    let missing = MAX_FRAME_LEN - 5;
    assert_eq!(frame::rows(&header(MAX_FRAME_LEN), 0), Rows { count: 1, end: 5, missing });
    assert_eq!(frame::rows(&header(MAX_FRAME_LEN + 1), 0), Rows::default());
    let beyond = [header(MAX_FRAME_LEN + 1), vec![0; 100]].concat();
    assert_eq!(frame::rows(&beyond, 0), Rows::default());
}
