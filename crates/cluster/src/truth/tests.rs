use causeway_routing::{Bound, Fate, Fence, NodeView};

use super::*;

const SYSTEM: u64 = 7;
const TERMS: Terms = Terms { max_lag: Duration::from_secs(10), source: FenceSource::Auto };

/// A cluster of three nodes on a clock of its own, in milliseconds.
struct Scene {
    truth: Truth,
    base: Instant,
}

impl Scene {
    fn new() -> Self {
        let mut scene = Self { truth: Truth::new(TERMS, Faults::default()), base: Instant::now() };
        let nodes: Vec<_> =
            ["a", "b", "c"].into_iter().zip(1..).map(|(name, key)| seat(key, name, 1)).collect();
        scene.truth.configure(&nodes, TERMS, scene.base);
        scene
    }

    /// `a` is the primary at position 100, which both replicas have replayed.
    fn settled() -> Self {
        let mut scene = Self::new();
        scene.primary(1, 0, 1, 100);
        scene.replica(2, 0, 1, 100);
        scene.replica(3, 0, 1, 100);
        scene
    }

    fn at(&self, ms: u64) -> Instant {
        self.base + Duration::from_millis(ms)
    }

    fn see(&mut self, key: u64, ms: u64, system_id: u64, timeline: u32, position: Position) {
        let requested = self.at(ms);
        let sighting = Sighting { requested, instance: instance(system_id), timeline, position };
        if matches!(position, Position::Inserted { .. }) {
            self.learn(key, ms, system_id, timeline, Account::None);
        }
        self.truth.sighted(Key(key), sighting, self.at(ms + 1));
    }

    /// Once told where its timeline comes from, a server's later word changes nothing.
    fn learn(&mut self, key: u64, ms: u64, system_id: u64, timeline: u32, account: Account) {
        let told = self.truth.member(Key(key)).and_then(|member| member.origin.clone());
        if told.is_none_or(|(_, known, _)| known != timeline) {
            let origin = Origin { instance: instance(system_id), timeline, account };
            self.truth.learnt(Key(key), &origin, self.at(ms));
        }
    }

    /// A promotion at `lsn`, and what the new primary shows next.
    fn promoted(&mut self, key: u64, ms: u64, timeline: u32, lsn: u64) {
        self.learn(key, ms, SYSTEM, timeline, Account::Promoted(Lsn(lsn)));
        self.primary(key, ms, timeline, lsn + 50);
    }

    fn complaint(&self) -> String {
        self.truth.publish().view.complaint.as_deref().unwrap_or_default().to_owned()
    }

    fn bound(&self, era: u64, ms: u64) -> Bound {
        self.truth.publish().past.bound(era, self.at(ms))
    }

    fn primary(&mut self, key: u64, ms: u64, timeline: u32, lsn: u64) {
        self.unflushed(key, ms, timeline, (lsn, lsn));
    }

    fn unflushed(&mut self, key: u64, ms: u64, timeline: u32, (end, flushed): (u64, u64)) {
        let position = Position::Inserted { end: Lsn(end), flushed: Lsn(flushed) };
        self.see(key, ms, SYSTEM, timeline, position);
    }

    fn replica(&mut self, key: u64, ms: u64, timeline: u32, lsn: u64) {
        self.see(key, ms, SYSTEM, timeline, Position::Replayed(Lsn(lsn)));
    }

    fn lost(&mut self, key: u64, ms: u64) {
        self.truth.lost(Key(key), self.at(ms));
    }

    fn down(&mut self, key: u64, ms: u64) {
        self.truth.down(Key(key), "gone".into(), self.at(ms));
    }

    /// Each node's state, the primary's in capitals: "Sss" is a serving primary and two serving replicas.
    fn states(&self) -> String {
        let view = self.truth.publish().view.clone();
        let letter = |node: &NodeView| {
            let letter = node.state.as_str().chars().next().unwrap_or('?');
            if view.primary == Some(node.id) { letter.to_ascii_uppercase() } else { letter }
        };
        view.nodes.iter().map(letter).collect()
    }

    fn lag_ms(&self, index: usize) -> Option<u128> {
        self.truth.publish().view.nodes[index].lag.map(|lag| lag.as_millis())
    }

    fn fence(&self, ms: u64) -> Option<u64> {
        self.truth.publish().fences.and_then(|fences| fences.since(self.at(ms))).map(|fence| fence.lsn.0)
    }
}

fn seat(key: u64, name: &str, weight: u32) -> Seat {
    let node = Writer { name: name.into(), address: format!("host{key}:5432").into() };
    Seat { key: Key(key), node, weight, levels: Levels::ALL }
}

fn line(epoch: Option<Epoch>) -> Option<Line> {
    epoch.map(|epoch| epoch.line())
}

fn instance(system_id: u64) -> Instance {
    Instance { system_id, started: 0, server: None }
}

#[test]
fn nobody_is_primary_before_all_were_tried() {
    let mut scene = Scene::new();
    scene.primary(1, 0, 1, 500);
    scene.replica(3, 0, 2, 90);
    assert_eq!(scene.states(), "uuu");
    assert!(!scene.truth.publish().settled);
    scene.primary(2, 5, 2, 100);
    assert_eq!(scene.states(), "rSl", "the first to answer was a stale one");
    scene.replica(3, 10, 2, 100);
    assert_eq!(scene.states(), "rSs");
    assert_eq!(line(scene.truth.publish().epoch.clone()), Some(Line { system_id: SYSTEM, timeline: 2 }));
}

#[test]
fn a_node_that_is_down_has_been_tried() {
    let mut scene = Scene::new();
    scene.down(3, 0);
    scene.primary(1, 0, 1, 100);
    scene.replica(2, 0, 1, 100);
    assert_eq!(scene.states(), "Ssd");
    assert_eq!(scene.truth.publish().why[2].as_deref(), Some("gone"));
}

#[test]
fn lag_is_the_age_of_the_newest_covered_sample() {
    let mut scene = Scene::settled();
    assert_eq!((scene.states().as_str(), scene.lag_ms(1)), ("Sss", Some(0)));
    scene.primary(1, 1000, 1, 200);
    scene.replica(2, 1500, 1, 150);
    assert_eq!(scene.lag_ms(1), Some(1501), "it shows the state of moment 0");
    assert_eq!(scene.truth.publish().view.nodes[1].lag_bytes, Some(50));
    scene.replica(2, 1600, 1, 200);
    assert_eq!(scene.lag_ms(1), Some(0));
    scene.primary(1, 30_000, 1, 200);
    assert_eq!(scene.lag_ms(1), Some(0), "an idle primary ages nobody");
}

#[test]
fn over_the_limit_is_lagging_until_it_catches_up() {
    let mut scene = Scene::settled();
    for second in 1..=12 {
        scene.primary(1, second * 1000, 1, 100 + second);
        scene.replica(2, second * 1000, 1, 100 + second);
    }
    assert_eq!(scene.states(), "Ssl");
    scene.replica(3, 12_500, 1, 105);
    assert_eq!((scene.states().as_str(), scene.lag_ms(2)), ("Sss", Some(7501)));
}

#[test]
fn a_replica_never_seen_to_cover_a_sample_does_not_serve() {
    let mut scene = Scene::new();
    scene.primary(1, 0, 1, 1000);
    scene.replica(2, 0, 1, 10);
    scene.replica(3, 0, 1, 1000);
    assert_eq!((scene.states().as_str(), scene.lag_ms(1)), ("Sls", None), "it may be hours behind");
    scene.replica(2, 5, 1, 1000);
    assert_eq!(scene.states(), "Sss");
}

#[test]
fn without_a_primary_lag_is_frozen() {
    let mut scene = Scene::settled();
    scene.primary(1, 1000, 1, 200);
    scene.replica(2, 2000, 1, 150);
    scene.replica(3, 2000, 1, 200);
    scene.down(1, 3000);
    assert_eq!(scene.states(), "dss");
    for _ in 0..2 {
        scene.replica(2, 60_000, 1, 150);
        scene.replica(3, 60_000, 1, 200);
        assert_eq!((scene.states().as_str(), scene.lag_ms(1), scene.lag_ms(2)), ("dss", Some(3000), Some(0)));
        // A restarted replica is measured against the last known position too.
        scene.lost(2, 61_000);
        scene.down(2, 61_000);
        assert_eq!(scene.states(), "dds");
    }
}

#[test]
fn a_lost_connection_forgets_positions_and_keeps_states() {
    let mut scene = Scene::settled();
    scene.lost(2, 10);
    scene.lost(1, 10);
    assert_eq!(scene.states(), "Sss", "one broken connection is no failure yet");
    let published = scene.truth.publish();
    assert_eq!((published.view.nodes[1].observation, published.observed[1]), (None, None));
    assert_eq!(scene.fence(0), Some(100), "what was acknowledged before it is still before it");
    // A crash restart took the primary's unflushed tail and moved the replica back.
    scene.primary(1, 20, 1, 90);
    scene.replica(2, 20, 1, 80);
    assert_eq!((scene.fence(0), scene.lag_ms(1), scene.states().as_str()), (Some(90), None, "Sls"));
    scene.down(2, 30);
    assert_eq!(scene.states(), "Sds");
}

#[test]
fn fences_are_by_sending_time_and_the_lowest_sufficient() {
    let mut scene = Scene::settled();
    for (ms, lsn) in [(10, 110), (20, 120), (30, 120), (40, 140)] {
        scene.primary(1, ms, 1, lsn);
    }
    assert_eq!([scene.fence(0), scene.fence(1), scene.fence(10)], [Some(100), Some(110), Some(110)]);
    assert_eq!([scene.fence(11), scene.fence(30), scene.fence(31)], [Some(120), Some(120), Some(140)]);
    assert_eq!(scene.fence(41), None, "a probe under way when asked proves nothing");
}

#[test]
fn a_replica_on_a_newer_timeline_refutes_the_primary() {
    let mut scene = Scene::settled();
    scene.replica(3, 10, 2, 100);
    assert_eq!(scene.states(), "rrs");
    scene.primary(1, 20, 1, 900);
    assert_eq!((scene.states().as_str(), scene.fence(15)), ("rrs", None), "a stale primary gives no fences");
}

#[test]
fn promotion_moves_the_primary_and_restarts_the_fences() {
    let mut scene = Scene::settled();
    scene.primary(1, 10, 1, 900);
    scene.primary(2, 20, 2, 150);
    assert_eq!(scene.states(), "rSr", "old primary and its replica are on the old timeline");
    assert_eq!([scene.fence(0), scene.fence(21)], [Some(150), None]);
    scene.replica(3, 30, 1, 900);
    assert_eq!(scene.states(), "rSr", "a higher number on the old timeline is not progress");
    scene.replica(3, 40, 2, 150);
    assert_eq!(scene.states(), "rSs");
    scene.down(2, 50);
    assert_eq!(scene.states(), "rds", "a timeline never goes back");
    let reasons = scene.truth.publish().why.clone();
    assert_eq!(reasons[0].as_deref(), Some("it is on an older timeline than the newest seen"));
}

#[test]
fn two_primaries_on_one_timeline_are_none() {
    let mut scene = Scene::settled();
    scene.primary(1, 10, 2, 200);
    scene.primary(2, 10, 2, 200);
    assert_eq!(scene.states(), "rrr");
    assert_eq!(scene.complaint(), "split brain: several nodes take writes on the same timeline (a, b)");
    scene.down(1, 20);
    assert_eq!(scene.states(), "drr", "the other one has written on it");
    let complaint =
        "split brain: node \"b\" takes writes on timeline 2, on which node \"a\" (host1:5432) has written";
    assert_eq!(scene.complaint(), complaint);
    scene.truth.forget_epoch(scene.at(30));
    assert_eq!(scene.states(), "dSr", "an operator has decided");
    assert_eq!(scene.complaint(), "");
}

/// A promotion at 150: what was acknowledged before is told apart by the positions that the old primary has shown.
#[test]
fn what_survives_a_promotion() {
    let mut scene = Scene::settled();
    let first = scene.truth.publish().era;
    scene.primary(1, 10, 1, 150);
    scene.primary(1, 20, 1, 160);
    assert_eq!(scene.bound(first, 5), Bound::Same);
    scene.promoted(2, 30, 2, 150);
    let published = scene.truth.publish();
    assert!(published.era > first);
    let lineage = published.view.lineage.clone().unwrap();
    assert_eq!(&*lineage.ancestors, [Switch { timeline: 1, lsn: Lsn(150) }]);
    let fence = |lsn| Fence { system_id: SYSTEM, timeline: 1, lsn: Lsn(lsn) };
    assert_eq!(
        [scene.bound(first, 5), scene.bound(first, 15)],
        [Bound::At(fence(150)), Bound::At(fence(160))]
    );
    assert_eq!(lineage.fate(&fence(150)), Fate::Carried(Fence { timeline: 2, ..fence(150) }));
    assert_eq!(lineage.fate(&fence(160)), Fate::Lost);
    // What the old primary acknowledged last is known by what it shows later.
    assert_eq!(scene.bound(first, 25), Bound::Unknown);
    scene.primary(1, 40, 1, 170);
    assert_eq!(scene.bound(first, 25), Bound::At(fence(170)));
    // One timeline more.
    let second = published.era;
    scene.promoted(3, 50, 3, 300);
    assert_eq!(scene.bound(first, 5), Bound::At(fence(150)));
    assert!(matches!(scene.bound(second, 30), Bound::At(Fence { timeline: 2, .. })));
    let lineage = scene.truth.publish().view.lineage.clone().unwrap();
    assert_eq!(
        lineage.fate(&fence(150)),
        Fate::Lost,
        "c was not seen on timeline 2: its parent is not certain"
    );
}

#[test]
fn ancestors_add_up() {
    let mut scene = Scene::settled();
    scene.promoted(2, 10, 2, 150);
    scene.replica(3, 20, 2, 210);
    scene.promoted(3, 30, 3, 210);
    let ancestors = |scene: &Scene| scene.truth.publish().view.lineage.clone().unwrap().ancestors.to_vec();
    let switch = |timeline, lsn| Switch { timeline, lsn: Lsn(lsn) };
    assert_eq!(ancestors(&scene), [switch(1, 150), switch(2, 210)]);
    // A history file says it all at once.
    let history = [switch(1, 150), switch(2, 210), switch(3, 300)].into();
    scene.learn(1, 40, SYSTEM, 4, Account::History(history));
    scene.primary(1, 40, 4, 400);
    assert_eq!(ancestors(&scene), [switch(1, 150), switch(2, 210), switch(3, 300)]);
}

#[test]
fn nobody_is_primary_on_a_timeline_of_unknown_descent() {
    let mut scene = Scene::settled();
    let position = Position::Inserted { end: Lsn(200), flushed: Lsn(200) };
    let sighting = Sighting { requested: scene.at(10), instance: instance(SYSTEM), timeline: 2, position };
    scene.truth.sighted(Key(2), sighting, scene.at(11));
    assert_eq!(scene.states(), "rur", "the old one is refused at once");
    assert!(!scene.truth.publish().view.lineage.clone().unwrap().settled);
    scene.learn(2, 12, SYSTEM, 2, Account::None);
    assert_eq!(scene.states(), "rSr");
}

/// Leases are cut when the era changes.
#[test]
fn an_era_is_one_servers_reign() {
    let mut scene = Scene::settled();
    let era = |scene: &Scene| scene.truth.publish().era;
    let first = era(&scene);
    assert!(first > 0);
    scene.primary(1, 10, 1, 200);
    scene.lost(1, 20);
    scene.down(1, 30);
    scene.primary(1, 40, 1, 200);
    assert_eq!(era(&scene), first, "a primary that is out of reach for a while is still the same");
    scene.replica(3, 50, 2, 150);
    assert_eq!(era(&scene), first + 1, "it is known to be none, whoever is");
    scene.primary(1, 60, 1, 300);
    assert_eq!(era(&scene), first + 1);
    scene.primary(2, 70, 2, 200);
    assert_eq!(era(&scene), first + 2);
    scene.down(2, 80);
    scene.replica(3, 80, 2, 200);
    assert_eq!(era(&scene), first + 2, "nobody else is");
    scene.replica(2, 90, 2, 200);
    assert_eq!(era(&scene), first + 3, "it came back as a replica");
}

#[test]
fn another_system_is_refused_until_accepted() {
    let mut scene = Scene::settled();
    scene.see(3, 10, 8, 5, Position::Replayed(Lsn(100)));
    scene.see(2, 10, 8, 5, Position::Inserted { end: Lsn(100), flushed: Lsn(100) });
    assert_eq!(scene.states(), "Srr");
    scene.down(1, 20);
    assert_eq!(scene.states(), "drr");
    assert_eq!(scene.complaint(), "node \"b\" takes writes for system 8, but 7 was accepted");
    scene.truth.forget_epoch(scene.at(30));
    scene.see(2, 40, 8, 5, Position::Inserted { end: Lsn(100), flushed: Lsn(100) });
    scene.see(3, 40, 8, 5, Position::Replayed(Lsn(100)));
    assert_eq!(scene.states(), "dSs");
}

#[test]
fn a_remembered_lineage_refuses_a_stale_primary_that_is_alone() {
    let mut scene = Scene::new();
    let kept = |timeline| Epoch { system_id: SYSTEM, timeline, ancestors: None, writer: None };
    scene.truth.remember(kept(2));
    scene.primary(1, 0, 1, 100);
    scene.down(2, 0);
    scene.down(3, 0);
    assert_eq!(scene.states(), "rdd");
    let complaint = "node \"a\" takes writes on timeline 1, but timeline 2 was seen";
    assert_eq!(scene.complaint(), complaint);
    scene.truth.remember(kept(1));
    assert_eq!(
        scene.truth.publish().epoch.clone().map(|epoch| epoch.timeline),
        Some(2),
        "it never goes back"
    );
    scene.primary(2, 5, 2, 100);
    assert_eq!(scene.states(), "rSd");
}

#[test]
fn what_is_not_flushed_is_said() {
    let mut scene = Scene::settled();
    assert_eq!(scene.truth.publish().unflushed, None);
    scene.unflushed(1, 5, 1, (110, 104));
    assert_eq!(scene.truth.publish().unflushed, Some(Lsn(104)));
    assert_eq!(scene.fence(5), Some(110), "an insert position covers asynchronous commits");
    scene.lost(1, 6);
    assert_eq!(scene.truth.publish().unflushed, None);
}

#[test]
fn flush_positions_are_fences_only_once_nothing_was_seen_against_them() {
    let mut scene = Scene::settled();
    let source = |scene: &Scene| {
        let published = scene.truth.publish();
        (published.source, published.source_why.as_ref().map(ToString::to_string))
    };
    scene.truth.terms = Terms { source: FenceSource::Flush, ..TERMS };
    scene.unflushed(1, 5, 1, (110, 104));
    assert_eq!((source(&scene).0, scene.fence(5)), (FenceSource::Insert, Some(110)), "not looked at yet");
    assert!(source(&scene).1.is_some());
    scene.truth.audited(instance(9), None);
    assert_eq!(source(&scene).0, FenceSource::Insert, "that was another server");
    scene.truth.audited(instance(SYSTEM), None);
    assert_eq!((source(&scene), scene.fence(0)), ((FenceSource::Flush, None), None));
    scene.unflushed(1, 10, 1, (120, 115));
    assert_eq!(scene.fence(0), Some(115));
    scene.replica(2, 11, 1, 115);
    assert_eq!(scene.truth.publish().view.nodes[1].lag_bytes, Some(5), "lag is against what was inserted");
    scene.truth.audited(instance(SYSTEM), Some("role app".into()));
    assert_eq!(source(&scene), (FenceSource::Insert, Some("role app".to_owned())));
    assert_eq!(scene.fence(10), Some(120), "a fence of the refused kind is not given out any more");
}

#[test]
fn commits_are_fences_of_the_primary_they_were_made_on() {
    let mut scene = Scene::settled();
    scene.truth.terms = Terms { source: FenceSource::Commit, ..TERMS };
    scene.primary(1, 5, 1, 110);
    assert_eq!(scene.fence(0), None, "positions are no fences then");
    let commit = |ms, lsn| Sample { sent: scene.base + Duration::from_millis(ms), lsn: Lsn(lsn) };
    let (first, second, late) = (commit(6, 120), commit(8, 130), commit(25, 900));
    scene.truth.committed(instance(9), first);
    assert_eq!(scene.fence(0), None);
    scene.truth.committed(instance(SYSTEM), first);
    scene.truth.committed(instance(SYSTEM), second);
    assert_eq!([scene.fence(0), scene.fence(7), scene.fence(9)], [Some(120), Some(130), None]);
    scene.replica(3, 20, 2, 140);
    scene.truth.committed(instance(SYSTEM), late);
    assert_eq!(scene.fence(9), None, "it was superseded");
}

#[test]
fn regressions_changes_and_refusals_are_counted() {
    let mut scene = Scene::settled();
    let counted = |scene: &Scene| {
        let tallies = &scene.truth.tallies;
        (tallies.lsn_regressions, tallies.epoch_changes, tallies.stale_primaries_refused)
    };
    scene.primary(1, 5, 1, 110);
    scene.replica(2, 5, 1, 110);
    assert_eq!(counted(&scene), (0, 0, 0));
    scene.lost(2, 6);
    scene.replica(2, 7, 1, 90);
    scene.replica(2, 8, 1, 95);
    assert_eq!(counted(&scene), (1, 0, 0), "a crash restart");
    scene.primary(2, 10, 2, 95);
    assert_eq!(counted(&scene), (1, 1, 1), "the old primary is refused");
    scene.primary(1, 11, 1, 120);
    assert_eq!(counted(&scene), (1, 1, 1), "as it was before");
    scene.replica(3, 12, 2, 50);
    assert_eq!(counted(&scene), (1, 1, 1), "another timeline counts anew");
}

#[test]
fn a_new_configuration_keeps_what_is_known_by_key() {
    let mut scene = Scene::settled();
    let nodes = [seat(3, "c", 5), seat(9, "d", 1), seat(1, "z", 0)];
    scene.truth.configure(&nodes, TERMS, scene.at(5));
    assert_eq!(scene.states(), "suS");
    let view = scene.truth.publish().view.clone();
    assert_eq!(
        view.nodes.iter().map(|n| (&*n.name, n.weight)).collect::<Vec<_>>(),
        [("c", 5), ("d", 1), ("z", 0)]
    );
    assert!(view.nodes.iter().enumerate().all(|(index, node)| node.id == node_id(index)));
    assert_eq!(scene.fence(0), Some(100));
    scene.replica(2, 6, 9, 1);
    assert_eq!(scene.states(), "suS", "a removed monitor's last word counts for nothing");
}

#[test]
fn a_position_shows_what_was_acknowledged_before_the_newest_sample_it_covers() {
    let mut scene = Scene::settled();
    scene.primary(1, 50, 1, 200);
    scene.primary(1, 90, 1, 300);
    let fences = scene.truth.fences().unwrap();
    let shown = |timeline, lsn| fences.shown_by(&Observation { system_id: SYSTEM, timeline, lsn: Lsn(lsn) });
    assert_eq!([shown(1, 99), shown(2, 300)], [None; 2]);
    let moments = [0, 0, 50, 90, 90].map(|ms| Some(scene.at(ms)));
    assert_eq!([100, 199, 200, 300, 400].map(|lsn| shown(1, lsn)), moments);
}

#[test]
fn the_same_answer_again_moves_only_what_fences_hold_for() {
    let mut scene = Scene::settled();
    let primary = |scene: &Scene, ms, lsn, timeline| Sighting {
        requested: scene.at(ms),
        instance: instance(SYSTEM),
        timeline,
        position: Position::Inserted { end: Lsn(lsn), flushed: Lsn(lsn) },
    };
    let again = |scene: &mut Scene, key, sighting: Sighting| {
        let now = sighting.requested + Duration::from_millis(1);
        scene.truth.sighted_again(Key(key), sighting, now)
    };
    let before = scene.truth.publish();
    let same = primary(&scene, 50, 100, 1);
    assert!(again(&mut scene, 1, same));
    let after = scene.truth.publish();
    assert_eq!(format!("{:?}", before.view), format!("{:?}", after.view));
    let fences = scene.truth.fences().unwrap();
    assert_eq!(fences.since(scene.at(50)).unwrap().lsn, Lsn(100));
    assert_eq!(fences.since(scene.at(51)), None);
    // Another position, another timeline, another node's answer and one after a lost connection are looked into.
    for (key, sighting) in [
        (1, primary(&scene, 60, 101, 1)),
        (1, primary(&scene, 60, 100, 2)),
        (2, primary(&scene, 60, 100, 1)),
        (1, Sighting { position: Position::Replayed(Lsn(100)), ..primary(&scene, 60, 100, 1) }),
    ] {
        assert!(!again(&mut scene, key, sighting), "{sighting:?}");
    }
    scene.lost(1, 70);
    let same = primary(&scene, 80, 100, 1);
    assert!(!again(&mut scene, 1, same));
    scene.primary(1, 90, 1, 100);
    let same = primary(&scene, 95, 100, 1);
    assert!(again(&mut scene, 1, same));
}
