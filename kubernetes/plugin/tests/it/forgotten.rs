//! What of claims is left when driver, daemon or kubelet were killed, or files are gone: nothing that is not a claim's.

use crate::driver::{ALL, Node, uid};
use crate::kit::{refusal, until};
use firstlight_pool::client::{Allocated, ClientError};
use firstlight_pool::protocol::RefusalCode;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

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
    // Nor does an answer that says nothing end anything.
    let odd = json!({"metadata": {"uid": uid(0)}, "status": []});
    node.api.set_claim("moved", Some(odd));
    node.register("").await;
    node.driver.says("is no claim ns/moved");
    assert_eq!(node.labels().len(), 3);
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
async fn a_claim_is_not_prepared_while_it_is_asked_whether_it_is_gone() {
    let node = Node::start().await;
    node.api.allocate("vm", &uid(1), &[ALL[0]]);
    node.prepare("vm", &uid(1)).await.unwrap();
    node.api.keep_waiting(true);
    node.register("").await;
    until("a sweep", || node.api.waiting() == 1);
    let go_on = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(node.api.waiting(), 1);
        node.api.keep_waiting(false);
    };
    let uid = uid(1);
    let (prepared, ()) = tokio::join!(node.prepare("vm", &uid), go_on);
    assert!(prepared.is_ok());
    assert_eq!(node.labels().len(), 1);
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
