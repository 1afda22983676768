//! Descriptors in early memory: [`Memmap::reserve`].

use super::descriptor::Descriptor;
use super::directory::{Counts, NodeSpace};
use super::list::Ranges;
use super::range::DescriptorRange;
use super::space::{Space, map};
use super::{Memmap, MemmapError, MemmapPolicy, Tally};
use crate::addr::PhysRange;
use crate::carver::Carver;
use crate::layout::{Layout, NoSpace, ZoneSegment};
use crate::node::NodeId;
use crate::platform::Platform;

/// Takes `bytes` of early memory and makes them reachable.
fn allocate<'m, P: Platform>(
    layout: &mut Layout<'_>,
    platform: &'m P,
    node: NodeId,
    bytes: u64,
) -> Result<(Carver<'m>, PhysRange, bool), MemmapError> {
    let taken = layout.allocate_table(node, bytes, "page descriptors");
    let taken = taken.map_err(
        |NoSpace {
             needed_bytes,
             cause,
         }| MemmapError::NoSpace {
            needed_bytes,
            node,
            cause,
        },
    )?;
    let (carver, is_zero) = map(platform, taken)?;
    Ok((carver, taken, is_zero))
}

impl<'m, T: Descriptor> Memmap<'m, T> {
    /// Takes early memory for a descriptor of every frame of memory, each on its
    /// frame's node if that has space. Nothing of it is written but a directory of
    /// 2 bytes a GiB and some 100 a range.
    ///
    /// # Errors
    /// [`MemmapError`]: no memory, no space, or space out of the platform's reach.
    pub fn reserve<P: Platform>(
        layout: &mut Layout<'_>,
        platform: &'m P,
        policy: MemmapPolicy,
    ) -> Result<Self, MemmapError> {
        let first = layout.segments().next().ok_or(MemmapError::NoMemory)?.node;
        let nodes = layout.nodes().len();
        let counts = Counts::of::<T>(layout.segments(), nodes)?;
        let frames = layout.present_frames();
        let too_large = MemmapError::TooLarge { frames };
        let (mut directory, taken, _) = allocate(layout, platform, first, counts.bytes)?;
        let mut segments = layout.segments().map(|segment| {
            let node = layout.node(segment.node);
            let deferred = node.and_then(|node| node.first_deferred);
            (segment, deferred.unwrap_or(segment.frames.end()))
        });
        let ranges = counts.write::<T>(&mut directory, &mut segments);
        let ranges = ranges.ok_or(too_large)?;
        drop(segments);
        let spaces = directory.slice(nodes, |_| Some(NodeSpace::EMPTY));
        let spaces = spaces.ok_or(too_large)?;
        let placed_bytes = place_all(layout, platform, ranges, spaces, too_large)?;
        Ok(Self {
            ranges: Ranges::new(ranges),
            policy,
            tally: Tally::default(),
            reserved_bytes: taken.bytes() + placed_bytes,
            directory_bytes: counts.bytes,
        })
    }
}

/// Gives all `ranges` their space; how many bytes were taken for them.
fn place_all<'m, T: Descriptor, P: Platform>(
    layout: &mut Layout<'_>,
    platform: &'m P,
    ranges: &mut [DescriptorRange<'m, T>],
    spaces: &mut [NodeSpace<'m>],
    too_large: MemmapError,
) -> Result<u64, MemmapError> {
    let mut taken_bytes = 0;
    for range in ranges.iter() {
        let sum = &mut spaces[usize::from(range.segment.node.0)].bytes;
        let bytes = Space::<T>::bytes_for(range.segment.frames).ok_or(too_large)?;
        *sum = sum.checked_add(bytes).ok_or(too_large)?;
    }
    for (id, node) in (0..=u16::MAX).zip(spaces.iter_mut()) {
        // A node without that much in one piece gets it segment by segment.
        if node.bytes > 0
            && let Ok((carver, taken, is_zero)) = allocate(layout, platform, NodeId(id), node.bytes)
        {
            taken_bytes += taken.bytes();
            node.carver = Some((carver, is_zero));
        }
    }
    for range in ranges {
        let ZoneSegment { frames, node, .. } = range.segment;
        let space = match &mut spaces[usize::from(node.0)].carver {
            Some((carver, is_zero)) => Space::carve(carver, frames, *is_zero),
            None => {
                let bytes = Space::<T>::bytes_for(frames).ok_or(too_large)?;
                let (mut carver, taken, is_zero) = allocate(layout, platform, node, bytes)?;
                taken_bytes += taken.bytes();
                Space::carve(&mut carver, frames, is_zero)
            }
        };
        // SAFETY: the space was carved for the descriptors of this segment.
        unsafe { range.set_space(space.ok_or(too_large)?) };
    }
    Ok(taken_bytes)
}
