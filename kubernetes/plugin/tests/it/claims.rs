//! Claims come and go.

use crate::driver::{ALL, Node, uid};
use crate::kit::{refusal, take, until, until_async};
use firstlight_pool::client::Client;
use firstlight_pool::protocol::RefusalCode;
use serde_json::{Value, json};
use std::time::Duration;

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
async fn a_claim_with_alternatives_has_those_that_were_chosen() {
    let node = Node::start().await;
    let result = |request: &str, device: &str| json!({"request": request, "driver": "pool.firstlight.dev", "pool": "node1", "device": device});
    let claim = json!({
        "metadata": {"uid": uid(1), "annotations": {"resource.kubernetes.io/pod-claim-name": "slab"}},
        "status": {"allocation": {"devices": {"results": [
            result("memory/large", ALL[0]), result("memory/large", ALL[2]), result("other/small", ALL[1]),
        ]}}},
    });
    node.api.set_claim("vm-slab-x7k2p", Some(claim));
    let devices = node.prepare("vm-slab-x7k2p", &uid(1)).await.unwrap();
    // kubelet knows the request, not which of its alternatives was chosen.
    let requests: Vec<_> = devices
        .iter()
        .map(|one| one.request_names.join(" "))
        .collect();
    assert_eq!(requests, ["memory", "memory", "other"]);
    let file: Value = serde_json::from_slice(&std::fs::read(node.file(&uid(1))).unwrap()).unwrap();
    let devices = file["devices"].as_array().unwrap();
    let variable = |one: &Value| one["containerEdits"]["env"][1].as_str().unwrap().to_owned();
    let variables: Vec<_> = devices.iter().map(variable).collect();
    assert_eq!(
        variables,
        [
            "FIRSTLIGHT_POOL_SLAB_MEMORY_0=/run/firstlight/thp-2m-any-0/pool.sock",
            "FIRSTLIGHT_POOL_SLAB_MEMORY_1=/run/firstlight/thp-2m-any-2/pool.sock",
            "FIRSTLIGHT_POOL_SLAB_OTHER_0=/run/firstlight/thp-2m-any-1/pool.sock",
        ]
    );
    assert_eq!(node.labels().len(), 3);
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
        (
            "ns",
            "other",
            &one,
            "has no device of node node1 allocated (any more)",
        ),
        (
            "ns",
            "bare",
            &one,
            "has no device of node node1 allocated (any more)",
        ),
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
async fn a_call_that_kubelet_gives_up_ends_before_its_next() {
    let node = Node::start().await;
    let uid = uid(1);
    node.api.allocate("vm", &uid, &[ALL[0]]);
    for ends in [false, true] {
        node.api.keep_waiting(true);
        tokio::select! {
            _ = node.prepare("vm", &uid) => panic!("prepared without the apiserver"),
            () = until_async("a call for the claim", async || node.api.waiting() == 1) => {}
        }
        // What is not in order has ended by then.
        let pause = || tokio::time::sleep(Duration::from_millis(300));
        let go_on = async {
            pause().await;
            node.api.keep_waiting(false);
            pause().await;
        };
        if ends {
            let (text, ()) = tokio::join!(node.unprepare("vm", &uid), go_on);
            assert_eq!(text, "");
            assert_eq!(node.labels(), [""; 0]);
            assert!(!node.file(&uid).exists());
        } else {
            go_on.await;
            until("what was given up is done", || node.labels().len() == 1);
        }
    }
}
