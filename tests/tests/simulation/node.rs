//! One server of the model: its log, and what it has flushed, received and replayed of it.

use tokio::sync::watch;
use tokio::time::Instant;

/// Sizes of the model's log. Small ones, so that records often end where a page does.
pub(crate) const SEGMENT: u64 = 1024;
pub(crate) const BLOCK: u64 = 256;

/// An entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Unlike any other's.
    id: u64,
    pub(crate) end: u64,
    /// The key and the value that it commits, if it is a commit.
    pub(crate) commit: Option<(u32, u64)>,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) timeline: u32,
    pub(crate) replica: bool,
    /// It accepts connections.
    pub(crate) up: bool,
    /// The routers can reach it.
    pub(crate) reachable: bool,
    /// Moves when all of its connections end.
    pub(crate) generation: watch::Sender<u64>,
    pub(crate) log: Vec<Record>,
    /// How many records standbys may have.
    pub(crate) flushed: usize,
    /// Commits that new snapshots of a primary show: they leave the list of running ones after the flush.
    pub(crate) visible: Vec<usize>,
    /// How many records a replica shows.
    pub(crate) replayed: usize,
    /// Which node a replica follows.
    pub(crate) source: usize,
    pub(crate) stalled_until: Option<Instant>,
}

// === impl Node ===

impl Node {
    pub(crate) fn new(replica: bool) -> Self {
        let first = Record { id: 0, end: 48, commit: None };
        Self {
            timeline: 1,
            replica,
            up: true,
            reachable: true,
            generation: watch::Sender::new(0),
            log: vec![first],
            flushed: 1,
            visible: Vec::new(),
            replayed: 1,
            source: 0,
            stalled_until: None,
        }
    }

    /// Whether a connection of that generation lives.
    pub(crate) fn serves(&self, generation: u64) -> bool {
        self.up && self.reachable && *self.generation.borrow() == generation
    }

    /// Ends every connection.
    pub(crate) fn disconnect(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Adds a record of about that length, or one that ends where its page does, and returns how many there are.
    pub(crate) fn append(&mut self, id: u64, commit: Option<(u32, u64)>, length: Option<u64>) -> usize {
        let begin = self.insert_position();
        let mut end = begin + length.unwrap_or(BLOCK - begin % BLOCK);
        // No record ends inside a header, or right behind it.
        if let 1.. = end % BLOCK
            && end % BLOCK <= header(end)
        {
            end += header(end) + 8 - end % BLOCK;
        }
        self.log.push(Record { id, end, commit });
        self.log.len()
    }

    /// As `pg_current_wal_insert_lsn()` gives it: where the next record will begin.
    pub(crate) fn insert_position(&self) -> u64 {
        let end = self.position(self.log.len());
        if end.is_multiple_of(BLOCK) { end + header(end) } else { end }
    }

    /// Where the record of that count ends.
    pub(crate) fn position(&self, count: usize) -> u64 {
        count.checked_sub(1).and_then(|last| self.log.get(last)).map_or(0, |record| record.end)
    }

    /// What a new snapshot shows of a key.
    pub(crate) fn value(&self, key: u32) -> u64 {
        let commit = |record: &Record| record.commit.filter(|(of, _)| *of == key).map(|(_, value)| value);
        if self.replica {
            return self.log.iter().take(self.replayed).rev().find_map(commit).unwrap_or(0);
        }
        let visible = self.visible.iter().filter_map(|index| self.log.get(*index).and_then(commit));
        visible.max().unwrap_or(0)
    }

    /// Takes over what `source` has flushed, if that continues the log here.
    pub(crate) fn receive(&mut self, source: &Self) {
        let own = self.log.len();
        if source.flushed >= own && source.log.get(own - 1) == self.log.last() {
            self.log.extend_from_slice(source.log.get(own..source.flushed).unwrap_or_default());
            self.timeline = source.timeline;
        }
    }

    /// Becomes a primary on a new timeline, after replaying all it has received.
    pub(crate) fn promote(&mut self, id: u64) {
        self.replica = false;
        self.timeline += 1;
        // The end of recovery is logged, which takes the position beyond what the old primary may have had.
        self.flushed = self.append(id, None, Some(320));
        self.visible = (0..self.log.len()).collect();
    }

    /// Follows another server's history, as after `pg_rewind`.
    pub(crate) fn rewind(&mut self, onto: &Self) {
        let common = self.log.iter().zip(&onto.log).take_while(|(own, other)| own == other).count();
        self.log.truncate(common);
        self.replayed = self.replayed.min(common);
    }
}

fn header(end: u64) -> u64 {
    if end % SEGMENT < BLOCK { 40 } else { 24 }
}
