//! The report: Markdown with plots, and the samples as they came.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::bars::{Bar, Verdict, judge};
use super::cells::{Cell, Work, all};
use super::environment::{describe, today};
use super::figures::{CALM, Metric};
use super::plot::{Labels, Line, Stack, lines, stacks};
use super::rounds::{Plan, float};
use super::{Results, Sample};
use crate::lab::Failure;
use crate::lab::peer::Kind;
use crate::lab::pgbench::Protocol;
use crate::lab::stage::{ROW_BYTES, Stage};

/// Writes `comparison.md`, its plots and its samples into the directory.
///
/// # Errors
///
/// When a file cannot be written.
pub fn write(directory: &Path, stage: &Stage, plan: &Plan, results: &Results) -> Result<(), Failure> {
    fs::create_dir_all(directory)?;
    let mut text = introduction(stage, plan);
    for (name, alternative, svg) in plots(plan, results) {
        fs::write(directory.join(&name), svg)?;
        text.extend(["![", alternative, "](", &name, ")\n\n"]);
    }
    text += &bars(&judge(plan, results));
    text += &tables(plan, results);
    text += &calls(plan, results);
    text += &splits(plan, results);
    text += &memory(plan, results);
    text += "## Not measured\n\n";
    let none = "Everything that was to be measured was.".to_owned();
    for omission in
        if results.omissions.is_empty() { std::slice::from_ref(&none) } else { &results.omissions }
    {
        text.extend(["* ", &omission.trim_end().replace('\n', "; "), "\n"]);
    }
    fs::write(directory.join("comparison.md"), text)?;
    fs::write(directory.join("comparison.csv"), csv(&results.samples))?;
    Ok(())
}

fn introduction(stage: &Stage, plan: &Plan) -> String {
    let Plan { rounds, seconds, .. } = plan;
    let machine: Vec<_> = describe(stage, &plan.causeway).iter().map(|line| format!("* {line}\n")).collect();
    format!(
        "# Comparison\n\nWritten by `make bench` (`compare --rounds {rounds} --seconds {seconds}`) on {}. How it is done, \
         and what the cells are: [README.md](README.md).\n\n{}\n",
        today(),
        machine.concat()
    )
}

fn bars(bars: &[Bar]) -> String {
    let mut text = "## Bars\n\nRatios are medians within the rounds, with the bounds of their bootstrap interval of 95 %.\n\n\
                    | figure | bar | measured | verdict |\n|---|---|---|---|\n"
        .to_owned();
    for Bar { figure, limit, measured, verdict } in bars {
        let verdict = match verdict {
            Verdict::Met => "met".to_owned(),
            Verdict::MissedBy(percent) => format!("missed by {percent:.1} %"),
            Verdict::NotEstablished(why) => format!("not established: {why}"),
            Verdict::NotMeasured => "not measured".to_owned(),
        };
        text.extend(["| ", figure, " | ", limit, " | ", measured, " | ", &verdict, " |\n"]);
    }
    text + "\n"
}

fn tables(plan: &Plan, results: &Results) -> String {
    let chosen =
        |wanted: fn(Work) -> bool| plan.cells.iter().filter(|cell| wanted(cell.work)).cloned().collect();
    let short: Vec<Cell> = chosen(|work| !work.reads_tables());
    let bulk: Vec<Cell> = chosen(Work::is_bulk);
    let paced: Vec<Cell> = chosen(|work| work == Work::Paced);
    let dump: Vec<Cell> = chosen(|work| work == Work::Dump);
    let tables: [(&str, &[Cell], Metric); 15] = [
        ("Transactions a second", &short, Metric::Rate),
        ("CPU of the proxy, us a transaction", &short, Metric::Cpu),
        ("The part of it in user mode", &short, Metric::User),
        ("The part of it in the kernel", &short, Metric::System),
        ("CPU of all servers, us a transaction", &short, Metric::Servers),
        ("Context switches of the proxy a transaction", &short, Metric::Switches),
        ("Median latency of one client at a fixed rate, us", &paced, Metric::Middle),
        ("99th percentile of it, us", &paced, Metric::Late),
        ("Large reads, MB a second", &bulk, Metric::Rate),
        ("CPU of the proxy, s a GB", &bulk, Metric::Cpu),
        ("CPU of the servers, s a GB", &bulk, Metric::Servers),
        ("Context switches of the proxy a MB", &bulk, Metric::Switches),
        ("pg_dump, dumps a second", &dump, Metric::Rate),
        ("CPU of the proxy, s a dump", &dump, Metric::Cpu),
        ("What else used the machine, percent", &plan.cells, Metric::Foreign),
    ];
    let mut text = format!(
        "## Medians\n\nOver all rounds. Pairs of samples of which one had more than {CALM} % of the machine's CPU used by \
         something else are left out of the ratios above.\n\n"
    );
    for (title, cells, metric) in tables.into_iter().filter(|(_, cells, _)| !cells.is_empty()) {
        text.extend(["### ", title, "\n\n"]);
        text += &table(&plan.peers, cells.iter().map(|cell| cell.name.clone()), |row, peer| {
            results.median(cells.get(row)?, peer, metric).map(number)
        });
    }
    text
}

fn calls(plan: &Plan, results: &Results) -> String {
    let cells: Vec<Cell> = all()
        .into_iter()
        .filter(|cell| plan.peers.iter().any(|peer| results.count(cell, *peer).is_some()))
        .collect();
    if cells.is_empty() {
        return String::new();
    }
    let mut text = "## System calls\n\nOf the proxy, by perf, a transaction or a MiB, each in one run of its own: all, and of them \
                    receive + send + wait for events + change of what is waited for.\n\n"
        .to_owned();
    text += &table(&plan.peers, cells.iter().map(|cell| cell.name.clone()), |row, peer| {
        let count = results.count(cells.get(row)?, peer)?;
        let per = |calls: u64| number(float(calls) / count.amount);
        let calls = count.calls;
        let parts = [calls.receive, calls.send, calls.poll, calls.rearm].map(per);
        Some(format!("{} ({})", per(calls.all), parts.join(" + ")))
    });
    text
}

fn splits(plan: &Plan, results: &Results) -> String {
    let servers = results.splits.iter().map(|split| split.reads.len()).max().unwrap_or_default();
    if servers == 0 {
        return String::new();
    }
    let mut text = "## Where reads ran\n\nThe servers' share of the reads of simple-16, in percent, by their own count.\n\n".to_owned();
    let title = |server| if server == 0 { "primary".to_owned() } else { format!("replica {server}") };
    text += &table(&plan.peers, (0..servers).map(title), |row, peer| {
        let split = results.splits.iter().find(|split| split.peer == peer)?;
        Some(number(split.reads.get(row)? / split.reads.iter().sum::<f64>() * 100.0))
    });
    text
}

fn memory(plan: &Plan, results: &Results) -> String {
    if results.memory.is_empty() {
        return String::new();
    }
    let mut steps: Vec<usize> = results.memory.iter().map(|memory| memory.clients).collect();
    steps.sort_unstable();
    steps.dedup();
    let mut text = "## Memory\n\nPSS of a freshly started proxy with clients that have each run one statement and do nothing: MiB, \
                    and KiB a client.\n\n"
        .to_owned();
    text += &table(&plan.peers, steps.iter().map(|clients| format!("{clients} clients")), |row, peer| {
        let clients = *steps.get(row)?;
        let found = results.memory.iter().find(|memory| memory.peer == peer && memory.clients == clients)?;
        let all = number(float(found.bytes) / 1024.0 / 1024.0);
        let each = results.bytes_per_client(peer, clients).filter(|_| clients > 0);
        Some(each.map_or_else(|| all.clone(), |each| format!("{all} ({})", number(each / 1024.0))))
    });
    text
}

/// A table with a column for each proxy that has anything in it.
fn table(
    peers: &[Kind],
    rows: impl Iterator<Item = String>,
    value: impl Fn(usize, Kind) -> Option<String>,
) -> String {
    let rows: Vec<String> = rows.collect();
    let columns: Vec<Kind> =
        peers.iter().copied().filter(|peer| (0..rows.len()).any(|row| value(row, *peer).is_some())).collect();
    let titles: Vec<_> = columns.iter().map(Kind::to_string).collect();
    let mut text = format!("| | {} |\n|---|{}\n", titles.join(" | "), "---:|".repeat(columns.len()));
    for (row, title) in rows.iter().enumerate() {
        let values: Vec<_> = columns.iter().map(|peer| value(row, *peer).unwrap_or("-".to_owned())).collect();
        text.extend(["| ", title, " | ", &values.join(" | "), " |\n"]);
    }
    text + "\n"
}

fn plots(plan: &Plan, results: &Results) -> Vec<(String, &'static str, String)> {
    let cell = |work: Work| plan.cells.iter().find(|cell| cell.work == work);
    let proxies = || plan.peers.iter().copied().filter(|peer| *peer != Kind::Direct);
    let mut plots = Vec::new();
    let groups = Protocol::ALL.into_iter().filter_map(|protocol| {
        let cell = cell(Work::Select { protocol, clients: 16 })?;
        let stack = |peer| {
            let part = |metric| results.median(cell, peer, metric);
            Some(Stack { name: peer.to_string(), parts: [part(Metric::User)?, part(Metric::System)?] })
        };
        Some((protocol.to_string(), proxies().filter_map(stack).collect::<Vec<_>>()))
    });
    let groups: Vec<_> = groups.filter(|(_, bars)| !bars.is_empty()).collect();
    if !groups.is_empty() {
        let title = "CPU of the proxy for a transaction of pgbench -S, 16 clients";
        let labels = Labels { title, x: "protocol", y: "us a transaction" };
        let svg = stacks(&labels, Some(["user mode", "kernel"]), &groups);
        plots.push(("comparison-cpu.svg".to_owned(), title, svg));
    }
    let select = ("rows", "CPU of the proxy for a large SELECT");
    let copy = ("copy", "CPU of the proxy for a large COPY TO STDOUT");
    for (name, title) in [select, copy] {
        let work = if name == "rows" { Work::Rows } else { Work::Copy };
        let line = |peer: Kind| {
            let point =
                |bytes| Some((float(bytes as u64), results.median(cell(work(bytes))?, peer, Metric::Cpu)?));
            Line { name: peer.to_string(), points: ROW_BYTES.into_iter().filter_map(point).collect() }
        };
        let drawn: Vec<_> = proxies().map(line).filter(|line| !line.points.is_empty()).collect();
        if !drawn.is_empty() {
            let labels = Labels { title, x: "bytes of a row as a DataRow message", y: "s a GB" };
            let ticks = ROW_BYTES.map(|bytes| float(bytes as u64));
            plots.push((format!("comparison-{name}.svg"), title, lines(&labels, &ticks, &drawn)));
        }
    }
    plots.extend(memory_plot(plan, results));
    plots
}

fn memory_plot(plan: &Plan, results: &Results) -> Option<(String, &'static str, String)> {
    let group = |clients: usize| {
        let stack = |peer: &Kind| {
            let bytes = results.bytes_per_client(*peer, clients)?;
            Some(Stack { name: peer.to_string(), parts: [bytes / 1024.0, 0.0] })
        };
        let bars: Vec<_> = plan.peers.iter().filter_map(stack).collect();
        (!bars.is_empty()).then(|| (format!("{clients} clients"), bars))
    };
    let groups: Vec<_> = [1000, 10_000].into_iter().filter_map(group).collect();
    let title = "Memory of the proxy for an idle client";
    let labels = Labels { title, x: "idle clients", y: "KiB a client" };
    (!groups.is_empty()).then(|| ("comparison-memory.svg".to_owned(), title, stacks(&labels, None, &groups)))
}

fn csv(samples: &[Sample]) -> String {
    let mut text = "cell,peer,round,amount,rate,proxy_us,user_us,system_us,servers_us,switches,p50_us,p99_us,foreign_percent\n"
        .to_owned();
    for sample in samples {
        let Sample { cell, peer, round, amount, rate, server_ns, switches, foreign, .. } = sample;
        let ([total, user, system], [middle, late]) = (sample.proxy_ns.map(|ns| ns / 1e3), sample.latency_us);
        let servers = server_ns / 1e3;
        writeln!(
            text,
            "{cell},{peer},{round},{amount},{rate:.2},{total:.0},{user:.0},{system:.0},{servers:.0},{switches},{middle},\
             {late},{foreign:.1}"
        )
        .unwrap_or_else(|_| unreachable!("a String takes everything"));
    }
    text
}

/// Three digits that count, or all before the point.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
