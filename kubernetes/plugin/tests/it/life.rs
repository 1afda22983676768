//! Pods come and go.

use crate::apiserver::Api;
use crate::kit::{Node, Plugin, plugin, refusal, take, until, until_async};
use firstlight_kubernetes::api::{Empty, device_plugin as api};
use firstlight_pool::client::Client;
use firstlight_pool::protocol::RefusalCode;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Instant;
use tonic::Code;

#[tokio::test(flavor = "multi_thread")]
async fn each_slab_is_a_device_and_a_pod_takes_the_one_of_its_own() {
    let node = Node::start();
    let registered = node.kubelet.registered().await;
    assert_eq!(registered.resource_name, "firstlight.dev/thp-2m");
    assert_eq!(registered.version, "v1beta1");
    node.kubelet
        .until_healthy(&["any-0", "any-1", "any-2"])
        .await;
    let given = node.kubelet.admit("a", "any-0").await.unwrap();
    assert_eq!(
        given.envs["FIRSTLIGHT_POOL"],
        "/run/firstlight/thp-2m/0/pool.sock"
    );
    assert_eq!(
        given.envs["FIRSTLIGHT_POOL_THP_2M_0"],
        given.envs["FIRSTLIGHT_POOL"]
    );
    let [mount] = &given.mounts[..] else {
        panic!("{:?}", given.mounts)
    };
    assert!(mount.read_only);
    assert_eq!(mount.container_path, "/run/firstlight/thp-2m/0");
    assert_eq!(
        Path::new(&mount.host_path),
        node.door("any-0").parent().unwrap()
    );
    assert!(!node.door("any-0").exists());
    node.kubelet.start_container("any-0").await.unwrap();
    assert_eq!(node.labels(), ["k8s thp-2m/any-0 ns/a"]);
    let taken = node.take("any-0").unwrap();
    assert_eq!(refusal(node.take("any-0")), RefusalCode::Quota);
    // Its container starts again: the right is the one that it had.
    node.kubelet.start_container("any-0").await.unwrap();
    assert_eq!(refusal(node.take("any-0")), RefusalCode::Quota);
    drop(taken);
    until("its slab is clean", || node.take("any-0").is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pool_s_folder_is_listed_by_no_stranger() {
    let node = Node::with(|folder| {
        // As kubelet makes it.
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = plugin(folder);
        command.args(["--install", "/bin/true", "--client"]);
        command.arg(folder.join("client"));
        command
    });
    until("it is passed only", || {
        let folder = std::fs::metadata(node.folder.path()).unwrap();
        folder.mode() & 0o777 == 0o711
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_folder_of_links_is_closed_to_strangers() {
    let node = Node::with(|folder| {
        // As an earlier version made it.
        let links = folder.join("kubernetes");
        std::fs::create_dir(&links).unwrap();
        std::fs::set_permissions(links, PermissionsExt::from_mode(0o755)).unwrap();
        plugin(folder)
    });
    until("it is closed", || {
        let links = std::fs::metadata(node.folder.path().join("kubernetes")).unwrap();
        links.mode() & 0o777 == 0o700
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_before_has_nothing_of_a_device_any_more() {
    let node = Node::start();
    node.kubelet.admit("a", "any-1").await.unwrap();
    node.kubelet.start_container("any-1").await.unwrap();
    // What a mount is to a container: the folder, whatever its name is later.
    let mounted = std::fs::canonicalize(node.door("any-1").parent().unwrap()).unwrap();
    let mut before = Client::connect(&mounted.join("pool.sock")).unwrap();
    node.kubelet.end("a");
    node.kubelet.admit("b", "any-1").await.unwrap();
    assert!(before.status().is_err());
    assert!(take(&mounted.join("pool.sock")).is_err());
    assert_eq!(node.labels(), [""; 0]);
    node.kubelet.start_container("any-1").await.unwrap();
    assert_eq!(node.labels(), ["k8s thp-2m/any-1 ns/b"]);
    assert!(node.take("any-1").is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_of_another_pod_is_none_though_no_call_ended_it() {
    let node = Node::start();
    node.kubelet.admit("a", "any-1").await.unwrap();
    node.kubelet.start_container("any-1").await.unwrap();
    let mounted = std::fs::canonicalize(node.door("any-1").parent().unwrap()).unwrap();
    node.kubelet.end("a");
    node.kubelet.has("b", "any-1").await;
    node.kubelet.start_container("any-1").await.unwrap();
    assert_eq!(node.labels(), ["k8s thp-2m/any-1 ns/b"]);
    assert!(take(&mounted.join("pool.sock")).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_right_of_a_pod_that_is_gone_ends() {
    let node = Node::start();
    for (pod, device) in [("a", "any-0"), ("b", "any-1")] {
        node.kubelet.admit(pod, device).await.unwrap();
        node.kubelet.start_container(device).await.unwrap();
    }
    let grant = node.daemon.connect().grant(other()).unwrap();
    node.kubelet.end("a");
    assert!(node.plugin.says("has ended").contains("its pod is gone"));
    until("one is left", || node.labels().len() == 2);
    assert_eq!(
        node.labels(),
        ["k8s thp-2m/any-1 ns/b", "not of Kubernetes"]
    );
    assert!(!node.door("any-0").parent().unwrap().is_symlink());
    assert!(take(Path::new(&grant.socket)).is_ok());
}

fn other() -> firstlight_pool::protocol::GrantRequest {
    firstlight_pool::protocol::GrantRequest {
        page: firstlight_pool::protocol::PageSize::Transparent,
        node: None,
        size_class_bytes: 2 << 20,
        uses: 1,
        label: Some(firstlight_pool::protocol::Label::new("not of Kubernetes")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_is_removed_leaves_the_devices_that_pods_have() {
    let node = Node::start();
    node.kubelet.admit("a", "any-0").await.unwrap();
    node.kubelet.start_container("any-0").await.unwrap();
    let taken = node.take("any-0").unwrap();
    node.daemon.reload("fill = { rate = \"0\" }\n[[class]]\npage = \"thp\"\nsource = \"memfd\"\nsize = \"4M\"\nslabs = 1\n");
    let text = node.plugin.says("fewer slabs");
    assert!(
        text.contains("0 of 1 devices are healthy, pods have 1"),
        "{text}"
    );
    let status = node.kubelet.admit("b", "any-1").await.err();
    // kubelet knows another resource besides by now; of the first the device is gone.
    if let Some(status) = status {
        assert_eq!(status.code(), Code::NotFound);
        assert!(
            status.message().contains("has no device \"any-1\""),
            "{status}"
        );
    }
    drop(taken);
    node.kubelet.end("a");
    node.plugin.says("has ended");
    let socket = node.kubelet.plugins().join("firstlight-thp-2m.sock");
    until("its endpoint is gone", || !socket.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_an_event_of_the_node() {
    let api = Api::start().await;
    let node = Node::with(|folder| {
        let mut command = plugin(folder);
        command.args(["--node", "node1", "--apiserver", &api.address]);
        command
    });
    node.kubelet.admit("a", "any-0").await.unwrap();
    node.kubelet.start_container("any-0").await.unwrap();
    // An apiserver that takes none now gets it later.
    api.refuse(Some(503));
    for device in ["any-8", "any-9"] {
        node.kubelet.admit("b", device).await.unwrap_err();
    }
    until("it is refused", || !api.tokens().is_empty());
    api.refuse(None);
    until("an event", || !api.events().is_empty());
    node.daemon.reload("fill = { rate = \"0\" }\n[[class]]\npage = \"thp\"\nsource = \"memfd\"\nsize = \"4M\"\nslabs = 1\n");
    until("an event", || api.events().len() > 1);
    let [refused, removed] = &api.events()[..] else {
        panic!("{:?}", api.events())
    };
    assert!(refused.contains("has no device \"any-8\""), "{refused}");
    assert!(removed.contains("keeps no slab any more"), "{removed}");
    assert!(removed.ends_with("thp-2m/any-0"), "{removed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_that_go_together_are_told() {
    let node = Node::start();
    let container = api::ContainerPreferredAllocationRequest {
        available_device_ids: vec!["any-0".into(), "any-2".into()],
        must_include_device_ids: vec!["any-2".into()],
        allocation_size: 2,
    };
    let request = api::PreferredAllocationRequest {
        container_requests: vec![container],
    };
    let call = node.kubelet.call(api::PREFERRED_ALLOCATION, request).await;
    let preferred: api::PreferredAllocationResponse = call.unwrap();
    assert_eq!(
        preferred.container_responses[0].device_ids,
        ["any-2", "any-0"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_plugin_of_the_same_pool_says_that_there_is_one() {
    let node = Node::start();
    node.kubelet.registered().await;
    let output = plugin(node.folder.path()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert!(
        text.contains("another firstlight-kubernetes serves this pool"),
        "{text}"
    );
    until_async("devices", async || node.kubelet.devices().await.len() == 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_get_a_program_that_was_copied_to_where_they_have_it_from() {
    let mut node = Node::start();
    node.kubelet.registered().await;
    node.plugin.kill();
    let client = node.folder.path().join("client");
    std::fs::write(&client, "an older one").unwrap();
    let mut command = plugin(node.folder.path());
    command
        .arg("--client")
        .arg(&client)
        .args(["--install", "/proc/self/exe"]);
    node.plugin = Plugin::of(command);
    node.kubelet
        .until_healthy(&["any-0", "any-1", "any-2"])
        .await;
    let given = node.kubelet.admit("a", "any-0").await.unwrap();
    let mount = &given.mounts[1];
    assert_eq!(mount.container_path, "/run/firstlight/bin/firstlight-pool");
    assert_eq!(Path::new(&mount.host_path), client);
    assert!(mount.read_only);
    let copied = std::fs::read(&client).unwrap();
    assert!(copied == std::fs::read(env!("CARGO_BIN_EXE_firstlight-kubernetes")).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it measures: --ignored --nocapture how_long"]
async fn how_long_kubelet_waits() {
    let node = Node::start();
    node.kubelet
        .until_healthy(&["any-0", "any-1", "any-2"])
        .await;
    let mut times = [const { Vec::new() }; 2];
    for round in 0..200 {
        let name = format!("pod-{round}");
        let begin = Instant::now();
        node.kubelet.admit(&name, "any-0").await.unwrap();
        times[0].push(begin.elapsed());
        let begin = Instant::now();
        node.kubelet.start_container("any-0").await.unwrap();
        times[1].push(begin.elapsed());
        node.kubelet.end(&name);
    }
    for (what, mut times) in ["Allocate", "PreStartContainer"].into_iter().zip(times) {
        times.sort();
        println!(
            "{what}: p50 {:?}, p99 {:?}, with a connection for each",
            times[100], times[198]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_with_two_devices_has_a_socket_of_each() {
    let node = Node::start();
    node.kubelet
        .until_healthy(&["any-0", "any-1", "any-2"])
        .await;
    let device_ids: Vec<String> = vec!["any-2".into(), "any-0".into()];
    let request = api::AllocateRequest {
        container_requests: vec![api::ContainerAllocateRequest {
            device_ids: device_ids.clone(),
        }],
    };
    let allocated: api::AllocateResponse = node.kubelet.call(api::ALLOCATE, request).await.unwrap();
    let given = &allocated.container_responses[0];
    let paths: Vec<_> = given
        .mounts
        .iter()
        .map(|mount| mount.container_path.as_str())
        .collect();
    assert_eq!(
        paths,
        ["/run/firstlight/thp-2m/0", "/run/firstlight/thp-2m/1"]
    );
    assert_eq!(
        given.envs["FIRSTLIGHT_POOL_THP_2M_1"],
        "/run/firstlight/thp-2m/1/pool.sock"
    );
    assert_eq!(
        given.envs["FIRSTLIGHT_POOL"],
        given.envs["FIRSTLIGHT_POOL_THP_2M_0"]
    );
    let request = api::PreStartContainerRequest { device_ids };
    let started: Result<Empty, _> = node.kubelet.call(api::PRE_START_CONTAINER, request).await;
    started.unwrap();
    let both = (node.take("any-0").unwrap(), node.take("any-2").unwrap());
    assert_ne!(both.0.lease.lease, both.1.lease.lease);
}
