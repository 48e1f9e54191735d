//! The last minutes: samples for the curves, and what has happened.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde::Serialize;
use tokio::time::Instant;

use super::counts::{Counts, Work};
use super::seen::{Seen, SeenCluster, SeenNode};

/// Samples that are kept: ten minutes of them.
const SAMPLES: usize = 300;
/// Samples over which "the last minute" reaches.
const MINUTE: usize = 30;
/// Events that are kept.
const EVENTS: usize = 100;

/// The last minutes of the process. Written by one task, read by the page.
#[derive(Debug, Default)]
pub struct History {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    samples: VecDeque<Sample>,
    events: VecDeque<Event>,
    /// What had been counted at each of the samples of the last minute, oldest first.
    minute: VecDeque<(Instant, Counts)>,
    last: Option<(Instant, Seen)>,
}

/// One moment of the curves.
#[derive(Clone, Debug)]
struct Sample {
    at: SystemTime,
    primary_per_second: f64,
    replica_per_second: f64,
    clients: usize,
    waiting: usize,
    nodes: Vec<NodeSample>,
}

#[derive(Clone, Debug)]
struct NodeSample {
    cluster: String,
    node: String,
    per_second: f64,
    /// Mean time of an answer in this interval; `None` if there was none.
    latency_ms: Option<f64>,
    lag_ms: Option<f64>,
}

/// How grave an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// As it should be.
    Good,
    /// Good to know.
    Info,
    /// Somebody may have to do something.
    Bad,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Event {
    /// Milliseconds since 1970.
    pub(super) at: u64,
    pub(super) severity: Severity,
    /// A word that stays the same when the text is reworded.
    pub(super) kind: &'static str,
    pub(super) text: String,
}

/// The curves, one value a sample, oldest first.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Curves {
    at: Vec<u64>,
    primary_per_second: Vec<f64>,
    replica_per_second: Vec<f64>,
    clients: Vec<usize>,
    waiting: Vec<usize>,
    nodes: Vec<NodeCurves>,
}

/// Those of one node; `None` where it was not there, or did nothing.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NodeCurves {
    cluster: String,
    node: String,
    per_second: Vec<Option<f64>>,
    latency_ms: Vec<Option<f64>>,
    lag_ms: Vec<Option<f64>>,
}

// === impl History ===

impl History {
    /// Takes a sample, and notes what has changed since the last one.
    pub(super) fn take(&self, now: Instant, seen: Seen) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut events = Vec::new();
        match kept.last.take() {
            None => events.push(event(seen.at, Severity::Info, "start", "Causeway started".to_owned())),
            Some((before, last)) => {
                let seconds = now.saturating_duration_since(before).as_secs_f64().max(0.001);
                kept.samples.push_back(sample(&last, &seen, seconds));
                changes(&last, &seen, &mut events);
            }
        }
        kept.minute.push_back((now, seen.counts.clone()));
        kept.events.extend(events);
        kept.last = Some((now, seen));
        let surplus = kept.samples.len().saturating_sub(SAMPLES);
        kept.samples.drain(..surplus);
        let surplus = kept.minute.len().saturating_sub(MINUTE + 1);
        kept.minute.drain(..surplus);
        let surplus = kept.events.len().saturating_sub(EVENTS);
        kept.events.drain(..surplus);
    }

    /// The events, newest first.
    pub(super) fn events(&self) -> Vec<Event> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).events.iter().rev().cloned().collect()
    }

    /// What had been counted a minute ago, or when the process began, and when that was.
    pub(super) fn minute_ago(&self) -> Option<(Instant, Counts)> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).minute.front().cloned()
    }

    /// The curves of all samples.
    pub(super) fn curves(&self) -> Curves {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<(String, String)> = Vec::new();
        for node in kept.samples.iter().flat_map(|sample| &sample.nodes) {
            let name = (node.cluster.clone(), node.node.clone());
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let nodes = names.into_iter().map(|(cluster, node)| {
            let of = |value: fn(&NodeSample) -> Option<f64>| {
                let at = |sample: &Sample| {
                    sample.nodes.iter().find(|own| own.cluster == cluster && own.node == node).and_then(value)
                };
                kept.samples.iter().map(at).collect()
            };
            NodeCurves {
                per_second: of(|node| Some(node.per_second)),
                latency_ms: of(|node| node.latency_ms),
                lag_ms: of(|node| node.lag_ms),
                cluster,
                node,
            }
        });
        let nodes = nodes.collect();
        let samples = || kept.samples.iter();
        Curves {
            at: samples().map(|sample| millis(sample.at)).collect(),
            primary_per_second: samples().map(|sample| sample.primary_per_second).collect(),
            replica_per_second: samples().map(|sample| sample.replica_per_second).collect(),
            clients: samples().map(|sample| sample.clients).collect(),
            waiting: samples().map(|sample| sample.waiting).collect(),
            nodes,
        }
    }
}

fn sample(last: &Seen, seen: &Seen, seconds: f64) -> Sample {
    let per_second = |of: &dyn Fn(&Counts) -> Work| {
        rate(of(&seen.counts).queries.saturating_sub(of(&last.counts).queries), seconds)
    };
    let node = |cluster: &SeenCluster, node: &SeenNode| {
        let of = |counts: &Counts| counts.of_node(&cluster.name, &node.name);
        let (before, after) = (of(&last.counts), of(&seen.counts));
        let requests = after.requests.saturating_sub(before.requests);
        NodeSample {
            cluster: cluster.name.to_string(),
            node: node.name.to_string(),
            per_second: per_second(&of),
            latency_ms: (requests > 0)
                .then(|| rounded((after.seconds - before.seconds) * 1000.0 / float(requests))),
            lag_ms: node.lag.map(|lag| rounded(lag.as_secs_f64() * 1000.0)),
        }
    };
    let nodes =
        seen.clusters.iter().flat_map(|cluster| cluster.nodes.iter().map(move |one| node(cluster, one)));
    Sample {
        at: seen.at,
        primary_per_second: per_second(&|counts| counts.in_role("primary")),
        replica_per_second: per_second(&|counts| counts.in_role("replica")),
        clients: seen.clients,
        waiting: seen.waiting,
        nodes: nodes.collect(),
    }
}

fn rate(count: u64, seconds: f64) -> f64 {
    rounded(float(count) / seconds)
}

/// A thousandth is more than a curve shows.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "a curve is not as precise")]
fn float(value: u64) -> f64 {
    value as f64
}

/// Milliseconds since 1970.
pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn event(at: SystemTime, severity: Severity, kind: &'static str, text: String) -> Event {
    Event { at: millis(at), severity, kind, text }
}

/// What differs between two looks.
fn changes(last: &Seen, seen: &Seen, events: &mut Vec<Event>) {
    let mut note = |severity, kind, text: String| events.push(event(seen.at, severity, kind, text));
    if seen.draining && !last.draining {
        note(Severity::Info, "drain", "The process is shutting down".to_owned());
    }
    if seen.reloads.0 > last.reloads.0 {
        note(Severity::Info, "reload", "The configuration was reloaded".to_owned());
    }
    if seen.reloads.1 > last.reloads.1 {
        let text = "A reload was refused: the old configuration keeps serving".to_owned();
        note(Severity::Bad, "reload_refused", text);
    }
    for cluster in &seen.clusters {
        if let Some(before) = last.clusters.iter().find(|before| before.name == cluster.name) {
            cluster_changes(before, cluster, &mut note);
        }
    }
}

fn cluster_changes(
    before: &SeenCluster,
    cluster: &SeenCluster,
    note: &mut impl FnMut(Severity, &'static str, String),
) {
    let name = &cluster.name;
    match (&before.primary, &cluster.primary) {
        (Some(old), Some(new)) if old != new => {
            note(Severity::Info, "promotion", format!("{name}: {new} is the primary now, after {old}"));
        }
        (None, Some(new)) => note(Severity::Good, "primary", format!("{name}: {new} is the primary")),
        (Some(old), None) => note(Severity::Bad, "no_primary", format!("{name}: no primary; it was {old}")),
        _ => {}
    }
    if let (Some(old), Some(new)) = (before.timeline, cluster.timeline)
        && old != new
    {
        note(Severity::Info, "timeline", format!("{name}: timeline {new}, after {old}"));
    }
    if let Some(complaint) = cluster.complaint.as_ref().filter(|_| before.complaint != cluster.complaint) {
        note(Severity::Bad, "complaint", format!("{name}: {complaint}"));
    }
    if cluster.refused > before.refused {
        note(Severity::Bad, "stale_primary", format!("{name}: a stale primary was refused"));
    }
    for node in &cluster.nodes {
        let Some(was) = before.nodes.iter().find(|was| was.name == node.name) else {
            note(Severity::Info, "node_added", format!("{name}: {} was added", node.name));
            continue;
        };
        if was.state != node.state {
            let severity = if node.state == "serving" { Severity::Good } else { Severity::Bad };
            let why = node.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            note(severity, "node_state", format!("{name}: {} is {}{why}", node.name, node.state));
        }
        if was.drained != node.drained {
            let text = if node.drained { "is drained: it gets no reads" } else { "is no longer drained" };
            note(Severity::Info, "drained", format!("{name}: {} {text}", node.name));
        } else if was.weight != node.weight {
            let text = format!("{name}: weight of {} is {}, was {}", node.name, node.weight, was.weight);
            note(Severity::Info, "weight", text);
        }
    }
    for node in &before.nodes {
        if !cluster.nodes.iter().any(|now| now.name == node.name) {
            note(Severity::Info, "node_removed", format!("{name}: {} was removed", node.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn seen(primary: Option<&str>, state: &'static str, queries: u64) -> Seen {
        let mut counts = Counts::default();
        let work = Work { queries, requests: queries, seconds: 0.002 * float(queries), ..Work::default() };
        counts.nodes.insert(("main".to_owned(), "b".to_owned(), "replica".to_owned()), work);
        counts.decisions.insert(("replica".to_owned(), "read".to_owned()), queries);
        let node = SeenNode {
            name: "b".into(),
            state,
            reason: (state == "down").then(|| "refused".to_owned()),
            weight: 1,
            drained: false,
            lag: Some(Duration::from_millis(12)),
        };
        let cluster = SeenCluster {
            name: "main".into(),
            primary: primary.map(Into::into),
            timeline: Some(1),
            complaint: None,
            refused: 0,
            nodes: vec![node],
        };
        Seen {
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000),
            counts,
            clusters: vec![cluster],
            reloads: (0, 0),
            draining: false,
            clients: 3,
            waiting: 1,
        }
    }

    #[test]
    fn curves_are_rates_and_means_of_the_interval() {
        let (history, start) = (History::default(), Instant::now());
        history.take(start, seen(Some("a"), "serving", 100));
        history.take(start + Duration::from_secs(2), seen(Some("a"), "serving", 300));
        history.take(start + Duration::from_secs(4), seen(Some("a"), "serving", 300));
        let curves = history.curves();
        assert_eq!(curves.replica_per_second, [100.0, 0.0]);
        assert_eq!(curves.primary_per_second, [0.0, 0.0]);
        let node = &curves.nodes[0];
        assert_eq!((node.cluster.as_str(), node.node.as_str()), ("main", "b"));
        assert_eq!(node.latency_ms, [Some(2.0), None]);
        assert_eq!(node.lag_ms, [Some(12.0), Some(12.0)]);
        assert_eq!(
            history.minute_ago().unwrap().1.decisions[&("replica".to_owned(), "read".to_owned())],
            100
        );
    }

    #[test]
    fn what_changes_is_an_event() {
        let (history, now) = (History::default(), Instant::now());
        history.take(now, seen(Some("a"), "serving", 0));
        history.take(now, seen(None, "down", 0));
        history.take(now, seen(Some("b"), "serving", 0));
        history.take(now, Seen { reloads: (1, 1), ..seen(Some("b"), "serving", 0) });
        let mut drained = Seen { reloads: (1, 1), ..seen(Some("b"), "serving", 0) };
        drained.clusters[0].nodes[0] =
            SeenNode { drained: true, weight: 0, ..drained.clusters[0].nodes[0].clone() };
        history.take(now, drained);
        let events: Vec<_> = history.events().into_iter().map(|event| event.text).collect();
        assert_eq!(
            events,
            [
                "main: b is drained: it gets no reads",
                "A reload was refused: the old configuration keeps serving",
                "The configuration was reloaded",
                "main: b is serving",
                "main: b is the primary",
                "main: b is down: refused",
                "main: no primary; it was a",
                "Causeway started",
            ]
        );
    }

    #[test]
    fn nothing_grows() {
        let (history, now) = (History::default(), Instant::now());
        for round in 0..2_000 {
            history.take(now, seen(Some(if round % 2 == 0 { "a" } else { "b" }), "serving", 0));
        }
        assert_eq!(history.curves().at.len(), SAMPLES);
        assert_eq!(history.events().len(), EVENTS);
        let kept = history.kept.lock().unwrap();
        assert_eq!(kept.minute.len(), MINUTE + 1);
    }
}
