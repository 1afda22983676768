//! Allocating for a whole guest: all of its nodes, or nothing.

use super::need::Need;
use crate::client::{Allocated, Client, ClientError};
use crate::protocol::{Label, PageSize, Take};

/// What a client does not leave to the daemon.
#[derive(Debug, Clone, Default)]
pub struct AllocateOptions {
    /// Only this page size.
    pub page: Option<PageSize>,
    /// Time the daemon may spend on zeroing what it lacks, for each node.
    pub max_topup_ms: u32,
    /// Only where that is faster than memory of the kernel.
    pub topup_if_faster: bool,
    /// What the guest is called.
    pub label: Option<Label>,
}

/// Allocates a file for each of `needs`. If one cannot be had, those already
/// allocated are given back.
///
/// # Errors
/// The daemon's refusal, or what went wrong on the way.
pub fn allocate(
    client: &mut Client,
    needs: &[Need],
    options: &AllocateOptions,
) -> Result<Vec<Allocated>, ClientError> {
    let mut allocated: Vec<Allocated> = Vec::with_capacity(needs.len());
    for need in needs {
        let take = Take {
            bytes: need.bytes,
            node: need.node,
            page: options.page,
            max_topup_ms: options.max_topup_ms,
            topup_if_faster: options.topup_if_faster,
            label: options.label.clone(),
        };
        match client.take(take) {
            Ok(one) => allocated.push(one),
            Err(error) => {
                for one in allocated {
                    // The lease pipe ends the lease as well; this is sooner.
                    let _ = client.give(one.lease.lease.clone());
                }
                return Err(error);
            }
        }
    }
    Ok(allocated)
}
