//! The hand-over of a PVH loader: start info, memory map, command line, modules. All is read
//! in place, so all is reserved.

use core::fmt::Display;

use firstlight::addr::{PhysAddr, PhysRange};
use firstlight::cmdline::CommandLine;
use firstlight::early::{EarlyError, EarlyMemory};
use firstlight::firmware::pvh::{PvhError, StartInfo, V1_BYTES};
use firstlight::layout::LayoutPolicy;
use firstlight::map::MapEntry;
use firstlight::start::{Boot, BootMemory, BootSlots, StartError};
use firstlight_wire::handover::HandoverError;

use super::uefi::Uefi;
use crate::arch::{DirectMap, POLICY};
use crate::console::correction;

/// Never allocated, whatever a map says: video memory and ROM on every PC, where writes are
/// lost.
#[cfg(target_arch = "x86_64")]
pub(crate) const FIXED: (PhysRange, &str) = match PhysRange::new(0xa_0000, 0x10_0000) {
    Some(range) => (range, "video memory and ROM"),
    None => (PhysRange::EMPTY, ""),
};

/// How a word for restarts begins.
const RESTART: &[u8] = b"restart=";

/// The loader's hand-over.
pub(crate) struct Loader {
    info: StartInfo,
    at: u64,
    pub(crate) command_line: CommandLine<'static>,
    /// Why there is no command line, if it cannot be read.
    unread: Option<PvhError>,
    /// What the UEFI loader hands over, if it was that one.
    uefi: Result<Option<Uefi>, HandoverError>,
}

impl Loader {
    /// Reads the start info at `at`; writes to no static.
    ///
    /// # Errors
    /// [`PvhError`] if there is none. A command line that cannot be read is left out.
    pub(crate) fn read(memory: DirectMap, at: u64) -> Result<Self, PvhError> {
        let info = StartInfo::read(&memory, PhysAddr::new(at))?;
        let (text, unread) = match info.command_line(&memory) {
            Ok(text) => (text, None),
            Err(error) => (None, Some(error)),
        };
        Ok(Self {
            info,
            at,
            command_line: CommandLine::new(text.unwrap_or_default()),
            unread,
            uefi: match info.modules {
                0 => Ok(None),
                _ => Uefi::find(memory, &info),
            },
        })
    }

    /// Whether the command line may have a word for restarts.
    pub(crate) fn may_restart(&self) -> bool {
        let text = self.command_line.text();
        text.windows(RESTART.len()).any(|part| part == RESTART)
    }

    /// What the UEFI loader hands over, if it was that one.
    pub(crate) fn uefi(&self) -> Option<Uefi> {
        self.uefi.ok().flatten()
    }

    /// Firmware's memory map: that of UEFI, or else of the start info.
    ///
    /// # Errors
    /// [`PvhError`] if there is neither.
    fn map_entries(
        &self,
        memory: DirectMap,
    ) -> Result<impl Iterator<Item = MapEntry> + Clone + use<>, PvhError> {
        let uefi = self.uefi();
        let other = match uefi {
            Some(_) => None,
            None => Some(self.info.map_entries(&memory)?),
        };
        let uefi = uefi.and_then(|uefi| uefi.map_entries());
        let other = other.into_iter().flatten();
        Ok(other.chain(uefi.into_iter().flatten()))
    }

    /// Early memory: that of the map.
    ///
    /// # Errors
    /// [`StartError`] if there is no map that can be used.
    pub(crate) fn early<'b>(
        &self,
        memory: DirectMap,
        boot: Boot<'b, ()>,
        slots: BootSlots<'static>,
        log: &mut dyn FnMut(&dyn Display),
    ) -> Result<BootMemory<'b, 'static>, StartError> {
        super::early(self.map_entries(memory)?, boot, slots, log)
    }

    /// As if there were no memory map, for tests.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn forget_map(&mut self) {
        self.info.memory_map = None;
    }

    /// Where the first module is that begins with `head`.
    #[cfg(target_arch = "aarch64")]
    pub(super) fn module(&self, memory: DirectMap, head: &[u8]) -> Option<u64> {
        use firstlight::firmware::PhysRead as _;
        let bytes = head.len() as u64;
        let modules = self.info.modules(&memory).ok()?;
        let mut starts = modules.into_iter().map(|module| module.start);
        starts.find(|start| {
            let range = PhysRange::with_size(*start, bytes);
            range.and_then(|range| memory.read(range)) == Some(head)
        })
    }

    /// Where ACPI's root pointer is, if the loader says so.
    pub(super) fn rsdp(&self) -> Option<PhysAddr> {
        self.info.rsdp
    }

    /// The zones of this processor.
    pub(crate) fn policy(&self) -> LayoutPolicy {
        POLICY
    }

    /// Reports what could not be read.
    pub(crate) fn report(&self) {
        if let Some(error) = self.unread {
            correction(error);
        }
        if let Err(error) = self.uefi {
            super::uefi::refuse();
            correction(error);
        }
    }

    /// Reserves its own data: the start info, the memory map, the command line, the modules.
    pub(crate) fn reserve(
        &self,
        memory: DirectMap,
        early: &mut EarlyMemory<'_>,
    ) -> Result<(), EarlyError> {
        let mut reserve = |start: u64, bytes: u64, owner| match PhysRange::with_size(start, bytes) {
            Some(range) => early.reserve(range, owner),
            None => Ok(()),
        };
        if let Some(storage) = self.uefi().and_then(|uefi| uefi.storage()) {
            reserve(storage.start, storage.bytes, "lists of the way up")?;
        }
        let address = |at: Option<PhysAddr>| at.unwrap_or_default().get();
        reserve(self.at, V1_BYTES as u64, "start info")?;
        let map_bytes = u64::from(self.info.memory_map_entries) * 24;
        reserve(
            address(self.info.memory_map),
            map_bytes,
            "loader's memory map",
        )?;
        let line_bytes = self
            .info
            .command_line(&memory)
            .ok()
            .flatten()
            .map_or(0, |text| text.len() + 1);
        reserve(
            address(self.info.command_line),
            line_bytes as u64,
            "command line",
        )?;
        let modules = match self.info.modules(&memory) {
            Ok(modules) => modules,
            Err(error) => {
                correction(error);
                return Ok(());
            }
        };
        reserve(
            self.info.module_list.get(),
            u64::from(self.info.modules) * 32,
            "module list",
        )?;
        modules
            .into_iter()
            .try_for_each(|module| reserve(module.start, module.bytes, "module"))
    }
}
