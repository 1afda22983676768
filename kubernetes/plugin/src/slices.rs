//! What the scheduler knows of a node's devices: `ResourceSlice`s of `resource.k8s.io/v1`, and what has to change so that
//! it is what there is. Pure functions.

use crate::class::{Class, Slot};
use crate::devices::Devices;
use firstlight_pool::config::Size;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The driver's name, also of its attributes: `device.attributes["pool.firstlight.dev"].page`.
pub const DRIVER: &str = "pool.firstlight.dev";
/// Where slices are.
pub const COLLECTION: &str = "/apis/resource.k8s.io/v1/resourceslices";
/// Most devices of a slice.
const MOST: usize = 128;

/// A slice of a node's devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSlice {
    api_version: &'static str,
    kind: &'static str,
    /// As it came, so that nothing of it is lost when it goes back.
    pub metadata: Map<String, Value>,
    /// What it says.
    pub spec: Spec,
}

impl ResourceSlice {
    fn new(metadata: Map<String, Value>, spec: Spec) -> Self {
        Self {
            api_version: "resource.k8s.io/v1",
            kind: "ResourceSlice",
            metadata,
            spec,
        }
    }

    fn name(&self) -> &str {
        let name = self.metadata.get("name").and_then(Value::as_str);
        name.unwrap_or_default()
    }
}

/// What a slice says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Whose.
    pub driver: String,
    /// Where it belongs to.
    pub pool: Pool,
    /// On which node.
    #[serde(default)]
    pub node_name: String,
    /// What there is.
    #[serde(default)]
    pub devices: Vec<Device>,
}

/// All slices of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// The node's name.
    pub name: String,
    /// Those with the highest one count.
    #[serde(default)]
    pub generation: u64,
    /// How many these are.
    pub resource_slice_count: usize,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name in the pool.
    pub name: String,
    /// What claims may choose by.
    #[serde(default)]
    pub attributes: BTreeMap<String, Attribute>,
    /// How much it is.
    #[serde(default)]
    pub capacity: BTreeMap<String, Capacity>,
}

/// A value that claims may choose by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Attribute {
    /// A word.
    String(String),
    /// A number.
    Int(i64),
    /// Yes or no.
    Bool(bool),
    /// A version.
    Version(String),
}

/// An amount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// As Kubernetes writes it.
    pub value: String,
}

/// The slices of a node in an apiserver's list, which may have any shape: of one that is not understood the name and the
/// generation are kept, so that it is replaced.
#[must_use]
pub fn of(list: &Value, node: &str) -> Vec<ResourceSlice> {
    let items = list["items"].as_array().into_iter().flatten();
    let slices = items.filter_map(|item| {
        let spec = &item["spec"];
        let is_own = spec["driver"] == DRIVER && spec["nodeName"] == node;
        let metadata = item["metadata"].as_object().filter(|_| is_own)?;
        let spec = Spec::deserialize(spec).unwrap_or_else(|_| Spec {
            pool: Pool {
                generation: spec["pool"]["generation"].as_u64().unwrap_or_default(),
                ..Pool::default()
            },
            ..Spec::default()
        });
        Some(ResourceSlice::new(metadata.clone(), spec))
    });
    slices.filter(|slice| !slice.name().is_empty()).collect()
}

/// As of when a list is: from here on changes are told.
#[must_use]
pub fn version(list: &Value) -> &str {
    let version = list["metadata"]["resourceVersion"].as_str();
    version.unwrap_or_default()
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// With it all goes that belongs to it.
    pub uid: String,
}

/// Where the slices of a node are.
#[must_use]
pub fn selection(node: &str) -> String {
    format!("{COLLECTION}?fieldSelector=spec.nodeName%3D{node},spec.driver%3D{DRIVER}")
}

/// A number of bytes as Kubernetes writes it, in the largest unit that it is a multiple of.
fn quantity(bytes: u64) -> String {
    let units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let unit = (bytes.trailing_zeros() / 10).min(6);
    if bytes == 0 {
        return "0".into();
    }
    format!("{}{}", bytes >> (10 * unit), units[unit as usize])
}

/// The devices that further claims may have, as slices have them.
#[must_use]
pub fn wanted(all: &BTreeMap<Class, Devices>) -> Vec<Device> {
    let healthy = all.iter().flat_map(|(class, devices)| {
        let healthy = devices.iter().filter(|(_, is_healthy)| **is_healthy);
        healthy.map(|(device, _)| Slot {
            class: *class,
            device: *device,
        })
    });
    healthy.map(|slot| device(&slot)).collect()
}

fn device(slot: &Slot) -> Device {
    let word = |text: String| Attribute::String(text);
    let mut attributes = BTreeMap::from([
        ("class".into(), word(slot.class.to_string())),
        (
            "page".into(),
            word(slot.class.page.to_string().to_lowercase()),
        ),
        (
            "size".into(),
            word(Size::new(slot.class.bytes).to_string().to_lowercase()),
        ),
    ]);
    if let Some(node) = slot.device.node {
        attributes.insert("node".into(), Attribute::Int(node.into()));
    }
    let value = quantity(slot.class.bytes);
    Device {
        name: slot.name(),
        attributes,
        capacity: BTreeMap::from([("memory".into(), Capacity { value })]),
    }
}

/// What has to be done to a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is a new one.
    Create(Box<ResourceSlice>),
    /// The one of this name says something else from now on.
    Replace(String, Box<ResourceSlice>),
    /// The one of this name is no more.
    Remove(String),
}

/// What has to be done so that a node's slices have these devices, in order: nothing where they have.
#[must_use]
pub fn changes(node: &Node, devices: &[Device], there: &[ResourceSlice]) -> Vec<Change> {
    let chunks: Vec<_> = devices.chunks(MOST).collect();
    let count = chunks.len();
    let last = there.iter().map(|slice| slice.spec.pool.generation).max();
    let is_so = there.len() == count
        && there.iter().all(|slice| {
            let pool = &slice.spec.pool;
            pool.name == node.name
                && pool.resource_slice_count == count
                && Some(pool.generation) == last
        })
        && chunks
            .iter()
            .all(|chunk| there.iter().any(|slice| slice.spec.devices == *chunk));
    if is_so {
        return Vec::new();
    }
    let generation = last.map_or(1, |last| last.saturating_add(1));
    let spec = |chunk: &[Device]| Spec {
        driver: DRIVER.into(),
        pool: Pool {
            name: node.name.clone(),
            generation,
            resource_slice_count: count,
        },
        node_name: node.name.clone(),
        devices: chunk.to_vec(),
    };
    let mut all = Vec::new();
    for (at, chunk) in chunks.iter().enumerate() {
        all.push(match there.get(at) {
            Some(slice) => Change::Replace(
                slice.name().into(),
                Box::new(ResourceSlice::new(slice.metadata.clone(), spec(chunk))),
            ),
            None => Change::Create(Box::new(ResourceSlice::new(metadata(node), spec(chunk)))),
        });
    }
    let left = there.iter().skip(count);
    all.extend(left.map(|slice| Change::Remove(slice.name().into())));
    all
}

fn metadata(node: &Node) -> Map<String, Value> {
    let owner = json!({
        "apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid, "controller": true,
    });
    let mut metadata = Map::new();
    metadata.insert(
        "generateName".into(),
        format!("{}-{DRIVER}-", node.name).into(),
    );
    metadata.insert("ownerReferences".into(), Value::Array(vec![owner]));
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::odd::odd;
    use proptest::prelude::*;

    fn node() -> Node {
        Node {
            name: "node1".into(),
            uid: "u".into(),
        }
    }

    fn devices(count: u32) -> Vec<Device> {
        let class: Class = "2m-8g".parse().unwrap();
        let ids = (0..count).map(|index| (format!("0-{index}").parse().unwrap(), true));
        wanted(&BTreeMap::from([(class, ids.collect())]))
    }

    /// What an apiserver has after changes.
    fn apply(there: &mut Vec<ResourceSlice>, changes: Vec<Change>) {
        let named = |slice: &ResourceSlice, name: &str| slice.metadata["name"] == name;
        for (at, change) in changes.into_iter().enumerate() {
            match change {
                Change::Create(mut slice) => {
                    let name = format!("made-{}-{at}", slice.spec.pool.generation);
                    slice.metadata.insert("name".into(), name.into());
                    there.push(*slice);
                }
                Change::Replace(name, slice) => {
                    let at = there.iter().position(|slice| named(slice, &name)).unwrap();
                    there[at] = *slice;
                }
                Change::Remove(name) => there.retain(|slice| !named(slice, &name)),
            }
        }
    }

    fn list() -> Value {
        let mut there = Vec::new();
        apply(&mut there, changes(&node(), &devices(130), &[]));
        for slice in &mut there {
            slice.spec.devices.truncate(2);
        }
        json!({"metadata": {"resourceVersion": "7"}, "items": there})
    }

    proptest! {
        #[test]
        fn from_a_list_of_any_shape_one_turn_of_changes_is_enough(list in odd(list()), count in 0u32..3) {
            let mut there = of(&list, "node1");
            let _ = version(&list);
            let turn = changes(&node(), &devices(count), &there);
            apply(&mut there, turn);
            prop_assert_eq!(changes(&node(), &devices(count), &there), []);
        }
    }

    #[test]
    fn a_device_says_what_claims_choose_by() {
        let value = serde_json::to_value(devices(1)).unwrap();
        assert_eq!(
            value,
            json!([{
                "name": "2m-8g-0-0",
                "attributes": {
                    "class": {"string": "2m-8g"},
                    "node": {"int": 0},
                    "page": {"string": "2m"},
                    "size": {"string": "8g"},
                },
                "capacity": {"memory": {"value": "8Gi"}},
            }])
        );
    }

    #[test]
    fn amounts_are_as_kubernetes_writes_them() {
        let table = [
            (0, "0"),
            (1, "1"),
            (1536 << 20, "1536Mi"),
            (64 << 20, "64Mi"),
            (8 << 30, "8Gi"),
            (1 << 40, "1Ti"),
            (1 << 63, "8Ei"),
        ];
        for (bytes, text) in table {
            assert_eq!(quantity(bytes), text);
        }
    }

    #[test]
    fn of_devices_that_are_not_healthy_none_is_told() {
        let class: Class = "thp-2m".parse().unwrap();
        let all = [("any-0", true), ("any-1", false)].map(|(id, on)| (id.parse().unwrap(), on));
        let told = wanted(&BTreeMap::from([(class, BTreeMap::from(all))]));
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].name, "thp-2m-any-0");
        assert!(!told[0].attributes.contains_key("node"));
    }

    #[test]
    fn from_whatever_there_is_one_turn_of_changes_is_enough() {
        let mut there = Vec::new();
        let mut last = 0;
        for count in [0, 3, 128, 129, 400, 400, 256, 2, 0, 0, 1] {
            let devices = devices(count);
            let turn = changes(&node(), &devices, &there);
            apply(&mut there, turn);
            assert_eq!(changes(&node(), &devices, &there), []);
            let told: Vec<_> = there.iter().flat_map(|slice| &slice.spec.devices).collect();
            assert_eq!(told.len(), devices.len());
            assert!(devices.iter().all(|one| told.contains(&one)));
            // Where there is none counting begins anew.
            last = if there.is_empty() { 0 } else { last };
            for slice in &there {
                assert_eq!(slice.spec.pool.resource_slice_count, there.len());
                assert!(slice.spec.pool.generation >= last);
                last = slice.spec.pool.generation;
            }
        }
    }

    #[test]
    fn of_a_list_all_is_passed_over_that_is_not_of_this_node() {
        let mut own = Vec::new();
        apply(&mut own, changes(&node(), &devices(3), &[]));
        let own = serde_json::to_value(&own[0]).unwrap();
        let with = |spoil: fn(&mut Value)| {
            let mut slice = own.clone();
            spoil(&mut slice);
            slice
        };
        let list = json!({"kind": "ResourceSliceList", "items": [
            with(|slice| slice["spec"]["driver"] = "gpu.example.com".into()),
            with(|slice| slice["spec"]["nodeName"] = "node2".into()),
            with(|slice| drop(slice["spec"].take())),
            with(|slice| drop(slice["metadata"].take())),
            with(|slice| slice["metadata"]["name"] = 7.into()),
            null,
        ]});
        assert_eq!(of(&list, "node1"), []);
        assert_eq!(of(&json!({"items": null}), "node1"), []);
        // What a later version of the interface may say.
        let newer = with(|slice| {
            slice["spec"]["devices"][0]["taints"] = json!([]);
            slice["spec"]["sharedCounters"] = Value::Null;
        });
        let there = of(&json!({"items": [newer]}), "node1");
        assert_eq!(changes(&node(), &devices(3), &there), []);
        // What it can't say here is replaced.
        for (last, next) in [(41, 42), (u64::MAX, u64::MAX)] {
            let mut odd = own.clone();
            odd["spec"]["devices"][0]["attributes"]["page"] = json!({"bools": [true]});
            odd["spec"]["pool"]["generation"] = last.into();
            let there = of(&json!({"items": [odd]}), "node1");
            let turn = changes(&node(), &devices(3), &there);
            let [Change::Replace(name, slice)] = &turn[..] else {
                panic!("{turn:?}")
            };
            assert_eq!(name, "made-1-0");
            assert_eq!(slice.spec.pool.generation, next);
        }
    }

    #[test]
    fn what_another_wrote_is_put_right() {
        let mut there = Vec::new();
        apply(&mut there, changes(&node(), &devices(3), &[]));
        let mut wrong = there.clone();
        wrong[0].spec.devices.pop();
        assert_eq!(changes(&node(), &devices(3), &wrong).len(), 1);
        let mut twice = there.clone();
        let mut second = there[0].clone();
        second.metadata.insert("name".into(), "other".into());
        twice.push(second);
        let turn = changes(&node(), &devices(3), &twice);
        apply(&mut twice, turn);
        assert_eq!(twice.len(), 1);
        assert_eq!(twice[0].spec.pool.generation, 2);
    }
}
