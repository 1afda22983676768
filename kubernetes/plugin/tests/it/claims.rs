//! The driver as a process, between a pool's daemon, an apiserver and a kubelet of the test.

use crate::apiserver::{Api, certificates};
use crate::daemon::Daemon;
use crate::kit::{PATIENCE, Plugin, plugin, refusal, take, until, until_async};
use firstlight_kubernetes::api::{Empty, dra as api, registration};
use firstlight_kubernetes::rpc;
use firstlight_pool::client::{Allocated, Client, ClientError};
use firstlight_pool::protocol::RefusalCode;
use hyper_util::rt::TokioIo;
use prost::Message;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

const ALL: [&str; 3] = ["thp-2m-any-0", "thp-2m-any-1", "thp-2m-any-2"];

fn uid(number: u32) -> String {
    format!("3f2a9c11-{number:04x}-4e21-8c55-0242ac120002")
}

fn driver(folder: &Path, api: &Api) -> Command {
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
struct Node {
    driver: Plugin,
    api: Api,
    daemon: Daemon,
    folder: TempDir,
}

impl Node {
    async fn start() -> Self {
        let node = Self::with(Api::start().await);
        node.api.until_devices(&ALL).await;
        node
    }

    fn with(api: Api) -> Self {
        let folder = tempfile::Builder::new().prefix("node").tempdir().unwrap();
        std::fs::create_dir(folder.path().join("plugins_registry")).unwrap();
        Self {
            daemon: Daemon::start(folder.path()),
            driver: Plugin::of(driver(folder.path(), &api)),
            api,
            folder,
        }
    }

    fn another_driver(&mut self) {
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

    async fn register(&self, error: &str) -> registration::PluginInfo {
        let door = "plugins_registry/pool.firstlight.dev@reg.sock";
        let info = self.call(door, registration::GET_INFO, Empty {}).await;
        let status = registration::RegistrationStatus {
            plugin_registered: error.is_empty(),
            error: error.into(),
        };
        let _: Empty = self.call(door, registration::NOTIFY, status).await;
        info
    }

    async fn prepare_as(&self, namespace: &str, name: &str, uid: &str) -> api::PreparedClaim {
        let request = claims(namespace, name, uid);
        let door = "plugins/pool.firstlight.dev/dra.sock";
        let mut prepared: api::Prepared = self.call(door, api::PREPARE, request).await;
        prepared.claims.remove(uid).unwrap()
    }

    async fn prepare(&self, name: &str, uid: &str) -> Result<Vec<api::Device>, String> {
        let prepared = self.prepare_as("ns", name, uid).await;
        if prepared.error.is_empty() {
            Ok(prepared.devices)
        } else {
            Err(prepared.error)
        }
    }

    async fn unprepare(&self, name: &str, uid: &str) -> String {
        let door = "plugins/pool.firstlight.dev/dra.sock";
        let request = claims("ns", name, uid);
        let mut done: api::Unprepared = self.call(door, api::UNPREPARE, request).await;
        done.claims.remove(uid).unwrap().error
    }

    fn file(&self, uid: &str) -> PathBuf {
        self.folder
            .path()
            .join("cdi")
            .join(format!("firstlight.dev-slab-{uid}.json"))
    }

    /// The sockets that a claim's container has, by its file.
    fn doors(&self, uid: &str) -> Vec<PathBuf> {
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

    fn take(&self, uid: &str) -> Result<Allocated, ClientError> {
        take(&self.doors(uid)[0])
    }

    fn labels(&self) -> Vec<String> {
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

#[tokio::test(flavor = "multi_thread")]
async fn each_slab_is_a_device_that_claims_choose_by_what_it_is() {
    let node = Node::start().await;
    let [slice] = &node.api.slices()[..] else {
        panic!("{:?}", node.api.slices())
    };
    assert_eq!(slice["spec"]["driver"], "pool.firstlight.dev");
    assert_eq!(slice["spec"]["nodeName"], "node1");
    assert_eq!(
        slice["metadata"]["ownerReferences"][0]["uid"],
        "uid-of-node1"
    );
    let device = &slice["spec"]["devices"][0];
    assert_eq!(device["attributes"]["page"], json!({"string": "thp"}));
    assert_eq!(device["capacity"]["memory"]["value"], "2Mi");
    let info = node.register("").await;
    assert_eq!(info.kind, "DRAPlugin");
    assert_eq!(info.supported_versions, ["v1.DRAPlugin"]);
    assert!(Path::new(&info.endpoint).exists());
    // kubelet removes slices when it starts, another may write what is not so.
    for _ in 0..3 {
        node.api.remove_slices();
        node.api.until_devices(&ALL).await;
        node.api.spoil(|slice| slice["spec"]["devices"] = json!([]));
        node.api.until_devices(&ALL).await;
    }
    // Then it is quiet.
    let calls = node.api.tokens().len();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(node.api.tokens().len() < calls + 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_has_its_slab_until_it_is_no_more_prepared() {
    let node = Node::start().await;
    node.api.allocate("vm", &uid(1), &["thp-2m-any-1"]);
    let devices = node.prepare("vm", &uid(1)).await.unwrap();
    assert_eq!(devices[0].device_name, "thp-2m-any-1");
    assert_eq!(devices[0].pool_name, "node1");
    // kubelet knows the request, not which of its alternatives was chosen.
    assert_eq!(devices[0].request_names, ["memory"]);
    let id = format!("firstlight.dev/slab={}-thp-2m-any-1", uid(1));
    assert_eq!(devices[0].cdi_device_ids, [id]);
    assert_eq!(node.labels(), ["dra thp-2m/any-1 3f2a9c1100014e21 ns/vm"]);
    let taken = node.take(&uid(1)).unwrap();
    assert_eq!(refusal(node.take(&uid(1))), RefusalCode::Quota);
    // kubelet has started again: the right is the one that it was.
    assert_eq!(node.prepare("vm", &uid(1)).await.unwrap(), devices);
    assert_eq!(refusal(node.take(&uid(1))), RefusalCode::Quota);
    let mounted = std::fs::canonicalize(node.doors(&uid(1))[0].parent().unwrap()).unwrap();
    assert_eq!(node.unprepare("vm", &uid(1)).await, "");
    assert_eq!(node.unprepare("vm", &uid(1)).await, "");
    assert!(!node.file(&uid(1)).exists());
    assert!(take(&mounted.join("pool.sock")).is_err());
    assert_eq!(node.labels(), [""; 0]);
    drop(taken);
    node.daemon.until_clean(3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_given_to_another_claim_is_no_more_the_firsts() {
    let node = Node::start().await;
    node.api.allocate("a", &uid(1), &[ALL[0], ALL[2]]);
    node.prepare("a", &uid(1)).await.unwrap();
    let doors = node.doors(&uid(1));
    assert_eq!(doors.len(), 2);
    let mounted: Vec<_> = doors
        .iter()
        .map(|door| std::fs::canonicalize(door).unwrap())
        .collect();
    let mut before = Client::connect(&mounted[0]).unwrap();
    // The first one's pod was removed by force, so that kubelet has not unprepared it yet.
    node.api.allocate("b", &uid(2), &[ALL[0]]);
    node.prepare("b", &uid(2)).await.unwrap();
    assert!(before.status().is_err());
    assert!(take(&mounted[0]).is_err());
    assert!(take(&mounted[1]).is_ok());
    // What its container had mounted where it starts again is not what the second has.
    assert!(take(&doors[0]).is_err());
    assert!(node.take(&uid(2)).is_ok());
    // What ends the first leaves the second alone.
    assert_eq!(node.unprepare("a", &uid(1)).await, "");
    assert_eq!(node.labels(), ["dra thp-2m/any-0 3f2a9c1100024e21 ns/b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_are_not_as_they_must_be_are_refused_in_a_sentence() {
    let node = Node::start().await;
    node.api.allocate("other", &uid(9), &[ALL[0]]);
    node.api
        .set_claim("bare", Some(json!({"metadata": {"uid": uid(1)}})));
    node.api.allocate("strange", &uid(1), &["../../etc"]);
    node.api.allocate("more", &uid(1), &["thp-2m-any-9"]);
    node.api.allocate("admin", &uid(1), &[ALL[0]]);
    node.api.allocate("ok", &uid(1), &[ALL[0]]);
    let admin = json!({"metadata": {"uid": uid(1)}, "status": {"allocation": {"devices": {"results": [
        {"request": "r", "driver": "pool.firstlight.dev", "pool": "node1", "device": ALL[0], "adminAccess": true},
    ]}}}});
    node.api.set_claim("admin", Some(admin));
    let one = uid(1);
    for (namespace, name, uid, words) in [
        (
            "ns",
            "none",
            one.as_str(),
            "has no device of node node1 allocated (any more)",
        ),
        ("ns", "other", &one, "has no device of node node1 allocated (any more)"),
        ("ns", "bare", &one, "has no device of node node1 allocated (any more)"),
        ("ns", "strange", &one, "has no device \"../../etc\""),
        ("ns", "more", &one, "keeps no slab for device any-9"),
        ("ns", "admin", &one, "to no claim with admin access"),
        ("ns", "ok", "../../x", "is no UID of a claim"),
        ("../ns", "ok", &one, "is no name of a claim"),
        ("ns", "a?b", &one, "is no name of a claim"),
    ] {
        let prepared = node.prepare_as(namespace, name, uid).await;
        assert!(prepared.error.contains(words), "{name}: {}", prepared.error);
        assert!(prepared.devices.is_empty());
    }
    assert_eq!(node.labels(), [""; 0]);
    // Of another driver's or another node's devices kubelet does not ask: none is a success.
    let others = json!({"metadata": {"uid": uid(1)}, "status": {"allocation": {"devices": {"results": [
        {"request": "r", "driver": "gpu.example", "pool": "node1", "device": "0"},
        {"request": "r", "driver": "pool.firstlight.dev", "pool": "node2", "device": ALL[0]},
    ]}}}});
    node.api.set_claim("others", Some(others));
    let text = node.prepare("others", &uid(1)).await.unwrap_err();
    assert!(text.contains("has no device of node node1"), "{text}");
    node.api.refuse(Some(403));
    let text = node.prepare("ok", &uid(1)).await.unwrap_err();
    assert!(text.contains("the apiserver refuses with 403"), "{text}");
    assert!(text.contains("the test says 403"), "{text}");
    node.api.refuse(None);
    assert!(node.prepare("ok", &uid(1)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_is_killed_forgets_nothing() {
    let mut node = Node::start().await;
    node.api.allocate("a", &uid(1), &[ALL[0]]);
    node.api.allocate("b", &uid(2), &[ALL[1]]);
    node.prepare("a", &uid(1)).await.unwrap();
    node.prepare("b", &uid(2)).await.unwrap();
    let slices = node.api.slices();
    let taken = node.take(&uid(1)).unwrap();
    node.another_driver();
    node.register("").await;
    assert_eq!(refusal(node.take(&uid(1))), RefusalCode::Quota);
    assert_eq!(node.unprepare("a", &uid(1)).await, "");
    drop(taken);
    // What is published stays as it is.
    assert_eq!(node.api.slices(), slices);
    // Killed, and kubelet forgets the second: its claim is no more.
    node.driver.kill();
    node.api.set_claim("b", None);
    node.another_driver();
    assert!(
        node.driver
            .says("has ended")
            .contains("its claim is no more")
    );
    until("its right ends", || node.labels().is_empty());
    assert!(!node.file(&uid(2)).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_claims_is_found_by_files_and_by_grants() {
    let node = Node::start().await;
    for (at, name) in ["moved", "unfiled", "spoilt"].into_iter().enumerate() {
        let uid = uid(u32::try_from(at).unwrap());
        node.api.allocate(name, &uid, &[ALL[at]]);
        node.prepare(name, &uid).await.unwrap();
    }
    // Files that say nothing keep it from nothing: one of no claim, one of a claim with a grant, one of one without.
    let strange = node.file("half");
    std::fs::write(&strange, "{").unwrap();
    std::fs::write(node.file(&uid(2)), "{").unwrap();
    std::fs::write(node.file(&uid(3)), "{").unwrap();
    node.register("").await;
    let said = node.driver.says("what is left of claims stays");
    assert!(said.contains("\"half\" is no UID of a claim"), "{said}");
    assert!(said.contains("does not say whose it is"), "{said}");
    assert_eq!(node.labels().len(), 3);
    assert!(!node.file(&uid(3)).exists());
    // A claim that is allocated, but no more here; one without a file, of which the grant has the name.
    let elsewhere = json!({"metadata": {"uid": uid(0)}, "status": {"allocation": {"devices": {"results": [
        {"request": "r", "driver": "pool.firstlight.dev", "pool": "node2", "device": ALL[0]},
    ]}}}});
    node.api.set_claim("moved", Some(elsewhere));
    std::fs::remove_file(node.file(&uid(1))).unwrap();
    node.api.set_claim("unfiled", None);
    // What it was given is another device than it has.
    node.api.allocate("spoilt", &uid(2), &[ALL[0]]);
    node.register("").await;
    until("they end", || node.labels().is_empty());
    until("its file is gone", || !node.file(&uid(0)).exists());
    assert!(strange.exists());
    // A file without a grant.
    node.api.allocate("vm", &uid(4), &[ALL[1]]);
    node.prepare("vm", &uid(4)).await.unwrap();
    let grant = node.daemon.status().grants[0].grant;
    node.daemon.connect().revoke(grant).unwrap();
    node.api.set_claim("vm", None);
    node.register("").await;
    until("its file is gone", || !node.file(&uid(4)).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn while_there_is_no_daemon_claims_get_no_device_and_the_node_says_so() {
    let mut node = Node::start().await;
    node.daemon.kill();
    node.api.until_devices(&[]).await;
    assert!(
        node.driver
            .says("no claim gets a device")
            .contains("no pool answers at")
    );
    until("an event", || !node.api.events().is_empty());
    assert!(node.api.events()[0].contains("no claim gets a device"));
    node.daemon.start_again();
    node.api.until_devices(&ALL).await;
    let text = node.register("version \"v9\" only").await;
    assert_eq!(text.name, "pool.firstlight.dev");
    until("an event", || node.api.events().len() == 2);
    assert!(
        node.api.events()[1].contains("version v1.DRAPlugin of its interface: version \"v9\" only")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_kubelet_gives_up_ends_before_its_next() {
    let node = Node::start().await;
    node.api.allocate("vm", &uid(1), &[ALL[0]]);
    for ends in [false, true] {
        node.api.keep_waiting(true);
        tokio::select! {
            _ = node.prepare("vm", &uid(1)) => panic!("prepared without the apiserver"),
            () = until_async("a call for the claim", async || node.api.is_waited_for()) => {}
        }
        // What is not in order has ended by then.
        let pause = || tokio::time::sleep(Duration::from_millis(300));
        let go_on = async {
            pause().await;
            node.api.keep_waiting(false);
            pause().await;
        };
        if ends {
            let (text, ()) = tokio::join!(node.unprepare("vm", &uid(1)), go_on);
            assert_eq!(text, "");
            assert_eq!(node.labels(), [""; 0]);
            assert!(!node.file(&uid(1)).exists());
        } else {
            go_on.await;
            until("what was given up is done", || node.labels().len() == 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_served_one_way() {
    let mut node = Node::start().await;
    let run = |mut command: Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(5));
        String::from_utf8(output.stderr).unwrap()
    };
    let text = run(plugin(node.folder.path()));
    assert!(
        text.contains("another firstlight-kubernetes serves this pool"),
        "{text}"
    );
    node.api.allocate("a", &uid(1), &[ALL[0]]);
    node.prepare("a", &uid(1)).await.unwrap();
    node.driver.kill();
    let text = run(plugin(node.folder.path()));
    assert!(text.contains("was made by the driver of claims"), "{text}");
    assert!(text.contains("drain the node"), "{text}");
    // Nothing was changed by that.
    node.another_driver();
    node.api.until_devices(&ALL).await;
    assert_eq!(node.labels().len(), 1);
    assert_eq!(node.unprepare("a", &uid(1)).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_apiserver_that_the_root_certificate_vouches_for_is_spoken_to() {
    let own = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    certificates(own.path());
    certificates(other.path());
    let mut node = Node::with(Api::start_with_tls(own.path()).await);
    let secrets = node.folder.path().join("secrets");
    let text = node.driver.says("claims see not what there is");
    assert!(text.contains("ca.crt"), "{text}");
    std::fs::create_dir(&secrets).unwrap();
    let root = secrets.join("ca.crt");
    std::fs::copy(other.path().join("ca.crt"), &root).unwrap();
    std::fs::write(secrets.join("token"), "first\n").unwrap();
    node.another_driver();
    let text = node.driver.says("claims see not what there is");
    assert!(text.contains("certificate"), "{text}");
    assert_eq!(node.api.tokens(), [""; 0]);
    std::fs::copy(own.path().join("ca.crt"), &root).unwrap();
    node.api.until_devices(&ALL).await;
    assert!(
        node.api
            .tokens()
            .iter()
            .all(|token| token == "Bearer first")
    );
    // A token is another one after some time.
    std::fs::write(secrets.join("token"), "second\n").unwrap();
    node.api.remove_slices();
    node.api.until_devices(&ALL).await;
    assert!(node.api.tokens().contains(&"Bearer second".into()));
}

/// Claims are prepared, take, and go, while driver and daemon are killed at random moments: no claim ever has two slabs,
/// and after all have gone each slab is clean again.
#[tokio::test(flavor = "multi_thread")]
async fn no_slab_is_two_claims_and_none_is_lost_whatever_is_killed_when() {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut below = |most: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % most
    };
    let mut node = Node::start().await;
    let mut held: BTreeMap<&str, (String, String, Option<Allocated>)> = BTreeMap::new();
    let mut all_taken = 0;
    for round in 0..60 {
        let device = ALL[usize::try_from(below(3)).unwrap()];
        match below(8) {
            0 => node.another_driver(),
            1 => {
                node.daemon.kill();
                node.daemon.start_again();
            }
            2 => {
                // In the middle of a call.
                if let Some((name, uid, _)) = held.get(device) {
                    let wait = Duration::from_millis(below(20));
                    let _ = tokio::time::timeout(wait, node.prepare(name, uid)).await;
                }
                node.another_driver();
            }
            _ => match held.remove(device) {
                Some((name, uid, taken)) => {
                    drop(taken);
                    while !node.unprepare(&name, &uid).await.is_empty() {}
                }
                None => {
                    let (name, uid) = (format!("vm-{round}"), uid(round));
                    node.api.allocate(&name, &uid, &[device]);
                    if node.prepare(&name, &uid).await.is_ok() {
                        held.insert(device, (name, uid, None));
                    } else {
                        while !node.unprepare(&name, &uid).await.is_empty() {}
                    }
                }
            },
        }
        for (name, uid, taken) in held.values_mut() {
            if taken.is_none() {
                until("a slab of a claim that has none", || {
                    *taken = node.take(uid).ok();
                    taken.is_some()
                });
                all_taken += 1;
            }
            let second = || match node.take(uid) {
                Ok(_) => panic!("{name} has a second slab in round {round}"),
                Err(ClientError::Refused(refusal)) => refusal.code == RefusalCode::Quota,
                // Its daemon is on its way.
                Err(_) => false,
            };
            until("a refusal of a second slab", second);
        }
        assert!(held.values().filter(|(.., taken)| taken.is_some()).count() <= 3);
    }
    for (name, uid, taken) in std::mem::take(&mut held).into_values() {
        drop(taken);
        while !node.unprepare(&name, &uid).await.is_empty() {}
    }
    node.daemon.until_clean(3);
    assert_eq!(node.labels(), [""; 0]);
    assert!(all_taken >= 10, "{all_taken} slabs were taken");
    node.api.until_devices(&ALL).await;
}
