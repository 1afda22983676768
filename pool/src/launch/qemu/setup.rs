//! What a QEMU command line says about its guest's memory.

use super::options::{self, Given};
use super::properties::Properties;
use super::size::{self, MIB};
use crate::launch::error::PlanError;
use std::collections::BTreeSet;
use std::ffi::OsString;

/// Of all that slabs are made of.
const LARGEST_PAGE: u64 = 1 << 30;

/// An argument with properties.
#[derive(Debug)]
pub(super) struct Listed {
    /// Which argument.
    pub(super) at: usize,
    /// What it says.
    pub(super) properties: Properties,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Setup {
    /// The size after `-m`.
    pub(super) ram_bytes: Option<u64>,
    /// Each `-object memory-backend-...`.
    pub(super) backends: Vec<Listed>,
    /// The identifiers of all objects.
    pub(super) ids: BTreeSet<String>,
    /// The type of machine; its default where none is given.
    pub(super) machine: Option<String>,
    /// The backend `-machine memory-backend=` names.
    pub(super) machine_backend: Option<String>,
    /// Each `-numa node`.
    pub(super) nodes: Vec<Listed>,
    /// The backends that `-device pc-dimm,memdev=` names.
    dimms: Vec<String>,
    /// Each `-mem-path`, by argument.
    pub(super) mem_paths: Vec<usize>,
    /// Each `-mem-prealloc`, by argument.
    pub(super) mem_preallocs: Vec<usize>,
}

impl Setup {
    /// Reads a command line, its program not included.
    pub(super) fn read(arguments: &[OsString]) -> Result<Self, PlanError> {
        let mut setup = Self::default();
        for option in options::read(arguments) {
            setup.add(&option)?;
        }
        Ok(setup)
    }

    fn add(&mut self, option: &Given<'_>) -> Result<(), PlanError> {
        match (option.name, option.value) {
            ("mem-prealloc", _) => self.mem_preallocs.push(option.at),
            ("mem-path", Some(_)) => self.mem_paths.push(option.at),
            ("m", Some(value)) => {
                let list = read(option, value, "size")?;
                if let Some(bytes) = list.size("size", MIB) {
                    let bytes = bytes.map_err(|why| unreadable(option, value, why))?;
                    // 0 is the machine's own size, which is not known here.
                    self.ram_bytes = Some(bytes).filter(|bytes| *bytes > 0);
                }
            }
            ("machine" | "M", Some(value)) => {
                let list = read(option, value, "type")?;
                let (kind, backend) = (list.get("type"), list.get("memory-backend"));
                self.machine = kind.or(self.machine.take());
                self.machine_backend = backend.or(self.machine_backend.take());
            }
            ("object", Some(value)) => {
                let properties = match read(option, value, "qom-type") {
                    Ok(properties) => properties,
                    // QEMU may read it all the same, and it is no memory.
                    Err(_) if !value.contains("memory-backend-") => return Ok(()),
                    Err(error) => return Err(error),
                };
                let listed = Listed {
                    at: option.at + 1,
                    properties,
                };
                self.ids.insert(listed.id());
                if listed.kind().starts_with("memory-backend-") {
                    self.backends.push(listed);
                }
            }
            ("device", Some(value)) => {
                // What cannot be read is another device, or QEMU's to refuse.
                let list = read(option, value, "driver").ok();
                let is_free = |list: &Properties| {
                    // A slab of larger pages may not go where an address says.
                    let address = list.size("addr", 1);
                    address.is_none_or(|at| at.is_ok_and(|at| at.is_multiple_of(LARGEST_PAGE)))
                };
                let is_dimm = |list: &Properties| list.get("driver").as_deref() == Some("pc-dimm");
                let dimm = list.filter(|list| is_dimm(list) && is_free(list));
                self.dimms.extend(dimm.and_then(|list| list.get("memdev")));
            }
            ("numa", Some(value)) => {
                let listed = Listed {
                    at: option.at + 1,
                    properties: read(option, value, "type")?,
                };
                if listed.properties.get("type").as_deref() == Some("node") {
                    self.nodes.push(listed);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The backends the guest's memory is made of, by guest node.
    pub(super) fn guest_backends(&self) -> Result<Vec<&Listed>, PlanError> {
        let mut ids: Vec<String> = Vec::new();
        ids.extend(
            self.nodes
                .iter()
                .filter_map(|node| node.properties.get("memdev")),
        );
        ids.extend(self.machine_backend.clone());
        let find = |id: String| {
            let found = self.backend(&id);
            found.ok_or_else(|| PlanError::Backend {
                id,
                reason: "no -object of the command line has this id".into(),
            })
        };
        let found: Vec<&Listed> = ids.into_iter().map(find).collect::<Result<_, _>>()?;
        for (at, backend) in found.iter().enumerate() {
            if found
                .iter()
                .skip(at + 1)
                .any(|other| other.at == backend.at)
            {
                return Err(PlanError::Backend {
                    id: backend.id(),
                    reason: "it is named more than once, and is memory of one node only".into(),
                });
            }
        }
        Ok(found)
    }

    fn backend(&self, id: &str) -> Option<&Listed> {
        self.backends.iter().find(|backend| backend.id() == id)
    }

    /// The backends of DIMMs that are in the machine from the start, beside the guest's own memory.
    pub(super) fn dimm_backends(&self) -> Vec<&Listed> {
        let guest = self.guest_backends().unwrap_or_default();
        let own = |backend: &&Listed| !guest.iter().any(|one| one.at == backend.at);
        let is_dimm = |backend: &&Listed| self.dimms.contains(&backend.id());
        self.backends.iter().filter(own).filter(is_dimm).collect()
    }

    /// Those of the guest's own memory, then those of DIMMs.
    pub(super) fn all_backends(&self) -> Result<Vec<&Listed>, PlanError> {
        let mut all = self.guest_backends()?;
        all.extend(self.dimm_backends());
        Ok(all)
    }

    /// Backends whose argument is not `taken` are memory of devices: shared memory, persistent memory,
    /// DIMMs where they are not taken. One note each.
    pub(super) fn left_to_the_kernel(&self, taken: &dyn Fn(usize) -> bool) -> Vec<String> {
        let devices = self.backends.iter().filter(|backend| !taken(backend.at));
        devices
            .map(|backend| {
                format!(
                    "memory backend {} is a device's: its memory is the kernel's, not the pool's",
                    backend.id()
                )
            })
            .collect()
    }
}

impl Listed {
    /// The type of an object.
    pub(super) fn kind(&self) -> String {
        self.properties.get("qom-type").unwrap_or_default()
    }

    /// Its identifier.
    pub(super) fn id(&self) -> String {
        self.properties.get("id").unwrap_or_default()
    }

    /// Bytes of a backend.
    pub(super) fn bytes(&self) -> Result<u64, PlanError> {
        let trouble = |reason: String| PlanError::Backend {
            id: self.id(),
            reason,
        };
        let size = self.properties.size("size", 1);
        size.unwrap_or_else(|| Err("it has no size".into()))
            .map_err(trouble)
    }

    /// The memory of a node without a backend.
    pub(super) fn node_bytes(&self) -> Option<Result<u64, PlanError>> {
        let text = self.properties.get("mem")?;
        Some(
            size::parse(&text, MIB).map_err(|reason| PlanError::Unreadable {
                option: "-numa node,mem".into(),
                text,
                reason,
            }),
        )
    }
}

fn read(option: &Given<'_>, value: &str, implied: &str) -> Result<Properties, PlanError> {
    Properties::read(value, implied).map_err(|reason| unreadable(option, value, reason))
}

fn unreadable(option: &Given<'_>, value: &str, reason: String) -> PlanError {
    PlanError::Unreadable {
        option: format!("-{}", option.name),
        text: value.into(),
        reason,
    }
}
