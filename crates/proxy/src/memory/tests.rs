use std::sync::Arc;
use std::time::Duration;

use causeway_pool::{ServerConn, Verification};
use causeway_routing::catalogue::Catalogue;
use causeway_routing::{Lsn, Switch};
use tokio::sync::{oneshot, watch};

use super::*;
use crate::control::Need;

/// A control plane that knows one change of primary, from timeline 1 to timeline 2 at position 100.
struct Promoted {
    bound: Bound,
    shown: Option<Fence>,
}

fn fence(timeline: u32, lsn: u64) -> Fence {
    Fence { system_id: 7, timeline, lsn: Lsn(lsn) }
}

fn view(primary: Option<u16>) -> View {
    let ancestors = [Switch { timeline: 1, lsn: Lsn(100) }].into();
    let lineage = Lineage { system_id: 7, timeline: 2, ancestors, settled: true };
    View { primary: primary.map(NodeId), lineage: Some(Arc::new(lineage)), ..View::default() }
}

impl ControlPlane for Promoted {
    fn view(&self) -> Arc<View> {
        Arc::new(view(Some(1)))
    }
    fn view_version(&self) -> u64 {
        0
    }
    fn fence_since(&self, _: Instant) -> Option<Fence> {
        None
    }
    fn fence(&self, _: Instant) -> oneshot::Receiver<Fence> {
        oneshot::channel().1
    }
    fn wake_at_fence(&self, _: Instant, _: &std::task::Waker) -> bool {
        unreachable!("nobody waits")
    }
    fn position(&self, _: &Need) -> oneshot::Receiver<()> {
        oneshot::channel().1
    }
    fn holds(&self, _: NodeId, _: &ServerConn) -> bool {
        true
    }
    fn era(&self) -> u64 {
        2
    }
    fn leads(&self, _: NodeId, _: &ServerConn) -> bool {
        true
    }
    fn bound(&self, era: u64, _: Instant) -> Bound {
        assert_eq!(era, 1, "the session's own era is asked about");
        self.bound
    }
    fn shown(&self, _: NodeId, _: Instant) -> Option<Fence> {
        self.shown
    }
    fn shown_up_to(&self, _: NodeId) -> Option<Instant> {
        None
    }
    fn verification(&self) -> Option<Verification> {
        None
    }
    fn wrote(&self, _: Instant) {}
    fn last_write(&self) -> Instant {
        Instant::now()
    }
    fn catalogue(&self, _: &str) -> Option<Arc<Catalogue>> {
        None
    }
    fn definition_seen(&self, _: &str) {}
    fn node_failed(&self, _: NodeId) {}
    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}

fn memory() -> Memory {
    Memory { era: 1, ..Memory::default() }
}

fn account(memory: &Memory, level: Level, bound: Bound, shown: Option<Fence>) -> Account {
    memory.account(level, &view(Some(1)), &Promoted { bound, shown })
}

#[test]
fn writes_are_carried_over_or_lost() {
    let mut memory = memory();
    assert_eq!(account(&memory, Level::Cluster, Bound::Unknown, None), Account::Kept, "nothing was written");
    let written = Instant::now();
    memory.wrote(written);
    for (bound, outcome) in [
        (Bound::Same, Account::Kept),
        (Bound::At(fence(1, 100)), Account::Carried(fence(2, 100))),
        (Bound::At(fence(1, 101)), Account::Lost),
        (Bound::Unknown, Account::Lost),
        (Bound::Abandoned, Account::Lost),
    ] {
        for level in [Level::Cluster, Level::Session, Level::Eventual] {
            assert_eq!(account(&memory, level, bound, None), outcome, "{bound:?} {level}");
        }
        let promoted = Promoted { bound, shown: None };
        assert_eq!(memory.account(Level::Cluster, &view(None), &promoted), Account::Open, "no primary yet");
    }
    // A fence of the session's own is nearer than what was read of the primary later.
    memory.fence = Some((written, fence(1, 90)));
    assert_eq!(
        account(&memory, Level::Router, Bound::At(fence(1, 150)), None),
        Account::Carried(fence(2, 90))
    );
    assert_eq!(account(&memory, Level::Router, Bound::Unknown, None), Account::Carried(fence(2, 90)));
    memory.fence = Some((written, fence(1, 120)));
    assert_eq!(
        account(&memory, Level::Router, Bound::At(fence(1, 95)), None),
        Account::Carried(fence(2, 95))
    );
    // One from before the write says nothing about it.
    memory.fence = Some((written.checked_sub(Duration::from_nanos(1)).unwrap(), fence(1, 90)));
    assert_eq!(account(&memory, Level::Router, Bound::Unknown, None), Account::Lost);
}

#[test]
fn what_was_seen_counts_where_it_must_be_seen_again() {
    let now = Instant::now();
    let mut memory = memory();
    memory.answered((NodeId(2), Role::Replica), false, now, now);
    let kept = [(Some(fence(1, 100)), Account::Kept), (Some(fence(2, 500)), Account::Kept)];
    let not = [(Some(fence(1, 101)), Account::Lost), (None, Account::Ask(NodeId(2), now))];
    for (shown, outcome) in kept.into_iter().chain(not) {
        assert_eq!(account(&memory, Level::Session, Bound::Unknown, shown), outcome, "{shown:?}");
        assert_eq!(account(&memory, Level::Cluster, Bound::Unknown, shown), Account::Kept);
    }
    // The promoted replica has all that it had shown.
    memory.answered((NodeId(1), Role::Replica), false, now, now);
    assert_eq!(account(&memory, Level::Session, Bound::Unknown, None), Account::Kept);
    // What the former primary had shown is as its writes are.
    memory.answered((NodeId(0), Role::Primary), false, now, now);
    assert_eq!(account(&memory, Level::Session, Bound::Unknown, None), Account::Lost);
    assert_eq!(account(&memory, Level::Session, Bound::At(fence(1, 99)), None), Account::Kept);
}

#[test]
fn after_a_read_on_the_primary_a_replica_must_show_as_much() {
    let now = Instant::now();
    let promoted = Promoted { bound: Bound::Same, shown: None };
    let mut memory = memory();
    assert!(matches!(memory.must(Level::Session, now, &promoted), Must::Nothing));
    memory.answered((NodeId(0), Role::Primary), false, now, now);
    assert!(matches!(memory.must(Level::Session, now, &promoted), Must::Since(at) if at == now));
}

#[test]
fn tokens_are_carried_over() {
    let view = view(Some(1));
    assert_eq!(carried(fence(1, 100), &view), fence(2, 100));
    assert_eq!(carried(fence(1, 101), &view), fence(1, 101), "nobody covers it");
    assert_eq!(carried(fence(2, 900), &view), fence(2, 900));
    assert_eq!(carried(fence(1, 100), &View::default()), fence(1, 100));
}
