//! Nodes of the host that a backend names, and its policy: kept where one slab can
//! obey them, refused where it cannot.
//!
//! QEMU binds the mapping of a backend (`mbind`) and has the kernel move or refuse pages that
//! lie elsewhere. A slab lies on one node as a whole, so one node, whatever the policy
//! but interleaving, is what it obeys without anything being moved.

use super::is_host_node;
use super::setup::Listed;
use crate::launch::error::PlanError;

impl Listed {
    /// The node of the host that its slab must be from; `asked` is what `--memory`
    /// says of it.
    pub(super) fn host_node(&self, asked: Option<u32>) -> Result<Option<u32>, PlanError> {
        let refuse = |reason: String| {
            Err(PlanError::Backend {
                id: self.id(),
                reason,
            })
        };
        if self.properties.get("policy").as_deref() == Some("interleave") {
            let text = "policy=interleave spreads the memory, and a slab lies on one node: use \
                        host-nodes=NODE,policy=bind, or a backend for each node";
            return refuse(text.into());
        }
        let words = self
            .properties
            .all(&|name| name == "host-nodes" || is_host_node(name));
        let text = words.join(",").replace(['[', ']'], "");
        let named = match nodes(&text) {
            Ok(nodes) => nodes,
            Err(()) => return refuse(format!("host-nodes={text} names no node")),
        };
        let Some((first, last)) = named else {
            return Ok(asked);
        };
        if first != last {
            return refuse(format!(
                "host-nodes={text} are several nodes of the host, and a slab lies on one: name \
                 one, or use a backend for each"
            ));
        }
        match asked {
            Some(asked) if asked != first => refuse(format!(
                "--memory names node {asked} of the host, host-nodes={text}: make them the same"
            )),
            _ => Ok(Some(first)),
        }
    }
}

/// The lowest and the highest node of a list such as `0,2-3`; `None` of an empty one.
fn nodes(text: &str) -> Result<Option<(u32, u32)>, ()> {
    let mut named: Option<(u32, u32)> = None;
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| ());
        let (first, last) = (number(first)?, number(last)?);
        let (low, high) = named.unwrap_or((first, last));
        named = Some((low.min(first), high.max(last)));
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::nodes;

    #[test]
    fn lists_of_nodes_have_a_lowest_and_a_highest() {
        for (text, expected) in [
            ("", Ok(None)),
            ("0", Ok(Some((0, 0)))),
            ("3,3", Ok(Some((3, 3)))),
            ("0-1", Ok(Some((0, 1)))),
            ("2,0", Ok(Some((0, 2)))),
            ("1-4294967295,0", Ok(Some((0, u32::MAX)))),
            ("x", Err(())),
            ("-1", Err(())),
            ("4294967296", Err(())),
        ] {
            assert_eq!(nodes(text), expected, "{text}");
        }
    }
}
