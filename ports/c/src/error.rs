//! The codes that functions return, and their text: [`fl_error`].

use core::ffi::{CStr, c_char};

use engine::frames::{
    AllocError, BlockError, BuildError, CpuError, HotplugError, RangeError, Refusal,
};

/// What a function returns: `FL_OK`, or why it changed nothing. Numbers stay as they are.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fl_error {
    /// Done.
    FL_OK = 0,
    /// A pointer is NULL that must not be.
    FL_NULL = 1,
    /// A pointer is not aligned as its type is.
    FL_UNALIGNED = 2,
    /// The storage holds no allocator, or no CPU: create or initialise it first.
    FL_NOT_CREATED = 3,
    /// The storage is in use, or was not zero.
    FL_ALREADY_CREATED = 4,
    /// The span is empty, is not made of whole frames, or ends above 2^52.
    FL_BAD_SPAN = 5,
    /// Too little memory for the tables: fl_bytes_for says how much they need.
    FL_NO_SPACE = 6,
    /// More than an address space has.
    FL_TOO_LARGE = 7,
    /// An address or a size is no multiple of a frame, or an address no multiple of its block.
    FL_MISALIGNED = 8,
    /// Not all of the range lies in the span; or, of a block, in one zone.
    FL_OUTSIDE_SPAN = 9,
    /// Some of the range was added or adopted before.
    FL_PRESENT = 10,
    /// The range would split a hole, and the tables have no space for one hole more.
    FL_LIST_FULL = 11,
    /// An order above FL_MAX_ORDER.
    FL_BAD_ORDER = 12,
    /// Flags that do not exist or exclude each other, or a node or zone without its flag.
    FL_BAD_FLAGS = 13,
    /// There is no such node.
    FL_NO_SUCH_NODE = 14,
    /// There is no such zone.
    FL_NO_SUCH_ZONE = 15,
    /// A request for no frames.
    FL_NO_FRAMES = 16,
    /// An alignment that is not a power of two.
    FL_BAD_ALIGNMENT = 17,
    /// No such frames are free, on no node and in no zone of the request. CPUs may cache some:
    /// see fl_request.held_by_cpus and fl_request_drain.
    FL_OUT_OF_MEMORY = 18,
    /// Some of it was neither added nor adopted: it can't be freed.
    FL_ABSENT = 19,
    /// Freed, but not all of it was allocated: freed twice, or too much.
    FL_NOT_ALLOCATED = 20,
    /// A frame freed earlier was found to be freed twice. This call did its own work.
    FL_FREED_TWICE = 21,
    /// There is no CPU of that number: fl_create had fewer.
    FL_NO_SUCH_CPU = 22,
    /// Another fl_cpu has that number.
    FL_CPU_TAKEN = 23,
    /// The call interrupted another one of the same fl_cpu.
    FL_IN_CALL = 24,
    /// The tables contradict each other: they were overwritten, or this library has a bug.
    FL_CORRUPT = 25,
    /// A CPU can't start before there is memory.
    FL_NO_MEMORY = 26,
}

use fl_error::*;

/// The text of each code, by its number.
const TEXTS: [&CStr; FL_NO_MEMORY as usize + 1] = [
    c"done",
    c"a pointer is NULL",
    c"a pointer is not aligned as its type is",
    c"the storage holds nothing yet: create or initialise it first",
    c"the storage is in use already, or was not zero",
    c"the span is empty, not of whole frames, or ends above 2^52",
    c"too little memory for the tables: see fl_bytes_for",
    c"more than an address space has",
    c"an address or a size is no multiple of its frame or block",
    c"not all of it lies in the span, or in one zone",
    c"some of the range was added or adopted before",
    c"too many holes: the tables need more memory, see fl_bytes_for",
    c"an order above FL_MAX_ORDER",
    c"flags that do not exist or exclude each other, or a missing one",
    c"there is no such node",
    c"there is no such zone",
    c"a request for no frames",
    c"an alignment that is not a power of two",
    c"out of memory: no such frames are free",
    c"some of it was neither added nor adopted",
    c"not all of it is allocated: freed twice, or too much",
    c"a frame freed earlier was freed twice",
    c"there is no CPU of that number",
    c"the number of the CPU is taken",
    c"the call interrupted another one of the same CPU",
    c"the tables contradict each other",
    c"no memory was added yet",
];

/// What a code means, as English text without a full stop. Never NULL: a number that is no code
/// has a text, too. Any CPU, any handler, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_error_string(error: i32) -> *const c_char {
    let known = usize::try_from(error).ok();
    let text = known.and_then(|number| TEXTS.get(number));
    text.map_or(c"not a code of Firstlight".as_ptr(), |text| text.as_ptr())
}

impl From<BuildError> for fl_error {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::NoMemory => FL_BAD_SPAN,
            BuildError::TooLarge { .. } => FL_TOO_LARGE,
            BuildError::TooSmall { .. }
            | BuildError::NoSpace { .. }
            | BuildError::NotMapped { .. } => FL_NO_SPACE,
        }
    }
}

impl From<HotplugError> for fl_error {
    fn from(error: HotplugError) -> Self {
        match error.why {
            // A part of a huge frame of another zone: whole ones are of one.
            Refusal::Misaligned | Refusal::OtherZone => FL_MISALIGNED,
            Refusal::Present => FL_PRESENT,
            Refusal::ListFull { .. } => FL_LIST_FULL,
            Refusal::FreedMeanwhile => FL_NOT_ALLOCATED,
            // No span of this library has windows, so it has tables everywhere; nothing is isolated
            // or goes offline.
            _ => FL_OUTSIDE_SPAN,
        }
    }
}

impl From<AllocError> for fl_error {
    fn from(error: AllocError) -> Self {
        match error {
            // No request of this library is for zeros.
            AllocError::OutOfMemory { .. } | AllocError::NotZeroed { .. } => FL_OUT_OF_MEMORY,
            AllocError::NoSuchNode { .. } => FL_NO_SUCH_NODE,
            AllocError::NoFrames => FL_NO_FRAMES,
            AllocError::BadAlignment { .. } => FL_BAD_ALIGNMENT,
            AllocError::Cpu(error) => error.into(),
        }
    }
}

impl From<BlockError> for fl_error {
    fn from(error: BlockError) -> Self {
        match error {
            BlockError::Misaligned { .. } => FL_MISALIGNED,
            BlockError::OutsideMemory { .. } => FL_OUTSIDE_SPAN,
            BlockError::NotAllocated { .. } => FL_NOT_ALLOCATED,
            BlockError::Reserved { .. } => FL_ABSENT,
            BlockError::FreedTwice { .. } => FL_FREED_TWICE,
            BlockError::Cpu(error) => error.into(),
        }
    }
}

impl From<RangeError> for fl_error {
    fn from(error: RangeError) -> Self {
        match error {
            RangeError::OutsideMemory { .. } => FL_OUTSIDE_SPAN,
            RangeError::InUse { .. } | RangeError::NotAllocated { .. } => FL_NOT_ALLOCATED,
            RangeError::Reserved { .. } => FL_ABSENT,
            RangeError::FreedTwice { .. } => FL_FREED_TWICE,
            RangeError::Cpu(error) => error.into(),
        }
    }
}

impl From<CpuError> for fl_error {
    fn from(error: CpuError) -> Self {
        match error {
            CpuError::NoSuchCpu { .. } | CpuError::NotProvided => FL_NO_SUCH_CPU,
            CpuError::Taken => FL_CPU_TAKEN,
            CpuError::NoSuchNode { .. } => FL_NO_SUCH_NODE,
            CpuError::NoMemory => FL_NO_MEMORY,
            CpuError::InCall => FL_IN_CALL,
        }
    }
}

/// The code of a call.
pub(crate) fn code(result: Result<(), fl_error>) -> fl_error {
    result.err().unwrap_or(FL_OK)
}
