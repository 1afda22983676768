//! Memory blocks of a machine: their size with its reason, their runs, and what another size
//! would change.

use firstlight::addr::{FrameRange, PhysRange};
use firstlight::blocks::{
    Added, BlockSize, BlockState, Blocks, SizeChoice, SizePolicy, WithAdded, common_alignment,
};
use firstlight::cmdline::CommandLine;
use firstlight::layout::Layout;
use firstlight::node::{NodeId, ZoneKind};
use firstlight::start::StartError;
use serde::Serialize;

use super::pages::Pages;
use super::{Flavour, LayoutInput, PluggedMemory, Prepared, with_layout};
use crate::log::Processor;

/// Blocks in a row that differ in their numbers only, as recorded boots spell them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlockRunAnswer {
    /// Number of the first.
    pub first: u64,
    /// Number of the last.
    pub last: u64,
    /// `online` or `offline`.
    pub state: &'static str,
    /// Zones, or `none`.
    pub valid_zones: String,
    /// Links to nodes: `node0,node1,`.
    pub nodes: String,
}

/// Blocks in a row in the same state, in numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// Number of the first.
    pub first: u64,
    /// Number of the last.
    pub last: u64,
    /// `online` or `offline`.
    pub state: &'static str,
    /// Zones they are in, or may join; empty: more than one, or more than one node.
    pub zones: Vec<&'static str>,
    /// Nodes they have memory of.
    pub nodes: Vec<u16>,
}

/// What blocks of another size would be like.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OtherSize {
    /// The size.
    pub size_bytes: u64,
    /// Whether it is the one chosen.
    pub chosen: bool,
    /// How many blocks, each of which is a directory in Linux, and the finest unit that can leave.
    pub blocks: u64,
    /// Blocks in no single zone, which can't leave.
    pub stuck: u64,
    /// What registering the directories took by published figures, in seconds: each by a search through
    /// those before it, and by a lookup.
    pub searched_s: f64,
    /// With a lookup.
    pub looked_up_s: f64,
    /// The smallest DIMM that can leave, in bytes.
    pub finest_dimm_bytes: u64,
}

/// Memory blocks of a machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlocksAnswer {
    /// `firstlight.blocks/1`.
    pub schema: &'static str,
    /// Whose blocks they are.
    pub flavour: &'static str,
    /// Bytes of a block.
    pub size_bytes: u64,
    /// Why.
    pub reason: String,
    /// How many there are.
    pub blocks: u64,
    /// Runs of them.
    pub runs: Vec<Run>,
    /// What the memory would be with other sizes of block.
    pub sizes: Vec<OtherSize>,
    /// What was corrected or ignored on the way.
    pub notices: Vec<String>,
}

/// Directories of the published machine, and how long they took: 14 of 21 s while each was found by a
/// search, and half a second more than 2 GiB blocks after that (see `published/memory-blocks.json`).
const PUBLISHED_BLOCKS: f64 = 16_288.0;
const PUBLISHED_SEARCHED_S: f64 = 14.0;
const PUBLISHED_LOOKED_UP_S: f64 = 0.5;

/// The sizes compared: log2 of their bytes.
const SHIFTS: std::ops::RangeInclusive<u32> = 27..=31;

/// A machine's memory with a size of blocks.
pub(super) struct View<'p> {
    memory: WithAdded<'p, &'p Layout<'p>>,
    pub(super) choice: SizeChoice,
    /// Why the size is what it is.
    reason: String,
    pub(super) notices: Vec<String>,
}

impl<'p> View<'p> {
    /// With memory that was [plugged in](plugged).
    pub(super) fn new(
        prepared: &'p Prepared<'_>,
        plugged: &'p [Added],
        input: &LayoutInput,
        flavour: Flavour,
    ) -> Self {
        let layout = &prepared.layout;
        let mut notices = prepared.notices.clone();
        let whole = plugged.len() == input.plugged.len();
        let memory = WithAdded::new(layout, plugged).filter(|_| whole);
        if memory.is_none() {
            notices.push(
                "memory plugged in is left out: it is not whole pages, or there already".into(),
            );
        }
        let policy = match flavour {
            Flavour::Firstlight => {
                let policy = SizePolicy::of(layout, input.hypervisor);
                let dimms = memory.and(dimm_alignment(plugged));
                SizePolicy {
                    advised_bytes: input.advised_bytes,
                    dimm_bytes: policy.dimm_bytes.into_iter().chain(dimms).min(),
                    ..policy
                }
            }
            // Neither asks CXL's windows: that came with 6.14.
            Flavour::Linux6_1 | Flavour::Linux6_12 => SizePolicy {
                is_virtual: input.hypervisor,
                ..SizePolicy::default()
            },
        };
        let end = prepared.max_frame.checked_addr().map_or(0, |end| end.get());
        let policy = SizePolicy {
            end_bytes: end,
            explicit: input.block_size,
            ..policy
        };
        let mut choice = policy.choose();
        let mut reason = choice.to_string();
        if flavour.is_linux() && input.processor == Processor::Arm64 {
            let section = Pages::of(input, flavour).section_bytes();
            choice.size = BlockSize::new(section).unwrap_or(BlockSize::SMALLEST);
            reason = format!("{}, a section: on arm64 Linux has no others", choice.size);
        }
        Self {
            memory: memory.unwrap_or(WithAdded::none(layout)),
            choice,
            reason,
            notices,
        }
    }

    /// The blocks, if they were of `size`.
    fn blocks(&self, size: BlockSize) -> Blocks<WithAdded<'_, &'p Layout<'p>>> {
        Blocks::new(self.memory, size)
    }

    pub(super) fn count(&self) -> u64 {
        self.blocks(self.choice.size).count()
    }

    pub(super) fn runs(&self) -> Vec<BlockRunAnswer> {
        let blocks = self.blocks(self.choice.size);
        let runs = blocks.runs().map(|run| BlockRunAnswer {
            first: run.first.0,
            last: run.last.0,
            state: run.state().name(),
            valid_zones: run.zones().to_string(),
            nodes: run.nodes().map(|node| format!("node{},", node.0)).collect(),
        });
        runs.collect()
    }

    fn answer(self, flavour: Flavour) -> BlocksAnswer {
        let blocks = self.blocks(self.choice.size);
        let runs = blocks.runs().map(|run| Run {
            first: run.first.0,
            last: run.last.0,
            state: run.state().name(),
            zones: run.zones().list().map(ZoneKind::name).collect(),
            nodes: run.nodes().map(|node| node.0).collect(),
        });
        let mut sizes: Vec<BlockSize> = SHIFTS
            .filter_map(|shift| BlockSize::new(1 << shift).ok())
            .chain([self.choice.size])
            .collect();
        sizes.sort();
        sizes.dedup();
        BlocksAnswer {
            schema: "firstlight.blocks/1",
            flavour: flavour.name(),
            size_bytes: self.choice.size.bytes(),
            reason: self.reason.clone(),
            blocks: blocks.count(),
            runs: runs.collect(),
            sizes: sizes.into_iter().map(|size| self.other(size)).collect(),
            notices: self.notices.clone(),
        }
    }

    fn other(&self, size: BlockSize) -> OtherSize {
        let view = self.blocks(size);
        let blocks = view.count();
        let stuck = view
            .runs()
            .filter(|run| run.zones().list().next().is_none());
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let ratio = blocks as f64 / PUBLISHED_BLOCKS;
        OtherSize {
            size_bytes: size.bytes(),
            chosen: size == self.choice.size,
            blocks,
            stuck: stuck.map(|run| run.count()).sum(),
            searched_s: PUBLISHED_SEARCHED_S * ratio * ratio,
            looked_up_s: PUBLISHED_LOOKED_UP_S * ratio,
            finest_dimm_bytes: size.bytes(),
        }
    }
}

/// The memory blocks of `input`, as `flavour` has them.
///
/// ```
/// use firstlight_lab::linux::{Flavour, LayoutInput, blocks_of};
/// let log = firstlight_lab::log::read(
///     b"BIOS-e820: [mem 0x0000000000100000-0x000000003fffffff] usable\n",
/// );
/// let answer = blocks_of(&LayoutInput::from_log(&log), Flavour::Linux6_12)?;
/// assert_eq!((answer.blocks, answer.size_bytes), (8, 128 << 20));
/// assert!(answer.reason.contains("below 64 GiB"));
/// # Ok::<(), firstlight::start::StartError>(())
/// ```
///
/// # Errors
/// [`StartError`]: as a rule, that there is no memory.
pub fn blocks_of(input: &LayoutInput, flavour: Flavour) -> Result<BlocksAnswer, StartError> {
    with_layout(input, flavour, |prepared| {
        let plugged = plugged(input, flavour);
        View::new(&prepared, &plugged, input, flavour).answer(flavour)
    })
}

/// The largest block that comes and goes with each DIMM.
fn dimm_alignment(plugged: &[Added]) -> Option<u64> {
    common_alignment(
        plugged
            .iter()
            .filter_map(|dimm| dimm.frames.checked_addrs()),
    )
}

/// Memory that was plugged in, with the state that the kernel gives it; without what is no whole pages.
pub(super) fn plugged(input: &LayoutInput, flavour: Flavour) -> Vec<Added> {
    let all = input.plugged.iter();
    all.filter_map(|one| added(one, input, flavour)).collect()
}

fn added(one: &PluggedMemory, input: &LayoutInput, flavour: Flavour) -> Option<Added> {
    let range = PhysRange::new(one.start, one.last.checked_add(1)?)?;
    let frames: FrameRange = range.inner_frames();
    let line = CommandLine::new(input.command_line.as_bytes());
    let words = line.words().filter(|word| word.is("memhp_default_state"));
    let (state, zone) = match words.last().and_then(|word| word.value) {
        Some(b"online_movable") => (BlockState::Online, ZoneKind::Movable),
        Some(b"online" | b"online_kernel" | b"auto") => (BlockState::Online, ZoneKind::Normal),
        Some(b"offline") => (BlockState::Offline, ZoneKind::Normal),
        // Debian's 6.1 leaves it to user space; its 6.12 and ours bring it online.
        _ if flavour == Flavour::Linux6_1 => (BlockState::Offline, ZoneKind::Normal),
        _ => (BlockState::Online, ZoneKind::Normal),
    };
    let whole = frames.checked_addrs() == Some(range) && !frames.is_empty();
    whole.then_some(Added {
        frames,
        node: NodeId(one.node),
        zone,
        state,
    })
}
