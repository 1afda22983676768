//! What is killed, when, and what is lost by that: nothing.

use crate::kit::{Node, PATIENCE, Plugin, refusal, until};
use firstlight_pool::client::{Allocated, ClientError};
use firstlight_pool::protocol::RefusalCode;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

const ALL: [&str; 3] = ["any-0", "any-1", "any-2"];

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_starts_again_is_registered_with_again() {
    let mut node = Node::start();
    node.kubelet.until_healthy(&ALL).await;
    node.kubelet.admit("a", "any-0").await.unwrap();
    node.kubelet.start_container("any-0").await.unwrap();
    for _ in 0..3 {
        node.kubelet.kill();
        node.kubelet.start_again();
        node.kubelet.until_healthy(&ALL).await;
    }
    // Its socket vanishes for a while, and its folder.
    node.kubelet.kill();
    std::fs::remove_dir_all(node.kubelet.plugins()).unwrap();
    node.plugin.says("cannot listen");
    node.kubelet.start_again();
    node.kubelet.until_healthy(&ALL).await;
    assert_eq!(node.labels(), ["k8s thp-2m/any-0 ns/a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_of_another_version_is_told_in_a_sentence() {
    let mut node = Node::start();
    node.kubelet.registered().await;
    let text =
        "requested API version \"v1beta1\" is not supported by kubelet. Supported version is [v2]";
    node.kubelet.refuse(Some(text));
    node.kubelet.kill();
    node.kubelet.start_again();
    let said = node.plugin.says("does not take");
    assert!(
        said.contains("firstlight.dev/thp-2m by version v1beta1"),
        "{said}"
    );
    assert!(said.contains("Supported version is [v2]"), "{said}");
    node.kubelet.refuse(None);
    node.kubelet.until_healthy(&ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_is_killed_forgets_nothing() {
    let mut node = Node::start();
    node.kubelet.admit("a", "any-0").await.unwrap();
    node.another_plugin();
    node.kubelet.until_healthy(&ALL).await;
    node.kubelet.start_container("any-0").await.unwrap();
    let taken = node.take("any-0").unwrap();
    node.another_plugin();
    node.kubelet.until_healthy(&ALL).await;
    assert_eq!(refusal(node.take("any-0")), RefusalCode::Quota);
    node.kubelet.start_container("any-0").await.unwrap();
    assert_eq!(refusal(node.take("any-0")), RefusalCode::Quota);
    assert_eq!(node.labels(), ["k8s thp-2m/any-0 ns/a"]);
    drop(taken);
    // Killed before it ends the right of a pod that is gone.
    node.plugin.kill();
    node.kubelet.end("a");
    node.plugin = Plugin::start(node.folder.path());
    until("its right ends", || node.labels().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn while_there_is_no_daemon_no_device_is_healthy_and_pods_wait() {
    let mut node = Node::start();
    node.kubelet.until_healthy(&ALL).await;
    node.kubelet.admit("a", "any-0").await.unwrap();
    node.daemon.kill();
    node.kubelet.until_healthy(&[]).await;
    assert_eq!(node.kubelet.devices().await.len(), 3);
    assert!(
        node.plugin
            .says("no device is healthy")
            .contains("no pool answers at")
    );
    let start = node.kubelet.start_container("any-0");
    let again = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        node.daemon.start_again();
    };
    let (started, ()) = tokio::join!(start, again);
    started.unwrap();
    node.daemon.until_clean(3);
    assert!(node.take("any-0").is_ok());
    node.kubelet.until_healthy(&ALL).await;
}

/// As the first process of a container, which no signal ends that it does not wait for.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_all_ways_of_serving_with_code_0() {
    let mut node = Node::start();
    node.kubelet.until_healthy(&ALL).await;
    let socket = node.kubelet.plugins().join("firstlight-thp-2m.sock");
    assert!(socket.exists());
    // Also while it waits for a daemon that does not answer.
    node.daemon.stop();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(node.plugin.end(), Some(0));
    assert!(!socket.exists());
    let mut command = Command::new(env!("CARGO_BIN_EXE_firstlight-kubernetes"));
    command.args(["metrics", "--listen", "127.0.0.1:0", "--socket"]);
    command.arg(node.daemon.socket());
    let mut metrics = Plugin::of(command);
    metrics.says("metrics at");
    assert_eq!(metrics.end(), Some(0));
}

/// A small generator of numbers, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Pods come, start, take, and go, while plugin, daemon and kubelet are killed at random moments. What must be true is
/// counted by the pods themselves: a pod never has two slabs, all pods together never more than there are, and after
/// all have gone each slab is clean again.
#[tokio::test(flavor = "multi_thread")]
async fn no_slab_is_two_pods_and_none_is_lost_whatever_is_killed_when() {
    let rounds = std::env::var("FIRSTLIGHT_KUBERNETES_ROUNDS");
    let rounds = rounds.map_or(60, |text| text.parse().unwrap());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut node = Node::start();
    node.kubelet.until_healthy(&ALL).await;
    // Of each device its pod, and what that has.
    let mut pods: BTreeMap<&str, (String, Option<Allocated>)> = BTreeMap::new();
    let mut all_taken = 0;
    for round in 0..rounds {
        let device = ALL[usize::try_from(random.below(3)).unwrap()];
        match random.below(8) {
            0 => node.another_plugin(),
            1 => {
                node.daemon.kill();
                node.daemon.start_again();
            }
            2 => {
                node.kubelet.kill();
                node.kubelet.start_again();
            }
            3 => {
                // In the middle of a call.
                let call = tokio::time::timeout(
                    Duration::from_millis(random.below(20)),
                    node.kubelet.start_container(device),
                );
                let _ = call.await;
                node.another_plugin();
            }
            _ => match pods.remove(device) {
                Some((name, taken)) => {
                    drop(taken);
                    node.kubelet.end(&name);
                }
                None => {
                    let name = format!("pod-{round}");
                    // A pod that isn't admitted has nothing.
                    if node.kubelet.admit(&name, device).await.is_ok() {
                        pods.insert(device, (name, None));
                    }
                }
            },
        }
        for (device, (name, taken)) in &mut pods {
            // kubelet tries until it has started.
            let begin = Instant::now();
            while taken.is_none() {
                assert!(
                    begin.elapsed() < PATIENCE,
                    "{name} has no slab in round {round}"
                );
                let _ = node.kubelet.start_container(device).await;
                *taken = node.take(device).ok();
                all_taken += usize::from(taken.is_some());
            }
            let _ = node.kubelet.start_container(device).await;
            until("a refusal of a second slab", || match node.take(device) {
                Ok(_) => panic!("{name} has a second slab in round {round}"),
                Err(ClientError::Refused(refusal)) => refusal.code == RefusalCode::Quota,
                // Its daemon is on its way.
                Err(_) => false,
            });
        }
        let held = pods.values().filter(|(_, taken)| taken.is_some()).count();
        assert!(held <= 3, "{held} slabs are out in round {round}");
    }
    for (name, taken) in std::mem::take(&mut pods).into_values() {
        drop(taken);
        node.kubelet.end(&name);
    }
    node.daemon.until_clean(3);
    until("no right is left", || node.labels().is_empty());
    assert!(
        all_taken >= rounds / 10,
        "{all_taken} slabs were taken in {rounds} rounds"
    );
}
