//! Events of the node: what is wrong with its pool, where an operator looks first.

use crate::apiserver::ApiServer;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const COLLECTION: &str = "/api/v1/namespaces/default/events";
/// How long there is no second event with a reason.
const PAUSE: Duration = Duration::from_secs(60);
/// How long one that the apiserver did not take waits until it is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// Says at the apiserver what is wrong with a node's pool.
#[derive(Debug, Clone)]
pub struct Events {
    apiserver: ApiServer,
    node: String,
    /// When there was one last. Reasons are words of this program, so they are few.
    last: Arc<Mutex<BTreeMap<&'static str, Instant>>>,
}

impl Events {
    /// Those of this node.
    #[must_use]
    pub fn new(apiserver: ApiServer, node: String) -> Self {
        Self {
            apiserver,
            node,
            last: Arc::default(),
        }
    }

    /// Says it, if there was no event with this reason for a minute: whether there was none.
    pub fn warn(&self, reason: &'static str, text: &str) -> bool {
        let is_due = self.is_due(reason, Instant::now());
        if is_due {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let event = event(&self.node, reason, text, since.unwrap_or_default());
            let apiserver = self.apiserver.clone();
            tokio::spawn(async move {
                // It is in the log in any case.
                for _ in 0..PAUSE.as_secs() / RETRY.as_secs() {
                    if apiserver.create(COLLECTION, &event).await.is_ok() {
                        break;
                    }
                    tokio::time::sleep(RETRY).await;
                }
            });
        }
        is_due
    }

    fn is_due(&self, reason: &'static str, now: Instant) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.get(reason);
        let is_due = before.is_none_or(|before| now.saturating_duration_since(*before) >= PAUSE);
        if is_due {
            last.insert(reason, now);
        }
        is_due
    }
}

fn event(node: &str, reason: &str, text: &str, since: Duration) -> Value {
    let time = time(since.as_secs());
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": format!("{node}."), "namespace": "default"},
        // As kubelet's own: `kubectl describe node` finds them by the name in place of the UID.
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "reason": reason,
        // The apiserver takes no longer one.
        "message": text.chars().take(1000).collect::<String>(),
        "type": "Warning",
        "source": {"component": "firstlight-pool", "host": node},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    })
}

/// Seconds since 1970 as a date and time of UTC.
fn time(seconds: u64) -> String {
    let (mut year, mut day) = (1970, seconds / 86_400);
    let leap = |year: u64| {
        let is_of = |years| year.is_multiple_of(years);
        u64::from(is_of(4) && (!is_of(100) || is_of(400)))
    };
    while day >= 365 + leap(year) {
        day -= 365 + leap(year);
        year += 1;
    }
    let mut month = 0;
    let lengths = [31, 28 + leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!(
        "{year:04}-{:02}-{:02}T{hours:02}:{minutes:02}:{:02}Z",
        month + 1,
        day + 1,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_one_event_a_minute() {
        let apiserver = ApiServer::at("http://localhost:1", "/".as_ref()).unwrap();
        let events = Events::new(apiserver, "node1".into());
        let begin = Instant::now();
        let is_due = |reason, seconds| events.is_due(reason, begin + Duration::from_secs(seconds));
        assert!(is_due("a", 0));
        assert!(!is_due("a", 0));
        assert!(is_due("b", 1));
        assert!(!is_due("a", 59));
        assert!(is_due("a", 60));
        assert!(!is_due("a", 119));
        assert!(!is_due("b", 60));
    }

    #[test]
    fn times_are_as_a_calendar_has_them() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, text) in table {
            assert_eq!(time(seconds), text);
        }
    }
}
