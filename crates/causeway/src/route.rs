//! `causeway route`: where a statement would run, and why.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use causeway_cluster::Cluster;
use causeway_proxy::metrics::DecisionTarget;
use causeway_routing::cache::SyntaxOptions;
use causeway_routing::catalogue::Catalogue;
use causeway_routing::classify::{Limits, classify};
use causeway_routing::resolve::{Verdict, resolve, resolve_for_replica};
use causeway_routing::router::{Request, Requirement, Router, Target};
use causeway_routing::{
    Class, Command, Isolation, Kind, Level, Modes, NodeId, NodeState, NodeView, Reason, Role, SettingValue,
    View,
};
use tokio::time::Instant;

use crate::assemble;
use crate::cli::{complain, say};
use crate::config::Config;
use crate::exit::Exit;
use crate::serve::{self, Options};

/// How long the nodes may take to tell what is in the database.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The database.
    pub database: String,
    /// The user.
    pub user: String,
    /// Answer in JSON.
    pub json: bool,
    /// What ran before in the same session.
    pub pre: Vec<String>,
    /// The statement.
    pub sql: String,
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    class: Kind,
    target: DecisionTarget,
    reason: Reason,
}

/// A session as far as routing depends on it.
struct Session<'a> {
    catalogue: Option<&'a Catalogue>,
    level: Level,
    syntax: SyntaxOptions,
    settings: HashMap<Box<str>, Box<str>>,
    transaction: Option<Transaction>,
    pinned: bool,
}

/// The running transaction.
#[derive(Clone, Copy)]
struct Transaction {
    /// It was begun READ ONLY, so its first statement decides where it lives.
    may_be_on_replica: bool,
}

/// Answers on standard output.
pub fn run(options: &Options, question: &Question) -> Exit {
    let config = match serve::load(&options.file) {
        Ok(config) => config,
        Err(error) => {
            complain(&error);
            return Exit::Config;
        }
    };
    let named = |wanted: &str| config.databases.iter().find(|(name, _)| name == wanted);
    let Some((_, database)) = named(&question.database).or_else(|| named("*")) else {
        complain(&format_args!("database \"{}\" is not configured", question.database));
        return Exit::Usage;
    };
    let user = config.users.iter().find(|(name, _)| *name == question.user);
    let level = user.and_then(|(_, user)| user.overrides.level).or(database.overrides.level);
    let catalogue = catalogue(&config, database.cluster, &question.database);
    if catalogue.is_none() {
        complain(&"no node told what is in the database: what only it knows counts as unknown");
    }
    let mut session = Session::new(catalogue.as_deref(), level.unwrap_or(config.consistency.level));
    for sql in &question.pre {
        session.run(sql);
    }
    let Answer { class, target, reason } = session.answer(&question.sql);
    if question.json {
        let object = serde_json::json!({
            "class": class.as_str(), "target": target.as_str(), "reason": reason.as_str(),
        });
        say(format_args!("{object}\n"));
    } else {
        say(format_args!("class:  {class}\ntarget: {}\nreason: {reason}\n", target.as_str()));
    }
    Exit::Done
}

/// What is in the database, if a node tells in time.
fn catalogue(config: &Config, cluster: usize, database: &str) -> Option<Arc<Catalogue>> {
    let cluster = config.clusters.get(cluster)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async {
        let deadline = Instant::now() + PATIENCE;
        let running = Cluster::start(assemble::cluster_config(cluster));
        running.wait_settled(deadline).await;
        let reachable = |node: &NodeView| !matches!(node.state, NodeState::Down | NodeState::Unknown);
        let mut known = None;
        while known.is_none() && running.view().nodes.iter().any(reachable) && Instant::now() < deadline {
            known = running.catalogue(database);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        running.shutdown();
        known
    })
}

// === impl Session ===

impl<'a> Session<'a> {
    fn new(catalogue: Option<&'a Catalogue>, level: Level) -> Self {
        let syntax = SyntaxOptions::default();
        Self { catalogue, level, syntax, settings: HashMap::new(), transaction: None, pinned: false }
    }

    fn classify(&self, sql: &str) -> Class {
        if self.syntax.judges(sql.as_bytes()) {
            return classify(sql.as_bytes(), &Limits::default());
        }
        let unknown = classify(sql.as_bytes(), &Limits::default());
        Class { kind: Kind::Write, reason: Reason::Encoding, ..unknown }
    }

    /// Takes in what a statement leaves behind, as if it had succeeded.
    fn run(&mut self, sql: &str) {
        let class = self.classify(sql);
        for command in &class.commands {
            match command {
                Command::Begin(_) => {
                    let may_be_on_replica = class.kind == Kind::BeginReadOnly;
                    self.transaction = Some(Transaction { may_be_on_replica });
                }
                Command::SetTransaction(Modes { read_only: Some(false), .. }) => {
                    self.transaction = self.transaction.map(|_| Transaction { may_be_on_replica: false });
                }
                Command::Commit { chain: false }
                | Command::Rollback { chain: false }
                | Command::PrepareTransaction => self.transaction = None,
                Command::Set { name, value: SettingValue::Text(text), .. } => {
                    self.settings.insert(name.clone(), text.to_lowercase().into());
                }
                Command::Set { name, value: SettingValue::Default, .. } | Command::Reset(Some(name)) => {
                    self.settings.remove(name);
                }
                Command::Reset(None) => self.settings.clear(),
                Command::SessionCharacteristics(Modes { isolation: Some(isolation), .. }) => {
                    let word =
                        if *isolation == Isolation::Serializable { "serializable" } else { "read committed" };
                    self.settings.insert("default_transaction_isolation".into(), word.into());
                }
                Command::DiscardAll => {
                    self.settings.clear();
                    self.pinned = false;
                }
                Command::Pin(_) => self.pinned = true,
                _ => {}
            }
        }
        let setting = |name: &str| self.settings.get(name).map(|value| value.trim_matches(['\'', '"', ' ']));
        self.syntax = SyntaxOptions {
            standard_conforming_strings: setting("standard_conforming_strings")
                .is_none_or(|value| ["on", "true", "yes", "1"].contains(&value)),
            utf8: setting("client_encoding")
                .is_none_or(|value| ["utf8", "utf-8", "unicode"].contains(&value)),
            ascii_inside: false,
        };
    }

    fn answer(&self, sql: &str) -> Answer {
        let class = self.classify(sql);
        let hint = causeway_proxy::hint(sql.as_bytes()).unwrap_or_default();
        let setting = |name: &str| self.settings.get(name).map(|value| value.trim_matches(['\'', '"', ' ']));
        let route = setting("causeway.route");
        let replica = hint.replica.unwrap_or(route == Some("replica"));
        let resolve = if replica { resolve_for_replica } else { resolve };
        let verdict = resolve(&class, self.catalogue);
        let of_session = match route {
            Some("primary") => Some(Level::Primary),
            _ => setting("causeway.consistency").and_then(|level| level.parse().ok()),
        };
        let level = hint.level.or(of_session).unwrap_or(self.level);
        let (target, reason) = self.decide(verdict, level);
        Answer { class: verdict.kind, target, reason }
    }

    fn decide(&self, verdict: Verdict, level: Level) -> (DecisionTarget, Reason) {
        if self.pinned {
            return (DecisionTarget::Primary, Reason::Pinned);
        }
        if self.transaction.is_some_and(|transaction| !transaction.may_be_on_replica) {
            return (DecisionTarget::Primary, Reason::InTransaction);
        }
        let isolation = self.settings.get("default_transaction_isolation");
        let request = Request {
            verdict,
            level,
            requirement: Requirement::None,
            serializable: isolation.is_some_and(|value| value.contains("serializable")),
            excluded: &[],
        };
        let decision = Router.route(&request, &two_nodes(), &[], 0);
        let target = match decision.target {
            Target::Primary(_) => DecisionTarget::Primary,
            Target::Replica(_) => DecisionTarget::Replica,
            Target::Local => DecisionTarget::Local,
        };
        (target, decision.reason)
    }
}

/// A primary and a replica that serves: the question is what may run there, not who is up now.
fn two_nodes() -> View {
    let node = |id, name: &str, role| NodeView {
        id: NodeId(id),
        name: name.into(),
        role,
        state: NodeState::Serving,
        weight: 1,
        levels: causeway_routing::Levels::ALL,
        observation: None,
        lag_bytes: None,
        lag: None,
    };
    let nodes = vec![node(0, "primary", Role::Primary), node(1, "replica", Role::Replica)];
    View { nodes, primary: Some(NodeId(0)), ..View::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(pre: &[&str], sql: &str) -> (&'static str, &'static str, &'static str) {
        let mut session = Session::new(None, Level::Session);
        for sql in pre {
            session.run(sql);
        }
        let Answer { class, target, reason } = session.answer(sql);
        (class.as_str(), target.as_str(), reason.as_str())
    }

    #[test]
    fn a_fresh_session() {
        assert_eq!(answer(&[], "SELECT 1"), ("read", "replica", "read"));
        assert_eq!(answer(&[], "INSERT INTO t VALUES (1)"), ("write", "primary", "write"));
        assert_eq!(answer(&[], "SELECT * FROM t"), ("write", "primary", "no_catalogue"));
        assert_eq!(answer(&[], "BEGIN").1, "primary");
    }

    #[test]
    fn what_ran_before_counts() {
        assert_eq!(answer(&["BEGIN"], "SELECT 1"), ("read", "primary", "in_transaction"));
        assert_eq!(answer(&["BEGIN", "COMMIT"], "SELECT 1").1, "replica");
        assert_eq!(answer(&["BEGIN", "ROLLBACK AND CHAIN"], "SELECT 1").1, "primary");
        assert_eq!(answer(&["BEGIN READ ONLY"], "SELECT 1").1, "replica");
        assert_eq!(answer(&["BEGIN READ ONLY", "SET TRANSACTION READ WRITE"], "SELECT 1").1, "primary");
        assert_eq!(answer(&["LISTEN x"], "SELECT 1"), ("read", "primary", "pinned"));
        assert_eq!(answer(&["LISTEN x", "DISCARD ALL"], "SELECT 1").1, "replica");
        assert_eq!(answer(&["SET standard_conforming_strings = off"], "SELECT 1").2, "encoding");
        assert_eq!(answer(&["SET client_encoding = 'SJIS'"], "SELECT 'é'").2, "encoding");
        assert_eq!(answer(&["SET client_encoding = 'SJIS'", "RESET ALL"], "SELECT 'é'").1, "replica");
        assert_eq!(answer(&["SET causeway.route = primary"], "SELECT 1").2, "level_primary");
        assert_eq!(answer(&["SET causeway.consistency = 'primary'"], "SELECT 1").2, "level_primary");
        let node_local = "SELECT pg_is_in_recovery()";
        assert_eq!(answer(&[], node_local), ("write", "primary", "node_local"));
        assert_eq!(answer(&["SET causeway.route TO 'replica'"], node_local), ("read", "replica", "hint"));
        let hinted = "/* causeway: route=replica */ SELECT pg_is_in_recovery()";
        assert_eq!(answer(&["BEGIN"], hinted).2, "in_transaction");
        assert_eq!(answer(&[], hinted), ("read", "replica", "hint"));
        let serializable = "SET default_transaction_isolation = 'serializable'";
        assert_eq!(answer(&[serializable], "SELECT 1").2, "serializable");
    }
}
