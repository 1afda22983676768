//! Domains of libvirt: which emulator they name, and the same XML with another.
//!
//! A domain takes its memory from the pool when its `<emulator>` is the link
//! `firstlight-qemu-system-...` beside the QEMU it had. That word is all that changes: the
//! XML is read to find it, and every other byte stays.

use roxmltree::{Document, Node};
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What comes before QEMU's own name.
pub const PREFIX: &str = "firstlight-";

/// The QEMU that a program called `name` stands for: the one beside it.
///
/// ```
/// use firstlight_pool::libvirt::qemu_of;
/// use std::path::Path;
/// let qemu = qemu_of(Path::new("/usr/bin/firstlight-qemu-system-x86_64"));
/// assert_eq!(qemu.as_deref(), Some(Path::new("/usr/bin/qemu-system-x86_64")));
/// assert_eq!(qemu_of(Path::new("/usr/bin/firstlight")), None);
/// ```
#[must_use]
pub fn qemu_of(name: &Path) -> Option<PathBuf> {
    let base = name.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    base.starts_with("qemu-system-")
        .then(|| name.with_file_name(base))
}

/// The name under which this program stands for `qemu`.
fn name_for(qemu: &Path) -> Option<PathBuf> {
    let base = qemu.file_name()?.to_str()?;
    base.starts_with("qemu-system-")
        .then(|| qemu.with_file_name(format!("{PREFIX}{base}")))
}

/// A domain's definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain<'x> {
    xml: &'x str,
    name: String,
    emulator: PathBuf,
    /// Where in the XML the emulator's name stands.
    place: Range<usize>,
    /// Why none of its memory could be the pool's.
    obstacle: Option<String>,
    notes: Vec<String>,
}

impl<'x> Domain<'x> {
    /// Reads what libvirt shows of a domain.
    ///
    /// ```
    /// use firstlight_pool::libvirt::Domain;
    /// let xml = "<domain type='kvm'><name>a</name><devices>\
    ///            <emulator>/usr/bin/qemu-system-x86_64</emulator></devices></domain>";
    /// let changed = Domain::read(xml)?.enabled()?.expect("it was not enabled");
    /// assert!(changed.contains("<emulator>/usr/bin/firstlight-qemu-system-x86_64</emulator>"));
    /// assert_eq!(Domain::read(&changed)?.disabled().as_deref(), Some(xml));
    /// # Ok::<(), firstlight_pool::libvirt::DomainError>(())
    /// ```
    ///
    /// # Errors
    /// What is not understood.
    pub fn read(xml: &'x str) -> Result<Self, DomainError> {
        let document =
            Document::parse(xml).map_err(|error| DomainError(format!("no XML: {error}")))?;
        let root = document.root_element();
        if !is(root, "domain") {
            let name = root.tag_name().name();
            return Err(DomainError(format!("<{name}> instead of <domain>")));
        }
        match root.attribute("type") {
            Some("kvm" | "qemu") => {}
            other => {
                return Err(DomainError(format!(
                    "a domain of type {}; only kvm and qemu start QEMU",
                    other.unwrap_or("\"\"")
                )));
            }
        }
        let name = only(root, "name")?.text().unwrap_or_default().trim();
        let emulator = only(only(root, "devices")?, "emulator")?;
        let text = emulator.text().unwrap_or_default();
        let mut parts = emulator.children();
        let place = match (parts.next(), parts.next()) {
            (Some(only), None) if xml.get(only.range()) == Some(text) => only.range(),
            _ => return Err(DomainError("<emulator> holds more than plain text".into())),
        };
        Ok(Self {
            xml,
            name: name.into(),
            emulator: text.trim().into(),
            place,
            obstacle: obstacle(root),
            notes: notes(root),
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program that it is started with.
    #[must_use]
    pub fn emulator(&self) -> &Path {
        &self.emulator
    }

    /// Whether that takes memory from the pool.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        qemu_of(&self.emulator).is_some()
    }

    /// What of its memory is not the pool's, or is otherwise than it says.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The XML with the emulator that takes memory from the pool; `None` where it has it
    /// already.
    ///
    /// # Errors
    /// Why that would be of no use.
    pub fn enabled(&self) -> Result<Option<String>, DomainError> {
        if self.is_enabled() {
            return Ok(None);
        }
        if let Some(reason) = &self.obstacle {
            return Err(DomainError(reason.clone()));
        }
        let Some(name) = name_for(&self.emulator) else {
            return Err(DomainError(format!(
                "its emulator is {}, expected a qemu-system-...",
                self.emulator.display()
            )));
        };
        Ok(Some(self.with_emulator(&name)))
    }

    /// The XML with the QEMU of its own; `None` where it has it already.
    #[must_use]
    pub fn disabled(&self) -> Option<String> {
        qemu_of(&self.emulator).map(|qemu| self.with_emulator(&qemu))
    }

    fn with_emulator(&self, path: &Path) -> String {
        let (before, after) = (&self.xml[..self.place.start], &self.xml[self.place.end..]);
        format!("{before}{}{after}", path.display())
    }
}

/// Whether it is libvirt's own element of this name: those have no name space.
fn is(node: Node<'_, '_>, name: &str) -> bool {
    node.is_element() && node.tag_name().namespace().is_none() && node.tag_name().name() == name
}

/// The one child of this name.
fn only<'a, 'x>(node: Node<'a, 'x>, name: &str) -> Result<Node<'a, 'x>, DomainError> {
    let mut named = node.children().filter(|child| is(*child, name));
    match (named.next(), named.count()) {
        (Some(child), 0) => Ok(child),
        (first, more) => Err(DomainError(format!(
            "{} <{name}> in <{}>, expected 1",
            more + usize::from(first.is_some()),
            node.tag_name().name()
        ))),
    }
}

/// The elements below `root` at this path.
fn at<'a, 'x>(root: Node<'a, 'x>, path: &[&str]) -> Vec<Node<'a, 'x>> {
    path.iter().fold(vec![root], |nodes, name| {
        nodes
            .into_iter()
            .flat_map(|node| node.children())
            .filter(|child| is(*child, name))
            .collect()
    })
}

fn obstacle(root: Node<'_, '_>) -> Option<String> {
    let sources = at(root, &["memoryBacking", "source"]);
    if sources
        .iter()
        .any(|source| source.attribute("type") == Some("file"))
    {
        return Some(
            "<source type='file'/> keeps its memory in a file for others to read, which a slab \
             is not: use <source type='memfd'/>, or none"
                .into(),
        );
    }
    let policies = [
        at(root, &["numatune", "memory"]),
        at(root, &["numatune", "memnode"]),
    ];
    policies.into_iter().flatten().find_map(|policy| {
        let nodes = policy.attribute("nodeset").unwrap_or_default();
        let element = policy.tag_name().name();
        if policy.attribute("mode") == Some("interleave") {
            return Some(format!(
                "<{element} mode='interleave'/> in <numatune> spreads memory over nodes of the \
                 host, and a slab lies on one: use mode='strict' with a <memnode> for each cell"
            ));
        }
        // What applies to all memory is no backend's where each cell has its own.
        let of_all = element == "memory" && at(root, &["numatune", "memnode"]).is_empty();
        let several = nodes.contains([',', '-', '^']) && (of_all || element == "memnode");
        several.then(|| {
            format!(
                "<{element} nodeset='{nodes}'/> in <numatune> are several nodes of the host, and \
                 a slab lies on one: name one for each cell"
            )
        })
    })
}

fn notes(root: Node<'_, '_>) -> Vec<String> {
    let mut notes = Vec::new();
    let is_private = |node: &Node<'_, '_>, name| node.attribute(name) == Some("private");
    if at(root, &["cpu", "numa", "cell"])
        .iter()
        .any(|cell| is_private(cell, "memAccess"))
        || at(root, &["memoryBacking", "access"])
            .iter()
            .any(|access| is_private(access, "mode"))
    {
        notes.push("private access becomes shared: a private mapping would copy all memory".into());
    }
    if !at(root, &["maxMemory"]).is_empty() || !at(root, &["devices", "memory"]).is_empty() {
        notes.push("memory devices (DIMMs) have the kernel's memory, not the pool's".into());
    }
    notes
}

/// Why a domain is left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainError(String);

impl fmt::Display for DomainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for DomainError {}

#[cfg(test)]
mod tests;
