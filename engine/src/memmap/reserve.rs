//! Room for descriptors: from early memory, from memory lent, or from the very
//! memory they describe.

use core::mem::{MaybeUninit, size_of};
use core::ptr::NonNull;

use super::bank::{Bank, Room, place_of, sections_of};
use super::descriptor::{self, Descriptor, bytes_for, divides_line, first_content};
use super::states::States;
use super::writer::LINE_BYTES;
use super::{Memmap, MemmapError, MemmapPolicy, Tally};
use crate::addr::{Frame, FrameRange, Order, PAGE_BYTES, PHYS_END, PhysRange};
use crate::frames::table::Carver;
use crate::layout::{Layout, NoRoom, ZoneSegment};
use crate::node::NodeId;
use crate::platform::Platform;
use crate::sync::AtomicU64;

/// From so many bytes on, descriptors lie as their frames do modulo 2 MiB, so
/// that those of a section can be mapped, and given back, as whole huge frames.
const HUGE_FROM_BYTES: u64 = 64 << 20;
/// No memory ends after this frame.
const LAST_END: Frame = Frame::new(PHYS_END / PAGE_BYTES);
/// From so many bytes on, modulo a page.
const PAGE_FROM_BYTES: u64 = 64 << 10;

/// The border on which the descriptors of `frames` keep step with their frames.
fn step_bytes<T>(frames: FrameRange) -> u64 {
    match bytes_for::<T>(frames.count()) {
        Some(bytes) if bytes < PAGE_FROM_BYTES => LINE_BYTES as u64,
        Some(bytes) if bytes < HUGE_FROM_BYTES => PAGE_BYTES,
        _ => Order::HUGE.bytes(),
    }
}

/// Bytes from which [`room`] can be taken.
fn room_bytes<T>(frames: FrameRange) -> Option<u64> {
    bytes_for::<T>(frames.count())?.checked_add(step_bytes::<T>(frames))
}

/// Takes room for the descriptors of `frames`.
fn room<T>(carver: &mut Carver<'_>, frames: FrameRange, is_zero: bool) -> Option<Room<T>> {
    let step = step_bytes::<T>(frames);
    // Sizes that don't divide a line keep no step; they begin on the border.
    let phase = if divides_line::<T>() {
        frames.start().get() % step * size_of::<T>() as u64 % step
    } else {
        0
    };
    let bytes = usize::try_from(bytes_for::<T>(frames.count())?).ok()?;
    let (step, phase) = (usize::try_from(step).ok()?, usize::try_from(phase).ok()?);
    let first = carver.room(bytes, step, phase)?.cast();
    Some(Room { first, is_zero })
}

/// Words for the states of an extent's sections.
fn words_for(frames: FrameRange) -> Option<usize> {
    Some(States::words_for(
        usize::try_from(sections_of(frames)).ok()?,
    ))
}

/// What is known of a node while its banks get their room.
struct NodeRoom<'m> {
    bytes: u64,
    carver: Option<(Carver<'m>, bool)>,
}

/// Takes `bytes` of early memory and makes them reachable.
fn take<'m, P: Platform>(
    layout: &mut Layout<'_>,
    platform: &'m P,
    node: NodeId,
    bytes: u64,
) -> Result<(Carver<'m>, PhysRange, bool), MemmapError> {
    let range = layout.take_room(node, bytes, "page descriptors").map_err(
        |NoRoom {
             needed_bytes,
             cause,
         }| MemmapError::NoRoom {
            needed_bytes,
            node,
            cause,
        },
    )?;
    let (carver, is_zero) = map(platform, range)?;
    Ok((carver, range, is_zero))
}

/// Makes `range` reachable, and says whether it is known to be zero.
fn map<'m, P: Platform>(
    platform: &'m P,
    range: PhysRange,
) -> Result<(Carver<'m>, bool), MemmapError> {
    let bytes = range.bytes();
    match (platform.map(range), usize::try_from(bytes)) {
        (Some(start), Ok(len)) => {
            // SAFETY: the range was just taken for this, so nobody else has it,
            // and the platform promises that it is reachable while borrowed for 'm.
            let carver = unsafe { Carver::new(start, len) };
            Ok((carver, platform.is_zero(range)))
        }
        _ => Err(MemmapError::NotMapped {
            start: range.start(),
            bytes,
        }),
    }
}

/// What a directory holds.
struct Counts {
    banks: usize,
    /// Words of states.
    words: usize,
    bytes: u64,
}

/// Refuses extents no descriptors can be had for, and counts what the
/// directory of the others holds: banks, states, and `nodes` node rooms.
fn count<T: Descriptor>(
    extents: impl Iterator<Item = ZoneSegment>,
    nodes: usize,
) -> Result<Counts, MemmapError> {
    const { descriptor::check::<T>() };
    let (mut banks, mut words, mut frames) = (0, 0usize, 0u64);
    let mut end = Frame::new(0);
    for extent in extents {
        let range = extent.frames;
        if range.is_empty() || range.start() < end {
            return Err(MemmapError::Unordered { frames: range });
        }
        end = range.end();
        if end > LAST_END {
            return Err(MemmapError::NoSuchMemory { frames: range });
        }
        first_content::<T>(place_of(&extent, range.start()))?;
        frames = frames.saturating_add(range.count());
        let sum = words_for(range).and_then(|more| words.checked_add(more));
        words = sum.ok_or(MemmapError::TooLarge { frames })?;
        banks += 1;
    }
    if banks == 0 {
        return Err(MemmapError::NoMemory);
    }
    let lists = [
        Carver::bytes_for::<AtomicU64>(words as u64),
        Carver::bytes_for::<Bank<'_, T>>(banks as u64),
        Carver::bytes_for::<NodeRoom<'_>>(nodes as u64),
    ];
    let sum = lists
        .into_iter()
        .try_fold(0u64, |sum, bytes| sum.checked_add(bytes?));
    let bytes = sum.ok_or(MemmapError::TooLarge { frames })?;
    Ok(Counts {
        banks,
        words,
        bytes,
    })
}

/// Lists banks over `extents`, without room for descriptors.
fn list_banks<'m, T: Descriptor>(
    directory: &mut Carver<'m>,
    counts: &Counts,
    extents: &mut dyn Iterator<Item = (ZoneSegment, Frame)>,
) -> Option<&'m mut [Bank<'m, T>]> {
    let words = directory.slice(counts.words, |_| Some(AtomicU64::new(0)))?;
    let mut words: &'m [AtomicU64] = words;
    directory.slice(counts.banks, |_| {
        let (extent, deferred_from) = extents.next()?;
        let (own, rest) = words.split_at_checked(words_for(extent.frames)?)?;
        words = rest;
        Some(Bank::new(extent, States::new(own), deferred_from))
    })
}

impl<'m, T: Descriptor> Memmap<'m, T> {
    /// Takes room for a descriptor of every frame of memory from early memory,
    /// each on its frame's node if that has room. Nothing of it is written but
    /// a directory of 2 bytes a GiB and some 100 a range.
    ///
    /// # Errors
    /// [`MemmapError`]: a type that is not valid as zero and has no template,
    /// no room, or room out of the platform's reach.
    pub fn reserve<P: Platform>(
        layout: &mut Layout<'_>,
        platform: &'m P,
        policy: MemmapPolicy,
    ) -> Result<Self, MemmapError> {
        let first = layout.segments().next().ok_or(MemmapError::NoMemory)?.node;
        let highest = layout.segments().map(|extent| extent.node).max();
        let nodes = usize::from(highest.unwrap_or_default().0) + 1;
        let counts = count::<T>(layout.segments(), nodes)?;
        let frames = layout.present_frames();
        let too_large = MemmapError::TooLarge { frames };
        let (mut directory, range, _) = take(layout, platform, first, counts.bytes)?;
        let mut reserved_bytes = range.bytes();
        let mut extents = layout.segments().map(|extent| {
            let node = layout.node(extent.node);
            let deferred = node.and_then(|node| node.first_deferred);
            (extent, deferred.unwrap_or(extent.frames.end()))
        });
        let banks = list_banks::<T>(&mut directory, &counts, &mut extents).ok_or(too_large)?;
        drop(extents);
        let rooms = directory
            .slice(nodes, |_| {
                Some(NodeRoom {
                    bytes: 0,
                    carver: None,
                })
            })
            .ok_or(too_large)?;
        for bank in banks.iter() {
            let sum = &mut rooms[usize::from(bank.extent.node.0)].bytes;
            let bytes = room_bytes::<T>(bank.extent.frames).ok_or(too_large)?;
            *sum = sum.checked_add(bytes).ok_or(too_large)?;
        }
        for (id, node) in (0..=u16::MAX).zip(rooms.iter_mut()) {
            // A node without so much in one piece has it extent by extent.
            if node.bytes > 0
                && let Ok((carver, range, is_zero)) = take(layout, platform, NodeId(id), node.bytes)
            {
                reserved_bytes += range.bytes();
                node.carver = Some((carver, is_zero));
            }
        }
        for bank in banks.iter_mut() {
            let ZoneSegment { frames, node, .. } = bank.extent;
            let own = match &mut rooms[usize::from(node.0)].carver {
                Some((carver, is_zero)) => room(carver, frames, *is_zero),
                None => {
                    let bytes = room_bytes::<T>(frames).ok_or(too_large)?;
                    let (mut carver, range, is_zero) = take(layout, platform, node, bytes)?;
                    reserved_bytes += range.bytes();
                    room(&mut carver, frames, is_zero)
                }
            };
            // SAFETY: the room was carved for the descriptors of this extent.
            unsafe { bank.settle(own.ok_or(too_large)?) };
        }
        Ok(Self {
            banks,
            policy,
            tally: Tally::default(),
            reserved_bytes,
            directory_bytes: counts.bytes,
        })
    }

    /// Bytes [`Self::in_memory`] needs for its directory and for descriptors;
    /// `None` where they exceed the address space.
    ///
    /// # Errors
    /// [`MemmapError`]: no extents, extents that do not ascend, a type without
    /// a first content.
    pub fn bytes_for(extents: &[ZoneSegment]) -> Result<(u64, u64), MemmapError> {
        let counts = count::<T>(extents.iter().copied(), 0)?;
        let frames = extents.iter().map(|extent| extent.frames);
        let all = frames.clone().map(FrameRange::count).sum();
        let bytes = frames
            .map(room_bytes::<T>)
            .try_fold(0u64, |sum, bytes| sum.checked_add(bytes?));
        let bytes = bytes.ok_or(MemmapError::TooLarge { frames: all })?;
        Ok((counts.bytes, bytes))
    }

    /// Descriptors of `extents` in memory lent for them, which may hold anything.
    ///
    /// All of them count as deferred.
    ///
    /// # Errors
    /// [`MemmapError`], as for [`Self::bytes_for`], or [`MemmapError::Lent`].
    pub fn in_memory(
        extents: &[ZoneSegment],
        directory: &'m mut [MaybeUninit<u8>],
        memory: &'m mut [MaybeUninit<u8>],
        policy: MemmapPolicy,
    ) -> Result<Self, MemmapError> {
        let lent = memory.len();
        let (_, needed_bytes) = Self::bytes_for(extents)?;
        // SAFETY: the slice is borrowed for 'm and its content does not matter.
        let mut carver = unsafe { Carver::new(NonNull::from(memory).cast(), lent) };
        let mut rooms = extents.iter().map(|extent| {
            room(&mut carver, extent.frames, false).ok_or(MemmapError::Lent {
                purpose: "descriptors",
                bytes: lent,
                needed_bytes,
            })
        });
        Self::with_rooms(extents, directory, policy, &mut rooms)
    }

    /// Descriptors of memory that was added, in its own first frames. Returns
    /// the frames they take, which are not to be handed out. Only the
    /// directory, some bytes a section, lies elsewhere.
    ///
    /// ```
    /// # use std::mem::MaybeUninit;
    /// # use std::ptr::NonNull;
    /// # use firstlight::addr::{Frame, FrameRange, PhysRange};
    /// # use firstlight::layout::ZoneSegment;
    /// # use firstlight::memmap::{Memmap, MemmapPolicy, PageDescriptor};
    /// # use firstlight::node::{NodeId, ZoneKind};
    /// # use firstlight::platform::Platform;
    /// # struct Dimm;
    /// # // SAFETY: memory of its own for every range, never freed.
    /// # unsafe impl Platform for Dimm {
    /// #     fn map(&self, range: PhysRange) -> Option<NonNull<u8>> {
    /// #         let memory = vec![0u64; range.bytes() as usize / 8 + 512].leak();
    /// #         let bytes = NonNull::from(memory).cast::<u8>();
    /// #         Some(unsafe { bytes.add(bytes.align_offset(4096)) })
    /// #     }
    /// # }
    /// # let platform = Dimm;
    /// // A DIMM of 128 MiB at 64 GiB: 2 MiB of it are its descriptors.
    /// let frames = FrameRange::new(64 << 18, (64 << 18) + 32_768).unwrap();
    /// let extent = ZoneSegment { frames, node: NodeId(1), zone: ZoneKind::Movable };
    /// let mut directory = [MaybeUninit::uninit(); 256];
    /// let (memmap, own) = Memmap::<PageDescriptor>::self_hosted(
    ///     extent, &mut directory, &platform, MemmapPolicy::default())?;
    /// assert_eq!((own.start(), own.count()), (frames.start(), 512));
    /// assert_eq!(memmap.of(own.end()).unwrap().place().node, NodeId(1));
    /// # Ok::<(), firstlight::memmap::MemmapError>(())
    /// ```
    ///
    /// # Errors
    /// [`MemmapError`]: no directory, memory too small for its own
    /// descriptors, or out of the platform's reach.
    pub fn self_hosted<P: Platform>(
        extent: ZoneSegment,
        directory: &'m mut [MaybeUninit<u8>],
        platform: &'m P,
        policy: MemmapPolicy,
    ) -> Result<(Self, FrameRange), MemmapError> {
        let frames = extent.frames;
        let too_large = MemmapError::TooLarge {
            frames: frames.count(),
        };
        let bytes = bytes_for::<T>(frames.count()).ok_or(too_large)?;
        // Memory that begins inside a section begins its descriptors inside a line.
        let start = frames.start().get();
        let phase = start % LINE_BYTES as u64 * size_of::<T>() as u64 % LINE_BYTES as u64;
        let needed_frames = bytes
            .checked_add(phase)
            .ok_or(too_large)?
            .div_ceil(PAGE_BYTES);
        let own = FrameRange::new(start, start.saturating_add(needed_frames))
            .filter(|own| frames.covers(*own) && own.count() < frames.count())
            .ok_or(MemmapError::TooSmall {
                frames,
                needed_frames,
            })?;
        count::<T>(core::iter::once(extent), 0)?;
        let (mut carver, is_zero) = map(platform, own.bytes())?;
        let phase = if divides_line::<T>() { phase } else { 0 };
        let (bytes, phase) = (usize::try_from(bytes), usize::try_from(phase));
        let (Ok(bytes), Ok(phase)) = (bytes, phase) else {
            return Err(too_large);
        };
        let mut rooms = core::iter::once_with(|| {
            let first = carver.room(bytes, LINE_BYTES, phase).ok_or(too_large)?;
            Ok(Room {
                first: first.cast(),
                is_zero,
            })
        });
        let memmap = Self::with_rooms(&[extent], directory, policy, &mut rooms)?;
        Ok((memmap, own))
    }

    /// Banks over `extents`, each with the next of `rooms`, which were carved for them.
    fn with_rooms(
        extents: &[ZoneSegment],
        directory: &'m mut [MaybeUninit<u8>],
        policy: MemmapPolicy,
        rooms: &mut dyn Iterator<Item = Result<Room<T>, MemmapError>>,
    ) -> Result<Self, MemmapError> {
        let counts = count::<T>(extents.iter().copied(), 0)?;
        let lent = directory.len();
        let small = MemmapError::Lent {
            purpose: "the directory of descriptors",
            bytes: lent,
            needed_bytes: counts.bytes,
        };
        // SAFETY: the slice is borrowed for 'm and its content does not matter.
        let mut carver = unsafe { Carver::new(NonNull::from(directory).cast(), lent) };
        let mut deferred = extents
            .iter()
            .map(|extent| (*extent, extent.frames.start()));
        let banks = list_banks::<T>(&mut carver, &counts, &mut deferred).ok_or(small)?;
        let mut reserved_bytes = 0;
        for bank in banks.iter_mut() {
            let room = rooms.next().ok_or(small)??;
            reserved_bytes += bytes_for::<T>(bank.extent.frames.count()).unwrap_or_default();
            // SAFETY: the room was carved for the descriptors of this extent.
            unsafe { bank.settle(room) };
        }
        Ok(Self {
            banks,
            policy,
            tally: Tally::default(),
            reserved_bytes,
            directory_bytes: counts.bytes,
        })
    }
}
