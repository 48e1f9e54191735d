//! What one snapshot, or one transaction, has shown: I6 and I7.

use std::collections::HashMap;

use super::Violation;

/// Lists as one statement has shown them; entries are only ever appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The content of each list.
    pub lists: Vec<Vec<u64>>,
    /// Whether a replica has shown it.
    pub replica: bool,
}

/// The reads of one transaction: node, key and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// In their order.
    pub reads: Vec<(u16, u32, u64)>,
    /// Whether they all have one snapshot (REPEATABLE READ).
    pub one_snapshot: bool,
}

/// I6: every list shown is a prefix of the longest, and what replicas have shown is totally ordered. Among snapshots of
/// the primary it is not asked: PostgreSQL makes commits visible there in another order than it logs them.
pub fn prefixes(snapshots: &[Snapshot]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let most = snapshots.iter().map(|snapshot| snapshot.lists.len()).max().unwrap_or_default();
    for index in 0..most {
        let lists = || snapshots.iter().filter_map(|snapshot| snapshot.lists.get(index));
        let Some(longest) = lists().max_by_key(|list| list.len()) else { continue };
        let wrong = lists().find(|list| !longest.starts_with(list));
        if let Some(list) = wrong {
            let text = format!("list {index} was {list:?}, which is no beginning of {longest:?}");
            violations.push(Violation::new(6, text));
        }
    }
    let mut lengths: Vec<Vec<usize>> = snapshots
        .iter()
        .filter(|snapshot| snapshot.replica)
        .map(|snapshot| snapshot.lists.iter().map(Vec::len).collect())
        .collect();
    lengths.sort();
    lengths.dedup();
    for pair in lengths.windows(2) {
        let [less, more] = pair else { continue };
        if less.iter().zip(more).any(|(less, more)| less > more) {
            let text =
                format!("replicas have shown lists of lengths {less:?} and {more:?}: no order of commits");
            violations.push(Violation::new(6, text));
        }
    }
    violations
}

/// I7: the reads of a transaction come from one node, and those of one snapshot do not change.
pub fn transactions(transactions: &[Transaction]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for transaction in transactions {
        let mut nodes = transaction.reads.iter().map(|(node, ..)| node);
        let first = nodes.next();
        if nodes.any(|node| Some(node) != first) {
            violations.push(Violation::new(7, format!("several nodes have answered {transaction:?}")));
        }
        if !transaction.one_snapshot {
            continue;
        }
        let mut shown = HashMap::new();
        if transaction
            .reads
            .iter()
            .any(|(_, key, value)| shown.insert(key, value).is_some_and(|v| v != value))
        {
            violations
                .push(Violation::new(7, format!("one snapshot has shown two values in {transaction:?}")));
        }
    }
    violations
}
