//! The result of the last run on its way from firmware's variables to the stick: [`bring`], and
//! [`replace`], which loses no earlier result. Firmware and stick are the caller's.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::{Arguments, Display};

use firstlight_wire::parts::{MOST_PARTS, PART_BYTES, RESULT_BYTES, join};

/// Firmware's variables that hold parts of a result.
pub trait Variables {
    /// Firmware's status.
    type Error: Display;

    /// Reads a part; its length, `None` if there is no such variable.
    ///
    /// # Errors
    /// Why it cannot be read, though it may be there.
    fn read(
        &mut self,
        number: u8,
        buffer: &mut [u8; PART_BYTES],
    ) -> Result<Option<usize>, Self::Error>;

    /// Deletes a part; no error if there is none.
    ///
    /// # Errors
    /// Why it is still there.
    fn delete(&mut self, number: u8) -> Result<(), Self::Error>;
}

/// What comes after [`bring`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// A run: there was no result.
    Run,
    /// A run whose result firmware is not to keep: it does not delete the last one, and would bring one
    /// start after the other.
    Unkept,
    /// The result is on the stick, and the machine can go off.
    Off,
    /// The result is on the stick and stays with firmware, too: time to read why.
    Kept,
}

/// Brings the last run's result to the stick by `write`, if there is one. What cannot be written
/// stays in the variables.
pub fn bring<V: Variables, E: Display>(
    variables: &mut V,
    write: impl FnOnce(&[u8]) -> Result<(), E>,
    say: &mut dyn FnMut(Arguments<'_>),
) -> Next {
    let mut whole = Box::new([0; RESULT_BYTES]);
    let mut unread = false;
    let read = |number, buffer: &mut _| {
        variables.read(number, buffer).unwrap_or_else(|error| {
            say(format_args!(
                "firmware cannot read variable {number} of the last result: {error}"
            ));
            unread = true;
            None
        })
    };
    let text = match join(read, &mut whole) {
        // What cannot be read now may be there another time.
        Ok(None) | Err(_) if unread => return Next::Run,
        Ok(None) => {
            // Parts without the first one: a run that ended while it left them.
            delete(variables, say);
            return Next::Run;
        }
        Err(error) => {
            say(format_args!("{error}; it is deleted"));
            return match delete(variables, say) {
                true => Next::Run,
                false => Next::Unkept,
            };
        }
        Ok(Some(text)) => text,
    };
    if let Err(error) = write(text) {
        say(format_args!(
            "the result cannot be written to the stick: {error}"
        ));
        say(format_args!(
            "firmware keeps it: make space on the stick, or make it writable, and start again"
        ));
        return Next::Kept;
    }
    say(format_args!(
        "the result, {} bytes, is in \\firstlight\\result.jsonl on the stick",
        text.len()
    ));
    match delete(variables, say) {
        true => Next::Off,
        false => Next::Unkept,
    }
}

/// Deletes all parts, the first one first: without it there is no result. Whether that one is
/// gone.
fn delete<V: Variables>(variables: &mut V, say: &mut dyn FnMut(Arguments<'_>)) -> bool {
    let mut gone = true;
    for number in 0..MOST_PARTS {
        if let Err(error) = variables.delete(number) {
            say(format_args!(
                "firmware does not delete variable {number} of the last result: {error}"
            ));
            gone &= number != 0;
        }
    }
    gone
}

/// A file of the stick with a result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ResultFile {
    /// The last one.
    Result,
    /// The one that will be.
    New,
}

/// The files with results. A file that is written anew is deleted first: UEFI cuts none.
pub trait Files {
    /// The file system's.
    type Error;

    /// The content of a file; `None` if there is none, or none that can be read.
    fn read(&mut self, file: ResultFile) -> Option<Vec<u8>>;

    /// Writes a whole file; after an error a part of it may be there.
    ///
    /// # Errors
    /// No space, or a stick that cannot be written.
    fn write(&mut self, file: ResultFile, text: &[u8]) -> Result<(), Self::Error>;

    /// Removes a file, if it can.
    fn remove(&mut self, file: ResultFile);
}

/// Puts `text` in the place of an earlier result, which stays if that cannot be done.
///
/// # Errors
/// Why it cannot be done.
pub fn replace<F: Files>(files: &mut F, text: &[u8]) -> Result<(), F::Error> {
    // Where not even this fits, the earlier one is not touched.
    let written = files.write(ResultFile::New, text).and_then(|()| {
        let earlier = files.read(ResultFile::Result);
        let written = files.write(ResultFile::Result, text);
        if written.is_err() {
            // Both do not fit, and this one is with firmware still.
            files.remove(ResultFile::New);
            files.remove(ResultFile::Result);
            if let Some(earlier) = earlier {
                let _ = files.write(ResultFile::Result, &earlier);
            }
        }
        written
    });
    files.remove(ResultFile::New);
    written
}
