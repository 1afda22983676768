//! The whole way up: the map is put right, reservations are noted, zones are cut.

use firstlight::addr::PhysRange;
use firstlight::firmware::fdt::Fdt;
use firstlight::frames::Frames;
use firstlight::platform::DirectMap;
use firstlight::start::{Boot, StaticStorage, start};

use crate::log;

static STORAGE: StaticStorage<128, 1> = StaticStorage::new();
// SAFETY: never run.
static DIRECT: DirectMap = unsafe { DirectMap::new(0) };

pub(crate) fn frames(tree: &Fdt<'_>, kernel: PhysRange) -> Option<Frames<'static>> {
    let entries = tree.map_entries().map_err(|why| log(&why)).ok()?;
    let boot = Boot {
        reserved: &[(kernel, "kernel")],
        ..Boot::new(entries)
    };
    let storage = STORAGE.take().map_err(|why| log(&why)).ok()?;
    start(boot, storage, &DIRECT, &mut |seen| log(seen))
        .map_err(|why| log(&why))
        .ok()
}
