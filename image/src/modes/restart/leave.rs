//! The kernel that hands over.

use core::fmt;
use core::num::NonZeroU64;

use firstlight::addr::{Order, PhysRange};
use firstlight::frames::{AllocError, Request};
use firstlight::node::{NodeId, ZoneKind};
use firstlight::preserve::{Draft, PreserveError, PreservedRange};
use firstlight_image::damage::Damage;
use firstlight_wire::{Event, HandedOver, Outcome, marker};
use log::{error, info};

use super::{damage, pattern};
use crate::arch::{DirectMap, marker, restart, ticks};
use crate::console::event;
use crate::machine::Machine;
use crate::preserve::{FORGOTTEN, GUESTS};
use crate::processors::Processors;

/// Guests' memory without `preserve_bytes=`.
const USUAL_BYTES: u64 = 1 << 30;

/// Why nothing is handed over.
enum Refused {
    NoPlace,
    Unaccepted,
    Memory(NodeId, AllocError),
    Table(PreserveError),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPlace => {
                f.write_str("there is no place for a table: expected preserve=SIZE@ADDRESS")
            }
            Self::Unaccepted => f.write_str("not together with accept="),
            Self::Memory(node, why) => write!(f, "memory for a guest on {node}: {why}"),
            Self::Table(why) => why.fmt(f),
        }
    }
}

impl From<PreserveError> for Refused {
    fn from(error: PreserveError) -> Self {
        Self::Table(error)
    }
}

/// Hands over and restarts; returns only if that is refused.
pub(super) fn run(machine: &Machine, processors: &mut Processors) -> Outcome {
    let Some(enter_again) = restart::ENTER_AGAIN else {
        error!(
            "restart: refused: this processor's image cannot enter itself again; expected x86_64"
        );
        return Outcome::Machine;
    };
    let before = machine.frames.statistics().free_frames;
    let place = machine.taken.lock().place;
    // SAFETY: what the previous kernel left there, if anything, is not in use: it is the first.
    let bytes = place.and_then(|place| unsafe { DirectMap::place(place) });
    // No other restart of this machine is at this time.
    let nonce = NonZeroU64::new(ticks()).unwrap_or(NonZeroU64::MIN);
    let handed = match (place, bytes) {
        _ if machine.words.accept_ticks.is_some() => Err(Refused::Unaccepted),
        (Some(place), Some(bytes)) => hand_over(machine, place, bytes, nonce, processors),
        _ => Err(Refused::NoPlace),
    };
    let handed = match handed {
        Ok(handed) => handed,
        Err(why) => {
            let after = machine.frames.statistics().free_frames;
            error!("restart: refused: {why}; {before} frames were free, {after} are");
            return Outcome::CheckFailed;
        }
    };
    info!(
        "restart: {} MiB of guests in {} ranges handed over by a table of {} bytes",
        handed.bytes >> 20,
        handed.ranges,
        handed.table_bytes
    );
    event(&Event::HandedOver(HandedOver {
        free_frames: before,
        stopped_cpus: processors.stop() as u64,
        ..handed
    }));
    marker(marker::HANDED_OVER);
    let nonce = match machine.words.damage {
        Some(Damage::Stale) => NonZeroU64::MAX,
        _ => nonce,
    };
    // SAFETY: kept at the start, where the command line has `restart=`; the other CPUs are
    // stopped, no device was started, and this does not return.
    unsafe { enter_again(nonce) }
}

/// Gives guests memory, and writes the table. If that fails they have none.
fn hand_over(
    machine: &Machine,
    place: PhysRange,
    bytes: &mut [u8],
    nonce: NonZeroU64,
    processors: &mut Processors,
) -> Result<HandedOver, Refused> {
    let mut draft = Draft::new(bytes, place.start(), nonce)?;
    let done = guests(machine, &mut draft).and_then(|()| {
        damage::add(machine.words.damage, &mut draft, &machine.frames).map_err(Refused::Table)
    });
    if let Err(why) = done {
        for range in draft.ranges() {
            // What a damage named was never allocated.
            let _ = machine.frames.free_frames(range.range.inner_frames());
        }
        return Err(why);
    }
    let ranges = draft.ranges().len() as u64;
    let preserved = draft.ranges().map(|range| range.range.bytes()).sum();
    let first = {
        let guests = draft.ranges().filter(|range| range.owner != FORGOTTEN);
        let guests = guests.map(|guest| guest.range);
        // SAFETY: allocated, above, and by now the guests'.
        unsafe { pattern::fill(guests.clone(), machine.words.preserve_every, processors) };
        guests.clone().next()
    };
    let table_bytes = match machine.words.preserve_verified {
        true => draft.finish_with(damage::checksum),
        false => draft.finish(),
    };
    damage::apply(machine.words.damage, &mut bytes[..table_bytes], first);
    Ok(HandedOver {
        ranges,
        bytes: preserved,
        table_bytes: table_bytes as u64,
        ..HandedOver::default()
    })
}

/// A guest on each node with memory, and a huge frame that nothing will take back.
fn guests(machine: &Machine, draft: &mut Draft<'_>) -> Result<(), Refused> {
    let wanted = machine.words.preserve_bytes.unwrap_or(USUAL_BYTES);
    let nodes = machine.frames.layout().nodes().iter();
    let nodes = nodes.filter(|node| node.present_frames > 0);
    let share = wanted / nodes.clone().count().max(1) as u64;
    for node in nodes {
        let mut left = share - share % Order::HUGE.bytes();
        while left > 0 {
            let taken = allocate(machine, node.id, left >= Order::GIANT.bytes())?;
            add(
                machine,
                draft,
                taken,
                GUESTS + u32::from(node.id.0),
                node.id,
            )?;
            left -= taken.bytes();
        }
    }
    if let Some(node) = machine.frames.layout().nodes().first() {
        let forgotten = allocate(machine, node.id, false)?;
        add(machine, draft, forgotten, FORGOTTEN, node.id)?;
    }
    Ok(())
}

/// A giant frame if there is one and it is wanted, else a huge frame.
fn allocate(machine: &Machine, node: NodeId, giant: bool) -> Result<PhysRange, Refused> {
    let request = |order| Request::new(order).only_on(node).zone(ZoneKind::Movable);
    let block = |order| {
        let frame = machine.frames.allocate(request(order))?;
        Ok(PhysRange::with_size(frame.addr().get(), order.bytes()).unwrap_or_default())
    };
    let large = giant.then(|| block(Order::GIANT).ok()).flatten();
    large
        .map_or_else(|| block(Order::HUGE), Ok)
        .map_err(|why| Refused::Memory(node, why))
}

/// Adds a block to the table, or frees it.
fn add(
    machine: &Machine,
    draft: &mut Draft<'_>,
    range: PhysRange,
    owner: u32,
    node: NodeId,
) -> Result<(), Refused> {
    let added = draft.add(PreservedRange {
        range,
        owner,
        tag: u64::from(node.0) << 32 | 0xf1,
        node: Some(node),
    });
    added.map_err(|why| {
        let _ = machine.frames.free_frames(range.inner_frames());
        Refused::Table(why)
    })
}
