//! What keeps objects, and what takes them away: pins, and the records of collections.

use flatbuffers::Vector;

use super::{
    KIND_GC, KIND_PIN, Pointer,
    decode::{corrupt, id, list, payload, pointer as read_pointer, unsupported},
    encode::{Builder, finish, list as write_list, pointer},
};
use crate::{CommitId, Id, PinId, Result, generated::meta as fb};

/// A promise to keep commits, `pins/<id>`: it holds while the object is younger, by the store's clock, than its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Its identity.
    pub id: PinId,
    /// Commits that are kept whole.
    pub commits: Vec<Pointer>,
    /// How long it holds after it was last written, in microseconds.
    pub lease: u64,
    /// When it was first written, in microseconds since 1970 UTC by the store's clock: what was written since is kept. 0
    /// until it is renewed, as nobody knows before.
    pub since: i64,
    /// Whether also what no commit leads to is kept, however old it is.
    pub orphans: bool,
    /// Who holds it, for people.
    pub holder: String,
}

/// A step of a collection of garbage, `gc/<epoch>/<step>`. Each is claimed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GcRecord {
    /// It began. Pins that were written before this are honoured.
    Start {
        /// A random number.
        nonce: u64,
        /// Objects younger than this when it began are not deleted, in microseconds.
        grace: u64,
    },
    /// The pins that it honours.
    Pins {
        /// A random number.
        nonce: u64,
        /// Their ids.
        pins: Vec<PinId>,
    },
    /// What it is about to delete; or that it was called off, and deletes nothing.
    Verdict {
        /// A random number.
        nonce: u64,
        /// Commits that nothing leads to.
        dropped: Vec<CommitId>,
        /// Commits that are kept without their tables, those of earlier collections among them.
        expired: Vec<CommitId>,
        /// Whether it was called off.
        called_off: bool,
    },
    /// Everything is deleted.
    Done {
        /// A random number.
        nonce: u64,
    },
}

impl Pin {
    /// Its bytes.
    ///
    /// # Errors
    /// [`Limit`](crate::Error::Limit) if they are more than 16 MiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut b = Builder::new();
        let args = fb::PinArgs {
            id: Some(b.create_vector(self.id.as_bytes())),
            commits: write_list(&mut b, &self.commits, pointer),
            lease: self.lease,
            since: self.since,
            orphans: self.orphans,
            holder: Some(b.create_string(&self.holder)),
        };
        let root = fb::Pin::create(&mut b, &args);
        finish("pin", KIND_PIN, 0, b, root)
    }

    /// The pin that `bytes` are.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt), [`Checksum`](crate::Error::Checksum), [`Unsupported`](crate::Error::Unsupported)
    /// or [`Limit`](crate::Error::Limit).
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let what = "pin";
        let pin = payload::<fb::Pin<'_>>(what, KIND_PIN, bytes)?;
        Ok(Self {
            id: id(what, pin.id())?,
            commits: list(pin.commits(), |commit| read_pointer(what, commit))?,
            lease: pin.lease(),
            since: pin.since(),
            orphans: pin.orphans(),
            holder: pin.holder().to_owned(),
        })
    }
}

impl GcRecord {
    /// The step's name, which is also that of its object.
    #[must_use]
    pub fn step(&self) -> &'static str {
        match self {
            Self::Start { .. } => "start",
            Self::Pins { .. } => "pins",
            Self::Verdict { .. } => "verdict",
            Self::Done { .. } => "done",
        }
    }

    /// Its bytes.
    ///
    /// # Errors
    /// [`Limit`](crate::Error::Limit) if they are more than 16 MiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut b = Builder::new();
        let step = Some(b.create_string(self.step()));
        let mut args = fb::GcRecordArgs { step, ..Default::default() };
        match self {
            Self::Start { nonce, grace } => (args.nonce, args.grace) = (*nonce, *grace),
            Self::Pins { nonce, pins } => {
                args.nonce = *nonce;
                args.pins = Some(b.create_vector(&flat(pins)));
            }
            Self::Verdict { nonce, dropped, expired, called_off } => {
                (args.nonce, args.called_off) = (*nonce, *called_off);
                args.dropped = Some(b.create_vector(&flat(dropped)));
                args.expired = Some(b.create_vector(&flat(expired)));
            }
            Self::Done { nonce } => args.nonce = *nonce,
        }
        let root = fb::GcRecord::create(&mut b, &args);
        finish("record of a collection", KIND_GC, 0, b, root)
    }

    /// The record that `bytes` are.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt), [`Checksum`](crate::Error::Checksum), [`Unsupported`](crate::Error::Unsupported)
    /// or [`Limit`](crate::Error::Limit).
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let what = "record of a collection";
        let record = payload::<fb::GcRecord<'_>>(what, KIND_GC, bytes)?;
        let nonce = record.nonce();
        Ok(match record.step() {
            "start" => Self::Start { nonce, grace: record.grace() },
            "pins" => Self::Pins { nonce, pins: ids(what, record.pins())? },
            "verdict" => Self::Verdict {
                nonce,
                dropped: ids(what, record.dropped())?,
                expired: ids(what, record.expired())?,
                called_off: record.called_off(),
            },
            "done" => Self::Done { nonce },
            other => return unsupported(what, format!("steps of kind '{other}'")),
        })
    }
}

fn flat<T>(ids: &[Id<T>]) -> Vec<u8> {
    ids.iter().flat_map(|id| *id.as_bytes()).collect()
}

fn ids<T>(what: &str, bytes: Option<Vector<'_, u8>>) -> Result<Vec<Id<T>>> {
    let (ids, rest) = bytes.map_or(&[][..], |bytes| bytes.bytes()).as_chunks::<16>();
    if !rest.is_empty() {
        return corrupt(what, "a list of ids is not of 16 bytes each");
    }
    Ok(ids.iter().map(|bytes| Id::from_bytes(*bytes)).collect())
}
