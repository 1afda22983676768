//! One node: the daemon's own [`Machine`] on a clock that jumps, and as much of the world around it as
//! a plan needs: starts, stops, one thread that fills.
//!
//! What is taken for nothing: taking pages away from a slab that came back, the pause of filling
//! after an allocation, pressure.

use super::trace::{SECOND, Start};
use firstlight_pool::config::Source;
use firstlight_pool::lease::Serial;
use firstlight_pool::lease::quota::Rules;
use firstlight_pool::machine::{self, Action, Event, Machine, Now, Spec};
use firstlight_pool::os::peer::Peer;
use firstlight_pool::protocol::{PageSize, Request, Take};
use firstlight_pool::store::Key;
use firstlight_pool::store::slab::SlabId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

/// What all nodes have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Host {
    /// Bytes of a slab.
    pub(super) slab_bytes: u64,
    /// Bytes a second that a daemon fills with.
    pub(super) fill_rate: u64,
    /// Bytes a second that the kernel zeroes while a start waits.
    pub(super) zeroing_rate: u64,
    /// What a request takes.
    pub(super) request_ns: u64,
    /// Time that may go into a top-up, and whether only where that is faster.
    pub(super) topup: (u32, bool),
    /// Counted from here to there.
    pub(super) window_ns: (u64, u64),
}

/// How long `bytes` take.
pub(super) fn takes(bytes: u64, rate: u64) -> u64 {
    let ns = u128::from(bytes) * u128::from(SECOND) / u128::from(rate.max(1));
    // Later than anything that is played.
    u64::try_from(ns).unwrap_or(u64::MAX).min(1 << 62)
}

/// What happened, of a node or of many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Starts that found a clean slab.
    pub(super) hits: u64,
    /// Starts on a smaller slab that was topped up.
    pub(super) topped_up: u64,
    /// How many starts waited how many nanoseconds.
    pub(super) waits: BTreeMap<u64, u64>,
    /// Bytes that daemons zeroed.
    pub(super) zeroed_bytes: u128,
    /// Nanoseconds that slabs were kept and not allocated, all together.
    pub(super) idle_slab_ns: u128,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.topped_up += other.topped_up;
        self.zeroed_bytes += other.zeroed_bytes;
        self.idle_slab_ns += other.idle_slab_ns;
        for (wait, count) in other.waits {
            *self.waits.entry(wait).or_default() += count;
        }
    }

    pub(super) fn starts(&self) -> u64 {
        self.waits.values().sum()
    }

    /// What `percent` of all starts wait at most.
    pub(super) fn wait(&self, percent: u32) -> u64 {
        let wanted = (self.starts() * u64::from(percent)).div_ceil(100);
        let mut seen = 0;
        let mut waits = self.waits.iter();
        let wait = waits.find(|(_, count)| {
            seen += **count;
            seen >= wanted
        });
        wait.map_or(0, |(wait, _)| *wait)
    }
}

/// What comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Filled(SlabId),
    ToppedUp(SlabId, u64),
    Ended(Serial),
}

struct Node<'s> {
    machine: Machine,
    host: &'s Host,
    starts: &'s [Start],
    slabs: u32,
    begin: Instant,
    now_ns: u64,
    due: BinaryHeap<Reverse<(u64, Due)>>,
    tally: Tally,
}

/// Plays a node that keeps so many slabs, all of them clean when it begins; times of `starts` rise.
pub(super) fn play(starts: &[Start], slabs: u32, host: &Host) -> Tally {
    let key = Key {
        page: PageSize::Huge,
        node: None,
        bytes: host.slab_bytes,
    };
    let spec = Spec {
        wanted: slabs,
        source: Source::Memfd,
        ..Spec::none(key)
    };
    let begin = Instant::now();
    let mut machine = Machine::new(machine::Start {
        rules: Rules::default(),
        specs: vec![spec],
        one_node: true,
        names: (0, 1),
        rate: host.fill_rate,
        now: Now {
            instant: begin,
            wall_ms: 0,
        },
    });
    for slab in 0..u64::from(slabs) {
        machine.found(SlabId(slab), key);
    }
    // What the daemon would have measured while it filled these.
    machine.zeroed(1 << 30, takes(1 << 30, host.zeroing_rate));
    let mut node = Node {
        machine,
        host,
        starts,
        slabs,
        begin,
        now_ns: 0,
        due: BinaryHeap::new(),
        tally: Tally::default(),
    };
    for (at, start) in (0..).zip(starts) {
        node.until(start.at_ns);
        node.starts(at, start);
    }
    // A top-up that is under way then is counted by its start.
    let topup_ns = u64::from(host.topup.0) * 1_000_000;
    node.until(host.window_ns.1.saturating_add(topup_ns));
    node.tally
}

impl Node<'_> {
    fn is_counted(&self) -> bool {
        let (from, to) = self.host.window_ns;
        (from..=to).contains(&self.now_ns)
    }

    /// The clock jumps.
    fn advance(&mut self, to_ns: u64) {
        let (from, to) = self.host.window_ns;
        let span = to_ns.clamp(from, to) - self.now_ns.clamp(from, to);
        let idle = usize::try_from(self.slabs).unwrap_or(0);
        let idle = idle.saturating_sub(self.machine.allocated_slabs());
        self.tally.idle_slab_ns += u128::from(span) * idle as u128;
        self.now_ns = to_ns;
    }

    /// What is due until then happens, the last nanosecond included.
    fn until(&mut self, ns: u64) {
        while let Some(Reverse((at_ns, due))) = self.due.peek().copied()
            && at_ns <= ns
        {
            self.due.pop();
            self.advance(at_ns);
            let counted = self.is_counted();
            let (event, zeroed_bytes) = match due {
                Due::Filled(slab) => (Event::Filled { slab, error: None }, self.host.slab_bytes),
                Due::ToppedUp(slab, bytes) => (Event::ToppedUp { slab, error: None }, bytes),
                Due::Ended(serial) => (Event::PipeClosed(serial), 0),
            };
            self.tally.zeroed_bytes += if counted { zeroed_bytes.into() } else { 0 };
            self.happens(event);
        }
        self.advance(ns);
    }

    fn starts(&mut self, at: u64, start: &Start) {
        let take = Take {
            bytes: start.bytes,
            node: None,
            page: None,
            max_topup_ms: self.host.topup.0,
            topup_if_faster: self.host.topup.1,
            label: None,
        };
        let owner = Peer {
            pid: 0,
            uid: 0,
            user: 0,
            gid: 0,
            groups: Vec::new(),
            cgroup: None,
        };
        self.happens(Event::Request {
            from: at,
            peer: owner,
            grant: None,
            request: Request::Take(take),
        });
    }

    fn happens(&mut self, event: Event) {
        let instant = self.begin + Duration::from_nanos(self.now_ns);
        let now = Now {
            instant,
            wall_ms: self.now_ns / 1_000_000,
        };
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.machine.step(now, event) {
                events.extend(self.carry_out(action));
            }
        }
    }

    fn later(&mut self, ns: u64, due: Due) {
        self.due
            .push(Reverse((self.now_ns.saturating_add(ns), due)));
    }

    fn carry_out(&mut self, action: Action) -> Option<Event> {
        let Host {
            slab_bytes,
            fill_rate,
            zeroing_rate,
            request_ns,
            ..
        } = *self.host;
        match action {
            Action::Reply { to, .. } => {
                // No request but that for memory is made, and one that is granted has no such reply.
                let start = self.start(to)?;
                let wait = request_ns.saturating_add(takes(start.bytes, zeroing_rate));
                self.waited(start, wait);
            }
            Action::Allocate(allocation) => {
                let start = self.start(allocation.to)?;
                let wait = self.now_ns - start.at_ns + request_ns;
                if start.at_ns >= self.host.window_ns.0 {
                    let is_whole = allocation.reply.topped_up_bytes == 0;
                    self.tally.hits += u64::from(is_whole);
                    self.tally.topped_up += u64::from(!is_whole);
                }
                self.waited(start, wait);
                let serial = allocation.record.serial;
                self.later(request_ns + start.lifetime_ns, Due::Ended(serial));
                return Some(Event::Allocated(serial));
            }
            Action::Grow { slab, bytes, .. } => {
                let missing = bytes - slab_bytes;
                self.later(takes(missing, zeroing_rate), Due::ToppedUp(slab, missing));
            }
            Action::Fill { slab, .. } => {
                self.later(takes(slab_bytes, fill_rate), Due::Filled(slab));
            }
            Action::Empty { slab, .. } => {
                return Some(Event::Emptied {
                    slab,
                    is_alone: true,
                    used_bytes: 0,
                });
            }
            Action::Discard(slab) => return Some(Event::Discarded(slab)),
            _ => {}
        }
        None
    }

    fn start(&self, connection: u64) -> Option<Start> {
        let at = usize::try_from(connection).ok()?;
        self.starts.get(at).copied()
    }

    fn waited(&mut self, start: Start, wait_ns: u64) {
        if start.at_ns >= self.host.window_ns.0 {
            *self.tally.waits.entry(wait_ns).or_default() += 1;
        }
    }
}
