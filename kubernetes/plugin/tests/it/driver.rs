//! A node for one test of the driver, which is a process between a pool's daemon, an apiserver and a kubelet of the test.

use crate::apiserver::Api;
use crate::daemon::Daemon;
use crate::kit::{PATIENCE, Plugin, take, until_async};
use firstlight_kubernetes::api::{Empty, dra as api, registration};
use firstlight_kubernetes::rpc;
use firstlight_pool::client::{Allocated, ClientError};
use hyper_util::rt::TokioIo;
use prost::Message;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

pub(crate) const ALL: [&str; 3] = ["thp-2m-any-0", "thp-2m-any-1", "thp-2m-any-2"];

pub(crate) fn uid(number: u32) -> String {
    format!("3f2a9c11-{number:04x}-4e21-8c55-0242ac120002")
}

pub(crate) fn driver(folder: &Path, api: &Api) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firstlight-kubernetes"));
    command
        .args(["driver", "--node", "node1", "--apiserver", &api.address])
        .arg("--socket")
        .arg(folder.join("pool.sock"))
        .arg("--kubelet")
        .arg(folder)
        .arg("--cdi")
        .arg(folder.join("cdi"))
        .arg("--secrets")
        .arg(folder.join("secrets"));
    command
}

/// A daemon, an apiserver and a driver; the test is kubelet.
pub(crate) struct Node {
    pub(crate) driver: Plugin,
    pub(crate) api: Api,
    pub(crate) daemon: Daemon,
    pub(crate) folder: TempDir,
}

impl Node {
    pub(crate) async fn start() -> Self {
        let node = Self::with(Api::start().await);
        node.api.until_devices(&ALL).await;
        node
    }

    pub(crate) fn with(api: Api) -> Self {
        let folder = tempfile::Builder::new().prefix("node").tempdir().unwrap();
        std::fs::create_dir(folder.path().join("plugins_registry")).unwrap();
        Self {
            daemon: Daemon::start(folder.path()),
            driver: Plugin::of(driver(folder.path(), &api)),
            api,
            folder,
        }
    }

    pub(crate) fn another_driver(&mut self) {
        self.driver.kill();
        self.driver = Plugin::of(driver(self.folder.path(), &self.api));
    }

    async fn call<Q, A>(&self, door: &str, path: &'static str, request: Q) -> A
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let socket = self.folder.path().join(door);
        let called = std::sync::Mutex::new(None);
        // kubelet tries again where nothing answers.
        until_async("an answer of the driver", async || {
            let answer = async {
                let channel = connect(&socket).await?;
                rpc::call::<Q, A>(channel, path, request.clone()).await
            };
            *called.lock().unwrap() = answer.await.ok();
            called.lock().unwrap().is_some()
        })
        .await;
        called.into_inner().unwrap().unwrap()
    }

    pub(crate) async fn register(&self, error: &str) -> registration::PluginInfo {
        let door = "plugins_registry/pool.firstlight.dev@reg.sock";
        let info = self.call(door, registration::GET_INFO, Empty {}).await;
        let status = registration::RegistrationStatus {
            plugin_registered: error.is_empty(),
            error: error.into(),
        };
        let _: Empty = self.call(door, registration::NOTIFY, status).await;
        info
    }

    pub(crate) async fn prepare_as(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> api::PreparedClaim {
        let request = claims(namespace, name, uid);
        let door = "plugins/pool.firstlight.dev/dra.sock";
        let mut prepared: api::Prepared = self.call(door, api::PREPARE, request).await;
        prepared.claims.remove(uid).unwrap()
    }

    pub(crate) async fn prepare(&self, name: &str, uid: &str) -> Result<Vec<api::Device>, String> {
        let prepared = self.prepare_as("ns", name, uid).await;
        if prepared.error.is_empty() {
            Ok(prepared.devices)
        } else {
            Err(prepared.error)
        }
    }

    pub(crate) async fn unprepare(&self, name: &str, uid: &str) -> String {
        let door = "plugins/pool.firstlight.dev/dra.sock";
        let request = claims("ns", name, uid);
        let mut done: api::Unprepared = self.call(door, api::UNPREPARE, request).await;
        done.claims.remove(uid).unwrap().error
    }

    pub(crate) fn file(&self, uid: &str) -> PathBuf {
        self.folder
            .path()
            .join("cdi")
            .join(format!("firstlight.dev-slab-{uid}.json"))
    }

    /// The sockets that a claim's container has, by its file.
    pub(crate) fn doors(&self, uid: &str) -> Vec<PathBuf> {
        let file: Value = serde_json::from_slice(&std::fs::read(self.file(uid)).unwrap()).unwrap();
        let devices = file["devices"].as_array().unwrap();
        let folder = |one: &Value| {
            one["containerEdits"]["mounts"][0]["hostPath"]
                .as_str()
                .unwrap()
                .to_string()
        };
        devices
            .iter()
            .map(|one| Path::new(&folder(one)).join("pool.sock"))
            .collect()
    }

    pub(crate) fn take(&self, uid: &str) -> Result<Allocated, ClientError> {
        take(&self.doors(uid)[0])
    }

    pub(crate) fn labels(&self) -> Vec<String> {
        let grants = self.daemon.status().grants.into_iter();
        let mut labels: Vec<_> = grants.map(|row| row.label.unwrap().to_string()).collect();
        labels.sort();
        labels
    }
}

/// As kubelet's client of registrations does, which has the path as the server's name.
async fn connect(socket: &Path) -> Result<Channel, Status> {
    let path = socket.to_owned();
    let connector = service_fn(move |_| {
        let path = path.clone();
        async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
    });
    // The other socket it calls localhost.
    let is_found = socket.parent().unwrap().ends_with("plugins_registry");
    let name = if is_found {
        socket.to_str().unwrap().replace('/', "%2F")
    } else {
        "localhost".into()
    };
    Endpoint::from_static("http://localhost")
        .origin(format!("http://{name}").parse().unwrap())
        .timeout(PATIENCE)
        .connect_with_connector(connector)
        .await
        .map_err(|error| Status::unavailable(error.to_string()))
}

fn claims(namespace: &str, name: &str, uid: &str) -> api::Claims {
    api::Claims {
        claims: vec![api::Claim {
            namespace: namespace.into(),
            uid: uid.into(),
            name: name.into(),
        }],
    }
}
