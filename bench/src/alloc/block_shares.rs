//! How much of memory could leave after the fragmentation workload: [`block_shares`].
//!
//! For each size of memory blocks, how many of them are free, and how many hold nothing but free
//! memory and content that can be moved: while the workload's blocks are all there, and at its end, when only the
//! unmovable blocks are left that stay.

use super::fragmentation::Lifetimes;
use super::ground::Ground;
use crate::machine::cpu_caches;
use firstlight::blocks::{BlockSize, Blocks};
use firstlight::frames::{Cpu, Frames};
use firstlight::node::NodeId;
use firstlight_host::metadata::MetadataSpace;
use firstlight_workloads::lists::own;
use firstlight_workloads::ours::Ours;
use firstlight_workloads::{Allocator, Cpu as _};
use serde::Serialize;
use std::error::Error;

/// Sizes from 128 MiB to 2 GiB: log2 of their bytes.
const SHIFTS: std::ops::RangeInclusive<u32> = 27..=31;
/// Time for the workload.
const BUDGET_NS: u64 = 60_000_000_000;

/// What blocks hold at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Share {
    /// Blocks of which all is free.
    pub free: u64,
    /// Blocks, besides these, in which all that is in use can be moved.
    pub movable_only: u64,
}

/// One size of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShareRow {
    /// The size.
    pub size_bytes: u64,
    /// Blocks of that size with memory.
    pub blocks: u64,
    /// When memory is filled and as many blocks again have come and gone.
    pub in_use: Share,
    /// When all short-lived and all movable blocks are freed.
    pub at_end: Share,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlockShares {
    /// Memory of the machine, which has one node.
    pub memory_bytes: u64,
    /// Bytes in use while all blocks are there.
    pub in_use_bytes: u64,
    /// Bytes of the unmovable blocks that stay.
    pub long_lived_bytes: u64,
    /// Time was up before the workload's end.
    pub cut_short: bool,
    /// By size.
    pub rows: Vec<ShareRow>,
}

/// Runs the workload on our allocator, on a machine of `memory_bytes`, and counts blocks.
///
/// # Errors
/// A machine that cannot be laid out, or has no space for its tables.
pub fn block_shares(memory_bytes: u64) -> Result<BlockShares, Box<dyn Error>> {
    let ground = Ground::new(memory_bytes)?;
    let mut storage = ground.machine.storage();
    let layout = ground.machine.layout(&mut storage)?;
    let space = MetadataSpace::new(ground.machine.metadata_bytes())?;
    let frames = Frames::build(layout, &space)?;
    frames.provide_cpus(cpu_caches(1))?;
    let cpus = [own::<Cpu<'_, '_>>(frames.cpu(0, NodeId(0))?)];
    let ours = Ours::new(&cpus);
    let mut cpu = ours.cpu(0).ok_or("no handle for the first CPU")?;

    let mut lifetimes = Lifetimes::new(&ground, BUDGET_NS);
    lifetimes.live(&mut cpu);
    let in_use = lifetimes.held_frames();
    let before = shares(&frames)?;
    lifetimes.end(&mut cpu);
    cpu.drain();
    let after = shares(&frames)?;
    check(&frames, &lifetimes)?;
    let row = |((size, in_use), (_, at_end)): ((BlockSize, Share), (BlockSize, Share))| ShareRow {
        size_bytes: size.bytes(),
        blocks: Blocks::new(frames.layout(), size).count(),
        in_use,
        at_end,
    };
    Ok(BlockShares {
        memory_bytes,
        in_use_bytes: in_use * firstlight::addr::PAGE_BYTES,
        long_lived_bytes: lifetimes.long_frames() * firstlight::addr::PAGE_BYTES,
        cut_short: lifetimes.is_cut_short(),
        rows: before.into_iter().zip(after).map(row).collect(),
    })
}

/// Blocks of each size by what they hold.
fn shares(frames: &Frames<'_>) -> Result<Vec<(BlockSize, Share)>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for shift in SHIFTS {
        let size = BlockSize::new(1 << shift)?;
        let mut share = Share::default();
        for block in &Blocks::new(frames.layout(), size) {
            let used = frames.occupancy(block.frames());
            if used.fixed_frames > 0 {
                continue;
            }
            if used.movable_frames == 0 {
                share.free += 1;
            } else {
                share.movable_only += 1;
            }
        }
        rows.push((size, share));
    }
    Ok(rows)
}

/// Every block that stays lies where the allocator says that something is fixed.
fn check(frames: &Frames<'_>, lifetimes: &Lifetimes) -> Result<(), Box<dyn Error>> {
    for &(frame, _) in lifetimes.long() {
        let block = BlockSize::SMALLEST.frames_of(BlockSize::SMALLEST.block_of(frame));
        let block = block.ok_or("a frame past the last address")?;
        if frames.occupancy(block).fixed_frames == 0 {
            return Err(format!("{frame} is unmovable, but nothing of {block} is fixed").into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_blocks_never_hold_more_that_is_fixed() {
        let shares = block_shares(1 << 30).unwrap();
        assert!(!shares.cut_short);
        assert!(shares.long_lived_bytes > 0 && shares.in_use_bytes > 500 << 20);
        let least = shares.rows.first().unwrap();
        assert_eq!((least.size_bytes, least.blocks), (128 << 20, 8));
        // At the end nothing that is in use can be moved.
        assert!(shares.rows.iter().all(|row| row.at_end.movable_only == 0));
        assert!(
            least.at_end.free + least.in_use.movable_only > 0,
            "{shares:?}"
        );
        for pair in shares.rows.windows(2) {
            let part = |row: &ShareRow| row.at_end.free * row.size_bytes;
            assert!(part(&pair[0]) >= part(&pair[1]), "{shares:?}");
        }
    }
}
