use causeway_routing::catalogue::CatalogueBuilder;
use causeway_routing::{Lsn, NodeId, Overrides};
use tokio::time::sleep;

use super::*;
use crate::config::{Config, Monitor, NodeConfig};
use crate::instance::Instance;
use crate::truth::{Key, Position, Sighting};

/// One node, whose monitor is the test.
fn catalogues() -> Catalogues {
    let monitor = Monitor { user: "nobody".to_owned(), password: None, database: "none".to_owned() };
    // A directory without sockets: nothing can be reached there.
    let node = NodeConfig {
        name: "a".into(),
        host: "/nonexistent".to_owned(),
        port: 1,
        weight: 1,
        levels: causeway_routing::Levels::ALL,
        tls: None,
    };
    let config = Config::new("main", vec![node], monitor);
    let state = Arc::new(State::new(config.clone()));
    state.configure(config, vec![(Key(1), Arc::default())]);
    Catalogues::new(state, Handle::current())
}

fn elect(state: &State) {
    let position = Position::Inserted { end: Lsn(1), flushed: Lsn(1) };
    let instance = Instance { system_id: 7, started: 0, server: None };
    let sighting = Sighting { requested: Instant::now(), instance, timeline: 1, position };
    state.sighted(Key(1), sighting);
    assert_eq!(state.published().view.primary, Some(NodeId(0)));
}

fn tracked(catalogues: &Catalogues) -> usize {
    catalogues.entries.load().len()
}

#[tokio::test(start_paused = true)]
async fn a_database_nobody_asks_for_is_forgotten() {
    let catalogues = catalogues();
    assert!(catalogues.current("shop").is_none());
    for _ in 0..10 {
        sleep(Duration::from_mins(5)).await;
        assert!(catalogues.current("shop").is_none());
        assert_eq!(tracked(&catalogues), 1, "asked for within the time");
    }
    sleep(Duration::from_mins(9)).await;
    assert_eq!(tracked(&catalogues), 1);
    sleep(Duration::from_mins(2)).await;
    assert_eq!(tracked(&catalogues), 0);
    catalogues.changed("shop");
    assert_eq!(tracked(&catalogues), 0, "only what is in use is loaded");
}

#[tokio::test(start_paused = true)]
async fn the_number_of_databases_is_bounded() {
    let catalogues = catalogues();
    for number in 0..MOST_DATABASES + 10 {
        assert!(catalogues.current(&number.to_string()).is_none());
    }
    assert_eq!(tracked(&catalogues), MOST_DATABASES);
    catalogues.stop();
    sleep(Duration::from_mins(11)).await;
    assert!(catalogues.current("another").is_none());
    assert_eq!(tracked(&catalogues), MOST_DATABASES, "nothing starts after the end");
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_verified_for_long_is_not_given_out() {
    let catalogues = catalogues();
    assert!(catalogues.current("shop").is_none());
    let catalogue = Arc::new(CatalogueBuilder::new().build());
    let loaded = Loaded { catalogue, fingerprint: "1".to_owned(), overrides: Arc::default(), size: 0 };
    let entry = catalogues.entries.load().get("shop").cloned().unwrap();
    entry.current.store(Some(Arc::new(Current { loaded, verified: Instant::now() })));
    sleep(Duration::from_mins(5)).await;
    assert!(catalogues.current("shop").is_some(), "there is no primary by which it could have been changed");
    elect(&catalogues.state);
    assert!(catalogues.current("shop").is_none(), "there is one now, and it cannot be asked");
}

#[tokio::test(start_paused = true)]
async fn what_was_judged_by_other_overrides_is_not_given_out() {
    let catalogues = catalogues();
    assert!(catalogues.current("shop").is_none());
    let catalogue = Arc::new(CatalogueBuilder::new().build());
    let loaded = Loaded { catalogue, fingerprint: "1".to_owned(), overrides: Arc::default(), size: 0 };
    let entry = catalogues.entries.load().get("shop").cloned().unwrap();
    entry.current.store(Some(Arc::new(Current { loaded, verified: Instant::now() })));
    catalogues.reconfigured();
    assert!(catalogues.current("shop").is_some(), "nothing has changed for it");
    let mut config = Config::clone(&catalogues.state.config());
    let pattern = causeway_routing::Pattern::parse("f").unwrap();
    let forced = Overrides::new(vec![(pattern, causeway_routing::Forced::Read)], Vec::new());
    config.overrides.insert("other".into(), Arc::new(forced.clone()));
    catalogues.state.configure(config.clone(), vec![(Key(1), Arc::default())]);
    catalogues.reconfigured();
    assert!(catalogues.current("shop").is_some(), "nothing has changed for it");
    config.overrides.insert("*".into(), Arc::new(forced));
    catalogues.state.configure(config, vec![(Key(1), Arc::default())]);
    catalogues.reconfigured();
    assert!(catalogues.current("shop").is_none());
}
