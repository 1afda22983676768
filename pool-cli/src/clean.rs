//! Huge pages that a guest takes from the host by itself while they lie in clean slabs: how many, and
//! which command gives them back. To do so is the operator's: the next start may need the slab.

use crate::Program;
use crate::text::{bytes, plural};
use firstlight_pool::client::Client;
use firstlight_pool::config::Size;
use firstlight_pool::launch::Need;
use firstlight_pool::os::cpus;
use firstlight_pool::os::hugepages::{SYS, counts};
use firstlight_pool::protocol::{PageSize, PoolRow};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// A start that has no memory yet waits no longer for this.
const PATIENCE: Duration = Duration::from_secs(1);

/// What stands between a guest and huge pages of `page_bytes` for its `needs`; `None` where enough are
/// free, or the pool has none of them.
pub(crate) fn note(of: Program, socket: &Path, page_bytes: u64, needs: &[Need]) -> Option<String> {
    let sys = Path::new(SYS);
    let has_one_node = cpus::nodes(sys).len() <= 1;
    let mut missing = Vec::new();
    for (node, needed_bytes) in by_node(needs, has_one_node, page_bytes)? {
        let seen = counts(sys, page_bytes, node).ok()??;
        let free_pages = seen.available_pages();
        let missing_bytes = needed_bytes.saturating_sub(free_pages.saturating_mul(page_bytes));
        if missing_bytes > 0 {
            missing.push((node, missing_bytes));
        }
    }
    if missing.is_empty() {
        return None;
    }
    let mut client = Client::connect_until(socket, Instant::now() + PATIENCE).ok()?;
    let pools = client.status().ok()?.pools;
    let texts = missing.into_iter();
    let texts = texts.filter_map(|(node, bytes)| text(of, &pools, page_bytes, node, bytes));
    Some(texts.collect::<Vec<_>>().join("; ")).filter(|text| !text.is_empty())
}

/// Whole pages needed from each node, or from any; the only node of a machine is any.
fn by_node(
    needs: &[Need],
    has_one_node: bool,
    page_bytes: u64,
) -> Option<BTreeMap<Option<u32>, u64>> {
    let mut all = BTreeMap::<_, u64>::new();
    for need in needs {
        let bytes = need.bytes.checked_next_multiple_of(page_bytes)?;
        let of_node = all.entry(need.node.filter(|_| !has_one_node)).or_default();
        *of_node = of_node.saturating_add(bytes);
    }
    Some(all)
}

/// The largest slabs first, so that few are given back. A guest bound to `node` gains nothing by
/// slabs of others, nor for sure by those that are bound to none. The figures are a daemon's: none of
/// them may overflow a sum.
fn text(
    of: Program,
    pools: &[PoolRow],
    page_bytes: u64,
    node: Option<u32>,
    missing_bytes: u64,
) -> Option<String> {
    let is_of = |pool: &&PoolRow| {
        pool.page != PageSize::Transparent
            && pool.page.bytes() == page_bytes
            && (node.is_none() || pool.node == node)
            && pool.clean_slabs > 0
            && pool.size_class_bytes > 0
    };
    let mut pools: Vec<_> = pools.iter().filter(is_of).collect();
    pools.sort_by_key(|pool| std::cmp::Reverse(pool.size_class_bytes));
    let clean = |pool: &&PoolRow| {
        let slabs = u64::from(pool.clean_slabs);
        slabs.saturating_mul(pool.size_class_bytes)
    };
    let clean_bytes = pools.iter().map(clean).fold(0, u64::saturating_add);
    if clean_bytes == 0 {
        return None;
    }
    let place = node.map_or(String::new(), |node| format!(" of node {node}"));
    let begin = format!(
        "it takes huge pages of {}{place} by itself, {} more than are free; {} of them are in clean slabs",
        bytes(page_bytes),
        bytes(missing_bytes),
        bytes(clean_bytes),
    );
    if clean_bytes < missing_bytes {
        return Some(format!("{begin}, too few: set more aside"));
    }
    let mut left_bytes = missing_bytes;
    let mut commands = Vec::new();
    for pool in pools {
        let slabs = left_bytes
            .div_ceil(pool.size_class_bytes)
            .min(pool.clean_slabs.into());
        if slabs == 0 {
            break;
        }
        left_bytes = left_bytes.saturating_sub(slabs.saturating_mul(pool.size_class_bytes));
        // Those being filled have pages too, and are none of the number.
        let held = [pool.clean_slabs, pool.allocated_slabs, pool.unknown_slabs];
        let held: u64 = held.into_iter().map(u64::from).sum();
        let kept = (held - slabs).min(pool.wanted_slabs.into());
        let size = Size::new(pool.size_class_bytes);
        let node = pool.node.map_or(String::new(), |node| format!("@{node}"));
        let page = match pool.page {
            PageSize::Huge => String::new(),
            page => format!(" --page {page}"),
        };
        commands.push(format!(
            "`{} resize --size {size}{node}{page} --slabs {kept}` gives {} back",
            of.name(),
            plural(slabs, "slab")
        ));
    }
    Some(format!("{begin}: {}", commands.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 1 << 30;

    fn pool(page: PageSize, node: Option<u32>, size: u64, clean: u32) -> PoolRow {
        PoolRow {
            page,
            node,
            size_class_bytes: size * G,
            wanted_slabs: clean + 2,
            clean_slabs: clean,
            filling_slabs: 1,
            allocated_slabs: 1,
            unknown_slabs: 0,
            clean_bytes: u64::from(clean) * size * G,
            dirty_bytes: 0,
            allocated_bytes: size * G,
            hole_bytes: 0,
            refilled_bytes: 0,
            trouble: None,
        }
    }

    #[test]
    fn as_few_clean_slabs_as_will_do_are_named_with_the_command() {
        let pools = [
            pool(PageSize::Huge, None, 2, 4),
            pool(PageSize::Huge, Some(1), 4, 1),
            pool(PageSize::Transparent, None, 64, 9),
            pool(PageSize::Giant, None, 32, 2),
            pool(PageSize::Huge, None, 16, 0),
        ];
        for (page, node, missing, expected) in [
            (
                PageSize::Huge,
                None,
                1,
                ": `firstlight-pool resize --size 4G@1 --slabs 1` gives 1 slab back",
            ),
            (
                PageSize::Huge,
                None,
                7,
                ": `firstlight-pool resize --size 4G@1 --slabs 1` gives 1 slab back, \
                 `firstlight-pool resize --size 2G --slabs 3` gives 2 slabs back",
            ),
            (
                PageSize::Huge,
                None,
                13,
                "13 GiB more than are free; 12 GiB of them are in clean slabs, too few: set more aside",
            ),
            (
                PageSize::Giant,
                None,
                33,
                ": `firstlight-pool resize --size 32G --page 1G --slabs 1` gives 2 slabs back",
            ),
            // Those of other nodes are of no use, and where those of none lie is not known.
            (
                PageSize::Huge,
                Some(1),
                4,
                "it takes huge pages of 2 MiB of node 1 by itself, 4 GiB more than are free; 4 GiB of \
                 them are in clean slabs: `firstlight-pool resize --size 4G@1 --slabs 1` gives 1 slab back",
            ),
            (
                PageSize::Huge,
                Some(1),
                5,
                "5 GiB more than are free; 4 GiB of them are in clean slabs, too few: set more aside",
            ),
        ] {
            let text = text(Program::Pool, &pools, page.bytes(), node, missing * G)
                .expect("there are clean slabs");
            assert!(text.ends_with(expected), "{text}");
        }
        let none = |pools, node| text(Program::Pool, pools, 2 << 20, node, G);
        assert_eq!(none(&pools[2..3], None), None);
        assert_eq!(none(&pools[4..], None), None);
        assert_eq!(none(&pools, Some(0)), None);
    }

    #[test]
    fn needs_are_counted_for_each_node() {
        let need = |text: &str| text.parse::<Need>().expect("a size");
        let needs = ["1G@1", "3M", "1G@1", "2M@0"].map(need);
        let all = |has_one_node| by_node(&needs, has_one_node, 2 << 20);
        let of_nodes = [(None, 4 << 20), (Some(0), 2 << 20), (Some(1), 2 * G)];
        assert_eq!(all(false), Some(of_nodes.into()));
        assert_eq!(all(true), Some([(None, 2 * G + (6 << 20))].into()));
        let most = [Need {
            bytes: u64::MAX - 1,
            node: None,
        }];
        assert_eq!(by_node(&most, true, 2 << 20), None);
    }

    /// A daemon may say what it likes.
    #[test]
    fn figures_that_cannot_be_overflow_no_sum() {
        let mut wrong = pool(PageSize::Huge, None, 4, 1);
        wrong.size_class_bytes = 1 << 62;
        wrong.clean_slabs = u32::MAX;
        wrong.allocated_slabs = u32::MAX;
        let mut empty = pool(PageSize::Huge, None, 4, 1);
        empty.size_class_bytes = 0;
        let pools = [wrong.clone(), empty, wrong];
        let text = text(Program::Pool, &pools, 2 << 20, None, u64::MAX).expect("a note");
        assert!(text.contains("gives 4 slabs back"), "{text}");
    }
}
