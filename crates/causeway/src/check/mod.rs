//! `causeway check`: the configuration, and with `--live` the servers that it names.

mod judge;

use std::time::Duration;

use causeway_cluster::survey::{self, Row};

use self::judge::{Facts, Grade, Remark};
use crate::assemble;
use crate::cli::{complain, say};
use crate::config::{Cluster, Config, Node};
use crate::exit::Exit;
use crate::serve::{self, Options};

/// Beside the time of a check, for a server that is slow to let somebody in.
const PATIENCE: Duration = Duration::from_secs(4);

/// Everything that a server is asked, in one row. Whoever may not see something gets NULL for it.
const QUESTION: &str = "SELECT current_setting('server_version_num') AS version, pg_is_in_recovery() AS recovering, \
    (SELECT system_identifier FROM pg_control_system()) AS system, \
    pg_has_role(current_user, 'pg_monitor', 'USAGE') AS monitor, \
    current_setting('max_connections') AS max_connections, \
    (SELECT setting FROM pg_settings WHERE name = 'hot_standby_feedback') AS feedback, \
    (SELECT setting FROM pg_settings WHERE name = 'max_standby_streaming_delay') AS streaming_delay, \
    (SELECT setting FROM pg_settings WHERE name = 'wal_receiver_status_interval') AS status_interval, \
    (SELECT setting FROM pg_settings WHERE name = 'idle_session_timeout') AS idle_session_timeout, \
    (SELECT string_agg(datname, ',') FROM pg_database WHERE datallowconn \
        AND NOT has_database_privilege(current_user, oid, 'CONNECT')) AS closed";

/// Checks the file, and the servers if they shall be asked.
pub fn run(options: &Options, live: bool) -> Exit {
    let config = match serve::load(&options.file) {
        Ok(config) => config,
        Err(error) => {
            complain(&error);
            return Exit::Config;
        }
    };
    for warning in &config.warnings {
        say(format_args!("{}: warning: {warning}\n", options.file.display()));
    }
    say(format_args!("{}: valid\n", options.file.display()));
    if !live {
        return Exit::Done;
    }
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(ask_all(&config)),
        Err(error) => {
            complain(&error);
            Exit::Unavailable
        }
    }
}

async fn ask_all(config: &Config) -> Exit {
    let mut wrong = 0;
    for cluster in &config.clusters {
        let mut known = Vec::new();
        for node in &cluster.nodes {
            say(format_args!("\n{}/{} {}: ", cluster.name, node.name, node.address));
            match ask(cluster, node).await {
                Ok(facts) => {
                    say(format_args!("{}\n", facts.introduction()));
                    wrong += show(&judge::node(&facts, config, cluster));
                    known.push((node.name.as_str(), facts));
                }
                Err(error) => {
                    say("no answer\n");
                    wrong += show(&[Remark { grade: Grade::Wrong, text: error }]);
                }
            }
        }
        say(format_args!("\ncluster {}:\n", cluster.name));
        wrong += show(&judge::cluster(&known));
    }
    if wrong == 0 { Exit::Done } else { Exit::Unavailable }
}

/// Prints remarks; returns how many are about something wrong.
fn show(remarks: &[Remark]) -> usize {
    for Remark { grade, text } in remarks {
        say(format_args!("  {}: {text}\n", grade.word()));
    }
    remarks.iter().filter(|remark| remark.grade == Grade::Wrong).count()
}

/// Asks as the monitor does.
async fn ask(cluster: &Cluster, node: &Node) -> Result<Facts, String> {
    let config = assemble::cluster_config(cluster);
    let own = config.nodes.iter().find(|own| *own.name == *node.name);
    let own = own.ok_or_else(|| "it is not configured".to_owned())?;
    survey::ask(&config.monitor, own, cluster.check_timeout + PATIENCE, QUESTION).await.map(|row| facts(&row))
}

fn facts(row: &Row) -> Facts {
    let text = |name: &str| row.get(name).cloned().flatten();
    let number = |name: &str| text(name).and_then(|text| text.parse::<i64>().ok());
    let yes = |name: &str| text(name).is_some_and(|text| text == "t" || text == "on");
    Facts {
        version: number("version").unwrap_or_default(),
        recovering: yes("recovering"),
        system: text("system"),
        is_monitor: yes("monitor"),
        max_connections: number("max_connections").unwrap_or_default(),
        feedback: yes("feedback"),
        streaming_delay_ms: number("streaming_delay"),
        status_interval_s: number("status_interval"),
        idle_session_timeout_ms: number("idle_session_timeout"),
        closed: text("closed").map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default(),
    }
}
