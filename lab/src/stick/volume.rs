//! What a FAT32 volume must keep to before `fatfs` reads it: [`check`].
//!
//! The guest may have rewritten all of it. `fatfs` computes with the boot sector's fields, with the
//! FAT's entries and with first clusters of directory entries as they are, which overflows for
//! some, and follows a directory's chain for as long as it goes. So all of these are within the
//! volume, and no cluster is in two directories or twice in one.

/// Entries of the FAT before the first cluster's.
const RESERVED: u32 = 2;
/// What is not the number of a cluster: a bad one, and the end of a chain.
const BAD: u32 = 0x0fff_fff7;
/// The upper bits of an entry are not part of the number.
const NUMBER: u32 = 0x0fff_ffff;
/// Largest volume: `fatfs` counts the bits of a FAT in 32 bits.
const MOST_BYTES: usize = 256 << 20;
const ENTRY_BYTES: usize = 32;
/// The first byte of a deleted entry, and attributes.
const DELETED: u8 = 0xe5;
const LONG_NAME: u8 = 0x0f;
const LABEL: u8 = 0x08;
const DIRECTORY: u8 = 0x10;
/// Fewest clusters of FAT32.
const LEAST_CLUSTERS: u64 = 65_525;

/// Why a volume is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadVolume {
    /// A field of the boot sector.
    #[error("{name} is {seen}, expected {expected}")]
    Field {
        name: &'static str,
        seen: u64,
        expected: &'static str,
    },
    /// An entry of the FAT, or of a directory, names a cluster that the volume does not have.
    #[error("{of} names cluster {seen:#x}, which the volume does not have")]
    NoCluster { of: &'static str, seen: u32 },
    /// A directory goes through a cluster that was in one before.
    #[error("cluster {cluster:#x} is in two directories, or twice in one")]
    Twice { cluster: u32 },
}

/// Whether `fatfs` can read `volume` in bounded time and without overflow.
pub(super) fn check(volume: &[u8]) -> Result<(), BadVolume> {
    let (volume, root) = Volume::new(volume)?;
    volume.check_fat()?;
    volume.check_directories(root)
}

/// A volume whose boot sector is sound.
struct Volume<'v> {
    /// Entries of the first FAT.
    fat: &'v [u8],
    /// All clusters.
    data: &'v [u8],
    cluster_bytes: usize,
    clusters: u32,
}

fn need(
    is_so: bool,
    name: &'static str,
    seen: u64,
    expected: &'static str,
) -> Result<(), BadVolume> {
    let error = BadVolume::Field {
        name,
        seen,
        expected,
    };
    if is_so { Ok(()) } else { Err(error) }
}

/// A number of up to 8 bytes; what is missing is 0.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let bytes = bytes.get(at..at + len).unwrap_or_default();
    let bytes = bytes.iter().rev();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

impl<'v> Volume<'v> {
    /// By the boot sector; with the first cluster of the root directory.
    fn new(bytes: &'v [u8]) -> Result<(Self, u32), BadVolume> {
        let field = |at, len| number(bytes, at, len);
        let size = bytes.len() as u64;
        need(
            bytes.len() <= MOST_BYTES,
            "the size",
            size,
            "256 MiB at most",
        )?;
        let (sector, per_cluster) = (field(11, 2), field(13, 1));
        let is_sector = sector.is_power_of_two() && (512..=4096).contains(&sector);
        need(is_sector, "bytes of a sector", sector, "512 to 4096")?;
        need(
            per_cluster.is_power_of_two(),
            "sectors of a cluster",
            per_cluster,
            "a power of two",
        )?;
        let (reserved, fats) = (field(14, 2), field(16, 1));
        need(reserved > 0, "reserved sectors", reserved, "one at least")?;
        need((1..=2).contains(&fats), "FATs", fats, "1 or 2")?;
        for (name, at) in [
            ("root entries", 17),
            ("sectors, of 16 bits,", 19),
            ("sectors of a FAT, of 16 bits,", 22),
        ] {
            need(field(at, 2) == 0, name, field(at, 2), "0, as FAT32 has")?;
        }
        let (sectors, of_fat) = (field(32, 4), field(36, 4));
        need(
            sectors * sector <= size,
            "sectors",
            sectors,
            "no more than there are",
        )?;
        let first = reserved + fats * of_fat;
        need(first < sectors, "sectors of a FAT", of_fat, "less than all")?;
        let clusters = (sectors - first) / per_cluster;
        need(
            clusters >= LEAST_CLUSTERS,
            "clusters",
            clusters,
            "65,525 at least",
        )?;
        need(
            of_fat * sector / 4 >= clusters + u64::from(RESERVED),
            "sectors of a FAT",
            of_fat,
            "an entry for each cluster",
        )?;
        let flags = field(40, 2);
        need(
            flags & 0x80 == 0,
            "flags",
            flags,
            "FATs that are all the same",
        )?;
        // In memory, so no number is too large from here on.
        let index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let part = |first: u64, sectors: u64| {
            let (start, end) = (index(first * sector), index((first + sectors) * sector));
            bytes.get(start..end).unwrap_or_default()
        };
        let volume = Self {
            fat: part(reserved, of_fat),
            data: part(first, sectors - first),
            cluster_bytes: index(per_cluster * sector),
            clusters: u32::try_from(clusters).unwrap_or(0),
        };
        let root = volume.cluster("the root directory", word(bytes, 44))?;
        Ok((volume, root))
    }

    /// `seen`, if the volume has that cluster.
    fn cluster(&self, of: &'static str, seen: u32) -> Result<u32, BadVolume> {
        let index = seen.checked_sub(RESERVED);
        match index.is_some_and(|index| index < self.clusters) {
            true => Ok(seen),
            false => Err(BadVolume::NoCluster { of, seen }),
        }
    }

    /// What the FAT says of a cluster: the next of its chain, or none.
    fn next(&self, cluster: u32) -> Result<Option<u32>, BadVolume> {
        match word(self.fat, cluster as usize * 4) & NUMBER {
            0 | BAD.. => Ok(None),
            next => self.cluster("the FAT", next).map(Some),
        }
    }

    fn check_fat(&self) -> Result<(), BadVolume> {
        (RESERVED..RESERVED + self.clusters).try_for_each(|cluster| self.next(cluster).map(drop))
    }

    /// All directories below the root, each cluster of them once.
    fn check_directories(&self, root: u32) -> Result<(), BadVolume> {
        let mut seen = vec![false; self.clusters as usize];
        let mut directories = vec![root];
        while let Some(first) = directories.pop() {
            let mut at = Some(first);
            while let Some(cluster) = at {
                let index = (cluster - RESERVED) as usize;
                if std::mem::replace(&mut seen[index], true) {
                    return Err(BadVolume::Twice { cluster });
                }
                let start = index * self.cluster_bytes;
                let content = self.data.get(start..).unwrap_or_default();
                let content = content.get(..self.cluster_bytes).unwrap_or_default();
                if self.check_entries(content, &seen, &mut directories)? {
                    break;
                }
                at = self.next(cluster)?;
            }
        }
        Ok(())
    }

    /// Entries of a directory that are in one cluster; whether its end is among them. Adds the
    /// directories that they name.
    fn check_entries(
        &self,
        content: &[u8],
        seen: &[bool],
        directories: &mut Vec<u32>,
    ) -> Result<bool, BadVolume> {
        for entry in content.chunks_exact(ENTRY_BYTES) {
            let attributes = entry[11];
            match entry[0] {
                0 => return Ok(true),
                DELETED => continue,
                _ if attributes & LONG_NAME == LONG_NAME || attributes & LABEL != 0 => continue,
                _ => {}
            }
            let first = word(entry, 18) & 0xffff_0000 | word(entry, 26) & 0xffff;
            // Empty files have none, and the directory above has none where it is the root.
            if first == 0 {
                continue;
            }
            let first = self.cluster("a directory", first)?;
            // `.` and `..` lead to what was seen before.
            let is_back = entry[0] == b'.' && seen[(first - RESERVED) as usize];
            if attributes & DIRECTORY != 0 && !is_back {
                directories.push(first);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::super::disk;
    use super::*;

    const RESULT: &str = "firstlight/result.jsonl";

    /// A partition as ours are.
    struct Planted {
        bytes: Vec<u8>,
        fat: usize,
        data: usize,
    }

    impl Planted {
        fn new() -> Self {
            let files = [("a", &b"b"[..]), (RESULT, b"{}")];
            let mut disk = disk::made(&files).unwrap();
            let range = disk::partition(&disk).unwrap();
            let bytes = disk.drain(range).collect::<Vec<u8>>();
            let field = |at, len| usize::try_from(number(&bytes, at, len)).unwrap();
            let fat = field(14, 2) * 512;
            let data = fat + field(16, 1) * field(36, 4) * 512;
            assert_eq!((field(13, 1), field(44, 4)), (1, 2));
            Self { bytes, fat, data }
        }

        /// What is read with `plants` in place of what is there, which then comes back.
        fn with(&mut self, plants: &[(usize, &[u8])]) -> Result<Option<Vec<u8>>, String> {
            let swap = |bytes: &mut [u8], at: usize, new: &[u8]| {
                let old = bytes[at..at + new.len()].to_vec();
                bytes[at..at + new.len()].copy_from_slice(new);
                (at, old)
            };
            let old: Vec<_> = plants
                .iter()
                .map(|(at, new)| swap(&mut self.bytes, *at, new))
                .collect();
            let read = disk::read(&mut self.bytes, RESULT).map_err(|error| error.to_string());
            for (at, old) in old.iter().rev() {
                swap(&mut self.bytes, *at, old);
            }
            read
        }

        /// The entry of a cluster in the first FAT, and its content.
        fn entry(&self, cluster: usize) -> usize {
            self.fat + cluster * 4
        }

        fn content(&self, cluster: usize) -> usize {
            self.data + (cluster - 2) * 512
        }
    }

    #[test]
    fn fields_that_lead_out_of_the_volume_are_refused() {
        let mut stick = Planted::new();
        assert_eq!(stick.with(&[]), Ok(Some(b"{}".to_vec())));
        let all = [0xff; 4];
        for (at, value, expected) in [
            (11, &[0, 3][..], "bytes of a sector is 768"),
            (13, &[3], "sectors of a cluster is 3"),
            (14, &[0, 0], "reserved sectors is 0"),
            (16, &[0], "FATs is 0"),
            (16, &all[..1], "FATs is 255"),
            (17, &[1], "root entries is 1"),
            (19, &[1], "sectors, of 16 bits, is 1"),
            (22, &[1], "sectors of a FAT, of 16 bits, is 1"),
            (32, &all, "sectors is 4294967295, expected no more than"),
            (32, &[9, 0, 0, 0], "sectors of a FAT is"),
            (32, &[0, 0, 1, 0], "clusters is "),
            (36, &all, "sectors of a FAT is 4294967295"),
            (36, &[0, 0, 0, 0x80], "sectors of a FAT is 2147483648"),
            (36, &[1, 0, 0, 0], "an entry for each cluster"),
            (40, &[0x8f], "flags is 143"),
            (44, &[0; 4], "the root directory names cluster 0x0,"),
            (44, &[1, 0, 0, 0], "the root directory names cluster 0x1,"),
            (44, &all, "the root directory names cluster 0xffffffff,"),
        ] {
            let error = stick.with(&[(at, value)]).unwrap_err();
            assert!(error.contains(expected), "{at}: {error}");
        }
        assert_eq!(stick.with(&[]), Ok(Some(b"{}".to_vec())));
    }

    #[test]
    fn chains_end_and_stay_in_the_volume() {
        let mut stick = Planted::new();
        // All of a directory is deleted, so its chain goes on.
        let deleted = [DELETED; 512];
        let (root, fat) = (stick.content(2), stick.entry(2));
        for (next, expected) in [
            (2_u32, "cluster 0x2 is in two directories, or twice in one"),
            (1, "the FAT names cluster 0x1,"),
            (0x0fff_fff6, "the FAT names cluster 0xffffff6,"),
        ] {
            let plants = [(root, &deleted[..]), (fat, &next.to_le_bytes())];
            assert!(stick.with(&plants).unwrap_err().contains(expected));
        }
        assert_eq!(stick.with(&[(root, &deleted)]), Ok(None));
        // A cluster of another file counts, too.
        let far = stick.entry(70_000);
        let error = stick.with(&[(far, &[1, 0, 0, 0])]).unwrap_err();
        assert!(error.contains("the FAT names cluster 0x1,"), "{error}");
    }

    #[test]
    fn entries_name_clusters_that_are_there_and_directories_once() {
        let mut stick = Planted::new();
        let find = |cluster: usize, is_it: fn(&[u8]) -> bool| {
            let start = stick.content(cluster);
            let mut entries = stick.bytes[start..start + 512].chunks(ENTRY_BYTES);
            start + ENTRY_BYTES * entries.position(is_it).unwrap()
        };
        let folder = find(2, |entry| entry[11] == DIRECTORY);
        let first = usize::try_from(word(&stick.bytes, folder + 26) & 0xffff).unwrap();
        let own = find(first, |entry| entry[11] == DIRECTORY);
        assert_eq!(stick.bytes[own..own + 2], *b". ");
        let result = find(first, |entry| entry[11] & (LONG_NAME | DIRECTORY) == 0);
        for (at, low, high, expected) in [
            (folder, 1_u16, 0_u16, "a directory names cluster 0x1,"),
            (folder, 0xffff, 0xffff, "cluster 0xffffffff,"),
            (folder, 2, 0, "cluster 0x2 is in two directories"),
            (result, 1, 0, "a directory names cluster 0x1,"),
            (result, 0, 0x4000, "cluster 0x40000000,"),
        ] {
            let (low, high) = (low.to_le_bytes(), high.to_le_bytes());
            let plants = [(at + 26, &low[..]), (at + 20, &high)];
            let error = stick.with(&plants).unwrap_err();
            assert!(error.contains(expected), "{at}: {error}");
        }
        // `.` may not lead to a chain that was not walked: one that goes round.
        let (round, fat) = (stick.content(9), stick.entry(9));
        let (nine, deleted) = ([9, 0, 0, 0], [DELETED; 512]);
        let plants = [(own + 26, &nine[..2]), (round, &deleted), (fat, &nine)];
        let error = stick.with(&plants).unwrap_err();
        assert!(error.contains("cluster 0x9 is in two"), "{error}");
        // A size beyond the chain reads the chain.
        let read = stick.with(&[(result + 28, &[0xff; 4])]).unwrap().unwrap();
        assert_eq!((read.len(), &read[..2]), (512, &b"{}"[..]));
    }

    #[test]
    fn whatever_is_changed_is_read_or_refused() {
        let mut stick = Planted::new();
        let mut random = 1_u64;
        let mut next = |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from(random >> 33).unwrap() % below
        };
        // Fields of the boot sector; the FAT's, the root's and the folder's used entries.
        let places = [
            (11, 2),
            (13, 51),
            (stick.entry(2), 24),
            (stick.content(2), 6 * ENTRY_BYTES),
            (stick.content(4), 8 * ENTRY_BYTES),
        ];
        let (mut read, mut refused) = (0, 0);
        for _ in 0..300 {
            let plants = [0; 2].map(|_| {
                let (start, bytes) = places[next(places.len())];
                let value = [0, 1, 2, 3, 0x10, 0x7f, DELETED, 0xff][next(8)];
                (start + next(bytes), [value])
            });
            let plants = plants.each_ref().map(|(at, value)| (*at, &value[..]));
            match stick.with(&plants) {
                Ok(_) => read += 1,
                Err(_) => refused += 1,
            }
        }
        assert!(read > 50 && refused > 50, "{read} read, {refused} refused");
    }
}
