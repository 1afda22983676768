//! The result of the last run: firmware's variables and the stick, for
//! [`firstlight_image_uefi::result`].

use firstlight_image_uefi::result::{self, Next, Variables};
use firstlight_wire::parts::{PART_BYTES, VENDOR, name};
use uefi::runtime::{self, VariableVendor};
use uefi::{CStr16, Guid, Status, println};

use super::stick::Stick;

const OURS: VariableVendor = VariableVendor(Guid::from_bytes(VENDOR));

/// Brings the last run's result to the stick, if there is one.
pub(super) fn bring(stick: &mut Stick) -> Next {
    result::bring(
        &mut Firmware,
        |text| stick.write_result(text),
        &mut |text| println!("firstlight: {text}"),
    )
}

struct Firmware;

impl Variables for Firmware {
    type Error = Status;

    fn read(&mut self, number: u8, buffer: &mut [u8; PART_BYTES]) -> Result<Option<usize>, Status> {
        let name = name(number);
        let Ok(name) = CStr16::from_u16_until_nul(&name) else {
            return Ok(None);
        };
        match runtime::get_variable(name, &OURS, buffer) {
            Ok((bytes, _)) => Ok(Some(bytes.len())),
            Err(error) if error.status() == Status::NOT_FOUND => Ok(None),
            Err(error) => Err(error.status()),
        }
    }

    fn delete(&mut self, number: u8) -> Result<(), Status> {
        let name = name(number);
        let Ok(name) = CStr16::from_u16_until_nul(&name) else {
            return Ok(());
        };
        match runtime::delete_variable(name, &OURS) {
            Ok(()) => Ok(()),
            // Most are not there.
            Err(error) if error.status() == Status::NOT_FOUND => Ok(()),
            Err(error) => Err(error.status()),
        }
    }
}
