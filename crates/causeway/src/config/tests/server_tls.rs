//! The sections `server_tls`.

use causeway_tls::Mode;

use super::tls::{files, read_in};
use super::*;

fn with(section: &str) -> String {
    // A list in block style may have another key behind it.
    format!("clusters:\n  main:\n    server_tls: {section}\n")
}

fn read_with(section: &str, node: &str) -> Result<Vec<Option<Mode>>, String> {
    let directory = files();
    let text = format!(
        "{}    nodes: [{{ name: a, address: \"a:1\" }}, {{ name: b, address: \"b:1\"{node} }}]\n    monitor: {{ user: m }}\n",
        with(section)
    );
    let read = parse(&directory.path().join("c.yaml"), &text, &environment);
    let config = read.map_err(|error| error.to_string())?;
    let modes =
        config.clusters[0].nodes.iter().map(|node| node.tls.as_ref().map(causeway_tls::TlsClient::mode));
    Ok(modes.collect())
}

#[test]
fn nodes_do_as_their_cluster_unless_they_say_otherwise() {
    let own = ", server_tls: { mode: disable }";
    let full = Some(Mode::VerifyFull);
    assert_eq!(read_with("{ ca_file: server.pem }", "").unwrap(), [full, full]);
    assert_eq!(read_with("{ mode: prefer }", own).unwrap(), [Some(Mode::Prefer), None]);
    assert_eq!(read_with("{ mode: disable }", "").unwrap(), [None, None]);
    for mode in ["allow", "prefer", "require"] {
        assert_eq!(read_with(&format!("{{ mode: {mode} }}"), "").unwrap()[0].unwrap().as_str(), mode);
    }
    assert!(read_in(&files(), "").unwrap().clusters[0].nodes[0].tls.is_none());
}

#[test]
fn what_does_not_hold_is_refused() {
    for (section, problem) in [
        ("{}", "server_tls: the key `ca_file` is missing: verify-full needs to know whom to believe"),
        ("{ mode: verify-ca }", "the key `ca_file` is missing"),
        ("{ mode: on }", "expected one of"),
        ("{ mode: prefer, channel_binding: require }", "channel_binding: cannot be had with `mode: prefer`"),
        ("{ mode: require, crl_file: server.pem }", "crl_file: means nothing without `ca_file`"),
        ("{ ca_file: server.pem, crl_file: server.pem }", "crl_file: server.pem: not a list of revoked"),
        ("{ ca_file: server.key }", "ca_file: server.key: there is no certificate in it"),
        ("{ ca_file: none.pem }", "ca_file: none.pem: No such file"),
        ("{ mode: require, cert_file: server.pem }", "`cert_file` and `key_file` belong together"),
        ("{ mode: require, cert_file: server.pem, key_file: server.pem }", "key_file: server.pem: "),
    ] {
        let refused = read_with(section, "").unwrap_err();
        assert!(refused.contains(problem), "{section}: {refused}");
    }
}
