//! How clients prove who they are.

use causeway_testkit::wire::{Client, summary};
use causeway_testkit::yaml_for;
use causeway_tests::{shop_database, start_yaml};

use crate::tls::{Files, psql_fails, psql_succeeds};

/// Proof instead of trust, by these rules and with these users.
fn asking(yaml: &str, rules: &str, users: &str) -> String {
    let trust = "    - { address: \"127.0.0.0/8\", method: trust }\n";
    assert!(yaml.contains(trust));
    yaml.replace(trust, rules) + users
}

#[tokio::test]
async fn every_sslmode_with_every_channel_binding() {
    let files = Files::new();
    let sandbox = causeway_testkit::shared_cluster().await;
    let database = shop_database(sandbox).await;
    let rules = "    - { address: \"127.0.0.0/8\", method: scram-sha-256 }\n";
    let users = "users: { postgres: { password: hush } }\n";
    let yaml = asking(&(yaml_for(sandbox) + &files.yaml), rules, users);
    let causeway = start_yaml(sandbox, &yaml, 3).await;
    let port = causeway.port();
    let ca = format!("host=localhost sslrootcert={}", files.path("ca.pem").display());
    for (sslmode, encrypted) in [
        ("disable", false),
        ("allow", false),
        ("prefer", true),
        ("require", true),
        ("verify-ca", true),
        ("verify-full", true),
    ] {
        for binding in ["disable", "prefer", "require"] {
            let words = format!("{ca} sslmode={sslmode} channel_binding={binding} password=hush");
            if binding == "require" && !encrypted {
                let refused = psql_fails(port, &database, &words).await;
                assert!(refused.contains("channel binding"), "{words}: {refused}");
            } else {
                let said = psql_succeeds(port, &database, &words, "\\conninfo").await;
                assert_eq!(said.contains("SSL connection (protocol: TLSv1."), encrypted, "{words}: {said}");
            }
        }
    }
    let words = "sslmode=require channel_binding=require password=wrong";
    assert!(psql_fails(port, &database, words).await.contains("password authentication failed"));
    let other = Files::new();
    let words = format!(
        "host=localhost sslmode=verify-ca channel_binding=require password=hush sslrootcert={}",
        other.path("ca.pem").display()
    );
    assert!(psql_fails(port, &database, &words).await.contains("certificate verify failed"));
}

#[tokio::test]
async fn rules_by_tls_and_users_from_pgbouncers_file() {
    let files = Files::new();
    let sandbox = causeway_testkit::shared_cluster().await;
    let database = shop_database(sandbox).await;
    let list = files.path("userlist.txt");
    causeway_testkit::tls::write(&list, "; ours\n\"postgres\" \"of the file\"\n\"old\" \"hush\"\n");
    let rules = format!(
        "    - {{ address: \"127.0.0.0/8\", tls: none, method: reject }}\n    \
         - {{ address: \"127.0.0.0/8\", tls: require, method: scram-sha-256 }}\n  userlist_file: \"{}\"\n",
        list.display()
    );
    let yaml = asking(&(yaml_for(sandbox) + &files.yaml), &rules, "");
    let causeway = start_yaml(sandbox, &yaml, 3).await;
    let parameters = [("user", "postgres"), ("database", &*database)];
    let mut plain = Client::connect(causeway.port()).await;
    assert_eq!(summary(&plain.startup(&parameters).await), "E(28000)");
    let tls = files.authority.client();
    let mut client = Client::connect(causeway.port()).await.tls(&tls).await.password("of the file");
    let greeting = client.startup(&parameters).await;
    assert_eq!(greeting.last().map(|message| message.tag), Some(b'Z'), "{greeting:?}");
    assert_eq!(client.one("SELECT 'in'").await, "in");

    // A changed file counts from the next reload on.
    causeway_testkit::tls::write(&list, "\"postgres\" \"changed\"\n");
    causeway.reload(&yaml).await;
    let words = |password: &str| format!("sslmode=require password='{password}'");
    assert!(
        psql_fails(causeway.port(), &database, &words("of the file"))
            .await
            .contains("password authentication")
    );
    assert_eq!(psql_succeeds(causeway.port(), &database, &words("changed"), "SELECT 7").await, "7");
    assert_eq!(client.one("SELECT 'still in'").await, "still in");
}
