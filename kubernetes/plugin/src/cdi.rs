//! What a container runtime adds to a container of a claim: a file of the Container Device Interface for each claim.
//!
//! The file is there before the claim has a grant, and is removed after the last of them has ended: so files name every
//! claim that may have one, as long as nothing else removes them.

use crate::class::Slot;
use crate::label::is_name;
use firstlight_pool::client::SOCKET_VARIABLE;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};

/// Where containers have the folders of their devices.
pub const IN_CONTAINER: &str = "/run/firstlight";
/// Where containers have the program that starts VMMs on them.
pub const CLIENT: &str = "/run/firstlight/bin/firstlight-pool";

const KIND: &str = "firstlight.dev/slab";
const CLAIM: &str = "firstlight.dev/claim";
const PREFIX: &str = "firstlight.dev-slab-";

/// A device of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// Which.
    pub slot: Slot,
    /// The link to its folder, on the host.
    pub link: PathBuf,
    /// The claim's request that it was given for.
    pub request: String,
}

/// A claim that has a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Its UID.
    pub uid: String,
    /// Its name space.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The folder of such files.
#[derive(Debug, Clone)]
pub struct Cdi {
    folder: PathBuf,
    client: Option<PathBuf>,
}

impl Cdi {
    /// This one, for containers that get this program of the host.
    #[must_use]
    pub fn new(folder: PathBuf, client: Option<PathBuf>) -> Self {
        Self { folder, client }
    }

    /// The runtime's name of a device of a claim.
    #[must_use]
    pub fn id(uid: &str, slot: &Slot) -> String {
        format!("{KIND}={}", device_name(uid, slot))
    }

    fn path(&self, uid: &str) -> PathBuf {
        self.folder.join(format!("{PREFIX}{uid}.json"))
    }

    /// Removes what was not written to its end when this program was killed.
    pub fn clean(&self) {
        for name in self.names() {
            if name.starts_with(PREFIX) && name.ends_with(".new") {
                // What is not removed is of no more harm than it was.
                let _ = std::fs::remove_file(self.folder.join(name));
            }
        }
    }

    fn names(&self) -> impl Iterator<Item = String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
    }

    /// A claim's containers have these devices from now on. `called` is what pods call the claim.
    ///
    /// # Errors
    /// Why the file can't be written, in words.
    pub fn write(&self, claim: &Known, called: &str, devices: &[Added]) -> Result<(), String> {
        let path = self.path(&claim.uid);
        // The runtime reads what ends with .json.
        let new = path.with_extension("new");
        let text = self.text(claim, called, devices).to_string();
        let written = std::fs::create_dir_all(&self.folder)
            .and_then(|()| std::fs::write(&new, text))
            .and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| {
            let _ = std::fs::remove_file(&new);
            format!(
                "cannot write {} for the container runtime: {error}",
                path.display()
            )
        })
    }

    fn text(&self, claim: &Known, called: &str, devices: &[Added]) -> Value {
        let mut all = Vec::new();
        for (at, one) in devices.iter().enumerate() {
            // By its own name, which no other device of the node has: a container may have several claims.
            let folder = format!("{IN_CONTAINER}/{}", one.slot.name());
            let socket = format!("{folder}/pool.sock");
            let before = devices[..at].iter();
            let nth = before.filter(|other| other.request == one.request).count();
            // Claims of one template have the same requests.
            let request = variable(&format!("{called}_{}", one.request));
            all.push(json!({
                "name": device_name(&claim.uid, &one.slot),
                "containerEdits": {
                    "env": [
                        format!("{SOCKET_VARIABLE}={socket}"),
                        format!("{SOCKET_VARIABLE}_{request}_{nth}={socket}"),
                    ],
                    "mounts": [mount(&one.link, &folder)],
                },
            }));
        }
        let client = self.client.iter().map(|client| mount(client, CLIENT));
        json!({
            "cdiVersion": "0.6.0",
            "kind": KIND,
            "annotations": {CLAIM: format!("{}/{}", claim.namespace, claim.name)},
            "devices": all,
            "containerEdits": {"mounts": client.collect::<Vec<_>>()},
        })
    }

    /// A claim has no devices any more.
    ///
    /// # Errors
    /// Why its file is still there, in words.
    pub fn remove(&self, uid: &str) -> Result<(), String> {
        let path = self.path(uid);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("cannot remove {}: {error}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// The UIDs of all claims that have a file, whatever is in it.
    #[must_use]
    pub fn uids(&self) -> Vec<String> {
        let uid = |name: String| {
            let uid = name.strip_prefix(PREFIX)?.strip_suffix(".json")?;
            Some(uid.to_owned())
        };
        self.names().filter_map(uid).collect()
    }

    /// What a claim's file says of it, if there is one.
    ///
    /// # Errors
    /// That it says nothing, in words.
    pub fn read(&self, uid: &str) -> Result<Option<Known>, String> {
        let path = self.path(uid);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| format!("cannot read {}: {error}", path.display()))?,
        };
        let (namespace, name) = claim_in(&text)
            .ok_or_else(|| format!("{} does not say whose it is", path.display()))?;
        Ok(Some(Known {
            uid: uid.into(),
            namespace,
            name,
        }))
    }
}

/// The name space and the name of the claim that a file is for.
fn claim_in(text: &[u8]) -> Option<(String, String)> {
    let file: Value = serde_json::from_slice(text).ok()?;
    let (namespace, name) = file["annotations"][CLAIM].as_str()?.split_once('/')?;
    (is_name(namespace) && is_name(name)).then(|| (namespace.into(), name.into()))
}

fn device_name(uid: &str, slot: &Slot) -> String {
    format!("{uid}-{}", slot.name())
}

/// As a part of a variable's name.
fn variable(name: &str) -> String {
    let plain = |one: char| {
        if one.is_ascii_alphanumeric() {
            one
        } else {
            '_'
        }
    };
    name.chars().map(plain).collect::<String>().to_uppercase()
}

fn mount(host: &Path, container: &str) -> Value {
    json!({
        "hostPath": host,
        "containerPath": container,
        "options": ["bind", "ro", "nosuid", "nodev"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::odd::odd;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_file_of_any_shape_names_a_claim_or_none(
            file in odd(json!({"kind": KIND, "annotations": {CLAIM: "shop/vm"}})),
            cut in any::<proptest::sample::Index>(),
            bytes in any::<Vec<u8>>(),
        ) {
            let text = file.to_string();
            let half = &text.as_bytes()[..cut.index(text.len())];
            for text in [text.as_bytes(), half, &bytes] {
                if let Some((namespace, name)) = claim_in(text) {
                    prop_assert!(is_name(&namespace) && is_name(&name));
                }
            }
        }
    }

    fn claim() -> Known {
        Known {
            uid: "3f2a9c11-b0d3-4e21-8c55-0242ac120002".into(),
            namespace: "shop".into(),
            name: "vm-1-slab".into(),
        }
    }

    fn added(name: &str, request: &str) -> Added {
        Added {
            slot: Slot::of_name(name).unwrap(),
            link: Path::new("/run/firstlight/kubernetes").join(name),
            request: request.into(),
        }
    }

    #[test]
    fn each_device_has_a_folder_and_a_variable_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let cdi = Cdi::new(folder.path().join("cdi"), Some("/host/client".into()));
        let devices = [
            added("2m-8g-0-1", "memory"),
            added("2m-8g-1-0", "memory"),
            added("2m-2g-any-7", "one/large"),
        ];
        cdi.write(&claim(), "slab", &devices).unwrap();
        let text = std::fs::read(cdi.path(&claim().uid)).unwrap();
        let file: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(file["kind"], "firstlight.dev/slab");
        let variables: Vec<_> = (0..3)
            .map(|at| {
                file["devices"][at]["containerEdits"]["env"][1]
                    .as_str()
                    .unwrap()
            })
            .collect();
        assert_eq!(
            variables,
            [
                "FIRSTLIGHT_POOL_SLAB_MEMORY_0=/run/firstlight/2m-8g-0-1/pool.sock",
                "FIRSTLIGHT_POOL_SLAB_MEMORY_1=/run/firstlight/2m-8g-1-0/pool.sock",
                "FIRSTLIGHT_POOL_SLAB_ONE_LARGE_0=/run/firstlight/2m-2g-any-7/pool.sock",
            ]
        );
        let first = &file["devices"][0];
        assert_eq!(
            format!("firstlight.dev/slab={}", first["name"].as_str().unwrap()),
            Cdi::id(&claim().uid, &devices[0].slot)
        );
        let mount = &first["containerEdits"]["mounts"][0];
        assert_eq!(mount["hostPath"], "/run/firstlight/kubernetes/2m-8g-0-1");
        assert_eq!(mount["containerPath"], "/run/firstlight/2m-8g-0-1");
        let options = mount["options"].as_array().unwrap();
        assert!(options.contains(&"ro".into()));
        assert_eq!(
            file["containerEdits"]["mounts"][0]["hostPath"],
            "/host/client"
        );
    }

    #[test]
    fn a_claim_is_known_for_as_long_as_it_has_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let cdi = Cdi::new(folder.path().into(), None);
        assert_eq!(cdi.uids(), [""; 0]);
        std::fs::write(folder.path().join("other.json"), "{}").unwrap();
        std::fs::write(folder.path().join("other.new"), "{").unwrap();
        let half = cdi.path(&claim().uid).with_extension("new");
        std::fs::write(&half, "{").unwrap();
        cdi.clean();
        assert!(!half.exists());
        assert!(folder.path().join("other.new").exists());
        cdi.write(&claim(), "slab", &[added("2m-8g-0-1", "memory")])
            .unwrap();
        assert_eq!(cdi.uids(), [claim().uid]);
        assert_eq!(cdi.read(&claim().uid), Ok(Some(claim())));
        for text in [
            "{",
            "{}",
            r#"{"annotations": {"firstlight.dev/claim": "../x"}}"#,
        ] {
            std::fs::write(cdi.path(&claim().uid), text).unwrap();
            let error = cdi.read(&claim().uid).unwrap_err();
            assert!(error.contains("does not say whose it is"), "{error}");
        }
        cdi.remove(&claim().uid).unwrap();
        cdi.remove(&claim().uid).unwrap();
        assert_eq!(cdi.uids(), [""; 0]);
        assert_eq!(cdi.read(&claim().uid), Ok(None));
        let nowhere = Cdi::new("/proc/nowhere".into(), None);
        let text = nowhere.write(&claim(), "slab", &[]).unwrap_err();
        assert!(text.contains("cannot write /proc/nowhere/"), "{text}");
    }
}
