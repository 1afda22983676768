//! Memory that comes and goes beside everything else: DIMMs in a window, and parts of the memory of the start.

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use firstlight::addr::{Frame, FrameRange, PhysRange};
use firstlight::frames::{NewMemory, OnlinePolicy};
use firstlight::node::ZoneKind;

use crate::frames_stress::worker::Worker;
use crate::frames_stress::yard::Yard;
use crate::kit;
use crate::kit::HUGE_FRAMES;

/// The owner of frames that are absent or offline.
pub(crate) const AWAY: u32 = u32::MAX - 1;

/// Where a part of memory is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Online,
    Offline,
    Absent,
}

/// Memory that is online, offline or absent as a whole.
#[derive(Debug)]
pub(crate) struct Piece {
    frames: FrameRange,
    is: Is,
    /// Of a window: it can be absent.
    is_dimm: bool,
}

impl Piece {
    /// A DIMM that is absent.
    pub(crate) fn dimm(frames: FrameRange) -> Mutex<Self> {
        Mutex::new(Self {
            frames,
            is: Is::Absent,
            is_dimm: true,
        })
    }

    /// Space for some memory of the start that is offline.
    pub(crate) fn of_start() -> Mutex<Self> {
        Mutex::new(Self {
            frames: FrameRange::EMPTY,
            is: Is::Online,
            is_dimm: false,
        })
    }

    fn bytes(&self) -> PhysRange {
        self.frames.addrs()
    }

    /// It comes, by `call`; it may be allocated before that returns.
    fn comes<E>(&mut self, yard: &Yard, call: impl FnOnce(PhysRange) -> Result<(), E>) -> bool {
        yard.mark(self.frames, AWAY, 0);
        if call(self.bytes()).is_err() {
            // Busy: another thread takes memory offline, or brings some back.
            yard.mark(self.frames, 0, AWAY);
            return false;
        }
        self.is = Is::Online;
        yard.came
            .fetch_add(self.frames.count().cast_signed(), Relaxed);
        true
    }

    /// All of it just went offline: nothing of it was anyone's.
    fn is_offline(&mut self, yard: &Yard) {
        yard.mark(self.frames, 0, AWAY);
        self.is = Is::Offline;
        yard.came
            .fetch_sub(self.frames.count().cast_signed(), Relaxed);
    }

    fn goes(&mut self, yard: &Yard) -> bool {
        let gone = yard.frames.offline(self.bytes()).is_ok();
        if gone {
            self.is_offline(yard);
        }
        gone
    }

    fn is_removed(&mut self, yard: &Yard) -> bool {
        let removed = yard.frames.remove(self.bytes()).is_ok();
        if removed {
            self.is = Is::Absent;
        }
        removed
    }

    /// While no other call is in flight, and all is free: as at the start.
    pub(crate) fn reset(&mut self, yard: &Yard) {
        if self.frames.is_empty() {
            return;
        }
        let is_reset = match (self.is_dimm, self.is) {
            (false, Is::Online) | (true, Is::Absent) => true,
            (false, _) => self.comes(yard, |bytes| yard.frames.online(bytes)),
            (true, Is::Online) => self.goes(yard) && self.is_removed(yard),
            (true, Is::Offline) => self.is_removed(yard),
        };
        assert!(is_reset, "{self:?}");
    }
}

impl Worker<'_> {
    /// A step of some DIMM, or of some memory of the start.
    pub(crate) fn come_or_go(&mut self) {
        let yard = self.yard;
        let piece = usize::try_from(self.random.below(yard.pieces.len() as u64)).unwrap();
        // Another thread may be at it.
        let Ok(mut piece) = yard.pieces[piece].try_lock() else {
            return;
        };
        let (frames, dice) = (&yard.frames, self.random.below(4));
        let zones: Vec<_> = kit::zones_at(frames, piece.frames.start());
        let changed = match piece.is {
            Is::Online if !piece.is_dimm => {
                piece.frames = self.some_huges();
                piece.goes(yard)
            }
            Is::Online => {
                // What this CPU caches of it is in use.
                self.cpu().drain().unwrap();
                piece.goes(yard)
            }
            Is::Offline if piece.is_dimm && dice < 2 => piece.is_removed(yard),
            Is::Offline if piece.is_dimm && dice == 2 => {
                let zone = self.random.pick(&zones).zone;
                piece.comes(yard, |bytes| frames.online_to(bytes, zone))
            }
            Is::Offline => piece.comes(yard, |bytes| frames.online(bytes)),
            Is::Absent if dice == 0 => {
                let of = self.random.pick(&zones);
                let added = frames
                    .add(
                        NewMemory::new(piece.bytes())
                            .of(of)
                            .policy(OnlinePolicy::Offline),
                    )
                    .is_ok();
                if added {
                    piece.is = Is::Offline;
                }
                added
            }
            Is::Absent => {
                let of = self.random.pick(&zones);
                piece.comes(yard, |bytes| frames.add(NewMemory::new(bytes).of(of)))
            }
        };
        if changed {
            yard.changes.fetch_add(1, Relaxed);
        }
    }

    /// Some huge frames, not all of them memory.
    fn some_huges(&mut self) -> FrameRange {
        let first = self.some_frame() & !(HUGE_FRAMES - 1);
        FrameRange::new(first, first + HUGE_FRAMES * (1 + self.random.below(4))).unwrap()
    }

    /// Isolates some huge frames, and ends that in one of three ways.
    pub(crate) fn isolate(&mut self) {
        let frames = self.some_huges();
        let yard = self.yard;
        // Refused at the edges of memory and where another thread isolates.
        let Ok(isolation) = yard.frames.isolate(frames) else {
            return;
        };
        std::thread::yield_now();
        match self.random.below(3) {
            0 => drop(isolation),
            // Holes are in no range that is freed.
            1 if yard.memory.iter().any(|memory| memory.covers(frames)) => {
                if isolation.take().is_ok() {
                    yard.isolated.fetch_add(1, Relaxed);
                    self.hold_for_a_moment(frames);
                }
            }
            _ => {
                let free = yard.pieces.iter().find_map(|piece| {
                    let piece = piece.try_lock().ok()?;
                    (!piece.is_dimm && piece.is == Is::Online).then_some(piece)
                });
                if let Some(mut piece) = free
                    && isolation.offline().is_ok()
                {
                    piece.frames = frames;
                    piece.is_offline(yard);
                    yard.changes.fetch_add(1, Relaxed);
                }
            }
        }
    }
}

/// Whether memory can come to `frame` in zone Movable, too.
pub(crate) fn has_two_zones(yard: &Yard, frame: Frame) -> bool {
    kit::zones_at(&yard.frames, frame)
        .iter()
        .any(|of| of.zone == ZoneKind::Movable)
}
