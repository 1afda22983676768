//! QEMU: which arguments make it use files of the pool.
//!
//! A file of the pool is a `memory-backend-file` that is mapped shared. What
//! the command line says about the guest's memory decides where it goes:
//!
//! | command line | the pool's file |
//! |---|---|
//! | nothing, or only `-m` | a new object, named by `-machine memory-backend=` |
//! | `-machine memory-backend=ID` | takes the place of that object |
//! | `-numa node,memdev=ID` | take the place of those objects |
//! | `-numa node` without `memdev` | new objects, named by the nodes |
//! | nothing, several `--memory` | new objects and a `-numa node` for each |
//! | `-device pc-dimm,memdev=ID` | take the place of those objects, too |
//!
//! What would copy the memory (`share=off`, `-mem-path`) is replaced and noted;
//! a file whose content may be wanted is not, nor what a file of options says (`readconfig.rs`).

mod machine;
mod nodes;
mod options;
pub(super) mod probe;
mod properties;
pub(super) mod readconfig;
mod setup;
mod size;
#[cfg(test)]
mod tests;

use super::backing::Backing;
use super::error::{PlanError, same};
use super::need::Need;
use properties::Properties;
use setup::{Listed, Setup};
use size::MIB;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Properties of a backend that say nothing about where its memory comes from, or that a
/// slab obeys (`nodes.rs`).
const KEPT: [&str; 7] = [
    "id",
    "size",
    "dump",
    "merge",
    "host-nodes",
    "policy",
    "x-use-canonical-path-for-ramblock-id",
];

/// `host-nodes.0`, one of a list.
fn is_host_node(name: &str) -> bool {
    let at = name.strip_prefix("host-nodes.");
    at.is_some_and(|at| at.bytes().all(|digit| digit.is_ascii_digit()))
}

/// The guest's name, as the last `-name` has it that has one.
pub(super) fn name(arguments: &[OsString]) -> Option<String> {
    let mut given = options::read(arguments).into_iter().rev();
    given.find_map(|option| {
        let value = option.value.filter(|_| option.name == "name")?;
        let list = Properties::read(value, "guest").ok()?;
        list.get("guest").filter(|name| !name.is_empty())
    })
}

/// A command line and how it changes.
#[derive(Debug)]
pub(super) struct QemuPlan {
    arguments: Vec<OsString>,
    pub(super) needs: Vec<Need>,
    pub(super) notes: Vec<String>,
    backends: Vec<Backend>,
    /// What names new backends, by argument or to be added.
    names: Names,
    /// Arguments that would get in the way of the pool's memory.
    dropped: BTreeSet<usize>,
    /// `-m`, where there is none.
    ram: Option<String>,
}

/// A backend: the object that is replaced, or what a new one is like.
#[derive(Debug)]
struct Backend {
    at: Option<usize>,
    like: Properties,
}

#[derive(Debug, Default)]
struct Names {
    replaced: BTreeMap<usize, String>,
    added: Vec<[String; 2]>,
    /// Whether the command line is complete without them.
    only_for_pool: bool,
}

impl Names {
    fn is_empty(&self) -> bool {
        self.replaced.is_empty() && self.added.is_empty()
    }
}

impl QemuPlan {
    /// Plans `program` with `arguments` and `asked` memory; `is_file` tells whether a path
    /// names a file or a device that exists, not a folder.
    pub(super) fn new(
        program: &OsStr,
        arguments: &[OsString],
        asked: &[Need],
        is_file: &dyn Fn(&Path) -> bool,
    ) -> Result<Self, PlanError> {
        if !readconfig::memory(arguments)?.is_empty() {
            return Err(PlanError::Unreadable {
                option: "-readconfig".into(),
                text: "the guest's memory".into(),
                reason: "a file of options is not rewritten: make it memory-backend-memfd with \
                         share=on, which is served as it stands (--inject), or move [machine], \
                         [memory], [object] and [numa] to the command line"
                    .into(),
            });
        }
        let setup = Setup::read(arguments)?;
        let mut plan = Self {
            arguments: arguments.to_vec(),
            needs: Vec::new(),
            notes: Vec::new(),
            backends: Vec::new(),
            names: Names::default(),
            dropped: BTreeSet::new(),
            ram: None,
        };
        let named = setup.guest_backends()?;
        if !named.is_empty() {
            plan.needs = needs(&named, asked)?;
            for backend in named {
                plan.replace(backend, is_file)?;
            }
        } else if !setup.nodes.is_empty() {
            plan.name_in_nodes(program, &setup, asked)?;
        } else {
            plan.rename(program, &setup, asked)?;
        }
        plan.check_total(&setup)?;
        plan.add_dimms(&setup, is_file);
        plan.drop_copies(&setup);
        let taken: BTreeSet<_> = plan.backends.iter().filter_map(|one| one.at).collect();
        let notes = setup.left_to_the_kernel(&|at| taken.contains(&at));
        plan.notes.extend(notes);
        Ok(plan)
    }

    /// The object of the command line gives way to the pool's.
    fn replace(
        &mut self,
        backend: &Listed,
        is_file: &dyn Fn(&Path) -> bool,
    ) -> Result<(), PlanError> {
        let id = backend.id();
        let refuse = |reason: String| {
            Err(PlanError::Backend {
                id: id.clone(),
                reason,
            })
        };
        let list = &backend.properties;
        let kind = backend.kind();
        match kind.as_str() {
            "memory-backend-ram" | "memory-backend-memfd" => {}
            "memory-backend-file" => {
                for switch in ["readonly", "pmem"] {
                    if list.is_on(switch, false) {
                        return refuse(format!("{switch}=on needs a file of its own"));
                    }
                }
                let path = list.get("mem-path").unwrap_or_default();
                if is_file(Path::new(&path)) {
                    return refuse(format!(
                        "its file {path} would not be used; remove the file if its content \
                         is not needed, or make the backend a memory-backend-ram"
                    ));
                }
            }
            _ => return refuse(format!("a {kind} cannot be provided by the pool")),
        }
        if !list.is_on("share", true) {
            self.notes.push(format!(
                "share=off of {id} becomes share=on: a private mapping would copy all memory"
            ));
        }
        self.backends.push(Backend {
            at: Some(backend.at),
            like: list
                .like()
                .with_those(list, |name| KEPT.contains(&name) || is_host_node(name)),
        });
        Ok(())
    }

    /// Guest nodes that name no backend are given one.
    fn name_in_nodes(
        &mut self,
        program: &OsStr,
        setup: &Setup,
        asked: &[Need],
    ) -> Result<(), PlanError> {
        let nodes = &setup.nodes;
        let sizes: Vec<u64> = nodes
            .iter()
            .filter_map(Listed::node_bytes)
            .collect::<Result<_, _>>()?;
        if !asked.is_empty() && asked.len() != nodes.len() {
            return Err(PlanError::Nodes {
                seen: nodes.len(),
                asked: asked.len(),
            });
        }
        let complete = sizes.len() == nodes.len();
        if complete {
            for (at, (need, bytes)) in asked.iter().zip(&sizes).enumerate() {
                same(&format!("the {}. -numa node,mem", at + 1), *bytes, need)?;
            }
        }
        self.needs = match (asked, complete) {
            ([], true) => sizes
                .into_iter()
                .map(|bytes| Need { bytes, node: None })
                .collect(),
            ([], false) => return Err(PlanError::NodeSizes { seen: nodes.len() }),
            _ => asked.to_vec(),
        };
        self.names.only_for_pool = complete;
        for (at, node) in nodes.iter().enumerate() {
            let id = self.add_backend(at, program, setup);
            let list = &node.properties;
            let list = list.like().with_those(list, |name| name != "mem");
            let text = list.with("memdev", id).write("type");
            self.names.replaced.insert(node.at, text);
        }
        Ok(())
    }

    /// Nothing names a backend: new ones, one for each `--memory`.
    fn rename(&mut self, program: &OsStr, setup: &Setup, asked: &[Need]) -> Result<(), PlanError> {
        self.needs = match (asked, setup.ram_bytes) {
            ([], None) => return Err(PlanError::NoSize),
            ([], Some(bytes)) => vec![Need { bytes, node: None }],
            _ => asked.to_vec(),
        };
        self.names.only_for_pool = self.needs.len() == 1;
        for at in 0..self.needs.len() {
            let id = self.add_backend(at, program, setup);
            self.names.added.push(if self.needs.len() == 1 {
                ["-machine".into(), format!("memory-backend={id}")]
            } else {
                ["-numa".into(), format!("node,nodeid={at},memdev={id}")]
            });
        }
        Ok(())
    }

    /// A new backend for the need `at`. The only one of a command line that is complete without
    /// it has the machine's own name, or what was saved with it would load nowhere else.
    fn add_backend(&mut self, at: usize, program: &OsStr, setup: &Setup) -> String {
        let mut id = format!("firstlight{at}");
        while setup.ids.contains(&id) {
            id.push('x');
        }
        let bytes = self.needs.get(at).map_or(0, |need| need.bytes);
        let mut named = false;
        if self.names.only_for_pool {
            let own = machine::ram_name(program, setup.machine.as_deref());
            let own = own.filter(|own| self.needs.len() == 1 && !setup.ids.contains(*own));
            if let Some(own) = own {
                id = own.into();
                named = true;
            } else {
                self.notes.push(format!(
                    "the guest's memory is named {id}: a snapshot or a migration of it loads only \
                     where it has that name"
                ));
            }
        }
        let mut like = Properties::new().with("id", id.clone()).with("size", bytes);
        if named {
            // Early machine types would put a path before the name.
            like = like.with("x-use-canonical-path-for-ramblock-id", "off");
        }
        self.backends.push(Backend { at: None, like });
        id
    }

    /// `-m` and the backends must agree, or QEMU refuses.
    fn check_total(&mut self, setup: &Setup) -> Result<(), PlanError> {
        let bytes = self.needs.iter().map(|need| need.bytes);
        let total = bytes.fold(0, u64::saturating_add);
        match setup.ram_bytes {
            None if total.is_multiple_of(MIB) => self.ram = Some(format!("{}M", total / MIB)),
            None => self.ram = Some(format!("{total}B")),
            Some(seen) => same(
                "-m",
                seen,
                &Need {
                    bytes: total,
                    node: None,
                },
            )?,
        }
        Ok(())
    }

    /// DIMMs come from the pool beside the guest's own memory, of which `-m` speaks. One that a
    /// slab cannot be stays the kernel's.
    fn add_dimms(&mut self, setup: &Setup, is_file: &dyn Fn(&Path) -> bool) {
        for dimm in setup.dimm_backends() {
            let (Ok(bytes), Ok(node)) = (dimm.bytes(), dimm.host_node(None)) else {
                continue;
            };
            if self.replace(dimm, is_file).is_ok() {
                self.needs.push(Need { bytes, node });
            }
        }
    }

    /// What would give the guest other memory, or touch all of it at the start.
    fn drop_copies(&mut self, setup: &Setup) {
        for at in &setup.mem_paths {
            self.dropped.extend([*at, *at + 1]);
        }
        self.dropped.extend(&setup.mem_preallocs);
        if !setup.mem_paths.is_empty() {
            self.notes
                .push("-mem-path is left out: its memory would be mapped privately".into());
        }
    }

    /// The arguments that use `files`, one for each need.
    ///
    /// Not preallocated: all pages are in the file already. Touching them all would only map
    /// them, and each touch takes one of the kernel's few locks for the touching of huge
    /// pages, which is held for as long as a page of any file is being zeroed.
    pub(super) fn with_memory(&self, files: &[Backing]) -> Vec<OsString> {
        let objects = self.backends.iter().zip(files).map(|(backend, file)| {
            let list = backend.like.like().with("qom-type", "memory-backend-file");
            let list = list.with_those(&backend.like, |_| true);
            let list = list.with("mem-path", file.path.clone());
            let list = list.with("share", true);
            match file.align_bytes {
                Some(align) => list.with("align", align),
                None => list,
            }
        });
        let objects: Vec<_> = objects.map(Some).collect();
        self.write(&objects, &self.dropped, true)
    }

    /// The arguments of a start without the pool.
    pub(super) fn ordinary(&self) -> Vec<OsString> {
        let is_complete = self.names.only_for_pool || self.names.is_empty();
        let objects = self.backends.iter().zip(&self.needs);
        let objects = objects.map(|(backend, need)| {
            if is_complete || backend.at.is_some() {
                return None;
            }
            let list = Properties::new().with("qom-type", "memory-backend-ram");
            let list = list.with_those(&backend.like, |_| true);
            Some(match need.node {
                None => list,
                Some(node) => list.with("host-nodes", node).with("policy", "preferred"),
            })
        });
        let objects: Vec<_> = objects.collect();
        self.write(&objects, &BTreeSet::new(), !is_complete)
    }

    /// The command line with `objects` for those backends that have one and, with `names`, what
    /// names new ones.
    fn write(
        &self,
        objects: &[Option<Properties>],
        dropped: &BTreeSet<usize>,
        names: bool,
    ) -> Vec<OsString> {
        let mut replaced = if names {
            self.names.replaced.clone()
        } else {
            BTreeMap::new()
        };
        let mut added: Vec<[String; 2]> = Vec::new();
        added.extend(self.ram.clone().map(|size| ["-m".into(), size]));
        for (backend, object) in self.backends.iter().zip(objects) {
            let Some(object) = object else { continue };
            let text = object.write("qom-type");
            match backend.at {
                Some(at) => {
                    replaced.insert(at, text);
                }
                None => added.push(["-object".into(), text]),
            }
        }
        if names {
            added.extend(self.names.added.iter().cloned());
        }
        let kept = self.arguments.iter().enumerate();
        let kept = kept.filter(|(at, _)| !dropped.contains(at));
        let mut arguments: Vec<OsString> = kept
            .map(|(at, argument)| replaced.get(&at).map_or(argument.clone(), OsString::from))
            .collect();
        arguments.extend(added.into_iter().flatten().map(OsString::from));
        arguments
    }
}

/// What named backends need; `--memory` may add nodes of the host, no sizes.
fn needs(named: &[&Listed], asked: &[Need]) -> Result<Vec<Need>, PlanError> {
    if !asked.is_empty() && asked.len() != named.len() {
        return Err(PlanError::Nodes {
            seen: named.len(),
            asked: asked.len(),
        });
    }
    let mut needs = Vec::new();
    for (at, backend) in named.iter().enumerate() {
        let bytes = backend.bytes()?;
        let asked = asked.get(at);
        if let Some(asked) = asked {
            same(&format!("memory backend {}", backend.id()), bytes, asked)?;
        }
        needs.push(Need {
            bytes,
            node: backend.host_node(asked.and_then(|need| need.node))?,
        });
    }
    Ok(needs)
}

/// A command line, and what files of options say about memory.
fn with_files(arguments: &[OsString]) -> Result<Vec<OsString>, PlanError> {
    let mut all = arguments.to_vec();
    all.extend(readconfig::memory(arguments)?);
    Ok(all)
}

/// Memory that is shared through a file with a name is another process' to read, whether the
/// file is there yet or not: refused.
pub(super) fn check_shared_files(
    arguments: &[OsString],
    is_folder: &dyn Fn(&Path) -> bool,
) -> Result<(), PlanError> {
    let setup = Setup::read(&with_files(arguments)?)?;
    for backend in setup.all_backends()? {
        let list = &backend.properties;
        let path = list.get("mem-path").unwrap_or_default();
        let named = backend.kind() == "memory-backend-file" && !is_folder(Path::new(&path));
        if named && list.is_on("share", false) {
            return Err(PlanError::Backend {
                id: backend.id(),
                reason: format!("its file {path} is for others to read, which a slab is not"),
            });
        }
    }
    Ok(())
}

/// What `--inject` is to serve: each memory backend of the guest as it stands; and what a
/// person may want to know.
pub(super) fn injected(
    arguments: &[OsString],
    asked: &[Need],
) -> Result<(Vec<Need>, Vec<String>), PlanError> {
    let setup = Setup::read(&with_files(arguments)?)?;
    let named = setup.guest_backends()?;
    if named.is_empty() {
        return Err(PlanError::Inject {
            reason: "the guest's memory is no memory-backend-memfd; without --inject it is \
                     given one of the pool's"
                .into(),
        });
    }
    for backend in &named {
        let kind = backend.kind();
        let reason = if kind != "memory-backend-memfd" {
            format!("{kind} {} is no memory-backend-memfd", backend.id())
        } else if !backend.properties.is_on("share", true) {
            format!("share=off of {} would copy all memory", backend.id())
        } else {
            continue;
        };
        return Err(PlanError::Inject {
            reason: format!("{reason}; without --inject it is replaced"),
        });
    }
    let notes = setup.left_to_the_kernel(&|at| named.iter().any(|one| one.at == at));
    Ok((needs(&named, asked)?, notes))
}
