//! Huge pages that a guest takes from the host by itself while they lie in clean slabs: how many, and
//! which command gives them back. To do so is the operator's: the next start may need the slab.

use crate::Program;
use crate::text::{bytes, plural};
use firstlight_pool::client::Client;
use firstlight_pool::config::Size;
use firstlight_pool::os::hugepages::{SYS, counts};
use firstlight_pool::protocol::{PageSize, PoolRow};
use std::path::Path;
use std::time::{Duration, Instant};

/// A start that has no memory yet waits no longer for this.
const PATIENCE: Duration = Duration::from_secs(1);

/// What stands between a guest and `needed_bytes` in huge pages of `page_bytes`; `None` where enough are
/// free, or the pool has none of them.
pub(crate) fn note(
    of: Program,
    socket: &Path,
    page_bytes: u64,
    needed_bytes: u64,
) -> Option<String> {
    let seen = counts(Path::new(SYS), page_bytes, None).ok()??;
    let free_pages = seen.free_pages.saturating_sub(seen.promised_pages);
    let needed_bytes = needed_bytes.checked_next_multiple_of(page_bytes)?;
    let missing_bytes = needed_bytes.saturating_sub(free_pages * page_bytes);
    if missing_bytes == 0 {
        return None;
    }
    let mut client = Client::connect_until(socket, Instant::now() + PATIENCE).ok()?;
    text(of, &client.status().ok()?.pools, page_bytes, missing_bytes)
}

/// The largest slabs first, so that few are given back.
fn text(of: Program, pools: &[PoolRow], page_bytes: u64, missing_bytes: u64) -> Option<String> {
    let is_of =
        |pool: &&PoolRow| pool.page != PageSize::Transparent && pool.page.bytes() == page_bytes;
    let mut pools: Vec<_> = pools.iter().filter(is_of).collect();
    pools.retain(|pool| pool.clean_slabs > 0);
    pools.sort_by_key(|pool| std::cmp::Reverse(pool.size_class_bytes));
    let clean = |pool: &&PoolRow| u64::from(pool.clean_slabs) * pool.size_class_bytes;
    let clean_bytes: u64 = pools.iter().map(clean).sum();
    if clean_bytes == 0 {
        return None;
    }
    let begin = format!(
        "it takes huge pages of {} by itself, {} more than are free; {} of them are in clean slabs",
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
        left_bytes = left_bytes.saturating_sub(slabs * pool.size_class_bytes);
        // Those being filled have pages too, and are none of the number.
        let held = u64::from(pool.clean_slabs + pool.allocated_slabs + pool.unknown_slabs);
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
        for (page, missing, expected) in [
            (
                PageSize::Huge,
                1,
                ": `firstlight-pool resize --size 4G@1 --slabs 1` gives 1 slab back",
            ),
            (
                PageSize::Huge,
                7,
                ": `firstlight-pool resize --size 4G@1 --slabs 1` gives 1 slab back, \
                 `firstlight-pool resize --size 2G --slabs 3` gives 2 slabs back",
            ),
            (
                PageSize::Huge,
                13,
                "13 GiB more than are free; 12 GiB of them are in clean slabs, too few: set more aside",
            ),
            (
                PageSize::Giant,
                33,
                ": `firstlight-pool resize --size 32G --page 1G --slabs 1` gives 2 slabs back",
            ),
        ] {
            let text = text(Program::Pool, &pools, page.bytes(), missing * G)
                .expect("there are clean slabs");
            assert!(text.ends_with(expected), "{text}");
        }
        assert_eq!(text(Program::Pool, &pools[2..3], 2 << 20, G), None);
        assert_eq!(text(Program::Pool, &pools[4..], 2 << 20, G), None);
    }
}
