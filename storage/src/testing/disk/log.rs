//! The log that `shim.c` writes.

use std::io::{self, Write};

pub(super) const ROOT_VARIABLE: &str = "FOREBAY_DISK_ROOT";
pub(super) const TROUBLE_VARIABLE: &str = "FOREBAY_DISK_TROUBLE";
pub(super) const LOG_VARIABLE: &str = "FOREBAY_DISK_LOG";

/// Something that was done to a file or folder below the root; paths are relative to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// A file was made.
    Create {
        /// Its number, by which later operations name it.
        inode: u64,
        /// Its first name.
        path: String,
    },
    /// Bytes were written.
    Write {
        /// The file.
        inode: u64,
        /// Where in the file.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// A file was cut or extended.
    Truncate {
        /// The file.
        inode: u64,
        /// Its new length.
        size: u64,
    },
    /// A name was given to what another name had, replacing what was there.
    Rename {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
    /// A file got a second name.
    Link {
        /// The name it had.
        from: String,
        /// The name it got.
        to: String,
    },
    /// A name was removed.
    Unlink {
        /// The name.
        path: String,
    },
    /// A folder was made.
    MakeFolder {
        /// Its name.
        path: String,
    },
    /// A folder was removed.
    RemoveFolder {
        /// Its name.
        path: String,
    },
    /// The content of a file was synced.
    SyncFile {
        /// The file.
        inode: u64,
    },
    /// The names in a folder were synced.
    SyncFolder {
        /// The folder.
        path: String,
    },
    /// The process said something by [`mark`].
    Mark(String),
}

/// Puts a text into the log of the process that [`record`](super::record) runs, in order with its operations.
///
/// # Errors
/// When this process is not being recorded, and those of files.
pub fn mark(text: &str) -> io::Result<()> {
    let log = std::env::var_os(LOG_VARIABLE).ok_or_else(|| io::Error::other("this process is not being recorded"))?;
    let mut record = vec![b'K'];
    record.extend_from_slice(&[0; 16]);
    record.extend_from_slice(&(text.len() as u32).to_le_bytes());
    record.extend_from_slice(&[0; 12]);
    record.extend_from_slice(text.as_bytes());
    std::fs::OpenOptions::new().append(true).open(log)?.write_all(&record)
}

/// Reads a whole log.
pub(super) fn parse(mut bytes: &[u8]) -> io::Result<Vec<Op>> {
    let mut ops = Vec::new();
    while !bytes.is_empty() {
        let (op, rest) = parse_one(bytes).ok_or_else(|| io::Error::other("the disk log is damaged"))?;
        ops.push(op);
        bytes = rest;
    }
    Ok(ops)
}

fn parse_one(bytes: &[u8]) -> Option<(Op, &[u8])> {
    let (head, rest) = bytes.split_at_checked(33)?;
    let long = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let short = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?) as usize);
    let (inode, offset) = (long(1)?, long(9)?);
    let (first, rest) = rest.split_at_checked(short(17)?)?;
    let (second, rest) = rest.split_at_checked(short(21)?)?;
    let (data, rest) = rest.split_at_checked(long(25)? as usize)?;
    let path = String::from_utf8(first.to_vec()).ok()?;
    let to = String::from_utf8(second.to_vec()).ok()?;
    let op = match head[0] {
        b'C' => Op::Create { inode, path },
        b'W' => Op::Write { inode, offset, data: data.to_vec() },
        b'T' => Op::Truncate { inode, size: offset },
        b'R' => Op::Rename { from: path, to },
        b'L' => Op::Link { from: path, to },
        b'U' => Op::Unlink { path },
        b'M' => Op::MakeFolder { path },
        b'D' => Op::RemoveFolder { path },
        b'S' => Op::SyncFile { inode },
        b'F' => Op::SyncFolder { path },
        b'K' => Op::Mark(path),
        _ => return None,
    };
    Some((op, rest))
}
