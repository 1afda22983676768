//! The server of one resource, and its registration with kubelet.
//!
//! kubelet empties its folder of sockets when it starts, and forgets whom it knew: a socket that is gone is made again,
//! and so is the registration, where kubelet's own socket is another one.

use crate::api::{Empty, device_plugin as api};
use crate::cdi::{CLIENT, IN_CONTAINER};
use crate::class::{Class, DeviceId, Slot};
use crate::devices::{self, Devices};
use crate::door::{Door, Identity, identity};
use crate::events::Events;
use crate::grants::Grants;
use crate::label::{Held, Owner};
use crate::pods::Pods;
use crate::rpc::{self, Incoming, Outgoing, Service};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::WatchStream;
use tonic::Status;

/// How long a registration may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What all resources have in common.
#[derive(Debug)]
pub struct Common {
    /// The daemon's grants.
    pub grants: Grants,
    /// kubelet's pods.
    pub pods: Pods,
    /// kubelet's folder of sockets.
    pub folder: PathBuf,
    /// The program that containers get, on the host.
    pub client: Option<PathBuf>,
    /// Where else than in kubelet's answer a refusal is said.
    pub events: Option<Events>,
}

/// A resource that is served.
#[derive(Debug)]
pub struct Endpoint {
    common: Arc<Common>,
    class: Class,
    devices: watch::Sender<Devices>,
    door: Door,
    /// kubelet's socket that knows of this.
    registered: Option<Identity>,
}

impl Endpoint {
    /// One that is not served yet.
    #[must_use]
    pub fn new(common: Arc<Common>, class: Class, devices: Devices) -> Self {
        let door = Door::new(common.folder.join(name(&class)));
        Self {
            common,
            class,
            devices: watch::Sender::new(devices),
            door,
            registered: None,
        }
    }

    /// The devices are these from now on: whether that is a change.
    pub fn set(&self, devices: Devices) -> bool {
        self.devices.send_if_modified(|before| {
            let changes = *before != devices;
            *before = devices;
            changes
        })
    }

    /// The devices.
    #[must_use]
    pub fn devices(&self) -> Devices {
        self.devices.borrow().clone()
    }

    /// Serves, and is known to kubelet: whether something had to be done for that.
    ///
    /// # Errors
    /// Why that is not so, in words.
    pub async fn keep_up(&mut self) -> Result<bool, String> {
        let calls = Calls {
            common: Arc::clone(&self.common),
            class: self.class,
            devices: self.devices.subscribe(),
        };
        if self.door.keep_up(calls)? {
            self.registered = None;
        }
        let kubelet = self.common.folder.join("kubelet.sock");
        let known = identity(&kubelet);
        if known.is_some() && known == self.registered {
            return Ok(false);
        }
        let request = api::RegisterRequest {
            version: api::VERSION.into(),
            endpoint: name(&self.class),
            resource_name: self.class.resource(),
            options: Some(OPTIONS),
        };
        let registered = async {
            let channel = rpc::connect(&kubelet, PATIENCE).await?;
            rpc::call::<_, Empty>(channel, api::REGISTER, request).await
        };
        registered.await.map_err(|status| {
            format!(
                "kubelet does not take {} by version {} of its interface: {}",
                self.class.resource(),
                api::VERSION,
                status.message()
            )
        })?;
        self.registered = known;
        Ok(true)
    }
}

/// The name of a resource's socket.
fn name(class: &Class) -> String {
    format!("firstlight-{class}.sock")
}

const OPTIONS: api::DevicePluginOptions = api::DevicePluginOptions {
    pre_start_required: true,
    get_preferred_allocation_available: true,
};

/// What kubelet calls.
#[derive(Clone)]
struct Calls {
    common: Arc<Common>,
    class: Class,
    devices: watch::Receiver<Devices>,
}

impl Service for Calls {
    async fn answer(self, call: Incoming) -> Outgoing {
        match call.uri().path() {
            api::OPTIONS => rpc::unary(call, |_: Empty| async { Ok(OPTIONS) }).await,
            api::LIST_AND_WATCH => {
                let devices = WatchStream::new(self.devices);
                rpc::streaming(call, devices.map(|devices| listed(&devices))).await
            }
            api::PREFERRED_ALLOCATION => {
                rpc::unary(call, |request| std::future::ready(self.preferred(&request))).await
            }
            api::ALLOCATE => {
                rpc::unary(call, |request| async {
                    self.allocate(request).await.inspect_err(|refused| {
                        // kubelet fails the pod for good, and a controller makes another one.
                        if let Some(events) = &self.common.events {
                            events.warn("SlabRefused", refused.message());
                        }
                    })
                })
                .await
            }
            api::PRE_START_CONTAINER => rpc::unary(call, |request| self.pre_start(request)).await,
            _ => rpc::unknown(&call),
        }
    }
}

fn listed(devices: &Devices) -> api::ListAndWatchResponse {
    let device = |(id, is_healthy): (&DeviceId, &bool)| {
        let health = if *is_healthy {
            api::HEALTHY
        } else {
            api::UNHEALTHY
        };
        let nodes = id.node.map(|node| api::TopologyInfo {
            nodes: vec![api::NumaNode { id: node.into() }],
        });
        api::Device {
            id: id.to_string(),
            health: health.into(),
            topology: nodes,
        }
    };
    api::ListAndWatchResponse {
        devices: devices.iter().map(device).collect(),
    }
}

impl Calls {
    /// Devices by the names that kubelet has them by.
    fn ids(&self, names: &[String]) -> Result<Vec<DeviceId>, Status> {
        let known = self.devices.borrow();
        let id = |name: &String| {
            let id = name.parse().ok().filter(|id| known.contains_key(id));
            id.ok_or_else(|| {
                let resource = self.class.resource();
                Status::not_found(format!("{resource} has no device {name:?} (any more)"))
            })
        };
        names.iter().map(id).collect()
    }

    fn slots(&self, names: &[String]) -> Result<Vec<Slot>, Status> {
        let slot = |device| Slot {
            class: self.class,
            device,
        };
        Ok(self.ids(names)?.into_iter().map(slot).collect())
    }

    fn preferred(
        &self,
        request: &api::PreferredAllocationRequest,
    ) -> Result<api::PreferredAllocationResponse, Status> {
        let one = |container: &api::ContainerPreferredAllocationRequest| {
            let available = self.ids(&container.available_device_ids)?;
            let must = self.ids(&container.must_include_device_ids)?;
            let size = usize::try_from(container.allocation_size).unwrap_or(0);
            let chosen = devices::preferred(&available, &must, size);
            Ok(api::ContainerPreferredAllocationResponse {
                device_ids: chosen.iter().map(DeviceId::to_string).collect(),
            })
        };
        let containers: Result<_, Status> = request.container_requests.iter().map(one).collect();
        Ok(api::PreferredAllocationResponse {
            container_responses: containers?,
        })
    }

    /// A pod is admitted: what was another's of its devices is so no more.
    async fn allocate(
        &self,
        request: api::AllocateRequest,
    ) -> Result<api::AllocateResponse, Status> {
        let mut container_responses = Vec::new();
        for container in request.container_requests {
            let slots = self.slots(&container.device_ids)?;
            container_responses.push(self.response(&slots));
            let is_of = move |held: &Held| slots.contains(&held.slot);
            let released = self.common.grants.release(is_of).await;
            released.map_err(|error| {
                let resource = self.class.resource();
                Status::unavailable(format!("{resource} cannot be given to this pod: {error}"))
            })?;
        }
        Ok(api::AllocateResponse {
            container_responses,
        })
    }

    fn response(&self, slots: &[Slot]) -> api::ContainerAllocateResponse {
        let mut response = api::ContainerAllocateResponse::default();
        let mut envs = HashMap::new();
        for (at, slot) in slots.iter().enumerate() {
            let folder = format!("{IN_CONTAINER}/{}/{at}", self.class);
            let socket = format!("{folder}/pool.sock");
            envs.insert(
                format!("FIRSTLIGHT_POOL_{}_{at}", self.class.variable()),
                socket.clone(),
            );
            if at == 0 {
                envs.insert(firstlight_pool::client::SOCKET_VARIABLE.into(), socket);
            }
            response
                .mounts
                .push(read_only(folder, &self.common.grants.link(slot, None)));
        }
        if let Some(client) = &self.common.client {
            response.mounts.push(read_only(CLIENT.into(), client));
        }
        response.envs = envs;
        response
    }

    /// A container is about to start, for the first time or again.
    async fn pre_start(&self, request: api::PreStartContainerRequest) -> Result<Empty, Status> {
        let slots = self.slots(&request.device_ids)?;
        // Not known is no pod's: then the grant is a new one each time.
        let listed = self.common.pods.list().await.unwrap_or_default();
        let pod = slots
            .first()
            .and_then(|slot| listed.holders.get(slot))
            .cloned();
        let held = self.common.grants.hold(slots, Owner::Pod(pod)).await;
        held.map(|()| Empty {}).map_err(|error| {
            let resource = self.class.resource();
            Status::unavailable(format!("this container has no {resource}: {error}"))
        })
    }
}

fn read_only(container_path: String, host_path: &Path) -> api::Mount {
    api::Mount {
        container_path,
        host_path: host_path.to_string_lossy().into_owned(),
        read_only: true,
    }
}
