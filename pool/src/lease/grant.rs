//! A grant: a right to slabs of one class, held by reaching its socket.
//!
//! It is an account with a limit, so that a use is a slab that is out: charged until no process can reach it and a
//! clean one has taken its place. It is no count of slabs ever given.

use super::quota::Account;
use crate::config::Size;
use crate::protocol::{GrantId, GrantRequest, Label, PageSize, Take};
use crate::store::Key;
use serde::{Deserialize, Serialize};

/// What is known of a grant, also by the next daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its name.
    pub id: GrantId,
    /// Its class: pages.
    pub page: PageSize,
    /// Its class: node.
    pub node: Option<u32>,
    /// Its class: bytes of a slab.
    pub class_bytes: u64,
    /// Slabs that may be charged to it at the same time.
    pub uses: u32,
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
}

impl Grant {
    /// One of this name, as it was requested.
    #[must_use]
    pub fn new(id: GrantId, request: GrantRequest) -> Self {
        Self {
            id,
            page: request.page,
            node: request.node,
            class_bytes: request.size_class_bytes,
            uses: request.uses,
            label: request.label,
        }
    }

    /// Its class.
    #[must_use]
    pub fn key(&self) -> Key {
        Key {
            page: self.page,
            node: self.node,
            bytes: self.class_bytes,
        }
    }

    /// What its slabs are charged to.
    #[must_use]
    pub fn account(&self) -> Account {
        Account::Grant(self.id)
    }

    /// What may be charged to that.
    #[must_use]
    pub fn most_bytes(&self) -> u64 {
        self.class_bytes.saturating_mul(self.uses.into())
    }

    /// Slabs of its class, in words.
    #[must_use]
    pub fn slabs(&self) -> String {
        let place = self.node.map(|node| format!(" on node {node}"));
        format!(
            "slabs of {} of {} pages{}",
            Size::new(self.class_bytes),
            self.page,
            place.unwrap_or_default()
        )
    }

    /// The request for a slab of its class that a client's request comes to.
    ///
    /// # Errors
    /// A request for something else, in words for its sender.
    pub fn take(&self, take: &Take) -> Result<Take, String> {
        let is_of_class = take.bytes <= self.class_bytes
            && take.page.is_none_or(|page| page == self.page)
            && (take.node.is_none() || take.node == self.node);
        if !is_of_class {
            return Err(format!(
                "{} is for {}, and for no other memory",
                self.id,
                self.slabs()
            ));
        }
        Ok(Take {
            bytes: self.class_bytes,
            node: self.node,
            page: Some(self.page),
            max_topup_ms: 0,
            topup_if_faster: false,
            label: take.label.clone().or_else(|| self.label.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_to_a_slab_of_the_class_or_to_a_refusal() {
        let grant = Grant {
            id: GrantId {
                prefix: 0xabc,
                number: 7,
            },
            page: PageSize::Huge,
            node: Some(1),
            class_bytes: 8 << 30,
            uses: 2,
            label: Some(Label::new("ns/pod")),
        };
        let least = Take {
            node: Some(1),
            page: Some(PageSize::Huge),
            max_topup_ms: 60_000,
            ..Take::of(1)
        };
        let slab = Take {
            bytes: 8 << 30,
            max_topup_ms: 0,
            label: Some(Label::new("ns/pod")),
            ..least.clone()
        };
        assert_eq!(grant.take(&least), Ok(slab.clone()));
        let label = Some(Label::new("guest"));
        let labelled = Take {
            label: label.clone(),
            ..Take::of(8 << 30)
        };
        assert_eq!(grant.take(&labelled), Ok(Take { label, ..slab }));
        for other in [
            Take::of((8 << 30) + 1),
            Take {
                node: Some(0),
                ..Take::of(1)
            },
            Take {
                page: Some(PageSize::Giant),
                ..Take::of(1)
            },
        ] {
            let text = grant.take(&other).unwrap_err();
            let expected = "grant-00000abc-7 is for slabs of 8G of 2M pages on node 1,";
            assert!(text.starts_with(expected), "{text}");
        }
    }
}
