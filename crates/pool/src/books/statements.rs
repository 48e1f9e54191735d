//! Prepared statements of a session.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A prepared statement shared between sessions: equal identity means equal text, parameter types and whatever else
/// its parsing depended on. Given out by the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StatementId(pub u64);

/// The named statements a server connection has, the least recently used of them first to go.
#[derive(Debug)]
pub struct Statements {
    limit: usize,
    positions: HashMap<StatementId, usize, BuildHasherDefault<IdHasher>>,
    /// Nodes of a ring in the order of use. Node 0 is its head: `next` is the most recent, `previous` the oldest.
    nodes: Vec<Node>,
    vacant: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    id: StatementId,
    previous: usize,
    next: usize,
}

const HEAD: usize = 0;

// === impl Statements ===

impl Statements {
    /// None yet, at most `limit`.
    pub fn new(limit: usize) -> Self {
        let head = Node { id: StatementId(0), previous: HEAD, next: HEAD };
        Self { limit, positions: HashMap::default(), nodes: vec![head], vacant: Vec::new() }
    }

    /// Whether the connection has the statement. Does not count as a use.
    pub fn contains(&self, id: StatementId) -> bool {
        self.positions.contains_key(&id)
    }

    /// Counts a use of the statement; whether the connection has it.
    pub fn touch(&mut self, id: StatementId) -> bool {
        let Some(&position) = self.positions.get(&id) else { return false };
        if self.nodes[HEAD].next != position {
            self.unlink(position);
            self.link_first(position);
        }
        true
    }

    /// Adds a statement, or counts a use of it if it is there already.
    ///
    /// When that makes one too many, returns the least recently used one, which is no longer in the books: the
    /// caller closes it on the server. With a limit of zero that is the statement itself.
    #[must_use = "what is returned must be closed on the server"]
    pub fn insert(&mut self, id: StatementId) -> Option<StatementId> {
        if self.touch(id) {
            return None;
        }
        let node = Node { id, previous: HEAD, next: HEAD };
        let position = self.vacant.pop().unwrap_or(self.nodes.len());
        if position == self.nodes.len() {
            self.nodes.push(node);
        } else {
            self.nodes[position] = node;
        }
        self.link_first(position);
        self.positions.insert(id, position);
        self.evict()
    }

    /// Removes a statement; whether it was there.
    pub fn remove(&mut self, id: StatementId) -> bool {
        let Some(position) = self.positions.remove(&id) else { return false };
        self.unlink(position);
        self.vacant.push(position);
        true
    }

    /// Forgets all of them, as after DISCARD ALL or DEALLOCATE ALL.
    pub fn clear(&mut self) {
        *self = Self::new(self.limit);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The most there may be.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Changes the limit; what [`Self::evict`] returns afterwards must be closed on the server.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Takes the least recently used statement out while there are more than the limit.
    #[must_use = "what is returned must be closed on the server"]
    pub fn evict(&mut self) -> Option<StatementId> {
        let oldest = self.nodes[HEAD].previous;
        if self.len() <= self.limit || oldest == HEAD {
            return None;
        }
        let id = self.nodes[oldest].id;
        self.remove(id).then_some(id)
    }

    fn link_first(&mut self, position: usize) {
        let next = self.nodes[HEAD].next;
        self.nodes[position].previous = HEAD;
        self.nodes[position].next = next;
        self.nodes[next].previous = position;
        self.nodes[HEAD].next = position;
    }

    fn unlink(&mut self, position: usize) {
        let Node { previous, next, .. } = self.nodes[position];
        self.nodes[previous].next = next;
        self.nodes[next].previous = previous;
    }
}

/// Spreads identities, which are our own numbers: there is no adversary to hash against.
#[derive(Default)]
struct IdHasher(u64);

// === impl IdHasher ===

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        // The table takes its position from the low bits and its tag from the high ones: both must depend on all.
        let spread = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = spread ^ (spread >> 32);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::backoff::Random;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut statements = Statements::new(2);
        assert_eq!(statements.insert(StatementId(1)), None);
        assert_eq!(statements.insert(StatementId(2)), None);
        assert!(statements.touch(StatementId(1)));
        assert_eq!(statements.insert(StatementId(3)), Some(StatementId(2)));
        assert!(!statements.touch(StatementId(2)));
        assert_eq!(statements.insert(StatementId(1)), None, "already there: a use");
        assert_eq!(statements.insert(StatementId(4)), Some(StatementId(3)));
        assert_eq!(statements.len(), 2);
    }

    #[test]
    fn a_limit_of_zero_keeps_nothing() {
        let mut statements = Statements::new(0);
        assert_eq!(statements.insert(StatementId(7)), Some(StatementId(7)));
        assert!(statements.is_empty());
    }

    #[test]
    fn a_lower_limit_evicts_one_by_one() {
        let mut statements = Statements::new(3);
        for id in 1..=3 {
            assert_eq!(statements.insert(StatementId(id)), None);
        }
        statements.set_limit(1);
        assert_eq!(statements.evict(), Some(StatementId(1)));
        assert_eq!(statements.evict(), Some(StatementId(2)));
        assert_eq!(statements.evict(), None);
        statements.clear();
        assert_eq!((statements.len(), statements.limit()), (0, 1));
    }

    /// Any sequence of operations agrees with a plain list.
    #[test]
    fn agrees_with_a_list() {
        let mut random = Random::new(11);
        let mut statements = Statements::new(8);
        let mut list: VecDeque<StatementId> = VecDeque::new();
        for step in 0..20_000 {
            let id = StatementId(random.below(16));
            let present = list.iter().position(|&other| other == id);
            match random.below(8) {
                0..4 => {
                    if let Some(position) = present {
                        list.remove(position);
                    }
                    list.push_front(id);
                    let evicted = if list.len() > 8 { list.pop_back() } else { None };
                    assert_eq!(statements.insert(id), evicted, "step {step}");
                }
                4..7 => {
                    if let Some(position) = present {
                        list.remove(position);
                        list.push_front(id);
                    }
                    assert_eq!(statements.touch(id), present.is_some(), "step {step}");
                }
                _ => {
                    if let Some(position) = present {
                        list.remove(position);
                    }
                    assert_eq!(statements.remove(id), present.is_some(), "step {step}");
                }
            }
            assert_eq!(statements.len(), list.len());
            assert!(list.iter().all(|&id| statements.contains(id)));
        }
    }
}
