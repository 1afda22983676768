//! What the machine is told, and what it has done.
//!
//! Each event comes with the time. Actions are carried out in their order; one that fails
//! comes back as an event of its own, and those behind it are carried out all the same.

use super::class::Spec;
use crate::lease::journal::Record;
use crate::lease::quota::Rules;
use crate::lease::{Grant, Serial, Whose};
use crate::os::peer::Peer;
use crate::protocol::{Filling, GrantId, Granted, Lease, Refusal, Reply, Request};
use crate::store::Key;
use crate::store::slab::SlabId;
use std::time::Instant;

/// A connection's number, never used twice.
pub type ConnectionId = u64;

/// The time, as two clocks show it.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The one that never goes back.
    pub instant: Instant,
    /// The machine's clock, in milliseconds.
    pub wall_ms: u64,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// A client requests something.
    Request {
        /// Its connection.
        from: ConnectionId,
        /// The client.
        peer: Peer,
        /// The grant whose socket it came by, if it is one's.
        grant: Option<GrantId>,
        /// What it requests.
        request: Request,
    },
    /// A connection is closed.
    HungUp(ConnectionId),
    /// An allocation was carried out to the end.
    Allocated(Serial),
    /// A step of an allocation failed, and none behind it was carried out.
    NotAllocated {
        /// Its lease.
        serial: Serial,
        /// Why.
        error: String,
    },
    /// The last copy of a lease pipe is closed, or its reply did not get through.
    PipeClosed(Serial),
    /// A slab was not made longer.
    NotGrown {
        /// Which.
        slab: SlabId,
        /// Why.
        why: NotGrown,
    },
    /// A slab is whole again after [`Action::Grow`], or why it is not.
    ToppedUp {
        /// Which.
        slab: SlabId,
        /// Why not.
        error: Option<String>,
    },
    /// A slab is filled from end to end and marked clean, or why it is not.
    Filled {
        /// Which.
        slab: SlabId,
        /// Why not.
        error: Option<String>,
    },
    /// A slab's pages were taken away.
    Emptied {
        /// Which.
        slab: SlabId,
        /// Whether no other process can reach it.
        is_alone: bool,
        /// Bytes that its mount still counts: pinned, or reserved.
        used_bytes: u64,
    },
    /// A slab is zeroed in place, and no other process can reach it; or not.
    Zeroed {
        /// Which.
        slab: SlabId,
        /// Whether it is.
        is_clean: bool,
    },
    /// [`Action::EmptyAgain`] was carried out, or could not be.
    EmptiedAgain(SlabId),
    /// A clean slab is gone.
    Discarded(SlabId),
    /// A class can be kept, from where its files come; or why it cannot.
    Prepared {
        /// The client that requested it.
        from: ConnectionId,
        /// The class.
        spec: Result<Spec, String>,
    },
    /// A grant has its socket and is on file; or why it is refused.
    Granted {
        /// The client that requested it.
        from: ConnectionId,
        /// The grant.
        grant: Grant,
        /// What came of it.
        opened: Result<Granted, Refusal>,
    },
    /// The folder of a grant was removed.
    GrantGone(GrantId),
    /// Time has passed.
    Tick(Seen),
    /// Other rules and other classes from now on, all of which can be kept.
    Configured {
        /// The rules.
        rules: Rules,
        /// The classes.
        specs: Vec<Spec>,
        /// Bytes a second of filling, 0 for as fast as it goes.
        rate: u64,
    },
    /// The daemon ends; clean slabs stay for the next one if it says so.
    Stop {
        /// Whether they do.
        keep: bool,
        /// What is seen now.
        seen: Seen,
    },
}

/// Why a slab was not made longer.
#[derive(Debug, Clone)]
pub enum NotGrown {
    /// There are no pages for it, and nothing was done to it.
    NoPages,
    /// No thread is ready that could fill it, and nothing was done to it.
    NoThread,
    /// It failed, and the slab is not clean any more.
    Failed(String),
}

/// What is seen of the machine now and then.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Whether filling pauses for memory pressure.
    pub is_paused: bool,
    /// What clients can do with revoked slabs, as it was seen some time ago: perhaps not of all of them.
    pub revoked: Vec<Reach>,
}

/// What a client can do with a slab after its lease.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    /// Which slab.
    pub slab: SlabId,
    /// Whether no other process can reach it.
    pub is_alone: bool,
    /// Whether it has pages, or length, again.
    pub holds_pages: bool,
    /// Bytes that its mount counts: of pages in it, and pinned or reserved.
    pub used_bytes: u64,
}

/// Something to be done.
#[derive(Debug, Clone)]
pub enum Action {
    /// Send a reply.
    Reply {
        /// To whom.
        to: ConnectionId,
        /// The reply.
        reply: Reply,
    },
    /// Allocate a slab: [`Allocation::STEPS`], up to the first that fails.
    Allocate(Box<Allocation>),
    /// Make a slab that was clean longer, if there are pages for it, and have the rest filled.
    Grow {
        /// Which.
        slab: SlabId,
        /// Its class.
        key: Key,
        /// Its length.
        bytes: u64,
        /// Give up then.
        deadline: Instant,
    },
    /// Make a slab and have it filled.
    Fill {
        /// Its number.
        slab: SlabId,
        /// Its class.
        spec: Spec,
        /// Whether its user's pages are back; otherwise it leaves what others gave back, [`Machine::promised`](super::Machine::promised).
        has_pages: bool,
    },
    /// What is being filled, topped up or zeroed in place need not be finished.
    Cancel(SlabId),
    /// A lease is over: nothing is put into its slab any more, once what is under way is done.
    EndTenure(Serial),
    /// Take a slab's pages away, also from under processes that have it open.
    Empty {
        /// Which.
        slab: SlabId,
        /// Whose it was.
        whose: Whose,
        /// The lease it had.
        lease: Option<Serial>,
    },
    /// Zero a slab in place.
    ZeroInPlace {
        /// Which.
        slab: SlabId,
        /// Its node.
        node: Option<u32>,
        /// The lease it had.
        lease: Serial,
    },
    /// A revoked client has drawn pages into its slab: take them away again.
    EmptyAgain {
        /// Which.
        slab: SlabId,
        /// Whose it was.
        whose: Whose,
    },
    /// Give a clean slab back to the kernel.
    Discard(SlabId),
    /// No process can reach a slab any more: close it.
    Forget {
        /// The slab.
        slab: SlabId,
        /// Whose it was.
        whose: Whose,
    },
    /// Leave a slab for the next daemon.
    Leave(SlabId),
    /// Have the service manager keep a clean slab without a name.
    KeepClean(SlabId),
    /// The service manager need not keep it any more.
    UnkeepClean(SlabId),
    /// The service manager need not keep the slab of a lease any more.
    UnkeepLease(Serial),
    /// Remove the name of a lease pipe.
    RemovePipe(Serial),
    /// Write that the client may still reach the memory of a lease that is over.
    RecordRevoked(Serial),
    /// Write that a lease is charged until a clean slab is in the place of its own, and nothing else is left of it.
    RecordOwed {
        /// The lease.
        serial: Serial,
        /// Whether its pages came back; else its memory was not found.
        has_pages: bool,
    },
    /// Write that nothing is left of a lease.
    RecordOver(Serial),
    /// See whether a class can be kept beside all others.
    Prepare {
        /// The client that requests it.
        from: ConnectionId,
        /// The class.
        spec: Spec,
        /// All classes, with this one.
        all: Vec<Spec>,
    },
    /// Make a grant's socket, and write the grant to the journal.
    OpenGrant {
        /// The client that requested it.
        from: ConnectionId,
        /// The grant.
        grant: Grant,
    },
    /// Write that a grant has ended, and close its socket and what came by it.
    CloseGrant(GrantId),
    /// Fill so from now on.
    SetFilling(Filling),
}

/// A slab that goes out.
#[derive(Debug, Clone)]
pub struct Allocation {
    /// To whom.
    pub to: ConnectionId,
    /// The reply, sent with the memory and the lease pipe.
    pub reply: Lease,
    /// The slab.
    pub slab: SlabId,
    /// What the next daemon must know.
    pub record: Record,
    /// Of what its guest gives back, how much is kept ready for it.
    pub refill_bytes: u64,
}

/// A step of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The inode is marked as allocated, for good, and a descriptor opened for the client.
    Mark,
    /// The service manager need not keep it as a clean one.
    UnkeepClean,
    /// The service manager keeps it as the lease's.
    KeepLease,
    /// The lease pipe is made.
    MakePipe,
    /// The lease is written to the journal.
    Record,
    /// The reply is sent, with the memory and the lease pipe.
    Send,
}

impl Allocation {
    /// In this order, so that a daemon killed between any two of them has lost a slab at most:
    /// no inode leaves before its mark, no lease begins that the next daemon does not know.
    pub const STEPS: [Step; 6] = [
        Step::Mark,
        Step::UnkeepClean,
        Step::KeepLease,
        Step::MakePipe,
        Step::Record,
        Step::Send,
    ];
}
