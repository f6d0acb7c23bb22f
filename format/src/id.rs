//! Random identities. A phantom type keeps a file's id from being taken for a fragment's.

use std::{fmt, hash::Hash, marker::PhantomData, str::FromStr};

use crate::{Error, Result};

/// A random 128-bit identity of a `T`, written as 32 lower-case hexadecimal digits.
pub struct Id<T>([u8; 16], PhantomData<fn() -> T>);

/// What an [`Id`] can identify.
pub mod of {
    /// A lake.
    #[derive(Debug)]
    pub enum Lake {}
    /// A table, kept through renames and across branches.
    #[derive(Debug)]
    pub enum Table {}
    /// Rows written together.
    #[derive(Debug)]
    pub enum Fragment {}
    /// A data file, `data/<id>`.
    #[derive(Debug)]
    pub enum File {}
    /// A metadata object, `meta/<id>`.
    #[derive(Debug)]
    pub enum Object {}
    /// A commit, also kept as `meta/<id>`.
    #[derive(Debug)]
    pub enum Commit {}
    /// A purge, `purges/<id>`.
    #[derive(Debug)]
    pub enum Purge {}
    /// A pin, `pins/<id>`.
    #[derive(Debug)]
    pub enum Pin {}
}

/// The identity of a lake.
pub type LakeId = Id<of::Lake>;
/// The identity of a table.
pub type TableId = Id<of::Table>;
/// The identity of a fragment.
pub type FragmentId = Id<of::Fragment>;
/// The identity of a data file.
pub type FileId = Id<of::File>;
/// The identity of a metadata object.
pub type ObjectId = Id<of::Object>;
/// The identity of a commit.
pub type CommitId = Id<of::Commit>;
/// The identity of a purge.
pub type PurgeId = Id<of::Purge>;
/// The identity of a pin.
pub type PinId = Id<of::Pin>;

impl<T> Id<T> {
    /// A new random identity.
    #[must_use]
    pub fn random() -> Self {
        Self::from_bytes(*uuid::Uuid::new_v4().as_bytes())
    }

    /// The identity with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes, PhantomData)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The same bytes as the identity of another thing: a commit is also a metadata object.
    #[must_use]
    pub const fn cast<U>(self) -> Id<U> {
        Id::from_bytes(self.0)
    }
}

impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Id<T> {}
impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<T> Eq for Id<T> {}
impl<T> PartialOrd for Id<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Id<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}
impl<T> Hash for Id<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
impl<T> fmt::Display for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
impl<T> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl<T> FromStr for Id<T> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let malformed = || Error::MalformedId { text: text.to_owned() };
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(malformed());
        }
        let value = u128::from_str_radix(text, 16).map_err(|_| malformed())?;
        Ok(Self::from_bytes(value.to_be_bytes()))
    }
}

/// The identity of a column: random, so that columns added on two branches never collide, and kept through renames.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldId(pub u64);

impl FieldId {
    /// A new random identity.
    #[must_use]
    pub fn random() -> Self {
        let bytes = uuid::Uuid::new_v4().into_bytes();
        // The first eight bytes carry the version nibble; the last eight the variant bits; mixing both keeps 64 random bits.
        let (high, low) = uuid::Uuid::from_bytes(bytes).as_u64_pair();
        Self(high ^ low.rotate_left(32))
    }
}

impl fmt::Display for FieldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
impl fmt::Debug for FieldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
