//! What a kernel makes of a machine's memory: ours, or a given Linux.
//!
//! [`layout_of`] sends a [`LayoutInput`] (firmware map, affinity rows, command
//! line) down the engine's own path, from memory map to layout, and tells the
//! result as a [`LayoutAnswer`], whose JSON is spelled as the recorded boots
//! spell it. Only what kernels do *differently* lives here, in `prepare`, by
//! [`Flavour`]: Linux takes the first page and the window from 640 KiB to 1 MiB
//! out of the map, distrusts a whole affinity table for one overlap, and up to
//! 6.5 obeys `kernelcore=mirror` where nothing is mirrored. On arm64, which has no such window, any
//! memory on no node is distrust enough; that is checked for 6.1. On arm64 a Linux may have pages of 16
//! or 64 KiB: [`LayoutInput::page_size`].
//!
//! | file | concept |
//! |---|---|
//! | `input` | [`LayoutInput`], from a log or put together |
//! | `hash` | large hash tables: [`HashAnswer`] |
//! | `blocks` | memory blocks: [`BlocksAnswer`], [`blocks_of`] |
//! | `pages` | what follows from the size of a page |
//! | `prepare` | from input to the engine's [`Layout`], [`with_layout`] |
//! | `answer` | from a layout to [`LayoutAnswer`] |

mod answer;
mod blocks;
mod hash;
mod input;
mod pages;
mod prepare;

use std::fmt;
use std::str::FromStr;

use firstlight::start::StartError;

pub use answer::{LayoutAnswer, ZoneAnswer};
pub use blocks::{BlockRunAnswer, BlocksAnswer, OtherSize, Run, blocks_of};
pub use hash::HashAnswer;
pub use input::{LayoutInput, NodeCpus, NodeMemory, PluggedMemory};
pub use prepare::{Prepared, with_layout};

#[cfg(doc)]
use firstlight::layout::Layout;

/// Which kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flavour {
    /// Our engine, as a kernel built on it would use it.
    #[default]
    Firstlight,
    /// Linux 6.1.
    Linux6_1,
    /// Linux 6.12.
    Linux6_12,
}

impl Flavour {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Firstlight, Self::Linux6_1, Self::Linux6_12];

    /// Its name on our command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Firstlight => "firstlight",
            Self::Linux6_1 => "linux-6.1",
            Self::Linux6_12 => "linux-6.12",
        }
    }

    /// Whether it is a Linux.
    pub const fn is_linux(self) -> bool {
        !matches!(self, Self::Firstlight)
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no flavour.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no kernel is called {0:?}; known are {known}", known = Flavour::ALL.map(Flavour::name).join(", "))]
pub struct UnknownFlavour(pub String);

impl FromStr for Flavour {
    type Err = UnknownFlavour;

    fn from_str(text: &str) -> Result<Self, UnknownFlavour> {
        let known = Self::ALL.into_iter().find(|flavour| flavour.name() == text);
        known.ok_or_else(|| UnknownFlavour(text.to_owned()))
    }
}

/// What `flavour` makes of the machine.
///
/// ```
/// use firstlight_lab::linux::{Flavour, LayoutInput, layout_of};
/// let log = firstlight_lab::log::read(
///     b"BIOS-e820: [mem 0x0000000000000000-0x000000000009fbff] usable\n\
///       BIOS-e820: [mem 0x0000000000100000-0x000000003ffdffff] usable\n",
/// );
/// let answer = layout_of(&LayoutInput::from_log(&log), Flavour::Linux6_12)?;
/// assert_eq!(answer.node_ranges_pfn, [(0, 1, 159), (0, 256, 262_112)]);
/// assert_eq!(answer.zones[0].zone, "DMA");
/// # Ok::<(), firstlight::start::StartError>(())
/// ```
///
/// # Errors
/// [`StartError`]: as a rule, that there is no memory.
pub fn layout_of(input: &LayoutInput, flavour: Flavour) -> Result<LayoutAnswer, StartError> {
    with_layout(input, flavour, |prepared| {
        LayoutAnswer::new(prepared, input, flavour)
    })
}
