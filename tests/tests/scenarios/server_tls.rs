//! TLS towards servers: every mode, against a server that has rules about it.

use causeway_testkit::wire::request::query;
use std::fmt::Write as _;

use causeway_testkit::wire::{Client, Message, cancel, summary};
use causeway_testkit::{Causeway, shared_cluster};
use causeway_tests::{code, start_yaml};
use tokio::time::{Duration, sleep};

use crate::secured::Secured;

const ENCRYPTED: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

/// What a login as `user` comes to.
async fn greeting(causeway: &Causeway, user: &str) -> (Client, Vec<Message>) {
    let mut client = Client::connect(causeway.port()).await;
    let greeting = client.startup(&[("user", user), ("database", "postgres")]).await;
    (client, greeting)
}

/// Whether the server's end of a session of `user` is encrypted; the SQLSTATE of its refusal.
async fn encrypted(causeway: &Causeway, user: &str) -> Result<bool, String> {
    let (mut client, greeting) = greeting(causeway, user).await;
    if greeting.last().is_none_or(|message| message.tag != b'Z') {
        return Err(code(&greeting).to_owned());
    }
    Ok(client.one(ENCRYPTED).await == "t")
}

fn server_tls(secured: &Secured, mode: &str, files: &[(&str, &str)]) -> String {
    let mut section = format!(", server_tls: {{ mode: {mode}");
    for (key, file) in files {
        write!(section, ", {key}: \"{}\"", secured.path(file).display()).expect("a String takes it");
    }
    section + " }"
}

#[tokio::test]
async fn modes_mean_what_libpq_means_by_them() {
    let secured = Secured::shared().await;
    let users = ["scram", "lax", "plain", "in_clear", "in_md5", "in_clear_plain"];
    let yaml = |tls: &str| secured.yaml(tls, "lax", &users);
    let causeway = start_yaml(&secured.sandbox, &yaml(""), 1).await;
    // While the mode leads to no session, the node is down.
    causeway.allow_log("node");
    causeway.allow_log("there is no primary");
    let refused = |code: &str| Err(code.to_owned());
    // Without: who has to have it is refused, as on a direct connection.
    assert_eq!(encrypted(&causeway, "lax").await, Ok(false));
    assert_eq!(encrypted(&causeway, "plain").await, Ok(false));
    assert_eq!(encrypted(&causeway, "scram").await, refused("28000"));

    let ca = [("ca_file", "ca.pem")];
    for (mode, files, lax, plain) in [
        ("allow", &[][..], Ok(false), Ok(false)),
        ("prefer", &[], Ok(true), Ok(false)),
        ("require", &[], Ok(true), refused("28000")),
        ("require", &ca, Ok(true), refused("28000")),
        ("verify-ca", &ca, Ok(true), refused("28000")),
        ("verify-full", &ca, Ok(true), refused("28000")),
    ] {
        causeway.reload(&yaml(&server_tls(secured, mode, files))).await;
        causeway_tests::serving(&causeway, 1).await;
        assert_eq!(encrypted(&causeway, "scram").await, Ok(true), "{mode}");
        assert_eq!(encrypted(&causeway, "lax").await, lax, "{mode}");
        assert_eq!(encrypted(&causeway, "plain").await, plain, "{mode}");
        // MD5, and the password itself, which is given away inside TLS alone.
        assert_eq!(encrypted(&causeway, "in_md5").await, Ok(true), "{mode}");
        assert_eq!(encrypted(&causeway, "in_clear").await, Ok(true), "{mode}");
    }
    // Monitors and clients alike: nothing of Causeway's is left without TLS.
    let plain = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                 WHERE NOT ssl AND client_addr IS NOT NULL";
    for _ in 0..200 {
        if secured.sql(plain).await.trim() == "0" {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(secured.sql(plain).await.trim(), "0");
    causeway.reload(&yaml("")).await;
    causeway_tests::serving(&causeway, 1).await;
    // In clear text over TCP: not to anybody.
    assert_eq!(encrypted(&causeway, "in_clear_plain").await, refused("08001"));
}

#[tokio::test]
async fn a_server_that_is_not_believed_gets_nothing() {
    let secured = Secured::shared().await;
    let port = secured.sandbox.primary().port();
    let yaml = |tls: &str| secured.yaml(tls, "scram", &["scram"]);
    let good = yaml(&server_tls(secured, "verify-full", &[("ca_file", "ca.pem")]));
    let causeway = start_yaml(&secured.sandbox, &good, 1).await;
    causeway.allow_log("node");
    causeway.allow_log("there is no primary");
    // Somebody else's authority, and a name that is not in the certificate.
    let stranger = yaml(&server_tls(secured, "verify-ca", &[("ca_file", "other/ca.pem")]));
    let misnamed = good.replace(&format!("localhost:{port}"), &format!("127.0.0.1:{port}"));
    for (yaml, why) in [(&stranger, "UnknownIssuer"), (&misnamed, "not valid for name")] {
        causeway.reload(yaml).await;
        causeway.wait_for_log(why).await;
        let (_, refused) = greeting(&causeway, "scram").await;
        assert_eq!(summary(&refused), "R E(57P03)", "{refused:?}");
        causeway.reload(&good).await;
        causeway_tests::serving(&causeway, 1).await;
        assert_eq!(encrypted(&causeway, "scram").await, Ok(true));
    }
    // The name does not matter to `verify-ca`.
    causeway.reload(&misnamed.replace("verify-full", "verify-ca")).await;
    causeway_tests::serving(&causeway, 1).await;
    assert_eq!(encrypted(&causeway, "scram").await, Ok(true));
}

#[tokio::test]
async fn channel_binding_certificates_and_cancel_requests() {
    let secured = Secured::shared().await;
    let (certificate, key) = secured.authority.issue_to("by_cert");
    let mine = tempfile::tempdir().expect("a directory");
    causeway_testkit::tls::write(&mine.path().join("by_cert.pem"), &certificate);
    causeway_testkit::tls::write(&mine.path().join("by_cert.key"), &key);
    let (mine, ca) = (mine.path().display().to_string(), secured.path("ca.pem"));
    let section = format!(
        ", server_tls: {{ ca_file: \"{}\", cert_file: \"{mine}/by_cert.pem\", key_file: \"{mine}/by_cert.key\", \
         channel_binding: prefer }}",
        ca.display()
    );
    let yaml = secured.yaml(&section, "scram", &["scram", "in_md5"]);
    let causeway = start_yaml(&secured.sandbox, &yaml, 1).await;
    causeway.allow_log("node");
    causeway.allow_log("there is no primary");
    // By the certificate alone: there is no password in the file.
    assert_eq!(encrypted(&causeway, "by_cert").await, Ok(true));

    let (mut client, _) = greeting(&causeway, "scram").await;
    client.send(&[query("SELECT pg_sleep(60)")]).await;
    causeway.wait_for_metric("causeway_clients", &[("state", "active")], |active| active > 0.5).await;
    sleep(Duration::from_millis(100)).await;
    cancel(causeway.port(), &client.key()).await;
    assert_eq!(code(&client.until_ready().await), "57014");

    // MD5 binds to nothing.
    assert_eq!(encrypted(&causeway, "in_md5").await, Ok(true));
    causeway.reload(&yaml.replace("channel_binding: prefer", "channel_binding: require")).await;
    causeway_tests::serving(&causeway, 1).await;
    assert_eq!(encrypted(&causeway, "scram").await, Ok(true));
    assert_eq!(encrypted(&causeway, "in_md5").await, Err("08001".to_owned()));
}

#[tokio::test]
async fn servers_without_tls() {
    let sandbox = shared_cluster().await;
    let yaml = |mode: &str| {
        let section = format!("    primary_wait: 200ms\n    server_tls: {{ mode: {mode} }}\n");
        causeway_testkit::yaml_for(sandbox).replace("    monitor:", &(section + "    monitor:"))
    };
    let causeway = start_yaml(sandbox, &yaml("prefer"), 3).await;
    causeway.allow_log("node");
    causeway.allow_log("there is no primary");
    assert_eq!(encrypted(&causeway, "postgres").await, Ok(false));
    causeway.reload(&yaml("require")).await;
    causeway.wait_for_log("does not support TLS").await;
    let (_, refused) = greeting(&causeway, "postgres").await;
    assert_eq!(summary(&refused), "R E(57P03)");
}
