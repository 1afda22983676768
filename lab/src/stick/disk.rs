//! A disk of one partition with FAT32, in memory: [`made`], [`file`](fn@file), [`save`].
//!
//! The partition table is the old one (MBR), which all firmware reads from a stick; the
//! partition is of type 0xef, an EFI system partition.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::volume;
use fatfs::{FatType, FileSystem, FormatVolumeOptions, FsOptions, StdIoWrapper, format_volume};

/// Size of the whole disk. FAT32 needs 65,525 clusters, of 512 bytes each here.
pub(super) const DISK_BYTES: usize = 64 << 20;
/// Most bytes of a file that is read: a result has 8 KiB.
pub(super) const MOST_READ_BYTES: u64 = 16 << 20;
const SECTOR_BYTES: usize = 512;
/// The partition begins at 1 MiB, as those of other systems do.
const START_BYTES: usize = 1 << 20;
/// It ends 1 MiB before the end, so that the table can become a GPT, which needs 33 sectors there.
const PARTITION_BYTES: usize = DISK_BYTES - 2 * START_BYTES;
/// Where the first entry of the partition table is.
const ENTRY: usize = 446;
const EFI_SYSTEM: u8 = 0xef;
const LABEL: [u8; 11] = *b"FIRSTLIGHT ";
/// One for all sticks, so that the same files make the same bytes.
const VOLUME_ID: u32 = 0x4649_5253;

/// A disk with these files; folders are made as they are needed.
pub(super) fn made(files: &[(&str, &[u8])]) -> io::Result<Vec<u8>> {
    let mut partition = Cursor::new(vec![0; PARTITION_BYTES]);
    let options = FormatVolumeOptions::new()
        .fat_type(FatType::Fat32)
        .bytes_per_cluster(512)
        .volume_label(LABEL)
        .volume_id(VOLUME_ID);
    format_volume(&mut StdIoWrapper::new(&mut partition), options)?;
    {
        let volume = FileSystem::new(&mut partition, FsOptions::new())?;
        for (path, content) in files {
            let folders = path.match_indices('/').map(|(end, _)| &path[..end]);
            for folder in folders {
                volume.root_dir().create_dir(folder)?;
            }
            volume.root_dir().create_file(path)?.write_all(content)?;
        }
        volume.unmount()?;
    }
    let mut disk = table().to_vec();
    disk.resize(START_BYTES, 0);
    disk.append(&mut partition.into_inner());
    disk.resize(DISK_BYTES, 0);
    Ok(disk)
}

/// The first sector: one partition, by numbers of sectors alone.
fn table() -> [u8; SECTOR_BYTES] {
    let sectors = |bytes: usize| {
        u32::try_from(bytes / SECTOR_BYTES)
            .unwrap_or(u32::MAX)
            .to_le_bytes()
    };
    // Cylinders that do not reach so far have this value.
    let beyond = [0xfe, 0xff, 0xff];
    let entry = [
        &[0x80],
        &beyond[..],
        &[EFI_SYSTEM],
        &beyond[..],
        &sectors(START_BYTES),
        &sectors(PARTITION_BYTES),
    ]
    .concat();
    let mut sector = [0; SECTOR_BYTES];
    sector[ENTRY - 6..ENTRY - 2].copy_from_slice(&VOLUME_ID.to_le_bytes());
    sector[ENTRY..ENTRY + entry.len()].copy_from_slice(&entry);
    sector[SECTOR_BYTES - 2..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

/// Where the first partition of a disk is; the whole of it has none where FAT itself begins.
pub(super) fn partition(disk: &[u8]) -> io::Result<std::ops::Range<usize>> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "there is no partition table");
    let word = |at: usize| {
        let bytes = disk.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    };
    if disk.get(SECTOR_BYTES - 2..SECTOR_BYTES) != Some(&[0x55, 0xaa]) {
        return Err(wrong());
    }
    let start = word(ENTRY + 8).ok_or_else(wrong)? * SECTOR_BYTES;
    let bytes = word(ENTRY + 12).ok_or_else(wrong)? * SECTOR_BYTES;
    let end = start.saturating_add(bytes).min(disk.len());
    match start {
        0 => Err(wrong()),
        _ if start >= end => Err(wrong()),
        _ => Ok(start..end),
    }
}

/// The content of a file on a disk, if there is one.
pub(super) fn file(mut disk: Vec<u8>, path: &str) -> io::Result<Option<Vec<u8>>> {
    let range = partition(&disk)?;
    read(disk.get_mut(range).unwrap_or_default(), path)
}

/// The content of a file in a partition, if there is one.
pub(super) fn read(partition: &mut [u8], path: &str) -> io::Result<Option<Vec<u8>>> {
    let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    volume::check(partition).map_err(wrong)?;
    let volume = FileSystem::new(Cursor::new(partition), FsOptions::new())?;
    let mut content = Vec::new();
    let root = volume.root_dir();
    match root.open_file(path) {
        Ok(file) => file.take(MOST_READ_BYTES).read_to_end(&mut content)?,
        Err(fatfs::Error::NotFound) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(content))
}

/// Writes the disk to a file, without the parts that are zero.
pub(super) fn save(disk: &[u8], path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    for (number, block) in disk.chunks(START_BYTES / 16).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            let at = number * (START_BYTES / 16);
            file.seek(SeekFrom::Start(at as u64))?;
            file.write_all(block)?;
        }
    }
    file.set_len(disk.len() as u64)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let long = vec![7; 3 << 20];
        let files = [
            ("EFI/BOOT/A.EFI", &long[..]),
            ("firstlight/a name.jsonl", b"x"),
        ];
        let disk = made(&files).unwrap();
        assert_eq!(disk.len(), DISK_BYTES);
        assert_eq!(disk, made(&files).unwrap());
        for (path, content) in files {
            assert_eq!(file(disk.clone(), path).unwrap().as_deref(), Some(content));
        }
        assert_eq!(file(disk.clone(), "firstlight/none").unwrap(), None);
        assert_eq!(file(disk.clone(), "none/none").unwrap(), None);
        // Type, first sector, sectors; FAT32 by its own name.
        assert_eq!(
            (disk[ENTRY + 4], &disk[ENTRY + 8..ENTRY + 12]),
            (0xef, &[0, 8, 0, 0][..])
        );
        assert_eq!(&disk[START_BYTES + 82..][..8], b"FAT32   ");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        save(&disk, &path).unwrap();
        assert_eq!(std::fs::read(path).unwrap(), disk);
    }

    #[test]
    fn what_is_no_stick_is_refused() {
        let good = made(&[("a", b"b")]).unwrap();
        let changed = |at: usize, byte: u8| {
            let mut disk = good.clone();
            disk[at] = byte;
            file(disk, "a")
        };
        assert!(changed(510, 0).is_err());
        assert!(changed(ENTRY + 9, 0).is_err(), "a partition at 0");
        assert!(
            changed(ENTRY + 11, 0xff).is_err(),
            "a partition behind the end"
        );
        assert!(changed(START_BYTES + 11, 1).is_err(), "sectors of 1 byte");
        for bytes in [vec![], vec![0; 511], vec![0; 1 << 20]] {
            assert!(file(bytes, "a").is_err());
        }
    }
}
