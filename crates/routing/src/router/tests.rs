use std::sync::Arc;

use super::*;
use crate::fence::{Lsn, Observation};
use crate::level::Levels;
use crate::view::{NodeState, Role};

const READ: Verdict = Verdict { kind: Kind::Read, reason: Reason::Read };

fn fence(lsn: u64) -> Fence {
    Fence { system_id: 1, timeline: 1, lsn: Lsn(lsn) }
}

fn replica(id: u16, weight: u32, lsn: u64) -> NodeView {
    NodeView {
        id: NodeId(id),
        name: Arc::from(format!("pg-{id}")),
        role: Role::Replica,
        state: NodeState::Serving,
        weight,
        levels: Levels::ALL,
        observation: Some(Observation { system_id: 1, timeline: 1, lsn: Lsn(lsn) }),
        lag_bytes: Some(0),
        lag: Some(Duration::ZERO),
    }
}

fn view(replicas: &[(u32, u64)]) -> View {
    let mut nodes = vec![NodeView { role: Role::Primary, observation: None, ..replica(0, 1, 0) }];
    for (id, (weight, lsn)) in (1..).zip(replicas) {
        nodes.push(replica(id, *weight, *lsn));
    }
    View { nodes, primary: Some(NodeId(0)), ..View::default() }
}

fn request(requirement: Requirement) -> Request<'static> {
    Request { verdict: READ, level: Level::Session, requirement, serializable: false, excluded: &[] }
}

fn route(request: &Request<'_>, view: &View) -> (Target, Reason) {
    let decision = Router.route(request, view, &[], 0x1234_5678_9abc_def0);
    (decision.target, decision.reason)
}

const PRIMARY: Target = Target::Primary(Some(NodeId(0)));

#[test]
fn only_reads_leave_the_primary() {
    let view = view(&[(1, 100)]);
    for kind in [
        Kind::Write,
        Kind::Session,
        Kind::WriteSession,
        Kind::BeginReadWrite,
        Kind::BeginReadOnlyPrimary,
        Kind::TransactionControl,
        Kind::Either,
    ] {
        let verdict = Verdict { kind, reason: Reason::Locking };
        let decision = route(&Request { verdict, ..request(Requirement::None) }, &view);
        assert_eq!(decision, (PRIMARY, Reason::Locking));
    }
    assert_eq!(route(&request(Requirement::None), &view), (Target::Replica(NodeId(1)), Reason::Read));
    let verdict = Verdict { kind: Kind::BeginReadOnly, reason: Reason::TransactionControl };
    let decision = route(&Request { verdict, ..request(Requirement::None) }, &view);
    assert_eq!(decision.0, Target::Replica(NodeId(1)));
}

#[test]
fn the_level_and_isolation_decide_first() {
    let view = view(&[(1, 100)]);
    let primary = Request { level: Level::Primary, ..request(Requirement::None) };
    assert_eq!(route(&primary, &view), (PRIMARY, Reason::LevelPrimary));
    let serializable = Request { serializable: true, ..request(Requirement::None) };
    assert_eq!(route(&serializable, &view), (PRIMARY, Reason::Serializable));
}

#[test]
fn a_fence_is_never_passed_over() {
    let nodes = view(&[(1, 100), (1, 200)]);
    for random in 0..1000_u64 {
        let random = random.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let decision = Router.route(&request(Requirement::Fence(fence(150))), &nodes, &[], random);
        assert_eq!(decision.target, Target::Replica(NodeId(2)));
    }
    assert_eq!(route(&request(Requirement::Fence(fence(201))), &nodes), (PRIMARY, Reason::Fence));
    assert_eq!(route(&request(Requirement::Unknown), &nodes), (PRIMARY, Reason::Fence));
    let eventual = Request { level: Level::Eventual, ..request(Requirement::Unknown) };
    assert!(matches!(route(&eventual, &nodes).0, Target::Replica(_)));
    let mut unseen = view(&[(1, 100)]);
    unseen.nodes[1].observation = None;
    assert_eq!(route(&request(Requirement::Fence(fence(1))), &unseen), (PRIMARY, Reason::Fence));
    let mut other_timeline = view(&[(1, 100)]);
    other_timeline.nodes[1].observation = Some(Observation { system_id: 1, timeline: 2, lsn: Lsn(500) });
    assert_eq!(route(&request(Requirement::Fence(fence(1))), &other_timeline), (PRIMARY, Reason::Fence));
}

#[test]
fn only_serving_replicas_are_asked() {
    for change in [
        (|node: &mut NodeView| node.state = NodeState::Lagging) as fn(&mut NodeView),
        |node| node.state = NodeState::Down,
        |node| node.role = Role::Primary,
        |node| node.weight = 0,
    ] {
        let mut view = view(&[(1, 100)]);
        change(&mut view.nodes[1]);
        assert_eq!(route(&request(Requirement::None), &view), (PRIMARY, Reason::NoReplica));
    }
    let excluded = Request { excluded: &[NodeId(1)], ..request(Requirement::None) };
    assert_eq!(route(&excluded, &view(&[(1, 100)])), (PRIMARY, Reason::Retried));
    assert_eq!(route(&excluded, &view(&[(1, 100), (1, 100)])).0, Target::Replica(NodeId(2)));
    let nobody = View { primary: None, ..view(&[]) };
    assert_eq!(route(&request(Requirement::None), &nobody).0, Target::Primary(None));
}

/// A small generator, so that the simulations are the same every time (`SplitMix64`).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Shares in percent of `clients` closed-loop clients on nodes that answer in `latencies` microseconds each.
fn simulate(weights: &[u32], latencies: &[u64], clients: usize) -> Vec<f64> {
    let replicas: Vec<_> = weights.iter().map(|weight| (*weight, 100)).collect();
    let view = view(&replicas);
    let mut chance = Chance(42);
    let mut loads = vec![Load::default(); weights.len() + 1];
    let mut served = vec![0_u32; weights.len() + 1];
    let mut running: Vec<(u64, usize, u64)> = Vec::new();
    let mut now = 0;
    for _ in 0..40_000 {
        if running.len() == clients {
            let next = running.iter().enumerate().min_by_key(|(_, run)| run.0).map(|(i, _)| i).unwrap();
            let (end, node, took) = running.swap_remove(next);
            now = end;
            loads[node].in_flight -= 1;
            loads[node].latency = (loads[node].latency * 7 + Duration::from_micros(took)) / 8;
        }
        let decision = Router.route(&request(Requirement::None), &view, &loads, chance.next());
        let Target::Replica(NodeId(node)) = decision.target else { panic!("{decision:?}") };
        let node = usize::from(node);
        loads[node].in_flight += 1;
        served[node] += 1;
        // Between a half and one and a half of the node's usual time.
        let took = latencies[node - 1] / 2 + chance.next() % latencies[node - 1].max(1);
        running.push((now + took, node, took));
    }
    served[1..].iter().map(|n| f64::from(*n) * 100.0 / 40_000.0).collect()
}

#[test]
fn equal_nodes_get_their_weights() {
    for weights in [&[1, 1][..], &[1, 1, 1], &[1, 3], &[2, 3, 5], &[1, 9], &[100, 200, 50, 50]] {
        for clients in [1, 4, 16, 64, 400] {
            let total = f64::from(weights.iter().sum::<u32>());
            let shares = simulate(weights, &vec![300; weights.len()], clients);
            for (share, weight) in shares.iter().zip(weights) {
                let wanted = f64::from(*weight) * 100.0 / total;
                assert!((share - wanted).abs() < 5.0, "{weights:?}, {clients} clients: {shares:?}");
            }
        }
    }
}

#[test]
fn a_slow_node_gets_less() {
    for clients in [4, 16, 64] {
        let shares = simulate(&[1, 1], &[300, 3000], clients);
        assert!(shares[1] < 20.0, "{clients} clients: {shares:?}");
        assert!(shares[1] > 0.0, "it must be found out when it recovers: {shares:?}");
    }
}

#[test]
fn the_same_arguments_give_the_same_decision() {
    let view = view(&[(1, 100), (2, 100), (3, 100)]);
    for random in [0, 1, u64::MAX, 0x8000_0000_0000_0000] {
        let one = Router.route(&request(Requirement::None), &view, &[], random);
        assert_eq!(one, Router.route(&request(Requirement::None), &view, &[], random));
    }
}

#[test]
fn a_node_may_be_limited_to_levels() {
    let mut view = view(&[(1, 100), (1, 100)]);
    let lax = Levels::named(&["eventual", "bounded"]).unwrap();
    view.nodes[1].levels = lax;
    for random in 0..64_u64 {
        let random = random.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let request = request(Requirement::Fence(fence(100)));
        let decision = Router.route(&request, &view, &[], random);
        assert_eq!(decision.target, Target::Replica(NodeId(2)));
    }
    // Where all are, strict reads have no replica to wait for.
    view.nodes[2].levels = lax;
    assert_eq!(route(&request(Requirement::Fence(fence(100))), &view), (PRIMARY, Reason::NoReplica));
    let eventual = Request { level: Level::Eventual, ..request(Requirement::None) };
    assert_ne!(route(&eventual, &view).0, PRIMARY);
}
