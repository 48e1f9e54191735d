//! The status page, metrics and health over HTTP.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::config::MetricsCompat;
use crate::console::exporter;
use crate::metrics::Sources;
use crate::serve::live::Live;
use crate::status;

const TEXT: (header::HeaderName, &str) = (header::CONTENT_TYPE, "text/plain; charset=utf-8");

/// Prometheus' text format.
const EXPOSITION: (header::HeaderName, &str) =
    (header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");

/// Serves until dropped.
pub async fn serve(listener: TcpListener, live: Arc<Live>) {
    let router = Router::new()
        .route("/", get(status::page))
        .route("/status.json", get(status::json))
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(live);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(event = "http_failed", error = %error, "metrics and health are no longer served");
    }
}

async fn metrics(State(live): State<Arc<Live>>) -> impl IntoResponse {
    let mut text = Sources::of(&live).render();
    if live.config.load().metrics_compat == Some(MetricsCompat::Pgbouncer) {
        text.push_str(&exporter::text(&live));
    }
    ([EXPOSITION], text)
}

async fn livez() -> impl IntoResponse {
    ([TEXT], "ok\n")
}

async fn readyz(State(live): State<Arc<Live>>) -> impl IntoResponse {
    match live.ready() {
        Ok(()) => (StatusCode::OK, [TEXT], "ok\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, [TEXT], format!("{why}\n")),
    }
}
