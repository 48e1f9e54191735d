//! What `deploy/` ships: every configuration in it is accepted, and its manifests hold together. No engine runs here.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};

use causeway::config::{Config, parse};
use serde_yaml::Value;

fn deploy(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Accepted as it stands, but for the directory for state, which is not there.
fn accepted(yaml: &str) -> Config {
    let directory = tempfile::tempdir().unwrap();
    let yaml = yaml.replace("/var/lib/causeway", directory.path().to_str().unwrap());
    let variable = |_: &str| Some("a secret".to_owned());
    parse(Path::new("causeway.yaml"), &yaml, &variable).unwrap_or_else(|error| panic!("{error}\n{yaml}"))
}

/// The documents of a file.
fn documents(text: &str) -> Vec<Value> {
    text.split("\n---\n").map(|document| serde_yaml::from_str(document).unwrap()).collect()
}

/// Pods are given longer to end than the process may take.
fn grace_is_enough(config: &Config, seconds: u64) {
    let timeouts = &config.timeouts;
    let needed = timeouts.drain_delay + timeouts.shutdown_timeout;
    assert!(needed.as_secs() < seconds, "{needed:?} {seconds}");
}

#[test]
fn the_compose_file_belongs_to_its_configuration() {
    let config = accepted(&deploy("docker/causeway.yaml"));
    let compose: Value = serde_yaml::from_str(&deploy("docker/compose.yaml")).unwrap();
    for node in &config.clusters[0].nodes {
        assert!(compose["services"].get(node.name.as_str()).is_some(), "{}", node.name);
        assert_eq!(node.address.to_string(), format!("{}:5432", node.name));
    }
    let causeway = &compose["services"]["causeway"];
    assert_eq!(causeway["read_only"].as_bool(), Some(true));
    let grace = causeway["stop_grace_period"].as_str().unwrap().trim_end_matches('s').parse().unwrap();
    grace_is_enough(&config, grace);
    // What is mounted is there.
    for service in ["primary", "causeway", "prometheus", "grafana"] {
        for volume in compose["services"][service]["volumes"].as_sequence().unwrap() {
            let source = volume.as_str().unwrap().split(':').next().unwrap();
            let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/docker").join(source);
            assert!(!source.starts_with('.') || here.exists(), "{service}: {source}");
        }
    }
}

#[test]
fn the_manifests_hold_together() {
    let documents = documents(&deploy("kubernetes/causeway.yaml"));
    let kind =
        |kind: &str| documents.iter().find(|document| document["kind"].as_str() == Some(kind)).unwrap();
    let config = accepted(kind("ConfigMap")["data"]["causeway.yaml"].as_str().unwrap());
    let pod = &kind("StatefulSet")["spec"]["template"];
    let labels = &pod["metadata"]["labels"];
    for (of, selector) in [
        ("Service", &kind("Service")["spec"]["selector"]),
        ("StatefulSet", &kind("StatefulSet")["spec"]["selector"]["matchLabels"]),
        ("PodDisruptionBudget", &kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"]),
    ] {
        assert_eq!(selector, labels, "{of}");
    }
    grace_is_enough(&config, pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap());
    assert_eq!(pod["spec"]["securityContext"]["runAsNonRoot"].as_bool(), Some(true));
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"].as_bool(), Some(true));
    for (probe, path) in
        [("livenessProbe", "/livez"), ("readinessProbe", "/readyz"), ("startupProbe", "/livez")]
    {
        assert_eq!(container[probe]["httpGet"]["path"].as_str(), Some(path), "{probe}");
    }
    // Every variable of the configuration is a key of the Secret.
    let secret = kind("Secret")["stringData"].as_mapping().unwrap();
    let text = kind("ConfigMap")["data"]["causeway.yaml"].as_str().unwrap();
    for variable in text.split("${").skip(1).map(|rest| rest.split('}').next().unwrap()) {
        assert!(secret.contains_key(variable), "{variable}");
    }
}

#[test]
fn the_chart_names_values_that_there_are() {
    let values: Value = serde_yaml::from_str(&deploy("helm/causeway/values.yaml")).unwrap();
    let config = accepted(&serde_yaml::to_string(&values["config"]).unwrap());
    grace_is_enough(&config, values["terminationGracePeriodSeconds"].as_u64().unwrap());
    let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/causeway/templates");
    let mut named = 0;
    for entry in fs::read_dir(templates).unwrap() {
        let file = entry.unwrap().path();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.matches("{{").count(), text.matches("}}").count(), "{}", file.display());
        let blocks =
            ["if ", "with ", "define "].iter().map(|word| text.matches(&format!("{{{{- {word}")).count());
        assert_eq!(blocks.sum::<usize>(), text.matches("{{- end").count(), "{}", file.display());
        for path in text.split(".Values.").skip(1) {
            let path: String = path.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '.').collect();
            let found = path.split('.').try_fold(&values, |value, key| value.get(key));
            assert!(found.is_some(), "{}: {path}", file.display());
            named += 1;
        }
    }
    assert!(named > 15, "{named}");
}

#[test]
fn every_example_is_accepted() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/examples");
    let mut count = 0;
    for entry in fs::read_dir(directory).unwrap() {
        accepted(&fs::read_to_string(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 3);
}
