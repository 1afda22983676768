//! Claims of this node: their devices are theirs from when kubelet prepares them until it doesn't any more.

use crate::api::dra as api;
use crate::apiserver::{ApiError, ApiServer};
use crate::cdi::{Added, Cdi, Known};
use crate::class::Slot;
use crate::grants::Grants;
use crate::label::{self, ClaimKey, Held, Owner, is_name};
use crate::slices::DRIVER;
use firstlight_pool::protocol::GrantId;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// What Kubernetes notes of a claim that it makes by a template.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";

/// What prepares them.
#[derive(Debug)]
pub struct Claims {
    /// The daemon's grants.
    pub grants: Grants,
    /// What the container runtime reads.
    pub cdi: Cdi,
    /// Where claims are.
    pub apiserver: ApiServer,
    /// This node's name, which is its pool's.
    pub node: String,
    /// Of each claim one thing is done after the other.
    pub locks: Locks,
}

/// A lock for each claim that something is done about.
#[derive(Debug, Default)]
pub struct Locks(std::sync::Mutex<BTreeMap<ClaimKey, Arc<Mutex<()>>>>);

impl Locks {
    async fn lock(&self, claim: ClaimKey) -> OwnedMutexGuard<()> {
        let one = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, one| Arc::strong_count(one) > 1);
            Arc::clone(all.entry(claim).or_default())
        };
        one.lock_owned().await
    }
}

/// What a claim was given of this node's pool.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Given {
    request: String,
    device: String,
    has_admin_access: bool,
}

impl Given {
    fn slot(&self) -> Result<Slot, String> {
        let slot = Slot::of_name(&self.device);
        slot.ok_or_else(|| format!("{DRIVER} has no device {:?}", self.device))
    }
}

/// What a claim was given of a node's pool, where that is understood: by an answer that is none nothing ends.
fn given(claim: &Value, node: &str) -> Option<Vec<Given>> {
    let mut results = claim;
    for name in ["status", "allocation", "devices", "results"] {
        match results.get(name) {
            Some(within) if !within.is_null() => results = within,
            // What is empty is left out.
            _ if results.is_object() => return Some(Vec::new()),
            _ => return None,
        }
    }
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut all = Vec::new();
    for result in results.as_array()? {
        if result["driver"].as_str()? == DRIVER && result["pool"].as_str()? == node {
            let request = word(&result["request"]);
            all.push(Given {
                // Of one request with alternatives kubelet knows the request.
                request: request.split('/').next().unwrap_or_default().into(),
                device: word(&result["device"]),
                has_admin_access: result["adminAccess"] == true,
            });
        }
    }
    Some(all)
}

/// What a pod calls a claim: of one by a template its name is made up.
fn called(claim: &Value, name: &str) -> String {
    let called = claim["metadata"]["annotations"][POD_CLAIM_NAME].as_str();
    called
        .filter(|called| is_name(called))
        .unwrap_or(name)
        .into()
}

impl Claims {
    /// A claim's first container is about to start, or kubelet has started again.
    ///
    /// # Errors
    /// Why it can't be: an event of the pod.
    pub async fn prepare(&self, claim: &api::Claim) -> Result<Vec<api::Device>, String> {
        let known = known(claim)?;
        let key = key(&known.uid)?;
        let _one = self.locks.lock(key).await;
        let name = format!("{}/{}", known.namespace, known.name);
        let (given, called) = self.find(&known.namespace, &known.name, key).await?;
        if given.is_empty() {
            let (uid, node) = (&known.uid, &self.node);
            return Err(format!(
                "claim {name} with UID {uid} has no device of node {node} allocated (any more)"
            ));
        }
        let added = self.added(key, given)?;
        self.cdi.write(&known, &called, &added)?;
        let slots = added.iter().map(|one| one.slot).collect();
        let held = self.grants.hold(slots, Owner::Claim(key, name)).await;
        held.map_err(|error| error.to_string())?;
        let devices = added.into_iter().map(|one| api::Device {
            cdi_device_ids: vec![Cdi::id(&known.uid, &one.slot)],
            pool_name: self.node.clone(),
            device_name: one.slot.name(),
            request_names: vec![one.request],
        });
        Ok(devices.collect())
    }

    /// The devices that a claim was given.
    fn added(&self, key: ClaimKey, given: Vec<Given>) -> Result<Vec<Added>, String> {
        let one = |given: Given| {
            let device = &given.device;
            if given.has_admin_access {
                return Err(format!(
                    "device {device} is given to no claim with admin access: a slab is one claim's"
                ));
            }
            let slot = given.slot()?;
            Ok(Added {
                slot,
                link: self.grants.link(&slot, Some(key)),
                request: given.request,
            })
        };
        given.into_iter().map(one).collect()
    }

    /// What the claim of this name was given, if it is the one with this key, and what a pod calls it.
    async fn find(
        &self,
        namespace: &str,
        name: &str,
        key: ClaimKey,
    ) -> Result<(Vec<Given>, String), String> {
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}");
        let found: Value = match self.apiserver.get(&path).await {
            Err(ApiError::Missing(_)) => return Ok(Default::default()),
            found => found.map_err(|error| error.to_string())?,
        };
        let odd = || format!("what the apiserver answers is no claim {namespace}/{name}");
        let uid = found["metadata"]["uid"].as_str();
        if uid.and_then(ClaimKey::of_uid).ok_or_else(odd)? != key {
            // Another one of that name.
            return Ok(Default::default());
        }
        let given = given(&found, &self.node).ok_or_else(odd)?;
        Ok((given, called(&found, name)))
    }

    /// A claim's last container has ended.
    ///
    /// # Errors
    /// Why its devices are still its: kubelet tries again.
    pub async fn unprepare(&self, claim: &api::Claim) -> Result<(), String> {
        let known = known(claim)?;
        let key = key(&known.uid)?;
        let _one = self.locks.lock(key).await;
        self.end(key, Some(&known.uid)).await.map(drop)
    }

    async fn end(&self, key: ClaimKey, uid: Option<&str>) -> Result<Vec<GrantId>, String> {
        let ended = self
            .grants
            .release(move |held| held.claim == Some(key))
            .await;
        let ended = ended.map_err(|error| error.to_string())?;
        self.grants.unlink(key).map_err(|error| error.to_string())?;
        if let Some(uid) = uid {
            self.cdi.remove(uid)?;
        }
        Ok(ended)
    }

    /// Ends what claims have that was not given to them (any more), by the apiserver: kubelet may have forgotten them.
    /// What is left of them are grants and files.
    pub async fn sweep(&self) -> Swept {
        let mut swept = Swept::default();
        let mut all: BTreeMap<ClaimKey, Left> = BTreeMap::new();
        let status = match self.grants.status().await {
            Ok(status) => status,
            Err(error) => {
                swept.trouble(error);
                return swept;
            }
        };
        for (key, name) in status.grants.iter().filter_map(label::claim_of) {
            let name = name.filter(|(namespace, name)| is_name(namespace) && is_name(name));
            let left = all.entry(key).or_default();
            left.has_grant = true;
            left.name = left.name.take().or(name);
        }
        for uid in self.cdi.uids() {
            match key(&uid) {
                Ok(key) => all.entry(key).or_default().uid = Some(uid),
                Err(error) => swept.trouble(format!("a file of a claim: {error}")),
            }
        }
        for (key, left) in all {
            match self.sweep_one(key, left).await {
                Ok(ended) => swept.ended.extend(ended),
                Err(error) => swept.trouble(error),
            }
        }
        swept
    }

    async fn sweep_one(&self, key: ClaimKey, left: Left) -> Result<Vec<GrantId>, String> {
        let _one = self.locks.lock(key).await;
        let uid = left.uid.as_deref();
        let file = uid.map_or(Ok(None), |uid| self.cdi.read(uid));
        let name = match &file {
            Ok(Some(known)) => Some((known.namespace.clone(), known.name.clone())),
            _ => left.name,
        };
        let given = match &name {
            Some((namespace, name)) => self.find(namespace, name, key).await?.0,
            None if left.has_grant => {
                return Err(file.err().unwrap_or_else(|| {
                    format!(
                        "claim {key} has a grant and no file with its name: if it is gone, `firstlight-pool revoke` ends the grant"
                    )
                }));
            }
            // What was prepared meanwhile has a file with its name.
            None => Vec::new(),
        };
        let ended = if given.is_empty() {
            self.end(key, uid).await?
        } else {
            let slots = given.iter().map(Given::slot);
            let slots = slots.collect::<Result<Vec<_>, _>>()?;
            let is_over = move |held: &Held| held.claim == Some(key) && !slots.contains(&held.slot);
            let ended = self.grants.release(is_over).await;
            ended.map_err(|error| error.to_string())?
        };
        file.map(|_| ended)
    }
}

/// What is left of a claim.
#[derive(Debug, Default)]
struct Left {
    /// Its UID, where it has a file.
    uid: Option<String>,
    has_grant: bool,
    /// Its name space and its name, where a grant says all of them.
    name: Option<(String, String)>,
}

/// What a sweep did.
#[derive(Debug, Default)]
pub struct Swept {
    /// What has ended.
    pub ended: Vec<GrantId>,
    /// Why all else that is left is so.
    pub troubles: BTreeSet<String>,
}

impl Swept {
    fn trouble(&mut self, text: impl ToString) {
        self.troubles.insert(text.to_string());
    }
}

fn known(claim: &api::Claim) -> Result<Known, String> {
    if !is_name(&claim.namespace) || !is_name(&claim.name) {
        let (namespace, name) = (&claim.namespace, &claim.name);
        return Err(format!("{namespace:?}/{name:?} is no name of a claim"));
    }
    Ok(Known {
        uid: claim.uid.clone(),
        namespace: claim.namespace.clone(),
        name: claim.name.clone(),
    })
}

fn key(uid: &str) -> Result<ClaimKey, String> {
    ClaimKey::of_uid(uid).ok_or_else(|| format!("{uid:?} is no UID of a claim: expected a UUID"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::odd::odd;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn a_claim_of_any_shape_is_given_nothing_that_it_does_not_name(claim in odd(json!({
            "metadata": {"uid": "u", "annotations": {POD_CLAIM_NAME: "slab"}},
            "status": {"allocation": {"devices": {"results": [
                {"request": "r/s", "driver": DRIVER, "pool": "p", "device": "2m-8g-0-1", "adminAccess": false},
                {"request": "r", "driver": DRIVER, "pool": "p", "device": "2m-8g-0-2"},
            ]}}},
        }))) {
            let text = claim.to_string();
            for one in given(&claim, "p").unwrap_or_default() {
                prop_assert!(text.contains(&serde_json::to_string(&one.device).unwrap()) || one.device.is_empty());
                prop_assert!(!one.request.contains('/'));
            }
            prop_assert!(is_name(&called(&claim, "x")));
        }
    }

    #[test]
    fn of_claims_by_one_template_each_has_the_name_that_its_pod_calls_it_by() {
        let table = [
            (json!({}), "vm-slab-x7k2p"),
            (
                json!({"metadata": {"annotations": {POD_CLAIM_NAME: "slab"}}}),
                "slab",
            ),
            (
                json!({"metadata": {"annotations": {POD_CLAIM_NAME: "A=B"}}}),
                "vm-slab-x7k2p",
            ),
        ];
        for (claim, name) in table {
            assert_eq!(called(&claim, "vm-slab-x7k2p"), name);
        }
    }

    #[test]
    fn of_a_claim_all_is_left_out_that_is_not_of_this_node() {
        let result = |driver: &str, pool: &str| json!({"request": "r/small", "driver": driver, "pool": pool, "device": "1", "shareID": null});
        let results = json!([
            result(DRIVER, "p"),
            result(DRIVER, "q"),
            result("d", "p"),
            {"driver": DRIVER, "pool": "p", "request": 7, "adminAccess": true},
        ]);
        let with =
            |results: Value| json!({"status": {"allocation": {"devices": {"results": results}}}});
        let some = given(&with(results), "p").unwrap();
        let one = |request: &str, device: &str, has_admin_access| Given {
            request: request.into(),
            device: device.into(),
            has_admin_access,
        };
        assert_eq!(some, [one("r", "1", false), one("", "", true)]);
        for empty in [
            json!({}),
            json!({"status": {"allocation": null}}),
            with(json!([])),
        ] {
            assert_eq!(given(&empty, "p"), Some(Vec::new()), "{empty}");
        }
        for odd in [
            json!(null),
            json!({"status": 7}),
            with(json!({})),
            with(json!([null])),
        ] {
            assert_eq!(given(&odd, "p"), None, "{odd}");
        }
    }
}
