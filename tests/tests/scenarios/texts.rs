//! S-RT: statements that are hard to read, and that arrive as they were sent.

use std::fs;
use std::path::Path;

use causeway_testkit::wire::request::{copy_done, query};
use causeway_testkit::wire::{Client, Message, summary};
use causeway_testkit::{Sandbox, SandboxConfig};
use causeway_tests::{Place, code, everywhere, rows, start, tags, through};

/// A row of `tests/cases/classify.tsv`.
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) sql: String,
    pub(crate) before: String,
    pub(crate) expected: String,
}

/// Cases whose answer depends on what else happened on the servers: other sessions, slots and prepared transactions
/// of the first run, libraries that a shared session has loaded.
const SHARED_STATE: &[&str] = &["S-local-02", "S-local-17", "S-local-24", "S-local-28", "S-txn-10"];

/// Undoes the escapes of the file: \\ \n \t \r \f \v and \uXXXX.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        if next != '\\' {
            out.push(next);
            continue;
        }
        out.push(match rest.next().expect("an escape has a letter") {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'f' => '\u{c}',
            'v' => '\u{b}',
            'u' => {
                let digits: String = rest.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16).expect("four hexadecimal digits");
                char::from_u32(code).expect("a character")
            }
            other => other,
        });
    }
    out
}

pub(crate) fn cases() -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/classify.tsv");
    let text = fs::read_to_string(path).expect("the cases are there");
    let mut lines = text.lines();
    let header: Vec<_> = lines.next().expect("a header").split('\t').collect();
    let column = |name: &str| header.iter().position(|title| *title == name).expect("the column is there");
    let (id, sql, before, expected) = (column("id"), column("sql"), column("pre"), column("expected"));
    let case = |line: &str| {
        let fields: Vec<_> = line.split('\t').collect();
        let [id, sql, before, expected] = [id, sql, before, expected].map(|column| unescape(fields[column]));
        Case { id, sql, before, expected }
    };
    lines.map(case).collect()
}

/// Everything that answers `sql`; a COPY from the client gets no data.
async fn answered(client: &mut Client, sql: &str) -> Vec<Message> {
    client.send(&[query(sql)]).await;
    let mut messages = Vec::new();
    while messages.last().is_none_or(|last: &Message| last.tag != b'Z') {
        messages.push(client.recv().await);
        if messages.last().is_some_and(|last| last.tag == b'G') {
            client.send(&[copy_done()]).await;
        }
    }
    messages
}

/// What PostgreSQL answers to a case: a summary, and the rows where they are the same for everyone.
async fn answer(place: &Place, case: &Case) -> (String, Vec<Vec<Option<String>>>) {
    let mut client = place.client().await;
    if !case.before.is_empty() {
        client.query(&case.before).await;
    }
    let messages = answered(&mut client, &case.sql).await;
    let in_order = case.expected == "read" && case.sql.to_ascii_uppercase().contains("ORDER BY");
    client.terminate().await;
    (summary(&messages), if in_order { rows(&messages) } else { Vec::new() })
}

#[tokio::test]
async fn s_rt_01_every_case_is_answered_as_by_postgresql() {
    let cases = cases();
    assert!(cases.len() > 200, "only {} cases", cases.len());
    let collected = std::sync::Mutex::new(Vec::new());
    causeway_tests::directly(async |place: &Place| {
        for case in &cases {
            let direct = answer(place, case).await;
            collected.lock().expect("nobody panicked").push(direct);
        }
    })
    .await;
    let collected = collected.into_inner().expect("nobody panicked");
    through("", async |place: &Place| {
        let mut differing = Vec::new();
        for (case, direct) in cases.iter().zip(&collected) {
            if SHARED_STATE.contains(&case.id.as_str()) {
                continue;
            }
            let got = answer(place, case).await;
            if got != *direct {
                differing.push(format!(
                    "{} ({}): {got:?}, direct {direct:?}: {}",
                    case.id, case.expected, case.sql
                ));
            }
        }
        assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
    })
    .await;
}

/// The texts of the statements that `node` has logged, in order.
fn logged(sandbox: &Sandbox) -> Vec<String> {
    let folder = sandbox.primary().directory().join("statements");
    let mut texts = Vec::new();
    for file in fs::read_dir(folder).expect("the log's folder").map(|entry| entry.expect("an entry").path()) {
        if file.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        for line in fs::read_to_string(file).expect("the log").lines() {
            let entry: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let message = entry["message"].as_str().unwrap_or_default();
            let statement = message.strip_prefix("statement: ").or_else(|| {
                let (_, text) = message.strip_prefix("execute ")?.split_once(": ")?;
                Some(text)
            });
            texts.extend(statement.map(str::to_owned));
        }
    }
    texts
}

#[tokio::test]
async fn s_rt_02_texts_arrive_unchanged() {
    let config = SandboxConfig::with_replicas(0)
        .setting("log_statement", "all")
        .setting("logging_collector", "on")
        .setting("log_destination", "jsonlog")
        .setting("log_directory", "statements");
    let sandbox = Sandbox::start(config).await.expect("the server starts");
    causeway_testkit::load_shop(&sandbox, "postgres").await;
    let causeway = start(&sandbox, "").await;
    let cases: Vec<_> = cases().into_iter().filter(|case| !case.sql.is_empty()).collect();
    let mut sent = Vec::new();
    for case in &cases {
        let mut client = Client::login(causeway.port(), "postgres", "postgres").await;
        if !case.before.is_empty() {
            client.query(&case.before).await;
        }
        let answer = answered(&mut client, &case.sql).await;
        // A BEGIN that may be a replica's is sent with what follows it.
        client.query("SELECT 1").await;
        client.terminate().await;
        // Without a parse tree there is nothing that log_statement would log.
        if !answer.iter().any(|message| message.tag == b'E' && message.code() == "42601")
            && answer[0].tag != b'I'
        {
            sent.push(case);
        }
    }
    let logged = logged(&sandbox);
    let lost: Vec<_> = sent.iter().filter(|case| !logged.contains(&case.sql)).map(|case| &case.id).collect();
    assert!(lost.is_empty(), "not found in the server's log as sent: {lost:?}");
    causeway.stop().await;
    sandbox.stop().await.expect("the server stops");
}

#[tokio::test]
async fn s_rt_02_positions_and_parameters_are_those_of_the_clients_text() {
    everywhere("", async |place: &Place| {
        let mut a = place.client().await;
        let text = "/* a hint */ SELECT  qty,\n\tno_such_col FROM shop.item -- end";
        for answer in [a.query(text).await, a.execute(text, &[]).await] {
            let error = answer.iter().find(|message| message.tag == b'E').expect("an error");
            assert_eq!((error.code(), error.field(b'P')), ("42703", Some("28")));
        }
        let own = "SELECT  query /* as sent */ FROM pg_stat_activity WHERE pid = pg_backend_pid()";
        assert_eq!(a.one(own).await, own);
        let parameters = a.execute("SELECT $2::text || $1::text", &[Some("1"), Some("2")]).await;
        assert_eq!(rows(&parameters), [[Some("21".to_owned())]]);
    })
    .await;
}

fn last_status(messages: &[Message]) -> Option<char> {
    messages.last().map(Message::status)
}

#[tokio::test]
async fn s_rt_03_several_statements_in_one_simple_query() {
    everywhere("pool: { size: 2 }\n", async |place: &Place| {
        let mut a = place.client().await;
        let first = a.query("SELECT 1; INSERT INTO shop.audit(note) VALUES ('m'); SELECT 2").await;
        assert_eq!(summary(&first), "T D C C T D C Z(I)");
        assert_eq!(tags(&first), ["SELECT 1", "INSERT 0 1", "SELECT 1"]);

        let second = a.query("BEGIN; SELECT 1").await;
        assert_eq!(summary(&second), "C T D C Z(T)");
        assert_eq!(tags(&a.query("UPDATE shop.item SET qty = qty WHERE id = 1").await), ["UPDATE 1"]);
        assert_eq!(last_status(&a.query("COMMIT").await), Some('I'));

        let start = a.one("SHOW work_mem").await;
        let third = a.query("SET work_mem='6MB'; SELECT 1; SELECT 1/0; SELECT 3").await;
        assert_eq!(summary(&third), "C T D C E(22012) Z(I)");
        let mut b = place.client().await;
        assert_eq!(b.one("SHOW work_mem").await, start);
        assert_eq!(a.one("SHOW work_mem").await, start);
        let fine = a.query("SET work_mem='6MB'; SELECT current_setting('work_mem')").await;
        assert_eq!(rows(&fine), [[Some("6MB".to_owned())]]);
        assert_eq!((a.one("SHOW work_mem").await, b.one("SHOW work_mem").await), ("6MB".to_owned(), start));

        for (sql, want) in
            [("", "I Z(I)"), (";", "I Z(I)"), ("-- only a comment", "I Z(I)"), ("SELECT 1;;", "T D C Z(I)")]
        {
            assert_eq!(summary(&a.query(sql).await), want, "{sql:?}");
        }
        assert_eq!(code(&a.query("SELECT 1; SELEC 2").await), "42601");
        // Ended within one message: the COMMIT ends what the message began, and the rest is a transaction of its own.
        let ends = a
            .query("BEGIN; SELECT 1; COMMIT; INSERT INTO shop.audit(note) VALUES ('after'); SELECT 1/0")
            .await;
        assert_eq!(summary(&ends), "C T D C C C E(22012) Z(I)");
        assert_eq!(a.one("SELECT count(*) FROM shop.audit WHERE note = 'after'").await, "0");
    })
    .await;
}
