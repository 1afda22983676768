//! A firmware that refuses, and sticks with little space.

use super::*;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec;
use firstlight_wire::parts::part;

/// Variables with our name, and what firmware refuses.
#[derive(Default)]
struct Firmware {
    parts: BTreeMap<u8, Vec<u8>>,
    /// In the order of the calls.
    deleted: Vec<u8>,
    unreadable: Option<u8>,
    undeletable: Option<u8>,
}

impl Firmware {
    fn with(text: &[u8]) -> Self {
        let parts = (0..MOST_PARTS).filter_map(|number| {
            let mut buffer = [0; PART_BYTES];
            Some((number, part(text, number, &mut buffer)?.to_vec()))
        });
        Self {
            parts: parts.collect(),
            ..Self::default()
        }
    }
}

impl Variables for Firmware {
    type Error = &'static str;

    fn read(
        &mut self,
        number: u8,
        buffer: &mut [u8; PART_BYTES],
    ) -> Result<Option<usize>, Self::Error> {
        if self.unreadable == Some(number) {
            return Err("DEVICE_ERROR");
        }
        let Some(part) = self.parts.get(&number) else {
            return Ok(None);
        };
        let slot = buffer.get_mut(..part.len()).ok_or("BUFFER_TOO_SMALL")?;
        slot.copy_from_slice(part);
        Ok(Some(part.len()))
    }

    fn delete(&mut self, number: u8) -> Result<(), Self::Error> {
        if self.undeletable == Some(number) {
            return Err("SECURITY_VIOLATION");
        }
        self.parts.remove(&number);
        self.deleted.push(number);
        Ok(())
    }
}

/// What comes next, what was written, what was said.
fn brought(firmware: &mut Firmware, full: bool) -> (Next, Option<Vec<u8>>, Vec<String>) {
    let (mut written, mut said) = (None, Vec::new());
    let write = |text: &[u8]| match full {
        true => Err("VOLUME_FULL"),
        false => {
            written = Some(text.to_vec());
            Ok(())
        }
    };
    let next = bring(firmware, write, &mut |text| said.push(text.to_string()));
    (next, written, said)
}

const TEXT: [u8; 2500] = [b'x'; 2500];

#[test]
fn a_result_goes_to_the_stick_and_leaves_firmware() {
    let mut firmware = Firmware::with(&TEXT);
    let (next, written, said) = brought(&mut firmware, false);
    assert_eq!((next, written.as_deref()), (Next::Off, Some(&TEXT[..])));
    assert!(said.len() == 1 && said[0].starts_with("the result, 2500 bytes, is in "));
    assert!(firmware.parts.is_empty());
    // A start that ends in between leaves no result that lacks its end.
    assert_eq!(firmware.deleted.first(), Some(&0));
    assert_eq!(brought(&mut firmware, false), (Next::Run, None, vec![]));
}

#[test]
fn a_stick_that_cannot_be_written_loses_no_result() {
    let mut firmware = Firmware::with(&TEXT);
    let (next, written, said) = brought(&mut firmware, true);
    assert_eq!((next, written), (Next::Kept, None));
    assert_eq!(
        said,
        [
            "the result cannot be written to the stick: VOLUME_FULL",
            "firmware keeps it: make space on the stick, or make it writable, and start again"
        ]
    );
    assert_eq!(firmware.parts, Firmware::with(&TEXT).parts);
    assert_eq!(brought(&mut firmware, false).0, Next::Off);
}

#[test]
fn parts_that_are_no_result_are_said_and_deleted() {
    let good = Firmware::with(&TEXT).parts;
    let swapped = [(0, 0), (1, 2), (2, 1)].map(|(to, from)| (to, good[&from].clone()));
    let without = |number| {
        let mut parts = good.clone();
        parts.remove(&number);
        parts
    };
    let foreign = BTreeMap::from([(0, b"of other software".to_vec())]);
    let missing = |number| {
        Some(std::format!(
            "the last run's result is not whole: variable Firstlight{number} of 3 is missing or damaged; it is deleted"
        ))
    };
    for (parts, words) in [
        // A run that ended while it left them: the first is written last.
        (without(0), None),
        (without(1), missing(1)),
        (without(2), missing(2)),
        (BTreeMap::from(swapped), missing(1)),
        (foreign, missing(0).map(|text| text.replace('3', "8"))),
    ] {
        let mut firmware = Firmware {
            parts,
            ..Firmware::default()
        };
        let (next, written, said) = brought(&mut firmware, false);
        assert_eq!((next, written), (Next::Run, None));
        assert_eq!(said, words.into_iter().collect::<Vec<_>>());
        assert!(firmware.parts.is_empty(), "space that others may need");
    }
}

#[test]
fn what_firmware_cannot_read_or_delete_stops_no_run() {
    for number in 0..3 {
        let mut firmware = Firmware {
            unreadable: Some(number),
            ..Firmware::with(&TEXT)
        };
        let (next, written, said) = brought(&mut firmware, false);
        assert_eq!((next, written), (Next::Run, None));
        let words =
            std::format!("firmware cannot read variable {number} of the last result: DEVICE_ERROR");
        assert_eq!(said, [words]);
        assert_eq!(firmware.parts.len(), 3, "it may be there another time");
    }
    // A variable too long for a part.
    let mut firmware = Firmware {
        parts: BTreeMap::from([(0, vec![0; PART_BYTES + 1])]),
        ..Firmware::default()
    };
    assert_eq!(brought(&mut firmware, false).0, Next::Run);
    // Kept once more, the next start would find it again, and so on.
    for (number, next) in [(0, Next::Unkept), (1, Next::Off)] {
        let mut firmware = Firmware {
            undeletable: Some(number),
            ..Firmware::with(&TEXT)
        };
        let (after, written, said) = brought(&mut firmware, false);
        assert_eq!((after, written.as_deref()), (next, Some(&TEXT[..])));
        assert_eq!(
            said[1],
            std::format!(
                "firmware does not delete variable {number} of the last result: SECURITY_VIOLATION"
            )
        );
        assert_eq!(firmware.parts.len(), 1);
    }
    let mut firmware = Firmware {
        parts: BTreeMap::from([(0, b"of other software".to_vec())]),
        undeletable: Some(0),
        ..Firmware::default()
    };
    assert_eq!(brought(&mut firmware, false).0, Next::Unkept);
}

/// A stick with space for so many bytes.
struct Space {
    bytes: usize,
    read_only: bool,
    files: BTreeMap<ResultFile, Vec<u8>>,
}

impl Files for Space {
    type Error = &'static str;

    fn read(&mut self, file: ResultFile) -> Option<Vec<u8>> {
        self.files.get(&file).cloned()
    }

    fn write(&mut self, file: ResultFile, text: &[u8]) -> Result<(), Self::Error> {
        if self.read_only {
            return Err("WRITE_PROTECTED");
        }
        self.files.remove(&file);
        let used: usize = self.files.values().map(Vec::len).sum();
        let fits = text.len().min(self.bytes - used);
        self.files.insert(file, text[..fits].to_vec());
        match fits == text.len() {
            true => Ok(()),
            false => Err("VOLUME_FULL"),
        }
    }

    fn remove(&mut self, file: ResultFile) {
        if !self.read_only {
            self.files.remove(&file);
        }
    }
}

#[test]
fn there_is_always_a_whole_result_however_little_space_there_is() {
    for earlier in [None, Some(b"an earlier one".to_vec())] {
        let least = earlier.as_ref().map_or(0, Vec::len);
        for bytes in least..least + 2 * TEXT.len() + 1 {
            let files = earlier.iter().cloned();
            let mut stick = Space {
                bytes,
                read_only: false,
                files: files.map(|text| (ResultFile::Result, text)).collect(),
            };
            let written = replace(&mut stick, &TEXT);
            let expected = match written {
                Ok(()) => Some(TEXT.to_vec()),
                Err(_) => earlier.clone(),
            };
            assert_eq!(stick.read(ResultFile::Result), expected, "{bytes} bytes");
            assert_eq!(stick.read(ResultFile::New), None);
            assert_eq!(written.is_ok(), bytes >= 2 * TEXT.len(), "{bytes} bytes");
        }
    }
    let earlier = BTreeMap::from([(ResultFile::Result, b"an earlier one".to_vec())]);
    let mut stick = Space {
        bytes: 9999,
        read_only: true,
        files: earlier.clone(),
    };
    assert_eq!(replace(&mut stick, &TEXT), Err("WRITE_PROTECTED"));
    assert_eq!(stick.files, earlier);
}
