//! Where a WAL record can end.

use causeway_routing::Lsn;

/// Sizes that decide where page headers stand; a server cannot change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    segment: u64,
    block: u64,
}

/// `SizeOfXLogShortPHD`: the header of every WAL page but a segment's first (`access/xlog_internal.h`).
const SHORT_HEADER: u64 = 24;
/// `SizeOfXLogLongPHD`: the header of a segment's first page.
const LONG_HEADER: u64 = 40;

// === impl Geometry ===

impl Geometry {
    /// Sizes in bytes, as `wal_segment_size` and `wal_block_size` report them. `None` unless a segment is a
    /// whole number of blocks and a block has room for its header.
    pub(crate) fn new(segment: u64, block: u64) -> Option<Self> {
        (block > LONG_HEADER && segment >= block && segment.is_multiple_of(block))
            .then_some(Self { segment, block })
    }

    /// The end of the last record before an insert position.
    ///
    /// At a page boundary the server reports where the next record's data will begin, behind the page header
    /// (`XLogBytePosToRecPtr`); the last record ends before the header, and replay stops there until another
    /// record comes.
    pub(crate) fn record_end(self, insert: Lsn) -> Lsn {
        let first_page = insert.0 % self.segment < self.block;
        let header = if first_page { LONG_HEADER } else { SHORT_HEADER };
        if insert.0 % self.block == header { Lsn(insert.0 - header) } else { insert }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_behind_a_page_header_move_before_it() {
        let usual = Geometry::new(16 << 20, 8192).unwrap();
        let end = |text: &str| usual.record_end(text.parse().unwrap()).to_string();
        for (insert, ends) in [
            ("0/3006018", "0/3006000"), // a page's short header
            ("0/3000028", "0/3000000"), // a segment's long header
            ("0/3000018", "0/3000018"), // inside the long header: no position the server reports, left alone
            ("0/3006028", "0/3006028"), // 16 bytes into a page's data
            ("0/3006000", "0/3006000"), // before the header already
            ("0/3006019", "0/3006019"),
            ("0/30060A0", "0/30060A0"),
            ("5/FF000028", "5/FF000000"),
            ("0/0", "0/0"),
        ] {
            assert_eq!(end(insert), ends, "{insert}");
        }
    }

    #[test]
    fn unusual_sizes() {
        let large = Geometry::new(64 << 20, 32768).unwrap();
        assert_eq!(large.record_end(Lsn((64 << 20) + 40)), Lsn(64 << 20));
        assert_eq!(large.record_end(Lsn((16 << 20) + 40)), Lsn((16 << 20) + 40), "no segment begins here");
        assert_eq!(large.record_end(Lsn((16 << 20) + 24)), Lsn(16 << 20));
        assert_eq!(large.record_end(Lsn(8192 + 24)), Lsn(8192 + 24), "no page begins here");
        for (segment, block) in [(0, 0), (8192, 0), (8192, 40), (4096, 8192), (10000, 8192)] {
            assert_eq!(Geometry::new(segment, block), None, "{segment} {block}");
        }
    }
}
