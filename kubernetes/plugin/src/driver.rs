//! The driver of claims: what the plugin does, for `resource.k8s.io`. Devices are published to the apiserver, the
//! scheduler gives them to claims, and kubelet has claims prepared here before their containers start.

use crate::api::{Empty, dra as api, registration};
use crate::apiserver::ApiServer;
use crate::cdi::Cdi;
use crate::claims::{Claims, Locks, Swept};
use crate::devices;
use crate::door::Door;
use crate::events::Events;
use crate::grants::{Alone, Grants};
use crate::host::Host;
use crate::label::{self, Way};
use crate::publisher::{Publisher, Said};
use crate::rpc::{self, Incoming, Outgoing, Service};
use crate::say::Speaker;
use crate::slices::{self, DRIVER, Device};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

/// How often kubelet's folders and the daemon are looked at.
const TICK: Duration = Duration::from_millis(250);
/// How long the daemon may be away until no device is published: a new one is there in about a second.
const AWAY: Duration = Duration::from_secs(10);
/// How often claims are looked for that kubelet has forgotten.
const SWEEP: Duration = Duration::from_secs(600);
/// How soon again where that was in vain.
const AGAIN: Duration = Duration::from_secs(10);

/// The socket at which kubelet finds the driver. Its client calls a server by the path, percent-encoded, which HTTP has
/// for no name of a host; but for a user's, before an `@`.
const REGISTRATION: &str = "pool.firstlight.dev@reg.sock";

/// What is to be served, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where.
    pub host: Host,
    /// The folder that the container runtime reads.
    pub cdi: PathBuf,
    /// The apiserver.
    pub apiserver: ApiServer,
    /// This node's name.
    pub node: String,
}

/// What kubelet calls, at either socket.
#[derive(Clone)]
struct Calls {
    claims: Arc<Claims>,
    endpoint: String,
    /// kubelet has just found the driver, and may have removed its slices.
    look: Arc<Notify>,
    known: mpsc::Sender<registration::RegistrationStatus>,
}

impl Service for Calls {
    async fn answer(self, call: Incoming) -> Outgoing {
        match call.uri().path() {
            registration::GET_INFO => {
                let info = registration::PluginInfo {
                    kind: registration::DRA_PLUGIN.into(),
                    name: DRIVER.into(),
                    endpoint: self.endpoint.clone(),
                    supported_versions: vec![api::VERSION.into()],
                };
                rpc::unary(call, |_: Empty| std::future::ready(Ok(info.clone()))).await
            }
            registration::NOTIFY => {
                rpc::unary(call, |status| async {
                    self.look.notify_one();
                    let _ = self.known.send(status).await;
                    Ok(Empty {})
                })
                .await
            }
            api::PREPARE => rpc::unary(call, |request| apart(self.clone().prepare(request))).await,
            api::UNPREPARE => {
                rpc::unary(call, |request| apart(self.clone().unprepare(request))).await
            }
            _ => rpc::unknown(&call),
        }
    }
}

/// Does all of something also where kubelet gives its call up: what it calls next comes after it.
async fn apart<T: Send + 'static>(
    act: impl Future<Output = Result<T, tonic::Status>> + Send + 'static,
) -> Result<T, tonic::Status> {
    let done = tokio::spawn(act).await;
    done.unwrap_or_else(|error| Err(tonic::Status::internal(error.to_string())))
}

impl Calls {
    async fn prepare(self, request: api::Claims) -> Result<api::Prepared, tonic::Status> {
        let mut prepared = api::Prepared::default();
        for claim in request.claims {
            let one = match self.claims.prepare(&claim).await {
                Ok(devices) => api::PreparedClaim {
                    devices,
                    error: String::new(),
                },
                Err(error) => api::PreparedClaim {
                    devices: Vec::new(),
                    error,
                },
            };
            prepared.claims.insert(claim.uid, one);
        }
        Ok(prepared)
    }

    async fn unprepare(self, request: api::Claims) -> Result<api::Unprepared, tonic::Status> {
        let mut unprepared = api::Unprepared::default();
        for claim in request.claims {
            let error = self
                .claims
                .unprepare(&claim)
                .await
                .err()
                .unwrap_or_default();
            let one = api::UnpreparedClaim { error };
            unprepared.claims.insert(claim.uid, one);
        }
        Ok(unprepared)
    }
}

/// Serves until it is dropped. Pods keep what they have.
///
/// # Errors
/// Why it can't serve at all.
pub async fn run(options: Options, say: &mut dyn FnMut(&str)) -> Result<(), String> {
    let host = options.host;
    let _alone = Alone::at(&host.links)?;
    let own = host.kubelet.join("plugins").join(DRIVER);
    let registry = host.kubelet.join("plugins_registry");
    std::fs::create_dir_all(&own)
        .map_err(|error| format!("cannot make {}: {error}", own.display()))?;
    let cdi = Cdi::new(options.cdi, host.client);
    cdi.clean();
    let claims = Arc::new(Claims {
        grants: Grants::new(&host.socket, &host.links),
        cdi,
        apiserver: options.apiserver.clone(),
        node: options.node.clone(),
        locks: Locks::default(),
    });
    let events = Events::new(options.apiserver.clone(), options.node.clone());
    let (wanted, published) = watch::channel(None);
    let (says, mut said) = mpsc::channel(16);
    let (knows, mut known) = mpsc::channel(16);
    let look = Arc::new(Notify::new());
    let publisher = Publisher {
        apiserver: options.apiserver,
        node: options.node,
        wanted: published,
        look: Arc::clone(&look),
        said: says,
    };
    tokio::spawn(publisher.run());
    let (sweeps, mut swept) = mpsc::channel(1);
    let sweep = Arc::new(Notify::new());
    tokio::spawn(sweep_now_and_then(
        Arc::clone(&claims),
        Arc::clone(&sweep),
        sweeps,
    ));
    let endpoint = own.join("dra.sock");
    let mut driver = Driver {
        calls: Calls {
            claims,
            endpoint: endpoint.to_string_lossy().into_owned(),
            look,
            known: knows,
        },
        // kubelet calls at the first what it found by the second.
        doors: [Door::new(endpoint), Door::new(registry.join(REGISTRATION))],
        wanted,
        answered: Instant::now(),
        sweep,
        told: None,
    };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut speaker = Speaker::new(say, Some(events));
    loop {
        tokio::select! {
            Some(said) = said.recv() => driver.hears(said, &mut speaker),
            Some(swept) = swept.recv() => driver.has_swept(swept, &mut speaker),
            Some(status) = known.recv() => driver.is_known(&status, &mut speaker),
            _ = ticks.tick() => driver.look(&mut speaker).await?,
        }
    }
}

/// Ends what is left of claims that are no more, at the start, when it is told to, and now and then.
async fn sweep_now_and_then(claims: Arc<Claims>, now: Arc<Notify>, says: mpsc::Sender<Swept>) {
    let mut again = AGAIN;
    loop {
        let swept = claims.sweep().await;
        // What is wrong may stay so.
        let pause = if swept.troubles.is_empty() {
            again = AGAIN;
            SWEEP
        } else {
            let longer = (2 * again).min(SWEEP);
            std::mem::replace(&mut again, longer)
        };
        if says.send(swept).await.is_err() {
            return;
        }
        let _ = tokio::time::timeout(pause, now.notified()).await;
    }
}

struct Driver {
    calls: Calls,
    doors: [Door; 2],
    wanted: watch::Sender<Option<Vec<Device>>>,
    /// When the daemon did last.
    answered: Instant,
    /// That claims are to be looked for which kubelet has forgotten.
    sweep: Arc<Notify>,
    /// How many devices the apiserver was told of last.
    told: Option<usize>,
}

impl Driver {
    fn hears(&mut self, said: Said, speaker: &mut Speaker<'_>) {
        match said {
            Said::Trouble(text) => {
                speaker.trouble("apiserver", &text);
            }
            Said::Published(count) => {
                let is_over = speaker.settle("apiserver");
                if self.told.replace(count) != Some(count) || is_over {
                    speaker.tell(&format!("claims may have {count} devices of {DRIVER}"));
                }
            }
        }
    }

    fn is_known(&mut self, status: &registration::RegistrationStatus, speaker: &mut Speaker<'_>) {
        if status.plugin_registered {
            speaker.settle("PoolNotKnown");
            // It may have forgotten claims.
            self.sweep.notify_one();
            return speaker.tell(&format!("kubelet knows {DRIVER}"));
        }
        let version = api::VERSION;
        let text = format!(
            "kubelet does not take {DRIVER} by version {version} of its interface: {}",
            status.error
        );
        speaker.warn("PoolNotKnown", &text);
    }

    /// Publishes what the daemon has, and is there for kubelet.
    async fn look(&mut self, speaker: &mut Speaker<'_>) -> Result<(), String> {
        match self.calls.claims.grants.status().await {
            Ok(status) => {
                label::only(Way::Driver, &status)?;
                self.answered = Instant::now();
                if speaker.settle("PoolAway") {
                    speaker.tell("the pool answers again");
                }
                speaker.keep("PoolLacksSlabs", devices::trouble(&status));
                speaker.keep("SlabsRemoved", devices::removed(&status));
                self.set(slices::wanted(&devices::of(&status)));
            }
            Err(_) if self.answered.elapsed() < AWAY => {}
            Err(error) => {
                let text = format!("no claim gets a device: {error}");
                speaker.warn("PoolAway", &text);
                self.set(Vec::new());
            }
        }
        for door in &mut self.doors {
            match door.keep_up(self.calls.clone()) {
                Ok(true) => {
                    speaker.settle("door");
                }
                Ok(false) => {}
                Err(text) => {
                    speaker.trouble("door", &text);
                }
            }
        }
        Ok(())
    }

    fn set(&self, devices: Vec<Device>) {
        self.wanted.send_if_modified(|before| {
            let changes = before.as_ref() != Some(&devices);
            *before = Some(devices);
            changes
        });
    }

    fn has_swept(&mut self, swept: Swept, speaker: &mut Speaker<'_>) {
        for grant in swept.ended {
            speaker.tell(&format!("{grant} has ended: its claim is no more"));
        }
        if swept.troubles.is_empty() {
            speaker.settle("sweep");
        } else {
            let troubles: Vec<_> = swept.troubles.into_iter().collect();
            let text = format!("what is left of claims stays: {}", troubles.join("; "));
            speaker.trouble("sweep", &text);
        }
    }
}
