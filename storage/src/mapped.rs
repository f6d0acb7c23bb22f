//! Local files mapped into memory, for reading.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::error::{Error, Result};

/// A local file, mapped read-only, and its handle.
///
/// Files of a lake never change once they have their name, and deletion keeps the mapping alive. What remains is a file
/// that something else truncates while it is mapped: touching the lost part of [`Mapped::as_slice`] then kills the process
/// (SIGBUS). [`Mapped::read_at`] is the way that reports it as an error, so read every byte by it once before trusting the
/// slice.
#[derive(Debug)]
pub struct Mapped {
    map: Mmap,
    file: File,
    path: PathBuf,
}

impl Mapped {
    /// Maps a file, or gives `None` where mapping is not safe enough: on filesystems reached over a network or through
    /// a user process, where a lost connection turns a memory access into a crash.
    #[expect(clippy::disallowed_methods, reason = "this asks what the filesystem is first")]
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        let file = File::open(path).map_err(|e| Error::disk("open", path, e))?;
        let metadata = file.metadata().map_err(|e| Error::disk("look at", path, e))?;
        if !metadata.is_file() || !is_mappable(&file).map_err(|e| Error::disk("look at the filesystem of", path, e))? {
            return Ok(None);
        }
        // SAFETY: the map is read-only and private to this value, and the slice it gives out borrows it. Its bytes could
        // change or vanish only if something wrote to or truncated the file; no code of this crate changes a file that has
        // its final name, and the type's documentation states what outside interference does.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::disk("map", path, e))?;
        if map.len() as u64 != metadata.len() {
            let source = io::Error::other("its size changed while it was opened");
            return Err(Error::disk("map", path, source));
        }
        Ok(Some(Self { map, file, path: path.to_owned() }))
    }

    /// The bytes of the file.
    pub fn as_slice(&self) -> &[u8] {
        &self.map
    }

    /// How many bytes the file has.
    pub fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The handle of the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Reads `out.len()` bytes from `offset` on, through the file and not the map, so that a failing disk is an error.
    ///
    /// # Errors
    /// [`Error::ShortRead`] when the file ends before that many bytes, else [`Error::Disk`].
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            match read_some(&self.file, offset + done as u64, &mut out[done..]) {
                Ok(0) => {
                    let folder = self.path.parent().unwrap_or(Path::new("")).display().to_string();
                    return Err(Error::ShortRead {
                        url: folder,
                        path: self.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                        range: offset..offset + out.len() as u64,
                        got: done as u64,
                    });
                }
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::disk("read", &self.path, e)),
            }
        }
        Ok(())
    }

    /// Brings part of the file into memory and the map, so that touching it later does not wait. The part beyond the end
    /// is left out; systems that cannot do it do nothing.
    ///
    /// # Errors
    /// [`Error::Disk`] when the bytes cannot be read.
    pub fn populate(&self, range: Range<u64>) -> Result<()> {
        #[cfg(target_os = "linux")]
        {
            let start = range.start.min(self.len()) as usize;
            let length = range.end.min(self.len()).saturating_sub(start as u64) as usize;
            if length == 0 {
                return Ok(());
            }
            match self.map.advise_range(memmap2::Advice::PopulateRead, start, length) {
                // Kernels before 5.14 do not know it; the pages then come in as they are touched.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
                Err(e) => Err(Error::disk("read", &self.path, e)),
                Ok(()) => Ok(()),
            }
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = range;
            Ok(())
        }
    }
}

#[cfg(unix)]
fn read_some(file: &File, offset: u64, out: &mut [u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, out, offset)
}

#[cfg(windows)]
fn read_some(file: &File, offset: u64, out: &mut [u8]) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, out, offset)
}

/// Filesystems known to keep a mapped file readable: local disks and memory.
#[cfg(target_os = "linux")]
const MAPPABLE: [u64; 8] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0x0102_1994, // tmpfs
    0x794C_7630, // overlayfs
    0x2FC1_2FC1, // zfs
    0xF2F5_2010, // f2fs
    0xCA45_1A4E, // bcachefs
];

#[cfg(target_os = "linux")]
fn is_mappable(file: &File) -> io::Result<bool> {
    use std::os::fd::AsRawFd;
    let mut info = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and `info` points to a writable statfs.
    if unsafe { libc::fstatfs(file.as_raw_fd(), info.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fstatfs succeeded and filled it; it was zeroed before, which is valid for this struct of integers.
    let info = unsafe { info.assume_init() };
    // The type is a signed word of differing width; the magic numbers are 32 bits.
    Ok(MAPPABLE.contains(&u64::from(info.f_type as u32)))
}

#[cfg(not(target_os = "linux"))]
fn is_mappable(_file: &File) -> io::Result<bool> {
    Ok(true)
}
