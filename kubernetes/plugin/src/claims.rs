//! Claims of this node: their devices are theirs from when kubelet prepares them until it doesn't any more.

use crate::api::dra as api;
use crate::apiserver::{ApiError, ApiServer};
use crate::cdi::{Added, Cdi, Known};
use crate::class::Slot;
use crate::grants::Grants;
use crate::label::{ClaimKey, Owner};
use crate::slices::DRIVER;
use firstlight_pool::protocol::GrantId;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use tokio::sync::{Mutex, OwnedMutexGuard};

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

/// A claim, as far as it is read here.
#[derive(Debug, Deserialize)]
struct ResourceClaim {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    #[serde(default)]
    uid: String,
}

#[derive(Debug, Default, Deserialize)]
struct Status {
    allocation: Option<Allocation>,
}

#[derive(Debug, Deserialize)]
struct Allocation {
    #[serde(default)]
    devices: Allocated,
}

#[derive(Debug, Default, Deserialize)]
struct Allocated {
    #[serde(default)]
    results: Vec<AllocationResult>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AllocationResult {
    request: String,
    driver: String,
    pool: String,
    device: String,
    admin_access: Option<bool>,
}

/// Whether it is a name of Kubernetes: it becomes a part of a path.
fn is_name(name: &str) -> bool {
    let plain = |one: u8| one.is_ascii_lowercase() || one.is_ascii_digit() || b"-.".contains(&one);
    name.starts_with(|one: char| one.is_ascii_alphanumeric())
        && name.len() <= 253
        && name.bytes().all(plain)
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
        let found = self.find(&known).await.map_err(|error| error.to_string())?;
        let name = format!("{}/{}", known.namespace, known.name);
        let allocation = found.and_then(|claim| claim.status.allocation);
        let allocation = allocation.ok_or_else(|| {
            format!(
                "claim {name} with UID {} has nothing allocated (any more)",
                known.uid
            )
        })?;
        let added = self.added(key, allocation.devices.results)?;
        self.cdi.write(&known, &added)?;
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

    /// The devices that a claim was given of this node.
    fn added(&self, key: ClaimKey, results: Vec<AllocationResult>) -> Result<Vec<Added>, String> {
        let of_here =
            |result: &AllocationResult| result.driver == DRIVER && result.pool == self.node;
        let one = |result: AllocationResult| {
            let device = &result.device;
            if result.admin_access == Some(true) {
                return Err(format!(
                    "device {device} is given to no claim with admin access: a slab is one claim's"
                ));
            }
            let slot = Slot::of_name(device);
            let slot = slot.ok_or_else(|| format!("{DRIVER} has no device {device:?}"))?;
            let link = self.grants.link(&slot, Some(key));
            // Of one request with alternatives kubelet knows the request.
            let request = result
                .request
                .split('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            Ok(Added {
                slot,
                link,
                request,
            })
        };
        results.into_iter().filter(of_here).map(one).collect()
    }

    /// The claim of this UID, if there is one.
    async fn find(&self, known: &Known) -> Result<Option<ResourceClaim>, ApiError> {
        let (namespace, name) = (&known.namespace, &known.name);
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}");
        match self.apiserver.get::<ResourceClaim>(&path).await {
            Ok(found) if found.metadata.uid == known.uid => Ok(Some(found)),
            // Another one of that name.
            Ok(_) => Ok(None),
            Err(ApiError::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A claim's last container has ended.
    ///
    /// # Errors
    /// Why its devices are still its: kubelet tries again.
    pub async fn unprepare(&self, claim: &api::Claim) -> Result<(), String> {
        let known = known(claim)?;
        let key = key(&known.uid)?;
        let _one = self.locks.lock(key).await;
        self.end(key, &known).await.map(drop)
    }

    async fn end(&self, key: ClaimKey, known: &Known) -> Result<Vec<GrantId>, String> {
        let ended = self
            .grants
            .release(move |held| held.claim == Some(key))
            .await;
        let ended = ended.map_err(|error| error.to_string())?;
        self.grants.unlink(key).map_err(|error| error.to_string())?;
        self.cdi.remove(&known.uid)?;
        Ok(ended)
    }

    /// Ends what is left of claims that are no more, by the apiserver: kubelet may have forgotten them.
    ///
    /// # Errors
    /// Why they are not known.
    pub async fn sweep(&self) -> Result<Vec<GrantId>, String> {
        let mut ended = Vec::new();
        for known in self.cdi.known() {
            let found = self.find(&known).await.map_err(|error| error.to_string())?;
            let is_allocated = found.is_some_and(|claim| claim.status.allocation.is_some());
            if !is_allocated {
                let key = key(&known.uid)?;
                ended.extend(self.end(key, &known).await?);
            }
        }
        Ok(ended)
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

    #[test]
    fn what_is_no_name_is_no_part_of_a_path() {
        for name in ["vm-1", "a.b", "0"] {
            assert!(is_name(name), "{name}");
        }
        let long = "x".repeat(254);
        for name in ["", "..", "a/b", "A", "a?b", "a%2f", "-a", &long] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn of_a_claim_all_is_left_out_that_is_not_read() {
        let text = r#"{"metadata": {"name": "x", "uid": "u"}, "spec": {"devices": {}},
            "status": {"allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p",
            "device": "1", "shareID": null}], "config": []}, "nodeSelector": {}}, "reservedFor": []}}"#;
        let claim: ResourceClaim = serde_json::from_str(text).unwrap();
        let allocation = claim.status.allocation.unwrap();
        assert_eq!(allocation.devices.results[0].device, "1");
        let bare: ResourceClaim = serde_json::from_str(r#"{"metadata": {}}"#).unwrap();
        assert!(bare.status.allocation.is_none());
    }
}
