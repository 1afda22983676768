//! ACPI's tables that are read once all memory is up. Other content may be by now where memory is: nothing is read there.

use firstlight::addr::PhysRange;
use firstlight::firmware::PhysRead;
use firstlight::firmware::acpi::{self, Fadt, Signature, Table};

use crate::machine::Machine;

/// What is at `range`, where no memory is.
fn kept(machine: &Machine, range: PhysRange) -> Option<&'static [u8]> {
    let mut memory = machine.map.memory();
    let is_memory = memory.any(|memory| memory.range.overlaps(range));
    (!is_memory).then(|| machine.direct.read(range)).flatten()
}

/// The first table of this name. What is wrong with the root was said when other tables were read.
pub(crate) fn table(machine: &Machine, name: Signature) -> Option<&'static [u8]> {
    let kept = |range| kept(machine, range);
    let tables = acpi::Tables::open(kept, machine.root.as_ref()?, &mut |_| {}).ok()?;
    let table = tables.find(name, &mut |_| {})?;
    Some(table.bytes())
}

/// ACPI's code for the board (DSDT), of which none is run.
pub(crate) fn dsdt(machine: &Machine) -> Option<&'static [u8]> {
    let fadt = Fadt::parse(table(machine, Signature::FADT)?).ok()?;
    let dsdt = Table::read(&|range| kept(machine, range), fadt.dsdt()?, Signature::DSDT);
    Some(dsdt.ok()?.bytes())
}
