//! SHOW STATS and its kin: what PgBouncer tells of each database.

use super::commands::Row;
use crate::serve::live::Live;
use crate::status::{self, Activity, DatabaseCounts};

/// Averages mean the last minute, as PgBouncer's `stats_period` has it by default.
const MICROS: f64 = 1_000_000.0;

/// The names of the totals in the order of PgBouncer's columns, with what each is.
type Total = (&'static str, &'static str, fn(&DatabaseCounts) -> f64);

/// A time in microseconds is averaged over queries or transactions; everything else over seconds.
const TOTALS: [Total; 11] = [
    ("total_server_assignment_count", "avg_server_assignment_count", |counts| float(counts.checkouts)),
    ("total_xact_count", "avg_xact_count", |counts| float(counts.transactions)),
    ("total_query_count", "avg_query_count", |counts| float(counts.queries)),
    ("total_received", "avg_recv", |counts| float(counts.received)),
    ("total_sent", "avg_sent", |counts| float(counts.sent)),
    ("total_xact_time", "avg_xact_time", |counts| counts.query_seconds * MICROS),
    ("total_query_time", "avg_query_time", |counts| counts.query_seconds * MICROS),
    ("total_wait_time", "avg_wait_time", |counts| counts.wait_seconds * MICROS),
    ("total_client_parse_count", "avg_client_parse_count", |_| 0.0),
    ("total_server_parse_count", "avg_server_parse_count", |_| 0.0),
    ("total_bind_count", "avg_bind_count", |_| 0.0),
];

/// Totals, averages, and what tools from before PgBouncer 1.8 ask for.
pub(super) fn stats(live: &Live) -> Vec<Row> {
    let activity = status::activity(live);
    let row = |(name, counts): (&String, &DatabaseCounts)| {
        let mut row = vec![Some(name.clone())];
        row.extend(totals(counts));
        row.extend(averages(&activity, name, counts));
        row.push(Some(counts.queries.to_string()));
        row
    };
    activity.total.iter().map(row).collect()
}

pub(super) fn stats_totals(live: &Live) -> Vec<Row> {
    let row =
        |(name, counts): (String, DatabaseCounts)| [Some(name)].into_iter().chain(totals(&counts)).collect();
    status::activity(live).total.into_iter().map(row).collect()
}

pub(super) fn stats_averages(live: &Live) -> Vec<Row> {
    let activity = status::activity(live);
    let row = |(name, counts): (&String, &DatabaseCounts)| {
        [Some(name.clone())].into_iter().chain(averages(&activity, name, counts)).collect()
    };
    activity.total.iter().map(row).collect()
}

/// The sums over all databases, one a row.
pub(super) fn all_totals(live: &Live) -> Vec<Row> {
    let activity = status::activity(live);
    let sum = |of: &std::collections::BTreeMap<String, DatabaseCounts>| {
        of.values().fold(DatabaseCounts::default(), |sum, counts| DatabaseCounts {
            checkouts: sum.checkouts + counts.checkouts,
            transactions: sum.transactions + counts.transactions,
            queries: sum.queries + counts.queries,
            received: sum.received + counts.received,
            sent: sum.sent + counts.sent,
            query_seconds: sum.query_seconds + counts.query_seconds,
            wait_seconds: sum.wait_seconds + counts.wait_seconds,
        })
    };
    let (now, before) = (sum(&activity.total), sum(&activity.before));
    let averages = averages_of(&now, &before, activity.elapsed.as_secs_f64());
    let total = TOTALS.iter().map(|(name, _, _)| *name).zip(totals(&now));
    let average = TOTALS.iter().map(|(_, name, _)| *name).zip(averages);
    total.chain(average).map(|(name, value)| vec![Some(name.to_owned()), value]).collect()
}

fn totals(counts: &DatabaseCounts) -> impl Iterator<Item = Option<String>> {
    TOTALS.iter().map(|(_, _, value)| Some(whole(value(counts))))
}

fn averages(activity: &Activity, name: &str, counts: &DatabaseCounts) -> Vec<Option<String>> {
    let before = activity.before.get(name).copied().unwrap_or_default();
    averages_of(counts, &before, activity.elapsed.as_secs_f64())
}

fn averages_of(now: &DatabaseCounts, before: &DatabaseCounts, seconds: f64) -> Vec<Option<String>> {
    let average = |(_, name, value): &Total| {
        let by = match *name {
            "avg_xact_time" => float(now.transactions.saturating_sub(before.transactions)),
            "avg_query_time" => float(now.queries.saturating_sub(before.queries)),
            _ => seconds,
        };
        Some(whole(if by > 0.0 { (value(now) - value(before)) / by } else { 0.0 }))
    };
    TOTALS.iter().map(average).collect()
}

/// Tools expect whole numbers.
fn whole(value: f64) -> String {
    format!("{:.0}", value.max(0.0))
}

#[expect(clippy::cast_precision_loss, reason = "exact to 2^53")]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_of_the_last_minute() {
        let before = DatabaseCounts {
            queries: 100,
            transactions: 10,
            query_seconds: 1.0,
            ..DatabaseCounts::default()
        };
        let now = DatabaseCounts {
            queries: 700,
            transactions: 310,
            sent: 6_000,
            query_seconds: 4.0,
            wait_seconds: 6.0,
            ..before
        };
        let averages = averages_of(&now, &before, 60.0);
        let averages: Vec<&str> = averages.iter().flatten().map(String::as_str).collect();
        assert_eq!(averages, ["0", "5", "10", "0", "100", "10000", "5000", "100000", "0", "0", "0"]);
        assert!(averages_of(&now, &now, 0.0).iter().all(|average| average.as_deref() == Some("0")));
    }
}
