//! What boot loader and firmware leave for the kernel: command line, initial RAM disk, console,
//! timer, how firmware is called.

use super::Fdt;
use super::error::FdtError;
use super::node::Node;
use super::walk::Roles;
use crate::firmware::bytes::{u32_be, u64_be};
use crate::firmware::psci::PsciConduit;

impl<'a> Fdt<'a> {
    fn chosen(&self) -> Option<Node<'a>> {
        self.nodes_for(Roles::CHOSEN).next()
    }

    /// The command line, without the NUL that ends it; empty when there is none.
    pub fn bootargs(&self) -> &'a [u8] {
        let text = self.chosen().and_then(|node| node.property("bootargs"));
        let text = text.unwrap_or_default();
        text.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// The initial RAM disk: its first byte and the one past its last, unchecked; `None` when
    /// there is none.
    ///
    /// # Errors
    /// [`FdtError::PropertySize`] for an address that is not one or two cells,
    /// [`FdtError::Missing`] for a start without an end.
    pub fn initrd(&self) -> Result<Option<(u64, u64)>, FdtError> {
        let Some(chosen) = self.chosen() else {
            return Ok(None);
        };
        let Some(start) = chosen.one_or_two_cells("linux,initrd-start")? else {
            return Ok(None);
        };
        let property = "linux,initrd-end";
        let end = chosen.one_or_two_cells(property)?;
        let end = end.ok_or(FdtError::Missing {
            node: chosen.offset(),
            property,
        })?;
        Ok(Some((start, end)))
    }

    /// The console that the boot loader used, a path or an alias in `stdout-path`.
    ///
    /// No walk, where the node is a child or grandchild of the root that is kept: name what it
    /// is compatible with at [`Self::parse_in`].
    pub fn stdout(&self) -> Option<Node<'a>> {
        let path = self.chosen()?.property("stdout-path")?;
        let path = path.split(|&byte| byte == 0 || byte == b':').next()?;
        if path.starts_with(b"/") {
            return self.find(path);
        }
        let alias = core::str::from_utf8(path).ok()?;
        let path = self.find(b"/aliases")?.property(alias)?;
        self.find(path.split(|&byte| byte == 0).next()?)
    }

    /// The node at `path`; a part without a unit address stands for the first node of that
    /// name.
    pub fn find(&self, path: &[u8]) -> Option<Node<'a>> {
        let path = path.strip_prefix(b"/")?;
        let parts = || path.split(|&byte| byte == b'/');
        let (first, last, count) = (parts().next()?, parts().next_back()?, parts().count());
        let kept = self.kept.unwrap_or_default().iter();
        let mut kept = kept.filter(|slot| usize::from(slot.depth) == count && count <= 2);
        let is_it = |node: &Node<'_>| node.name() == last && node.top() == first;
        if let Some(node) = kept.find_map(|slot| Some(Node::new(self, *slot)).filter(is_it)) {
            return Some(node);
        }
        // How many parts the nodes on the way down match.
        let mut matched = 0;
        for node in self.nodes().skip(1) {
            if node.depth() <= matched {
                return None;
            }
            let part = parts().nth(matched)?;
            if node.depth() == matched + 1 && (node.name() == part || node.base_name() == part) {
                matched += 1;
                if matched == count {
                    return Some(node);
                }
            }
        }
        None
    }

    /// Enabled nodes whose `compatible` lists `text`, in the tree's order. No walk for a text
    /// that [`Self::parse_in`] was to keep nodes for.
    pub fn compatible<'t>(
        &self,
        text: &'t str,
    ) -> impl Iterator<Item = Node<'a>> + Clone + use<'a, 't> {
        let is_kept = self.kept.is_some() && self.wanted.contains(&text);
        let kept = is_kept.then(|| self.nodes_for(Roles::WANTED));
        let all = (!is_kept).then(|| self.nodes());
        let nodes = kept.into_iter().flatten().chain(all.into_iter().flatten());
        nodes.filter(move |node| node.lists("compatible", text) && node.enabled())
    }

    /// How firmware's power interface is called on an Arm machine; `None` when the tree names
    /// none of version 0.2 or later.
    pub fn psci(&self) -> Option<PsciConduit> {
        let method = |node: Node<'a>| match node.property("method")? {
            b"hvc\0" => Some(PsciConduit::Hvc),
            b"smc\0" => Some(PsciConduit::Smc),
            _ => None,
        };
        self.nodes_for(Roles::PSCI).find_map(method)
    }

    /// Ticks of the timer in a second, where the tree says it: on RISC-V.
    ///
    /// # Errors
    /// [`FdtError::PropertySize`] when it is not one or two cells.
    pub fn timebase_hz(&self) -> Result<Option<u64>, FdtError> {
        let property = "timebase-frequency";
        // Old trees have it in every CPU.
        let mut nodes = self
            .nodes_for(Roles::CPUS)
            .chain(self.nodes_for(Roles::CPU).take(1));
        nodes
            .find_map(|node| node.one_or_two_cells(property).transpose())
            .transpose()
    }
}

impl Node<'_> {
    /// A property that is one number of 32 or 64 bits.
    fn one_or_two_cells(&self, property: &'static str) -> Result<Option<u64>, FdtError> {
        let Some(value) = self.property(property) else {
            return Ok(None);
        };
        let number = match value.len() {
            4 => u32_be(value, 0).map(u64::from),
            8 => u64_be(value, 0),
            _ => None,
        };
        let wrong = FdtError::PropertySize {
            node: self.offset(),
            property,
            seen_bytes: value.len(),
            unit_bytes: 4,
        };
        number.map(Some).ok_or(wrong)
    }
}
