//! Which devices there are, and which of them further pods may have: pure functions of the daemon's status.

use crate::class::{Class, DeviceId, Slot};
use crate::label;
use firstlight_pool::protocol::{PoolRow, Status};
use std::collections::{BTreeMap, BTreeSet};

/// The devices of one class: whether each is healthy.
pub type Devices = BTreeMap<DeviceId, bool>;

/// Most devices of one class and node.
const MOST: u32 = 10_000;

/// The devices that the daemon's status comes to.
///
/// There is one for each slab that is kept. Where no slab comes any more (the daemon drains, filling is off or in
/// trouble) only as many of those that are free are healthy as there are clean slabs for: a pod would wait for ever.
/// A device that a pod has stays in the list, unhealthy, when its slab is kept no more.
#[must_use]
pub fn of(status: &Status) -> BTreeMap<Class, Devices> {
    // Whether a slab was taken by it, or can be at once.
    let mut held: BTreeMap<Slot, bool> = BTreeMap::new();
    for row in &status.grants {
        if let Some(one) = label::of_grant(row) {
            *held.entry(one.slot).or_default() |= row.charged_slabs > 0;
        }
    }
    let mut all: BTreeMap<Class, Devices> = BTreeMap::new();
    for row in &status.pools {
        let class = class_of(row);
        let devices = all.entry(class).or_default();
        let comes = row.trouble.is_none() && status.gauges.fill.as_ref().is_none_or(|fill| fill.on);
        let ids = (0..row.wanted_slabs.min(MOST)).map(|index| DeviceId {
            node: row.node,
            index,
        });
        let waiting = held
            .iter()
            .filter(|(slot, has)| !**has && slot.class == class && slot.device.node == row.node)
            .count();
        let mut clean = (row.clean_slabs as usize).saturating_sub(waiting);
        for id in ids {
            let slot = Slot { class, device: id };
            let is_free = !held.contains_key(&slot);
            let has_slab = comes || !is_free || clean > 0;
            if is_free {
                clean = clean.saturating_sub(1);
            }
            devices.insert(id, has_slab && !status.draining);
        }
    }
    for slot in held.keys() {
        all.entry(slot.class)
            .or_default()
            .entry(slot.device)
            .or_insert(false);
    }
    all
}

/// The class of a pool.
#[must_use]
pub fn class_of(row: &PoolRow) -> Class {
    Class {
        page: row.page,
        bytes: row.size_class_bytes,
    }
}

/// Whether the pool keeps a slab for a device.
#[must_use]
pub fn is_kept(status: &Status, slot: &Slot) -> bool {
    status.pools.iter().any(|row| {
        class_of(row) == slot.class
            && row.node == slot.device.node
            && row.wanted_slabs > slot.device.index
    })
}

/// Why slabs are lacking, if they are.
#[must_use]
pub fn trouble(status: &Status) -> Option<String> {
    let trouble = status.pools.iter().find_map(|row| row.trouble.as_ref());
    trouble.map(|text| format!("the pool lacks slabs: {text}"))
}

/// Which devices are pods' still, and no slab is kept for, if there are any.
#[must_use]
pub fn removed(status: &Status) -> Option<String> {
    let held = status.grants.iter().filter_map(label::of_grant);
    let removed = held.filter(|held| !is_kept(status, &held.slot));
    let names: Vec<_> = removed.map(|held| held.slot.to_string()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "the pool keeps no slab any more for what pods have, until these are gone: {}",
            names.join(", ")
        )
    })
}

/// The devices that go best together, of those that are available: such that must be among them, then all on one
/// node, on that where the fewest others are left over.
#[must_use]
pub fn preferred(available: &[DeviceId], must: &[DeviceId], size: usize) -> Vec<DeviceId> {
    let mut chosen: Vec<DeviceId> = must.iter().copied().take(size).collect();
    let mut free: BTreeMap<Option<u32>, BTreeSet<DeviceId>> = BTreeMap::new();
    for device in available.iter().filter(|device| !must.contains(device)) {
        free.entry(device.node).or_default().insert(*device);
    }
    let lacks = size.saturating_sub(chosen.len());
    let has_chosen = |node: &Option<u32>| chosen.iter().any(|device| device.node == *node);
    let mut nodes: Vec<_> = free
        .iter()
        .map(|(node, devices)| {
            let left = devices.len().checked_sub(lacks);
            // Of nodes that none has enough the one with most: the fewest are of others.
            let rank = left.unwrap_or(usize::MAX - devices.len());
            (!has_chosen(node), rank, *node)
        })
        .collect();
    nodes.sort_unstable();
    let all = nodes.iter().flat_map(|(.., node)| &free[node]);
    chosen.extend(all.take(lacks));
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstlight_pool::protocol::{Filling, Gauges, GrantId, GrantRow, Label, PageSize};

    const CLASS: Class = Class {
        page: PageSize::Huge,
        bytes: 8 << 30,
    };

    fn row(node: Option<u32>, wanted_slabs: u32, clean_slabs: u32) -> PoolRow {
        PoolRow {
            page: CLASS.page,
            node,
            size_class_bytes: CLASS.bytes,
            wanted_slabs,
            clean_slabs,
            filling_slabs: 0,
            allocated_slabs: 0,
            unknown_slabs: 0,
            clean_bytes: 0,
            dirty_bytes: 0,
            allocated_bytes: 0,
            hole_bytes: 0,
            refilled_bytes: 0,
            trouble: None,
        }
    }

    fn grant(label: &str, charged_slabs: u32) -> GrantRow {
        GrantRow {
            grant: GrantId {
                prefix: 1,
                number: 1,
            },
            label: Some(Label::new(label)),
            page: CLASS.page,
            node: Some(0),
            size_class_bytes: CLASS.bytes,
            uses: 1,
            charged_slabs,
            held_slabs: charged_slabs,
        }
    }

    /// The healthy ones, and the others.
    fn listed(status: &Status) -> (Vec<String>, Vec<String>) {
        let all = of(status).remove(&CLASS).unwrap_or_default();
        let (healthy, not): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, healthy)| *healthy);
        let names =
            |some: Vec<(DeviceId, bool)>| some.iter().map(|(id, _)| id.to_string()).collect();
        (names(healthy), names(not))
    }

    #[test]
    fn each_slab_that_is_kept_is_a_device_of_its_node() {
        let status = Status {
            pools: vec![row(Some(0), 2, 0), row(Some(1), 1, 0)],
            ..Status::default()
        };
        let (healthy, others) = listed(&status);
        assert_eq!(healthy, ["0-0", "0-1", "1-0"]);
        assert!(others.is_empty());
    }

    #[test]
    fn where_no_slab_comes_a_free_device_has_a_clean_one_or_is_not_healthy() {
        let trouble = PoolRow {
            trouble: Some("no huge page is free".into()),
            ..row(Some(0), 4, 2)
        };
        // One pod has its slab, another has not taken it yet: of two clean ones one is left.
        let grants = vec![grant("k8s 2m-8g/0-0 a/b", 1), grant("k8s 2m-8g/0-3 a/c", 0)];
        let status = Status {
            pools: vec![trouble],
            grants,
            ..Status::default()
        };
        let (healthy, others) = listed(&status);
        assert_eq!(healthy, ["0-0", "0-1", "0-3"]);
        assert_eq!(others, ["0-2"]);
        let fill = Some(Filling { on: false, rate: 0 });
        let off = Status {
            pools: vec![row(Some(0), 2, 1)],
            gauges: Gauges {
                fill,
                ..Gauges::default()
            },
            ..Status::default()
        };
        assert_eq!(listed(&off).0, ["0-0"]);
    }

    #[test]
    fn a_daemon_that_drains_has_no_healthy_device() {
        let status = Status {
            pools: vec![row(None, 2, 2)],
            draining: true,
            ..Status::default()
        };
        let (healthy, others) = listed(&status);
        assert!(healthy.is_empty());
        assert_eq!(others, ["any-0", "any-1"]);
    }

    #[test]
    fn a_device_that_a_pod_has_outlives_its_slab_unhealthy() {
        let mut status = Status {
            pools: vec![row(Some(0), 1, 1)],
            grants: vec![grant("k8s 2m-8g/0-1 a/b", 1), grant("not of a pod", 1)],
            ..Status::default()
        };
        assert_eq!(listed(&status), (vec!["0-0".into()], vec!["0-1".into()]));
        let text = removed(&status).unwrap();
        assert!(text.ends_with("until these are gone: 2m-8g/0-1"), "{text}");
        status.grants.remove(0);
        assert_eq!(removed(&status), None);
        status.grants.insert(0, grant("k8s 2m-8g/0-1 a/b", 1));
        status.pools.clear();
        assert_eq!(listed(&status), (vec![], vec!["0-1".into()]));
    }

    #[test]
    fn devices_of_one_node_go_together() {
        let ids = |names: &str| -> Vec<DeviceId> {
            names
                .split_whitespace()
                .map(|name| name.parse().unwrap())
                .collect()
        };
        let table = [
            // available, must be, how many, chosen
            ("0-0 0-1 1-0 1-1 1-2", "", 2, "0-0 0-1"),
            ("0-0 1-0 1-1 1-2", "", 2, "1-0 1-1"),
            ("0-0 0-1 1-0 1-1 1-2", "1-2", 2, "1-2 1-0"),
            ("0-0 1-0 1-1", "", 3, "1-0 1-1 0-0"),
            ("0-0 1-0", "0-0", 1, "0-0"),
            ("0-0", "", 3, "0-0"),
            ("any-1 any-0", "", 1, "any-0"),
        ];
        for (available, must, size, chosen) in table {
            let got = preferred(&ids(available), &ids(must), size);
            assert_eq!(got, ids(chosen), "{available} | {must} | {size}");
        }
    }
}
