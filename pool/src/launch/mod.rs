//! Starting a VMM on memory of the pool.
//!
//! A [`Plan`] is made from a command line alone: how much memory the guest
//! needs, and what the command line becomes with files of the pool, or without.
//! [`allocate()`] gets the files, [`Start`] hands them and their lease pipes to the
//! VMM, which takes the place of the process that started it. A lease so
//! ends with the VMM and whatever it forked, not with its launcher.

mod allocate;
mod backing;
mod cloud_hypervisor;
mod error;
mod huge;
pub mod inject;
mod label;
mod need;
mod places;
mod qemu;
mod start;

pub use allocate::{AllocateOptions, allocate};
pub use backing::Backing;
pub use error::PlanError;
pub use huge::huge_page_bytes;
pub use label::label;
pub use need::Need;
#[cfg(test)]
pub(crate) use start::keep_open;
pub use start::{STARTED, Start, program_path};

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What to start when there is no pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ordinary {
    /// These arguments; the VMM finds its own memory.
    Arguments(Vec<OsString>),
    /// The arguments of [`Plan::with_memory`], with files that are not filled.
    EmptyFiles,
}

/// A command line, and how it is started with and without the pool.
#[derive(Debug)]
pub struct Plan {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Qemu(qemu::QemuPlan),
    CloudHypervisor(cloud_hypervisor::CloudHypervisorPlan),
    Api(Box<cloud_hypervisor::api::ApiPlan>),
    Places(places::PlacesPlan),
    Inject {
        arguments: Vec<OsString>,
        needs: Vec<Need>,
        notes: Vec<String>,
    },
}

impl Plan {
    /// Plans `program` with `arguments` on `asked` memory, one [`Need`] a guest
    /// node; with none, the command line says how much. `is_file` tells whether
    /// a path names a file or a device that exists, not a folder.
    ///
    /// ```
    /// use firstlight_pool::launch::{Backing, Plan};
    /// let arguments = ["-m", "8G"].map(Into::into);
    /// let plan = Plan::new("qemu-system-x86_64".as_ref(), &arguments, &[], &|_| false)?;
    /// assert_eq!(plan.needs()[0].bytes, 8 << 30);
    /// let file = Backing { path: "/proc/self/fd/3".into(), align_bytes: None };
    /// assert_eq!(plan.with_memory(&[file]).join(" ".as_ref()),
    ///     "-m 8G -object memory-backend-file,id=pc.ram,size=8589934592,\
    ///      x-use-canonical-path-for-ramblock-id=off,mem-path=/proc/self/fd/3,share=on \
    ///      -machine memory-backend=pc.ram");
    /// # Ok::<(), firstlight_pool::launch::PlanError>(())
    /// ```
    ///
    /// # Errors
    /// What stands in the way, and what to change.
    pub fn new(
        program: &OsStr,
        arguments: &[OsString],
        asked: &[Need],
        is_file: &dyn Fn(&Path) -> bool,
    ) -> Result<Self, PlanError> {
        let kind = if places::any(arguments) {
            Kind::Places(places::PlacesPlan::new(arguments, asked)?)
        } else if is_qemu(program) {
            Kind::Qemu(qemu::QemuPlan::new(program, arguments, asked, is_file)?)
        } else if cloud_hypervisor::is_it(program) {
            let plan = cloud_hypervisor::CloudHypervisorPlan::new(arguments, asked, is_file)?;
            Kind::CloudHypervisor(plan)
        } else {
            let text = |word: &OsStr| word.to_string_lossy().into_owned();
            let mut arguments = arguments.iter();
            return Err(PlanError::UnknownVmm {
                program: text(program),
                inner: arguments.find(|word| is_vmm(word)).map(|word| text(word)),
            });
        };
        Ok(Self { kind })
    }

    /// Plans Cloud Hypervisor as a server, and `body`, with which a guest is made over its API
    /// (`vm.create`): [`Plan::body`] is what to send instead.
    ///
    /// ```
    /// use firstlight_pool::launch::{Backing, Plan};
    /// let arguments = ["--api-socket", "vm.sock"].map(Into::into);
    /// let body = r#"{"payload":{"kernel":"k"},"memory":{"size":2097152}}"#;
    /// let plan = Plan::over_api("cloud-hypervisor".as_ref(), &arguments, body, &[], &|_| false)?;
    /// let file = Backing { path: "/proc/self/fd/3".into(), align_bytes: None };
    /// let memory = r#""file":"/proc/self/fd/3","id":"mem0","shared":true,"size":2097152"#;
    /// assert!(plan.body(&[file]).is_some_and(|body| body.contains(memory)));
    /// # Ok::<(), firstlight_pool::launch::PlanError>(())
    /// ```
    ///
    /// # Errors
    /// What stands in the way, and what to change.
    pub fn over_api(
        program: &OsStr,
        arguments: &[OsString],
        body: &str,
        asked: &[Need],
        is_file: &dyn Fn(&Path) -> bool,
    ) -> Result<Self, PlanError> {
        if !cloud_hypervisor::is_it(program) {
            return Err(PlanError::Unreadable {
                option: "--vm-config".into(),
                text: "the body of a request".into(),
                reason: format!(
                    "{} is not cloud-hypervisor, and no other API is known here",
                    program.to_string_lossy()
                ),
            });
        }
        let plan = cloud_hypervisor::api::ApiPlan::new(arguments, body, asked, is_file)?;
        Ok(Self {
            kind: Kind::Api(Box::new(plan)),
        })
    }

    /// What to make the guest with over the API: on `files`, one for each need, or without any as it was.
    #[must_use]
    pub fn body(&self, files: &[Backing]) -> Option<String> {
        match &self.kind {
            Kind::Api(plan) => Some(plan.body(files)),
            _ => None,
        }
    }

    /// Plans a command line that stays as it is: what its VMM makes with
    /// `memfd_create` is served from the pool.
    ///
    /// # Errors
    /// What stands in the way, and what to change.
    pub fn injected(
        program: &OsStr,
        arguments: &[OsString],
        asked: &[Need],
    ) -> Result<Self, PlanError> {
        let (needs, notes) = if is_qemu(program) {
            qemu::injected(arguments, asked)?
        } else if asked.is_empty() {
            return Err(PlanError::NoSize);
        } else {
            (asked.to_vec(), Vec::new())
        };
        Ok(Self {
            kind: Kind::Inject {
                arguments: arguments.to_vec(),
                needs,
                notes,
            },
        })
    }

    /// Plans a command line of the QEMU `program` that management software wrote; `None` where it starts
    /// no guest. It stays as it is where all of the guest's memory is shared and made with
    /// `memfd_create`; otherwise its backends are replaced. Memory that is shared through a
    /// file with a name is another process' to read: refused, whether it exists yet or not.
    ///
    /// ```
    /// use firstlight_pool::launch::Plan;
    /// let words = |line: &str| line.split(' ').map(Into::into).collect::<Vec<_>>();
    /// let probe = words("-S -nodefaults -machine none,accel=kvm:tcg -qmp stdio");
    /// assert!(Plan::managed("qemu-system-x86_64".as_ref(), &probe)?.is_none());
    ///
    /// let shared = words("-m 8G -machine q35,memory-backend=pc.ram \
    ///     -object memory-backend-memfd,id=pc.ram,size=8G,share=on");
    /// assert!(Plan::managed("qemu-system-x86_64".as_ref(), &shared)?.is_some_and(|plan| plan.is_injected()));
    /// # Ok::<(), firstlight_pool::launch::PlanError>(())
    /// ```
    ///
    /// # Errors
    /// What stands in the way, and what to change.
    pub fn managed(program: &OsStr, arguments: &[OsString]) -> Result<Option<Self>, PlanError> {
        if qemu::probe::is_probe(arguments) {
            return Ok(None);
        }
        let kind = match qemu::injected(arguments, &[]) {
            Ok((needs, notes)) => Kind::Inject {
                arguments: arguments.to_vec(),
                needs,
                notes,
            },
            Err(_) => {
                qemu::check_shared_files(arguments, &Path::is_dir)?;
                let is_file = |path: &Path| path.exists() && !path.is_dir();
                Kind::Qemu(qemu::QemuPlan::new(program, arguments, &[], &is_file)?)
            }
        };
        Ok(Some(Self { kind }))
    }

    /// Whether the command line stays as it is: the files are handed over
    /// ([`inject::hand_over`]) instead of named.
    #[must_use]
    pub fn is_injected(&self) -> bool {
        matches!(self.kind, Kind::Inject { .. })
    }

    /// Memory to be allocated, one for each guest node.
    #[must_use]
    pub fn needs(&self) -> &[Need] {
        match &self.kind {
            Kind::Qemu(plan) => &plan.needs,
            Kind::CloudHypervisor(plan) => &plan.needs,
            Kind::Api(plan) => &plan.line.needs,
            Kind::Places(plan) => &plan.needs,
            Kind::Inject { needs, .. } => needs,
        }
    }

    /// What changes in a way its author may want to know.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        match &self.kind {
            Kind::Qemu(plan) => &plan.notes,
            Kind::CloudHypervisor(plan) => &plan.notes,
            Kind::Api(plan) => &plan.line.notes,
            Kind::Inject { notes, .. } => notes,
            Kind::Places(_) => &[],
        }
    }

    /// The arguments with memory of the pool, one file for each need.
    #[must_use]
    pub fn with_memory(&self, files: &[Backing]) -> Vec<OsString> {
        match &self.kind {
            Kind::Qemu(plan) => plan.with_memory(files),
            Kind::CloudHypervisor(plan) => plan.with_memory(files),
            Kind::Api(plan) => plan.arguments.clone(),
            Kind::Places(plan) => plan.with_memory(files),
            Kind::Inject { arguments, .. } => arguments.clone(),
        }
    }

    /// The start without the pool.
    #[must_use]
    pub fn ordinary(&self) -> Ordinary {
        match &self.kind {
            Kind::Qemu(plan) => Ordinary::Arguments(plan.ordinary()),
            Kind::CloudHypervisor(plan) => Ordinary::Arguments(plan.ordinary()),
            Kind::Api(plan) => Ordinary::Arguments(plan.arguments.clone()),
            Kind::Places(_) => Ordinary::EmptyFiles,
            Kind::Inject { arguments, .. } => Ordinary::Arguments(arguments.clone()),
        }
    }
}

fn is_vmm(program: &OsStr) -> bool {
    is_qemu(program) || cloud_hypervisor::is_it(program)
}

/// Whether a program is QEMU, by its name.
fn is_qemu(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| {
        name.starts_with("qemu-system-") || ["qemu", "qemu-kvm", "kvm"].contains(&name)
    })
}
