//! What the driver says at the apiserver, to which it says it, and that it is alone.

use crate::apiserver::{Api, certificates};
use crate::driver::{ALL, Node, uid};
use crate::kit::{plugin, until};
use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

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
async fn a_conflict_that_stays_does_not_keep_the_apiserver_busy() {
    let node = Node::start().await;
    node.api.conflict(true);
    node.api.spoil(|slice| slice["spec"]["devices"] = json!([]));
    let text = node.driver.says("claims see not what there is");
    assert!(text.contains("409"), "{text}");
    let calls = node.api.tokens().len();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let calls = node.api.tokens().len() - calls;
    assert!(calls < 30, "{calls} calls");
    node.api.conflict(false);
    node.api.until_devices(&ALL).await;
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
    // What is wrong for the same reason just after that is in the log.
    node.register("version \"v10\" only").await;
    node.driver.says("version \"v10\" only");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(node.api.events().len(), 2);
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
