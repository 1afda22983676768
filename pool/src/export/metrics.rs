//! A status as metrics, in the text format of OpenMetrics, which Prometheus reads.

use crate::protocol::{GrantRow, Label, PoolRow, QuotaRow, Status, TakeTimes};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;

/// What HTTP calls the format.
pub(super) const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The whole text; `None` where the daemon does not answer.
pub(super) fn text(status: Option<Status>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("firstlight_pool");
    registry.register_collector(Box::new(Seen(status)));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Seen(Option<Status>);

impl Collector for Seen {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let up = u64::from(self.0.is_some());
        gauge(&mut encoder, "up", "Whether the daemon answers", up)?;
        let Some(status) = &self.0 else { return Ok(()) };
        build_info(&mut encoder, &status.version)?;
        for (column, value) in GAUGES {
            rows(
                &mut encoder,
                column,
                MetricType::Gauge,
                &status.pools,
                value,
            )?;
        }
        let refilled = (
            "refilled_bytes",
            "Bytes put back where guests had given them back",
        );
        let kind = MetricType::Counter;
        rows(&mut encoder, refilled, kind, &status.pools, |row| {
            row.refilled_bytes
        })?;
        quotas(&mut encoder, &status.quotas)?;
        grants(&mut encoder, &status.grants)?;
        counters(&mut encoder, status)?;
        state(&mut encoder, status)?;
        match &status.counters.take_times {
            Some(times) => histogram(&mut encoder, times),
            None => Ok(()),
        }
    }
}

/// A kind of bytes or slabs of a pool: its name and help, and where it stands.
type Column = ((&'static str, &'static str), fn(&PoolRow) -> u64);

const GAUGES: [Column; 9] = [
    (("wanted_slabs", "Slabs to keep"), |row| {
        row.wanted_slabs.into()
    }),
    (("clean_slabs", "Slabs to be had now"), |row| {
        row.clean_slabs.into()
    }),
    (("filling_slabs", "Slabs being zeroed"), |row| {
        row.filling_slabs.into()
    }),
    (("allocated_slabs", "Slabs allocated"), |row| {
        row.allocated_slabs.into()
    }),
    (
        (
            "unknown_slabs",
            "Slabs that an earlier daemon allocated and that were not found again",
        ),
        |row| row.unknown_slabs.into(),
    ),
    (("clean_bytes", "Bytes zeroed and not allocated"), |row| {
        row.clean_bytes
    }),
    (
        ("dirty_bytes", "Bytes taken back and not yet emptied"),
        |row| row.dirty_bytes,
    ),
    (("allocated_bytes", "Bytes allocated"), |row| {
        row.allocated_bytes
    }),
    (
        (
            "hole_bytes",
            "Bytes of these that guests gave back and that hold no memory",
        ),
        |row| row.hole_bytes,
    ),
];

fn rows(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    kind: MetricType,
    pools: &[PoolRow],
    value: fn(&PoolRow) -> u64,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
    for row in pools {
        let node = row.node.map_or("any".into(), |node| node.to_string());
        let labels = [
            ("page", row.page.to_string()),
            ("node", node),
            ("size_bytes", row.size_class_bytes.to_string()),
        ];
        let family = metric.encode_family(&labels)?;
        match kind {
            MetricType::Counter => ConstCounter::new(value(row)).encode(family)?,
            _ => ConstGauge::new(value(row)).encode(family)?,
        }
    }
    Ok(())
}

type QuotaColumn = (&'static str, &'static str, fn(&QuotaRow) -> Option<u64>);

const QUOTAS: [QuotaColumn; 4] = [
    ("quota_bytes", "Bytes an account may hold", |row| {
        row.most_bytes
    }),
    (
        "quota_charged_bytes",
        "Bytes an account is charged: what it holds and what it owes",
        |row| Some(row.charged_bytes),
    ),
    ("quota_held_bytes", "Of these, bytes of leases", |row| {
        Some(row.held_bytes)
    }),
    (
        "quota_owed_bytes",
        "Of these, bytes given back that can still be reached or wait for a clean slab",
        |row| Some(row.owed_bytes),
    ),
];

fn quotas(encoder: &mut DescriptorEncoder<'_>, quotas: &[QuotaRow]) -> fmt::Result {
    for (name, help, value) in QUOTAS {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for row in quotas {
            let labels = [("of", row.of.to_string()), ("name", row.name.clone())];
            if let Some(value) = value(row) {
                ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

type GrantColumn = (&'static str, &'static str, fn(&GrantRow) -> u32);

const GRANTS: [GrantColumn; 3] = [
    (
        "grant_uses",
        "Slabs that may be out by a grant at the same time",
        |row| row.uses,
    ),
    (
        "grant_charged_slabs",
        "Slabs a grant is charged: those of leases, and those given back that are not replaced",
        |row| row.charged_slabs,
    ),
    ("grant_held_slabs", "Of these, slabs of leases", |row| {
        row.held_slabs
    }),
];

/// A daemon has 256 grants at most.
fn grants(encoder: &mut DescriptorEncoder<'_>, grants: &[GrantRow]) -> fmt::Result {
    for (name, help, value) in GRANTS {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for row in grants {
            let label = row.label.as_ref().map_or("", Label::as_str);
            let labels = [
                ("grant", row.grant.to_string()),
                ("label", label.to_owned()),
            ];
            ConstGauge::new(u64::from(value(row))).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let counter = ConstCounter::new(value);
    counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
}

fn build_info(encoder: &mut DescriptorEncoder<'_>, version: &str) -> fmt::Result {
    let help = "The daemon's version";
    let mut metric = encoder.encode_descriptor("build", help, None, MetricType::Info)?;
    metric.encode_info(&[("version", version)])
}

fn counters(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let seen = &status.counters;
    for (name, help, value) in [
        ("requests", "Requests of all kinds", seen.requests),
        ("takes", "Requests that got memory", seen.takes),
        (
            "top_ups",
            "Of these, those that waited for some zeroing",
            seen.top_ups,
        ),
        (
            "denied",
            "Requests refused for quota or permission",
            seen.denied,
        ),
        ("returns", "Leases that ended", seen.returns),
        (
            "turned_away",
            "Connections closed because there were too many",
            seen.turned_away,
        ),
        ("zeroed_bytes", "Bytes zeroed", seen.zeroed_bytes),
        (
            "zeroed_twice_bytes",
            "Of these, bytes zeroed by the kernel and again in place",
            seen.zeroed_twice_bytes,
        ),
    ] {
        counter(encoder, name, help, value)?;
    }
    let help = "Time spent on zeroing, over all workers";
    let kind = MetricType::Counter;
    let seconds = ConstCounter::new(seconds(seen.zeroing_ns));
    seconds.encode(encoder.encode_descriptor("zeroing_seconds", help, None, kind)?)?;
    let help = "Requests for memory that got none, by cause";
    let mut metric = encoder.encode_descriptor("misses", help, None, kind)?;
    for (cause, value) in [
        ("empty", seen.misses.empty),
        ("no_class", seen.misses.no_class),
        ("top_up", seen.misses.top_up),
        ("quota", seen.misses.quota),
        ("draining", seen.misses.draining),
    ] {
        ConstCounter::new(value).encode(metric.encode_family(&[("cause", cause)])?)?;
    }
    Ok(())
}

fn state(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let seen = &status.gauges;
    let leases = status.leases.len() as u64 + u64::from(status.more_leases);
    for (name, help, value) in [
        ("connections", "Clients connected", seen.connections.into()),
        ("leases", "Leases", leases),
        (
            "revoked_slabs",
            "Slabs taken back that a client still has open",
            seen.revoked_slabs.into(),
        ),
        (
            "revoked_bytes",
            "Bytes charged for these",
            seen.revoked_bytes,
        ),
        (
            "pinned_bytes",
            "Bytes taken back that did not go back to the kernel: pinned, or reserved",
            seen.pinned_bytes,
        ),
        (
            "draining",
            "Whether nothing is allocated any more",
            status.draining.into(),
        ),
        (
            "paused",
            "Whether filling pauses for memory pressure",
            seen.paused.into(),
        ),
        (
            "filling",
            "Whether slabs are filled",
            seen.fill.as_ref().is_none_or(|fill| fill.on).into(),
        ),
    ] {
        gauge(encoder, name, help, value)?;
    }
    Ok(())
}

fn histogram(encoder: &mut DescriptorEncoder<'_>, times: &TakeTimes) -> fmt::Result {
    let help = "How long a take took inside the daemon";
    let kind = MetricType::Histogram;
    let mut metric = encoder.encode_descriptor("take_seconds", help, None, kind)?;
    let mut before = 0;
    let mut buckets: Vec<(f64, u64)> = Vec::new();
    for bucket in &times.buckets {
        buckets.push((seconds(bucket.most_ns), bucket.count.saturating_sub(before)));
        before = bucket.count;
    }
    buckets.push((f64::INFINITY, times.count.saturating_sub(before)));
    metric.encode_histogram::<NoLabelSet>(seconds(times.sum_ns), times.count, &buckets, None)
}

fn seconds(ns: u64) -> f64 {
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Counters, Gauges, Misses, PageSize, QuotaOf, TakeBucket};

    fn status() -> Status {
        let row = PoolRow {
            page: PageSize::Huge,
            node: Some(1),
            size_class_bytes: 8 << 30,
            wanted_slabs: 4,
            clean_slabs: 3,
            filling_slabs: 1,
            allocated_slabs: 0,
            unknown_slabs: 2,
            clean_bytes: 25 << 30,
            dirty_bytes: 0,
            allocated_bytes: 0,
            hole_bytes: 3 << 20,
            refilled_bytes: 5 << 20,
            trouble: None,
        };
        Status {
            version: "1.2.3".into(),
            pools: vec![row],
            quotas: vec![QuotaRow {
                of: QuotaOf::Cgroup,
                name: "/machine.slice".into(),
                most_bytes: Some(64 << 20),
                charged_bytes: 6 << 20,
                held_bytes: 4 << 20,
                owed_bytes: 2 << 20,
            }],
            grants: vec![GrantRow {
                grant: "grant-00000abc-17".parse().unwrap(),
                label: Some(Label::new("ns/pod")),
                page: PageSize::Huge,
                node: Some(1),
                size_class_bytes: 8 << 30,
                uses: 3,
                charged_slabs: 2,
                held_slabs: 1,
            }],
            gauges: Gauges {
                connections: 2,
                ..Gauges::default()
            },
            counters: Counters {
                zeroing_ns: 1_500_000_000,
                misses: Misses {
                    top_up: 7,
                    ..Misses::default()
                },
                take_times: Some(TakeTimes {
                    count: 3,
                    sum_ns: 6_000_000_000,
                    buckets: [(20_000, 1), (5_000_000_000, 2)]
                        .map(|(most_ns, count)| TakeBucket { most_ns, count })
                        .into(),
                    ..TakeTimes::default()
                }),
                ..Counters::default()
            },
            ..Status::default()
        }
    }

    #[test]
    fn a_status_becomes_metrics() {
        let text = text(Some(status())).unwrap();
        for line in [
            "firstlight_pool_up 1",
            "firstlight_pool_build_info{version=\"1.2.3\"} 1",
            "firstlight_pool_clean_slabs{page=\"2M\",node=\"1\",size_bytes=\"8589934592\"} 3",
            "firstlight_pool_unknown_slabs{page=\"2M\",node=\"1\",size_bytes=\"8589934592\"} 2",
            "firstlight_pool_refilled_bytes_total{page=\"2M\",node=\"1\",size_bytes=\"8589934592\"} 5242880",
            "# TYPE firstlight_pool_refilled_bytes counter",
            "firstlight_pool_zeroing_seconds_total 1.5",
            "firstlight_pool_misses_total{cause=\"top_up\"} 7",
            "firstlight_pool_connections 2",
            "firstlight_pool_quota_bytes{of=\"cgroup\",name=\"/machine.slice\"} 67108864",
            "firstlight_pool_quota_owed_bytes{of=\"cgroup\",name=\"/machine.slice\"} 2097152",
            "firstlight_pool_grant_uses{grant=\"grant-00000abc-17\",label=\"ns/pod\"} 3",
            "firstlight_pool_grant_charged_slabs{grant=\"grant-00000abc-17\",label=\"ns/pod\"} 2",
            "firstlight_pool_grant_held_slabs{grant=\"grant-00000abc-17\",label=\"ns/pod\"} 1",
            "firstlight_pool_take_seconds_bucket{le=\"0.00002\"} 1",
            "firstlight_pool_take_seconds_bucket{le=\"5.0\"} 2",
            "firstlight_pool_take_seconds_bucket{le=\"+Inf\"} 3",
            "firstlight_pool_take_seconds_sum 6.0",
            "# TYPE firstlight_pool_take_seconds histogram",
        ] {
            assert!(text.lines().any(|seen| seen == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    /// Metrics that `text` names, as they stand in an exposition.
    fn named(text: &str) -> Vec<&str> {
        let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
        let starts = text.match_indices("firstlight_pool_");
        let names = starts.map(|(at, _)| {
            let rest = &text[at..];
            &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())]
        });
        names.collect()
    }

    #[test]
    fn rules_and_dashboard_name_metrics_that_there_are() {
        let text = text(Some(status())).unwrap();
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let rules = include_str!("../../../packaging/prometheus/firstlight-pool.rules.yml");
        let dashboard = include_str!("../../../packaging/prometheus/firstlight-pool.grafana.json");
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let targets = panels
            .iter()
            .flat_map(|panel| panel["targets"].as_array().unwrap());
        let expressions = targets.map(|target| target["expr"].as_str().unwrap());
        let mut count = 0;
        for name in named(rules).into_iter().chain(expressions.flat_map(named)) {
            count += 1;
            let is_sample = |line: &&str| {
                let rest = line.strip_prefix(name);
                rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            };
            assert!(samples.iter().any(is_sample), "{name}");
        }
        assert!(count > 30, "{count} names");
    }

    #[test]
    fn a_daemon_that_does_not_answer_is_down() {
        let text = text(None).unwrap();
        assert!(text.contains("\nfirstlight_pool_up 0\n"), "{text}");
        assert!(!text.contains("slabs"), "{text}");
    }
}
