//! A kubelet as far as the plugin can tell: it takes registrations, calls plugins, and knows pods.

use crate::kit::{PATIENCE, until_async};
use firstlight_kubernetes::api::device_plugin as plugin;
use firstlight_kubernetes::api::{Empty, pod_resources};
use firstlight_kubernetes::rpc::{self, Incoming, Outgoing, Service, Serving};
use prost::Message;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::net::UnixListener;
use tonic::Status;

/// What plugins of its folder told it, and what it tells them.
#[derive(Clone, Default)]
pub(crate) struct Known {
    registered: Arc<Mutex<Vec<plugin::RegisterRequest>>>,
    pods: Arc<Mutex<Vec<pod_resources::Pod>>>,
    /// Why no registration is taken.
    refuses: Arc<Mutex<Option<String>>>,
}

impl Service for Known {
    async fn answer(self, call: Incoming) -> Outgoing {
        match call.uri().path() {
            plugin::REGISTER => {
                rpc::unary(call, |request: plugin::RegisterRequest| {
                    let refused = self.refuses.lock().unwrap().clone();
                    if refused.is_none() {
                        self.registered.lock().unwrap().push(request);
                    }
                    let answer = refused.map_or(Ok(Empty {}), |text| Err(Status::unknown(text)));
                    std::future::ready(answer)
                })
                .await
            }
            pod_resources::LIST => {
                rpc::unary(call, |_: Empty| {
                    let pods = self.pods.lock().unwrap().clone();
                    std::future::ready(Ok(pod_resources::ListResponse { pods }))
                })
                .await
            }
            _ => rpc::unknown(&call),
        }
    }
}

pub(crate) struct Kubelet {
    folder: PathBuf,
    known: Known,
    serving: Vec<Serving>,
}

impl Kubelet {
    pub(crate) fn start(folder: &Path) -> Self {
        let mut kubelet = Self {
            folder: folder.into(),
            known: Known::default(),
            serving: Vec::new(),
        };
        kubelet.start_again();
        kubelet
    }

    pub(crate) fn plugins(&self) -> PathBuf {
        self.folder.join("device-plugins")
    }

    /// It ends, as when it is killed: its sockets stay where they are.
    pub(crate) fn kill(&mut self) {
        self.serving.clear();
        self.known.registered.lock().unwrap().clear();
    }

    /// As kubelet does: all sockets in the folder of plugins go.
    pub(crate) fn start_again(&mut self) {
        for folder in ["device-plugins", "pod-resources"] {
            let folder = self.folder.join(folder);
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            let listener = UnixListener::bind(folder.join("kubelet.sock")).unwrap();
            self.serving.push(rpc::serve(listener, self.known.clone()));
        }
    }

    /// Takes no registration, and says so.
    pub(crate) fn refuse(&self, why: Option<&str>) {
        *self.known.refuses.lock().unwrap() = why.map(Into::into);
    }

    /// What was registered, as soon as something was.
    pub(crate) async fn registered(&self) -> plugin::RegisterRequest {
        let last = || self.known.registered.lock().unwrap().last().cloned();
        until_async("a registration", async || last().is_some()).await;
        last().unwrap()
    }

    /// Calls the plugin.
    pub(crate) async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let socket = self.plugins().join(self.registered().await.endpoint);
        rpc::call(rpc::connect(&socket, PATIENCE).await?, path, request).await
    }

    /// The devices, as they are now: names, and whether each is healthy.
    pub(crate) async fn devices(&self) -> Vec<(String, bool)> {
        let socket = self.plugins().join(self.registered().await.endpoint);
        let Ok(channel) = rpc::connect(&socket, PATIENCE).await else {
            return Vec::new();
        };
        let watched = rpc::watch(channel, plugin::LIST_AND_WATCH, Empty {}).await;
        let Ok(mut watched) = watched else {
            return Vec::new();
        };
        let listed: Option<plugin::ListAndWatchResponse> = watched.message().await.unwrap();
        let devices = listed.unwrap().devices.into_iter();
        devices
            .map(|one| (one.id, one.health == plugin::HEALTHY))
            .collect()
    }

    pub(crate) async fn until_healthy(&self, ids: &[&str]) {
        let wanted: Vec<_> = ids.iter().map(ToString::to_string).collect();
        until_async("healthy devices", async || {
            let devices = self.devices().await.into_iter();
            let healthy = devices.filter(|(_, healthy)| *healthy);
            healthy.map(|(id, _)| id).collect::<Vec<_>>() == wanted
        })
        .await;
    }

    /// Admits a pod with a device.
    pub(crate) async fn admit(
        &self,
        name: &str,
        device: &str,
    ) -> Result<plugin::ContainerAllocateResponse, Status> {
        let request = plugin::AllocateRequest {
            container_requests: vec![plugin::ContainerAllocateRequest {
                device_ids: vec![device.into()],
            }],
        };
        let allocated: plugin::AllocateResponse = self.call(plugin::ALLOCATE, request).await?;
        self.has(name, device).await;
        Ok(allocated.container_responses[0].clone())
    }

    /// A pod has a device, by what kubelet says.
    pub(crate) async fn has(&self, name: &str, device: &str) {
        let devices = pod_resources::Devices {
            resource_name: self.registered().await.resource_name,
            device_ids: vec![device.into()],
        };
        let container = pod_resources::Container {
            name: "vm".into(),
            devices: vec![devices],
        };
        self.known.pods.lock().unwrap().push(pod_resources::Pod {
            name: name.into(),
            namespace: "ns".into(),
            containers: vec![container],
        });
    }

    /// Starts a pod's container, or starts it again.
    pub(crate) async fn start_container(&self, device: &str) -> Result<(), Status> {
        let request = plugin::PreStartContainerRequest {
            device_ids: vec![device.into()],
        };
        let started: Result<Empty, _> = self.call(plugin::PRE_START_CONTAINER, request).await;
        started.map(drop)
    }

    /// A pod has ended.
    pub(crate) fn end(&self, name: &str) {
        self.known
            .pods
            .lock()
            .unwrap()
            .retain(|pod| pod.name != name);
    }
}
