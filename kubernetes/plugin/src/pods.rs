//! Which pod has which device, by kubelet's interface of pod resources.

use crate::api::{Empty, pod_resources as api};
use crate::class::{Class, Slot};
use crate::rpc;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tonic::Status;

const PATIENCE: Duration = Duration::from_secs(5);

/// kubelet's pods.
#[derive(Debug, Clone)]
pub struct Pods {
    socket: PathBuf,
}

/// The pods of a moment.
#[derive(Debug, Default)]
pub struct Listed {
    /// Their names, `namespace/name`.
    pub names: BTreeSet<String>,
    /// The pod that has a device.
    pub holders: BTreeMap<Slot, String>,
}

impl Pods {
    /// Those of kubelet with this folder.
    #[must_use]
    pub fn of_kubelet(folder: &Path) -> Self {
        Self {
            socket: folder.join("pod-resources/kubelet.sock"),
        }
    }

    /// All of them.
    ///
    /// # Errors
    /// Why they are not known.
    pub async fn list(&self) -> Result<Listed, Status> {
        let channel = rpc::connect(&self.socket, PATIENCE).await?;
        let answer: api::ListResponse = rpc::call(channel, api::LIST, Empty {}).await?;
        Ok(listed(&answer))
    }
}

fn listed(answer: &api::ListResponse) -> Listed {
    let mut listed = Listed::default();
    for pod in &answer.pods {
        let name = format!("{}/{}", pod.namespace, pod.name);
        for devices in pod
            .containers
            .iter()
            .flat_map(|container| &container.devices)
        {
            let Some(class) = Class::of_resource(&devices.resource_name) else {
                continue;
            };
            for device in devices.device_ids.iter().filter_map(|id| id.parse().ok()) {
                listed.holders.insert(Slot { class, device }, name.clone());
            }
        }
        listed.names.insert(name);
    }
    listed
}

/// Since when devices are no pod's.
#[derive(Debug, Default)]
pub struct Absent {
    since: BTreeMap<Slot, Instant>,
}

impl Absent {
    /// Those of `granted` that have been no pod's for `patience`.
    ///
    /// kubelet that has just started knows no pods but those of files, so it is believed only where it lists `own`, the
    /// pod that this runs in. Between the admission of a pod and its first container a device has no grant.
    pub fn after(
        &mut self,
        now: Instant,
        patience: Duration,
        listed: &Listed,
        own: Option<&str>,
        granted: &BTreeSet<Slot>,
    ) -> Vec<Slot> {
        if own.is_some_and(|own| !listed.names.contains(own)) {
            self.since.clear();
            return Vec::new();
        }
        let is_absent = |slot: &Slot| granted.contains(slot) && !listed.holders.contains_key(slot);
        self.since.retain(|slot, _| is_absent(slot));
        for slot in granted.iter().filter(|slot| is_absent(slot)) {
            self.since.entry(*slot).or_insert(now);
        }
        let long = self.since.iter();
        let long = long.filter(|(_, since)| now.saturating_duration_since(**since) >= patience);
        long.map(|(slot, _)| *slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(device: &str) -> Slot {
        Slot {
            class: "2m-8g".parse().unwrap(),
            device: device.parse().unwrap(),
        }
    }

    fn pod(name: &str, resource: &str, devices: &[&str]) -> api::Pod {
        let devices = api::Devices {
            resource_name: resource.into(),
            device_ids: devices.iter().map(ToString::to_string).collect(),
        };
        api::Pod {
            name: name.into(),
            namespace: "shop".into(),
            containers: vec![api::Container {
                name: "c".into(),
                devices: vec![devices],
            }],
        }
    }

    #[test]
    fn devices_of_others_are_passed_over() {
        let pods = vec![
            pod("vm", "firstlight.dev/2m-8g", &["0-1", "nonsense"]),
            pod("gpu", "example.com/gpu", &["0-2"]),
        ];
        let listed = listed(&api::ListResponse { pods });
        assert_eq!(
            listed.holders,
            BTreeMap::from([(slot("0-1"), "shop/vm".into())])
        );
        assert_eq!(listed.names.len(), 2);
    }

    #[test]
    fn a_device_is_free_when_it_has_been_no_pods_for_long_enough() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let patience = Duration::from_secs(10);
        let granted = BTreeSet::from([slot("0-0"), slot("0-1")]);
        let with = |device: &str| Listed {
            holders: BTreeMap::from([(slot(device), "shop/vm".into())]),
            names: BTreeSet::from(["pool/plugin".into()]),
        };
        let own = Some("pool/plugin");
        let mut absent = Absent::default();
        let mut after =
            |seconds, listed: &Listed| absent.after(at(seconds), patience, listed, own, &granted);
        assert!(after(0, &with("0-0")).is_empty());
        assert_eq!(after(10, &with("0-0")), [slot("0-1")]);
        // It has a pod again.
        assert!(after(11, &with("0-1")).is_empty());
        assert!(after(20, &with("0-0")).is_empty());
        // kubelet has just started, and knows of no pod yet: all begins again.
        assert!(after(29, &Listed::default()).is_empty());
        assert!(after(31, &with("0-0")).is_empty());
        assert_eq!(after(41, &with("0-0")), [slot("0-1")]);
    }
}
