//! The answer to a plain query that has arrived in one piece.
//!
//! Most answers are: rows, how many, and that the server is ready, behind each other in what one read has given. Such
//! a one is recognised as a whole, by its headers, and nothing about it has to be followed message by message.

use causeway_protocol::backend::{TransactionStatus, tag};
use causeway_protocol::frame::{self, Header};

use super::Session;
use super::answer::{Outcome, Scan};

/// ReadyForQuery, apart from its last byte, the status.
const READY: [u8; 5] = [tag::READY_FOR_QUERY, 0, 0, 0, 5];

// === impl Session ===

impl Session {
    /// Takes in the whole answer to a lone client's Query, if that is what the input is. Otherwise gives `None`, having
    /// changed nothing.
    #[inline]
    pub(super) fn answer_whole(&mut self, input: &[u8]) -> Option<Scan> {
        if self.server_passing + self.server_discarding > 0 || !self.pipeline.owes_lone_query() {
            return None;
        }
        let rows = rows_of_whole(input)?;
        self.pipeline.clear();
        self.counts.messages += rows + 3;
        self.counts.rows += rows;
        self.counts.simple_queries += 1;
        self.unit.commit();
        self.next_status = status_of_whole(input)?;
        Some(Scan { consumed: input.len(), direct: 0..input.len(), outcome: Outcome::Done })
    }
}

/// How many rows there are between a RowDescription and the CommandComplete and ReadyForQuery that follow; `None` if the
/// input is not made up of just these.
#[inline]
fn rows_of_whole(input: &[u8]) -> Option<u64> {
    let (_, rest) = input.split_last()?;
    let before_ready = rest.strip_suffix(&READY)?;
    status_of_whole(input)?;
    let described = frame_len(before_ready, 0, tag::ROW_DESCRIPTION)?;
    let rows = frame::rows(before_ready, described);
    let completed = frame_len(before_ready, rows.end, tag::COMMAND_COMPLETE)?;
    (rows.missing == 0 && rows.end + completed == before_ready.len()).then_some(rows.count)
}

/// The status that an answer ends with, if it is one that a query without an error can end with.
#[inline]
fn status_of_whole(input: &[u8]) -> Option<TransactionStatus> {
    match input.last()? {
        b'I' => Some(TransactionStatus::Idle),
        b'T' => Some(TransactionStatus::InTransaction),
        _ => None,
    }
}

/// The length of the frame at `at`, if it has this tag and has arrived.
#[inline]
fn frame_len(input: &[u8], at: usize, wanted: u8) -> Option<usize> {
    let rest = input.get(at..)?;
    let Header { tag, len } = frame::header(rest).ok()??;
    (tag == wanted && len <= rest.len()).then_some(len)
}

#[cfg(test)]
mod tests {
    use causeway_protocol::backend::Column;
    use causeway_protocol::encode;

    use super::*;

    fn answer(rows: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode::row_description(&mut bytes, &[Column::text(b"x")]);
        (0..rows).for_each(|_| encode::data_row(&mut bytes, [Some(&b"some value"[..])]));
        encode::command_complete(&mut bytes, b"SELECT");
        encode::ready_for_query(&mut bytes, TransactionStatus::Idle);
        bytes
    }

    #[test]
    fn an_answer_is_whole_or_it_is_not() {
        for rows in [0, 1, 5] {
            let bytes = answer(rows);
            assert_eq!(rows_of_whole(&bytes), u64::try_from(rows).ok());
            for cut in 0..bytes.len() {
                assert_eq!(rows_of_whole(&bytes[..cut]), None, "{cut} bytes of {rows} rows");
                assert_eq!(rows_of_whole(&bytes[cut + 1..]), None, "without the first {cut}");
            }
        }
    }

    #[test]
    fn another_message_in_between_makes_it_none() {
        let bytes = answer(2);
        let mut notice = Vec::new();
        encode::raw(&mut notice, tag::NOTICE_RESPONSE, b"\0");
        // Before each message, and behind the last.
        let mut at = 0;
        loop {
            let mixed = [&bytes[..at], &notice, &bytes[at..]].concat();
            assert_eq!(rows_of_whole(&mixed), None, "at {at}");
            match frame::header(&bytes[at..]).unwrap() {
                Some(header) => at += header.len,
                None => break,
            }
        }
        assert_eq!(rows_of_whole(&[&bytes[..], &bytes].concat()), None, "two answers");
    }

    #[test]
    fn a_failed_transaction_is_not_the_end_of_one() {
        let mut bytes = answer(1);
        *bytes.last_mut().unwrap() = b'E';
        assert_eq!(rows_of_whole(&bytes), None);
    }
}
