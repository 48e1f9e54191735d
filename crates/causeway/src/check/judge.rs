//! What a server's answers mean for Causeway, and what to change.

use std::collections::BTreeSet;

use crate::config::{Cluster, Config};

/// What one server said of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) version: i64,
    pub(super) recovering: bool,
    pub(super) system: Option<String>,
    pub(super) is_monitor: bool,
    pub(super) max_connections: i64,
    pub(super) feedback: bool,
    pub(super) streaming_delay_ms: Option<i64>,
    pub(super) status_interval_s: Option<i64>,
    pub(super) idle_session_timeout_ms: Option<i64>,
    /// Databases that the monitor may not connect to.
    pub(super) closed: Vec<String>,
}

/// How grave a remark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grade {
    /// It works.
    Good,
    /// It works, less well than it could.
    Advice,
    /// It does not work.
    Wrong,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remark {
    pub(super) grade: Grade,
    pub(super) text: String,
}

/// Servers older than this have no tables by which reads of them could be proven harmless.
const FIRST_VERSION: i64 = 140_000;

// === impl Grade ===

impl Grade {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Advice => "advice",
            Self::Wrong => "wrong",
        }
    }
}

// === impl Facts ===

impl Facts {
    /// What it is, in a few words.
    pub(super) fn introduction(&self) -> String {
        let role = if self.recovering { "a replica" } else { "a primary" };
        let (major, minor) = (self.version / 10_000, self.version % 10_000);
        format!("{role}, PostgreSQL {major}.{minor}, system {}", self.system.as_deref().unwrap_or("unknown"))
    }
}

/// What there is to say of one server.
pub(super) fn node(facts: &Facts, config: &Config, cluster: &Cluster) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let mut say = |grade, text: String| remarks.push(Remark { grade, text });
    let user = &cluster.monitor.user;
    if facts.is_monitor {
        say(Grade::Good, format!("{user} can log in and has pg_monitor"));
    } else {
        say(Grade::Wrong, format!("{user} lacks the role pg_monitor: GRANT pg_monitor TO {user}"));
    }
    let served = |name: &&String| config.databases.iter().any(|(own, _)| own == *name || own == "*");
    for database in facts.closed.iter().filter(served) {
        let grant = format!("GRANT CONNECT ON DATABASE {database} TO {user}");
        say(
            Grade::Advice,
            format!("{user} may not connect to {database}, whose reads all run on the primary: {grant}"),
        );
    }
    if facts.version < FIRST_VERSION {
        say(
            Grade::Advice,
            "reads of tables go to replicas from PostgreSQL 14 on; here all run on the primary".to_owned(),
        );
    }
    if facts.max_connections <= i64::from(config.pool.size) {
        let text = format!(
            "max_connections is {}, and one pool alone has {} (pool.size)",
            facts.max_connections, config.pool.size
        );
        say(Grade::Advice, format!("{text}: there is one for each database and user"));
    }
    if facts.idle_session_timeout_ms.is_some_and(|limit| limit > 0) {
        let text = "idle_session_timeout closes idle pooled connections: set it to 0 for Causeway's users, and use \
                    pool.idle_timeout";
        say(Grade::Advice, text.to_owned());
    }
    if facts.recovering {
        replica(facts, cluster, &mut say);
    }
    remarks
}

fn replica(facts: &Facts, cluster: &Cluster, say: &mut impl FnMut(Grade, String)) {
    if !facts.feedback {
        let text = "hot_standby_feedback is off: reads may be cancelled by the primary's vacuum (Causeway runs them again \
                    elsewhere if it can); on keeps what they read, at the price of later vacuums";
        say(Grade::Advice, text.to_owned());
    }
    let limit = i64::try_from(cluster.max_lag.as_millis()).unwrap_or(i64::MAX);
    match facts.streaming_delay_ms {
        Some(-1) => say(
            Grade::Advice,
            "max_standby_streaming_delay is -1: one long read can hold up replay for ever, and fenced reads with it".to_owned(),
        ),
        Some(delay) if delay >= limit => say(
            Grade::Advice,
            format!("max_standby_streaming_delay ({delay} ms) is not below max_lag ({limit} ms): a long read can take the replica out"),
        ),
        _ => {}
    }
    if facts.status_interval_s == Some(0) {
        say(
            Grade::Advice,
            "wal_receiver_status_interval is 0: pg_stat_replication on the primary shows nothing".to_owned(),
        );
    }
}

/// What there is to say of the servers together.
pub(super) fn cluster(known: &[(&str, Facts)]) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let mut say = |grade, text: String| remarks.push(Remark { grade, text });
    let systems: BTreeSet<&str> = known.iter().filter_map(|(_, facts)| facts.system.as_deref()).collect();
    if systems.len() > 1 {
        say(
            Grade::Wrong,
            "the nodes belong to different systems: not all are copies of one another".to_owned(),
        );
    }
    let names = |recovering: bool| {
        let own = known.iter().filter(|(_, facts)| facts.recovering == recovering);
        own.map(|(name, _)| *name).collect::<Vec<_>>()
    };
    match names(false).as_slice() {
        [] => say(Grade::Wrong, "no node takes writes".to_owned()),
        [primary] => say(Grade::Good, format!("{primary} is the primary")),
        several => {
            say(Grade::Wrong, format!("{} all take writes: all but one are stale", several.join(", ")));
        }
    }
    match names(true).as_slice() {
        [] => say(Grade::Advice, "no replica: every read runs on the primary".to_owned()),
        replicas => say(Grade::Good, format!("{} can serve reads", replicas.join(", "))),
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{YAML, config};

    fn good() -> Facts {
        Facts {
            version: 150_008,
            system: Some("7".to_owned()),
            is_monitor: true,
            max_connections: 100,
            feedback: true,
            streaming_delay_ms: Some(1_000),
            status_interval_s: Some(10),
            ..Facts::default()
        }
    }

    fn texts(facts: &Facts) -> Vec<String> {
        let config = config(YAML);
        let remarks = node(facts, &config, &config.clusters[0]);
        remarks
            .iter()
            .filter(|remark| remark.grade != Grade::Good)
            .map(|remark| remark.text.clone())
            .collect()
    }

    #[test]
    fn each_thing_that_is_not_right_is_told() {
        assert!(texts(&good()).is_empty());
        for (facts, part) in [
            (Facts { is_monitor: false, ..good() }, "GRANT pg_monitor TO causeway"),
            (Facts { closed: vec!["app".to_owned()], ..good() }, "GRANT CONNECT ON DATABASE app"),
            (Facts { version: 130_000, ..good() }, "from PostgreSQL 14 on"),
            (Facts { max_connections: 20, ..good() }, "max_connections is 20"),
            (Facts { idle_session_timeout_ms: Some(1), ..good() }, "idle_session_timeout"),
            (Facts { recovering: true, feedback: false, ..good() }, "hot_standby_feedback is off"),
            (Facts { recovering: true, streaming_delay_ms: Some(-1), ..good() }, "for ever"),
            (
                Facts { recovering: true, streaming_delay_ms: Some(30_000), ..good() },
                "is not below max_lag (10000 ms)",
            ),
            (
                Facts { recovering: true, status_interval_s: Some(0), ..good() },
                "wal_receiver_status_interval",
            ),
        ] {
            let texts = texts(&facts);
            assert!(texts.len() == 1 && texts[0].contains(part), "{part}: {texts:?}");
        }
    }

    #[test]
    fn a_cluster_has_one_primary_and_one_system() {
        let replica = Facts { recovering: true, ..good() };
        let other = Facts { system: Some("8".to_owned()), ..good() };
        let wrong = |known: &[(&str, Facts)]| {
            cluster(known).iter().filter(|remark| remark.grade == Grade::Wrong).count()
        };
        assert_eq!(wrong(&[("a", good()), ("b", replica.clone())]), 0);
        assert_eq!(wrong(&[("a", good()), ("b", good())]), 1);
        assert_eq!(wrong(&[("b", replica)]), 1);
        assert_eq!(wrong(&[("a", good()), ("b", other)]), 2);
    }
}
