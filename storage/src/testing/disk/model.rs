//! The model of a disk: what was done, and what of it must survive.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::log::Op;

/// What a power loss leaves of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survives {
    /// Nothing.
    Synced,
    /// Every name, but no content: the order that careless code falls for.
    Names,
    /// Everything: as if only the process had been killed.
    Everything,
    /// Each name and each page for itself, by the toss of a coin with this seed.
    Chance(u64),
}

/// The bytes of a page, the unit in which content reaches a disk.
const PAGE: usize = 4096;

/// The files and folders below a root, as they are and as they are on disk for sure.
#[derive(Debug, Clone)]
pub struct Disk {
    files: Vec<FileState>,
    inodes: HashMap<u64, usize>,
    folders: BTreeMap<String, Folder>,
}

#[derive(Debug, Clone, Default)]
struct FileState {
    now: Arc<Vec<u8>>,
    synced: Arc<Vec<u8>>,
}

#[derive(Debug, Clone, Default)]
struct Folder {
    now: BTreeMap<String, Node>,
    synced: BTreeMap<String, Node>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    File(usize),
    Folder,
}

impl Disk {
    /// A folder as it is, all of it taken to be on disk.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn of(root: &Path) -> io::Result<Self> {
        let mut disk = Self { files: Vec::new(), inodes: HashMap::new(), folders: BTreeMap::new() };
        disk.scan(root, "")?;
        Ok(disk)
    }

    fn scan(&mut self, root: &Path, folder: &str) -> io::Result<()> {
        use std::os::unix::fs::MetadataExt;
        let mut names = BTreeMap::new();
        for entry in std::fs::read_dir(root.join(folder))? {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|n| io::Error::other(format!("{n:?} is not UTF-8")))?;
            let path = join(folder, &name);
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                self.scan(root, &path)?;
                names.insert(name, Node::Folder);
            } else {
                let content = Arc::new(std::fs::read(entry.path())?);
                self.inodes.insert(metadata.ino(), self.files.len());
                names.insert(name, Node::File(self.files.len()));
                self.files.push(FileState { now: content.clone(), synced: content });
            }
        }
        self.folders.insert(folder.to_owned(), Folder { now: names.clone(), synced: names });
        Ok(())
    }

    /// Does what the log says was done.
    ///
    /// # Errors
    /// When it does not fit what was done before: the log misses something.
    pub fn apply(&mut self, op: &Op) -> io::Result<()> {
        match op {
            Op::Create { inode, path } => {
                self.inodes.insert(*inode, self.files.len());
                let node = Node::File(self.files.len());
                self.files.push(FileState::default());
                self.name(path, node)
            }
            Op::Write { inode, offset, data } => {
                let content = Arc::make_mut(&mut self.file(*inode)?.now);
                let (start, end) = (*offset as usize, *offset as usize + data.len());
                content.resize(content.len().max(end), 0);
                content[start..end].copy_from_slice(data);
                Ok(())
            }
            Op::Truncate { inode, size } => {
                Arc::make_mut(&mut self.file(*inode)?.now).resize(*size as usize, 0);
                Ok(())
            }
            Op::Rename { from, to } => {
                let node = self.unname(from)?;
                self.name(to, node)
            }
            Op::Link { from, to } => {
                let (folder, name) = split(from);
                let node = self.folders.get(folder).and_then(|f| f.now.get(name)).copied();
                self.name(to, node.ok_or_else(|| unknown(from))?)
            }
            Op::Unlink { path } => self.unname(path).map(|_| ()),
            Op::MakeFolder { path } => {
                self.folders.insert(path.clone(), Folder::default());
                self.name(path, Node::Folder)
            }
            Op::RemoveFolder { path } => {
                self.folders.remove(path);
                self.unname(path).map(|_| ())
            }
            Op::SyncFile { inode } => {
                let file = self.file(*inode)?;
                file.synced = file.now.clone();
                Ok(())
            }
            Op::SyncFolder { path } => {
                let folder = self.folders.get_mut(path).ok_or_else(|| unknown(path))?;
                folder.synced = folder.now.clone();
                Ok(())
            }
            Op::Mark(_) => Ok(()),
        }
    }

    fn file(&mut self, inode: u64) -> io::Result<&mut FileState> {
        let index = self.inodes.get(&inode).copied().ok_or_else(|| unknown(&format!("inode {inode}")))?;
        Ok(&mut self.files[index])
    }

    fn name(&mut self, path: &str, node: Node) -> io::Result<()> {
        let (folder, name) = split(path);
        let folder = self.folders.get_mut(folder).ok_or_else(|| unknown(path))?;
        folder.now.insert(name.to_owned(), node);
        Ok(())
    }

    fn unname(&mut self, path: &str) -> io::Result<Node> {
        let (folder, name) = split(path);
        self.folders.get_mut(folder).and_then(|f| f.now.remove(name)).ok_or_else(|| unknown(path))
    }

    /// Writes the folder out below `target`, which is emptied first, as a power loss at this moment may leave it.
    ///
    /// # Errors
    /// Those of writing it.
    pub fn rebuild(&self, survives: Survives, target: &Path) -> io::Result<()> {
        match std::fs::remove_dir_all(target) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => std::fs::create_dir_all(target)?,
        }
        let mut coin = Coin(match survives {
            Survives::Chance(seed) => seed,
            _ => 0,
        });
        self.rebuild_folder("", survives, &mut coin, target)
    }

    fn rebuild_folder(&self, path: &str, survives: Survives, coin: &mut Coin, target: &Path) -> io::Result<()> {
        let Some(folder) = self.folders.get(path) else { return Ok(()) };
        let names: BTreeSet<&String> = folder.now.keys().chain(folder.synced.keys()).collect();
        for name in names {
            let newest = match survives {
                Survives::Synced => false,
                Survives::Names | Survives::Everything => true,
                Survives::Chance(_) => coin.toss(),
            };
            let node = if newest { folder.now.get(name) } else { folder.synced.get(name) };
            match node {
                Some(Node::Folder) => {
                    std::fs::create_dir(target.join(name))?;
                    self.rebuild_folder(&join(path, name), survives, coin, &target.join(name))?;
                }
                Some(Node::File(file)) => {
                    std::fs::write(target.join(name), self.content(&self.files[*file], survives, coin))?;
                }
                None => {}
            }
        }
        Ok(())
    }

    fn content(&self, file: &FileState, survives: Survives, coin: &mut Coin) -> Vec<u8> {
        match survives {
            Survives::Synced | Survives::Names => file.synced.to_vec(),
            Survives::Everything => file.now.to_vec(),
            Survives::Chance(_) if file.now == file.synced => file.synced.to_vec(),
            Survives::Chance(_) => {
                let length = if coin.toss() { file.now.len() } else { file.synced.len() };
                let mut content = file.synced.to_vec();
                content.resize(length, 0);
                for start in (0..length.min(file.now.len())).step_by(PAGE) {
                    let end = (start + PAGE).min(length).min(file.now.len());
                    if coin.toss() {
                        content[start..end].copy_from_slice(&file.now[start..end]);
                    }
                }
                content
            }
        }
    }
}

/// A seeded coin.
struct Coin(u64);

impl Coin {
    fn toss(&mut self) -> bool {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) & 1 == 1
    }
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

fn unknown(what: &str) -> io::Error {
    io::Error::other(format!("the disk log misses how {what} came to be"))
}
