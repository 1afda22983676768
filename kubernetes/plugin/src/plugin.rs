//! The device plugin: looks at the daemon, at kubelet and at its pods, again and again, and does what has to be done.

use crate::class::{Class, Slot};
use crate::devices::{self, Devices};
use crate::endpoint::{Common, Endpoint};
use crate::events::Events;
use crate::grants::{Alone, Grants};
use crate::host::Host;
use crate::label::{self, Held, Way};
use crate::pods::{Absent, Pods};
use crate::say::Speaker;
use firstlight_pool::protocol::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// How often kubelet's sockets and the daemon are looked at.
const TICK: Duration = Duration::from_millis(250);
/// How long the daemon may be away until no device is healthy. A new one is there in about a second, and kubelet fails
/// pods for good that come in that second.
const AWAY: Duration = Duration::from_secs(10);
/// How often kubelet is asked for its pods, at most.
const SWEEP: Duration = Duration::from_secs(5);

/// What is to be served, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where.
    pub host: Host,
    /// The pod that this runs in, `namespace/name`.
    pub pod: Option<String>,
    /// How long a device has to be no pod's until its grant ends.
    pub absent: Duration,
    /// Those of its node, if the apiserver is to be told of trouble.
    pub events: Option<Events>,
}

/// Serves until it is dropped. Pods keep what they have.
///
/// # Errors
/// Why it can't serve at all.
pub async fn run(options: Options, say: &mut dyn FnMut(&str)) -> Result<(), String> {
    let host = options.host;
    let _alone = Alone::at(&host.links)?;
    let common = Arc::new(Common {
        grants: Grants::new(&host.socket, &host.links),
        pods: Pods::of_kubelet(&host.kubelet),
        folder: host.kubelet.join("device-plugins"),
        client: host.client,
        events: options.events.clone(),
    });
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut plugin = Plugin {
        common,
        endpoints: BTreeMap::new(),
        granted: BTreeSet::new(),
        absent: Absent::default(),
        own: options.pod,
        patience: options.absent,
        answered: Instant::now(),
    };
    let mut speaker = Speaker::new(say, options.events);
    let mut swept = Instant::now();
    loop {
        ticks.tick().await;
        plugin.look(&mut speaker).await?;
        if swept.elapsed() >= SWEEP.min(plugin.patience) {
            plugin.sweep(&mut speaker).await;
            swept = Instant::now();
        }
    }
}

struct Plugin {
    common: Arc<Common>,
    endpoints: BTreeMap<Class, Endpoint>,
    /// Devices with grants.
    granted: BTreeSet<Slot>,
    absent: Absent,
    own: Option<String>,
    patience: Duration,
    /// When the daemon did last.
    answered: Instant,
}

impl Plugin {
    /// Lists what the daemon has, and is known to kubelet.
    async fn look(&mut self, speaker: &mut Speaker<'_>) -> Result<(), String> {
        match self.common.grants.status().await {
            Ok(status) => {
                label::only(Way::Plugin, &status)?;
                self.answered = Instant::now();
                if speaker.settle("PoolAway") {
                    speaker.tell("the pool answers again");
                }
                let held = status.grants.iter().filter_map(label::of_grant);
                self.granted = held.map(|held| held.slot).collect();
                speaker.keep("PoolLacksSlabs", devices::trouble(&status));
                speaker.keep("SlabsRemoved", devices::removed(&status));
                self.list(&status, speaker);
            }
            Err(_) if self.answered.elapsed() < AWAY => {}
            Err(error) => {
                speaker.warn("PoolAway", &format!("no device is healthy: {error}"));
                for endpoint in self.endpoints.values() {
                    let unhealthy = endpoint.devices().into_keys().map(|id| (id, false));
                    endpoint.set(unhealthy.collect());
                }
            }
        }
        for (class, endpoint) in &mut self.endpoints {
            match endpoint.keep_up().await {
                Ok(true) => {
                    speaker.settle("PoolNotKnown");
                    let (healthy, all) = counted(&endpoint.devices());
                    let resource = class.resource();
                    speaker.tell(&format!(
                        "kubelet knows {resource}: {healthy} of {all} healthy"
                    ));
                }
                Ok(false) => {}
                Err(text) => {
                    speaker.warn("PoolNotKnown", &text);
                }
            }
        }
        Ok(())
    }

    fn list(&mut self, status: &Status, speaker: &mut Speaker<'_>) {
        let mut all = devices::of(status);
        for (class, endpoint) in &self.endpoints {
            let devices = all.remove(class).unwrap_or_default();
            let (healthy, count) = counted(&devices);
            let (_, before) = counted(&endpoint.devices());
            if endpoint.set(devices) && count < before {
                let resource = class.resource();
                let held = self
                    .granted
                    .iter()
                    .filter(|slot| slot.class == *class)
                    .count();
                speaker.tell(&format!(
                    "{resource}: the pool keeps fewer slabs, {healthy} of {count} devices are healthy, pods have {held}"
                ));
            }
        }
        // kubelet shows none where there is none.
        self.endpoints
            .retain(|_, endpoint| !endpoint.devices().is_empty());
        for (class, devices) in all {
            let endpoint = Endpoint::new(Arc::clone(&self.common), class, devices);
            self.endpoints.insert(class, endpoint);
        }
    }

    /// Ends grants whose pods are gone.
    async fn sweep(&mut self, speaker: &mut Speaker<'_>) {
        if self.granted.is_empty() {
            return;
        }
        let listed = match self.common.pods.list().await {
            Ok(listed) => listed,
            Err(status) => {
                let text = format!("which pods have slabs is not known: {}", status.message());
                speaker.trouble("pods", &text);
                return;
            }
        };
        speaker.settle("pods");
        let own = self.own.as_deref();
        let now = Instant::now();
        let gone = self
            .absent
            .after(now, self.patience, &listed, own, &self.granted);
        if gone.is_empty() {
            return;
        }
        let is_gone = move |held: &Held| gone.contains(&held.slot);
        match self.common.grants.release(is_gone).await {
            Ok(ended) => {
                for grant in ended {
                    speaker.tell(&format!("{grant} has ended: its pod is gone"));
                }
            }
            Err(error) => {
                let text = format!("grants of pods that are gone go on: {error}");
                speaker.trouble("sweep", &text);
            }
        }
    }
}

/// How many are healthy, and how many there are.
fn counted(devices: &Devices) -> (usize, usize) {
    (
        devices.values().filter(|healthy| **healthy).count(),
        devices.len(),
    )
}
