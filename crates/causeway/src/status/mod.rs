//! The status page: how the process stands and how it came there, as a page for people and as JSON for programs.
//!
//! Nothing of it is secret: names of databases, users and nodes, and numbers, as in the metrics. No SQL, no addresses.

mod counts;
mod document;
mod history;
mod seen;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use tokio::time::{Instant, MissedTickBehavior};

pub(crate) use self::counts::DatabaseCounts;
pub use self::history::History;
use self::seen::Seen;
use crate::serve::live::Live;

/// From one sample of the curves to the next, and from one look for events to the next.
const INTERVAL: Duration = Duration::from_secs(2);

const PAGE: &str = include_str!("page.html");

/// The page draws what it is told with text nodes alone, and loads nothing from anywhere else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A page that is looked at again must not be an old one.
const FRESH: (HeaderName, &str) = (header::CACHE_CONTROL, "no-store");
const GUARDED: (HeaderName, &str) = (header::X_CONTENT_TYPE_OPTIONS, "nosniff");

/// What the clients of each database had since the process began, and in the last minute with its length.
pub(crate) struct Activity {
    pub(crate) total: BTreeMap<String, DatabaseCounts>,
    pub(crate) before: BTreeMap<String, DatabaseCounts>,
    pub(crate) elapsed: Duration,
}

/// Reads what has been counted.
pub(crate) fn activity(live: &Live) -> Activity {
    let (moment, before) =
        live.history.minute_ago().unwrap_or_else(|| (Instant::now(), counts::Counts::default()));
    Activity { total: seen::counts(live).databases, before: before.databases, elapsed: moment.elapsed() }
}

/// Samples the process until dropped.
pub async fn record(live: Arc<Live>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    // After a pause of the whole machine one sample is enough.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        live.history.take(Instant::now(), Seen::of(&live));
    }
}

/// The page.
pub(crate) async fn page() -> Response {
    let kind = (header::CONTENT_TYPE, "text/html; charset=utf-8");
    let referrer = (header::REFERRER_POLICY, "no-referrer");
    ([kind, FRESH, GUARDED, referrer, (header::CONTENT_SECURITY_POLICY, POLICY)], PAGE).into_response()
}

/// What the page shows, as JSON.
pub(crate) async fn json(State(live): State<Arc<Live>>) -> Response {
    let kind = (header::CONTENT_TYPE, "application/json");
    let body = serde_json::to_string(&document::Document::of(&live)).unwrap_or_default();
    ([kind, FRESH, GUARDED], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{YAML, live};

    /// A browser must get everything from the page itself.
    #[test]
    fn the_page_needs_nothing_else() {
        for forbidden in
            ["http://", "https://", "//cdn", "@import", "url(", "innerHTML", "eval(", "<link", "src="]
        {
            // What the page draws itself is named by a fragment.
            assert!(!PAGE.replace("url(#", "").contains(forbidden), "{forbidden}");
        }
        assert!(PAGE.len() < 64 * 1024, "{} bytes", PAGE.len());
    }

    #[tokio::test]
    async fn no_secret_and_no_address_is_shown() {
        let live = live(YAML).0;
        for _ in 0..2 {
            live.history.take(Instant::now(), Seen::of(&live));
        }
        let text = serde_json::to_string(&document::Document::of(&live)).unwrap();
        for secret in ["s3cret", "127.0.0.1"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["clusters"][0]["nodes"][0]["name"], "pg-0");
        assert_eq!(document["clusters"][0]["nodes"][0]["weight"], 3);
        assert_eq!(document["events"][0]["kind"], "start");
        assert_eq!(document["history"]["at"].as_array().unwrap().len(), 1);
        assert_eq!(document["saved"]["queries"], 0);
        assert_eq!(document["ready"], false);
        assert_eq!(document["not_ready_because"], "starting: no listener is open yet");
    }
}
