//! The files on the stick: [`Stick`]. Nothing else of the machine's disks is opened.

use alloc::string::ToString;
use alloc::vec::Vec;

use firstlight_image_uefi::result::{Files, ResultFile, replace};
use uefi::fs::{FileSystem, Path};
use uefi::{CStr16, boot, cstr16, println};

use super::error::StartError;
use super::processor::{IMAGE, IMAGE_PATH};

pub(super) const WORDS: &str = "\\firstlight\\cmdline.txt";
const WORDS_PATH: &CStr16 = cstr16!("\\firstlight\\cmdline.txt");
const RESULT_PATH: &CStr16 = cstr16!("\\firstlight\\result.jsonl");
const NEW_RESULT_PATH: &CStr16 = cstr16!("\\firstlight\\result.new");
/// There while a run is under way.
const RUN_PATH: &CStr16 = cstr16!("\\firstlight\\running");

/// The volume that the loader came from.
pub(super) struct Stick(FileSystem);

impl Stick {
    pub(super) fn open() -> Result<Self, StartError> {
        let volume = boot::get_image_file_system(boot::image_handle());
        let volume = volume.map_err(|error| StartError::NoStick(error.status()))?;
        Ok(Self(FileSystem::new(volume)))
    }

    pub(super) fn image(&mut self) -> Result<Vec<u8>, StartError> {
        self.read(IMAGE, IMAGE_PATH)
    }

    /// The command line; a stick without the file has an empty one.
    pub(super) fn words(&mut self) -> Result<Vec<u8>, StartError> {
        match self.0.try_exists(WORDS_PATH) {
            Ok(false) => Ok(Vec::new()),
            _ => self.read(WORDS, WORDS_PATH),
        }
    }

    fn read(&mut self, name: &'static str, path: &CStr16) -> Result<Vec<u8>, StartError> {
        self.0.read(path).map_err(|error| StartError::File {
            name,
            why: error.to_string(),
        })
    }

    /// Marks that a run is under way; whether its result can come to the stick. It cannot if
    /// the mark of the last run is still there: firmware did not keep its result.
    pub(super) fn mark_run(&mut self) -> bool {
        let why = if self.has(RUN_PATH) {
            println!(
                "firstlight: the last run left no result: it was ended, or firmware does not keep variables"
            );
            super::pause(super::SHOWN);
            self.unmark_run().err()
        } else {
            match self
                .0
                .write(RUN_PATH, b"a run is under way, or its result was lost\r\n")
            {
                Ok(()) => return true,
                Err(error) => Some(error),
            }
        };
        if let Some(error) = why {
            println!("firstlight: the stick cannot be written: {error}");
        }
        println!("firstlight: this run's result is shown on the screen alone");
        false
    }

    /// Removes the mark, if there is one.
    fn unmark_run(&mut self) -> Result<(), uefi::fs::Error> {
        match self.has(RUN_PATH) {
            true => self.0.remove_file(RUN_PATH),
            false => Ok(()),
        }
    }

    fn has(&mut self, path: &CStr16) -> bool {
        self.0.try_exists(Path::new(path)).unwrap_or(false)
    }

    /// Writes the result. The one of an earlier run goes when the new one is on the stick.
    pub(super) fn write_result(&mut self, text: &[u8]) -> Result<(), uefi::fs::Error> {
        replace(self, text)?;
        // This may fail: the result is there.
        let _ = self.unmark_run();
        Ok(())
    }
}

const fn path(file: ResultFile) -> &'static CStr16 {
    match file {
        ResultFile::Result => RESULT_PATH,
        ResultFile::New => NEW_RESULT_PATH,
    }
}

impl Files for Stick {
    type Error = uefi::fs::Error;

    fn read(&mut self, file: ResultFile) -> Option<Vec<u8>> {
        self.0.read(path(file)).ok()
    }

    fn write(&mut self, file: ResultFile, text: &[u8]) -> Result<(), Self::Error> {
        self.0.write(path(file), text)
    }

    fn remove(&mut self, file: ResultFile) {
        let _ = self.0.remove_file(path(file));
    }
}
