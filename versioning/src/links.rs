//! Links: what they lead to, checked, and only where the lake's opener allows it.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_format::{Bitmap, Column, ColumnData, DType, Link, OwnedValues};
use forebay_storage::{Error as StoreError, Storage, Version};
use futures::{StreamExt as _, TryStreamExt as _, future, stream};

use crate::{At, Error, Lake, Result, Table};

/// A link that may be followed: where its bytes are, and what they must be.
#[derive(Clone, Debug)]
pub struct Linked {
    storage: Storage,
    path: String,
    /// With its whole URL.
    link: Link,
}

/// What [`Lake::verify_links`] found.
#[derive(Clone, Debug, Default)]
pub struct LinkReport {
    /// Links that were looked at.
    pub links: u64,
    /// Links there are to look at.
    pub total: u64,
    /// Bytes that were read, of links that have no etag.
    pub bytes: u64,
    /// Links that lead to nothing or to something else than they did.
    pub faults: Vec<LinkFault>,
}

/// A link that is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkFault {
    /// The table.
    pub table: String,
    /// The column.
    pub column: String,
    /// The row, as the version that was looked at numbers it.
    pub row: u64,
    /// What is wrong, and where the link leads.
    pub reason: String,
}

/// Rows whose links are looked at together.
const ROWS: u64 = 4096;
/// Objects that are asked for at once.
const CONCURRENCY: usize = 64;

impl Table {
    /// Where a value of a column of links leads. Sends nothing.
    ///
    /// # Errors
    /// [`Error::Data`] if it is no link; [`Error::LinkForbidden`] if it leads to where [`Lake::allow_links`] doesn't let it; and
    /// [`Error::LinkBroken`] if it can lead nowhere, or to more bytes than a row may have.
    pub fn follow(&self, column: &Column, value: &[u8]) -> Result<Linked> {
        let link = Link::decode(value)?.below(column.link_base().unwrap_or(self.storage().url()));
        let broken = |reason: String| Error::LinkBroken { url: link.url.clone(), reason };
        let range = link.range();
        if range.end - range.start > Column::MAX_ROW_BYTES {
            let reason =
                "it leads to more than 1 GiB, which is too much for a row: read it yourself, or link parts of it";
            return Err(broken(reason.to_owned()));
        }
        let allowed = self.snapshot().lake().link_places();
        let places = std::iter::once(self.storage()).chain(allowed.iter());
        let mut found: Option<(&Storage, String)> = None;
        for storage in places.clone() {
            // The nearest root says how the object is reached.
            let nearer = found.as_ref().is_none_or(|(other, _)| other.url().len() < storage.url().len());
            if nearer && let Some(path) = storage.name_of(&link.url).map_err(|error| broken(error.to_string()))? {
                found = Some((storage, path));
            }
        }
        let Some((storage, path)) = found.filter(|(storage, path)| stays(storage, path, places)) else {
            let place = link.url.rsplit_once('/').map_or("", |(place, _)| place).to_owned();
            return Err(Error::LinkForbidden { url: link.url, lake: self.storage().url().to_owned(), place });
        };
        Ok(Linked { storage: storage.clone(), path, link })
    }

    /// What the links of a column lead to, for rows in that order; `None` for nulls. One broken link leaves the others as they are.
    ///
    /// # Errors
    /// As [`take`](Self::take); [`Error::Misuse`] if the column has no links; and what the stores report that the links lead to. Of single
    /// links, those of [`follow`](Self::follow), and [`Error::LinkBroken`] if an object is gone or isn't what was linked.
    pub async fn take_linked(&self, column: &str, rows: &[u64]) -> Result<Vec<Result<Option<Bytes>>>> {
        let data = self.take(column, rows).await?;
        let column = self.links(column)?;
        let mut found: Vec<Result<Option<Bytes>>> = Vec::with_capacity(rows.len());
        let (mut links, mut places) = (Vec::new(), Vec::new());
        for row in 0..rows.len() {
            found.push(match value(&data, row).map(|value| self.follow(column, value)).transpose() {
                Ok(Some(linked)) => {
                    links.push(linked);
                    places.push(row);
                    Ok(None)
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            });
        }
        for (place, read) in places.into_iter().zip(Linked::read_all(&links).await?) {
            found[place] = read.map(Some);
        }
        Ok(found)
    }

    fn links(&self, column: &str) -> Result<&Column> {
        let column = self.schema().column(column)?;
        match column.dtype {
            DType::Link => Ok(column),
            _ => Err(Error::Misuse { reason: format!("column {column} holds no links") }),
        }
    }
}

/// Whether a file that lies below a root by its name does so through all symbolic links: a lake may bring some along.
fn stays<'a>(storage: &Storage, path: &str, mut places: impl Iterator<Item = &'a Storage>) -> bool {
    let Some(root) = storage.local() else { return true };
    // One that isn't there is reported as missing.
    let Ok(file) = root.join(path).canonicalize() else { return true };
    places
        .any(|place| place.local().and_then(|root| root.canonicalize().ok()).is_some_and(|root| file.starts_with(root)))
}

/// The value of a row, if it isn't null.
fn value(data: &ColumnData, row: usize) -> Option<&[u8]> {
    let OwnedValues::Ragged { offsets, bytes, .. } = &data.values else { return None };
    let valid = data.validity.as_deref().is_none_or(|bits| Bitmap(bits).get(row));
    valid.then(|| &bytes[offsets[row] as usize..offsets[row + 1] as usize])
}

impl Linked {
    /// The link, with its whole URL.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// How many bytes it leads to.
    #[must_use]
    pub fn length(&self) -> u64 {
        let range = self.link.range();
        range.end - range.start
    }

    fn version(&self) -> Version {
        Version { size: self.link.size, etag: self.link.etag.clone() }
    }

    /// The places of links that lead to the same version of an object, in the order of their bytes.
    #[must_use]
    pub fn by_object(links: &[Self]) -> Vec<Vec<usize>> {
        let mut objects: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (place, linked) in links.iter().enumerate() {
            objects.entry((linked.storage.url(), &linked.path, linked.version())).or_default().push(place);
        }
        let mut groups: Vec<Vec<usize>> = objects.into_values().collect();
        groups.iter_mut().for_each(|group| group.sort_by_key(|place| links[*place].link.range().start));
        groups
    }

    /// Reads links that lead to the same version of an object: near bytes by one request.
    ///
    /// # Errors
    /// What the store reports; of single links [`Error::LinkBroken`], if the object is gone or isn't what was linked.
    pub async fn read(links: &[&Self]) -> Result<Vec<Result<Bytes>>> {
        let Some(first) = links.first() else { return Ok(Vec::new()) };
        let ranges: Vec<_> = links.iter().map(|linked| linked.link.range()).collect();
        let read = first.storage.get_ranges_of(&first.path, &first.version(), &ranges).await;
        let Some(reason) = broken(&read) else {
            let checked = links.iter().zip(read?).map(|(linked, bytes)| linked.checked(bytes));
            return future::try_join_all(checked).await;
        };
        Ok(links.iter().map(|linked| Err(linked.broken(reason.clone()))).collect())
    }

    /// Reads links, many at once; gives what each leads to.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn read_all(links: &[Self]) -> Result<Vec<Result<Bytes>>> {
        let mut found: Vec<Option<Result<Bytes>>> = links.iter().map(|_| None).collect();
        let mut reads = stream::iter(Self::by_object(links))
            .map(|group| async move {
                let members: Vec<&Self> = group.iter().map(|place| &links[*place]).collect();
                Ok::<_, Error>((group, Self::read(&members).await?))
            })
            .buffer_unordered(CONCURRENCY);
        while let Some((group, read)) = reads.try_next().await? {
            group.into_iter().zip(read).for_each(|(place, read)| found[place] = Some(read));
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Bytes that came, if they are those that were linked. Others may have been damaged on their way, or in a cache: they are asked for
    /// once more, past that.
    async fn checked(&self, bytes: Bytes) -> Result<Result<Bytes>> {
        if self.link.fits(&bytes) {
            return Ok(Ok(bytes));
        }
        let version = Version { size: self.link.size, etag: None };
        let again = self.storage.get_ranges_of(&self.path, &version, &[self.link.range()]).await;
        if let Some(reason) = broken(&again) {
            return Ok(Err(self.broken(reason)));
        }
        Ok(match again?.pop() {
            Some(bytes) if self.link.fits(&bytes) => Ok(bytes),
            _ => Err(self.broken(changed("its bytes have another hash"))),
        })
    }

    /// Asks whether it still leads to what was linked: by the object's etag, or if it has none by reading the bytes, whose number
    /// this gives.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn check(&self) -> Result<Result<u64>> {
        if self.link.etag.is_none() {
            let read = Self::read(&[self]).await?.pop();
            return Ok(read.map_or(Ok(0), |read| read.map(|bytes| bytes.len() as u64)));
        }
        let asked = self.storage.check(&self.path, &self.version()).await;
        match broken(&asked) {
            Some(reason) => Ok(Err(self.broken(reason))),
            None => Ok(Ok(asked.map(|()| 0)?)),
        }
    }

    fn broken(&self, reason: String) -> Error {
        Error::LinkBroken { url: self.link.url.clone(), reason }
    }
}

/// What is wrong with an object, if a read failed because of it and not of its store.
fn broken<T>(read: &Result<T, StoreError>) -> Option<String> {
    match read {
        Err(StoreError::NotFound { .. }) => Some("there is no such object any more".to_owned()),
        Err(StoreError::Changed { reason, .. }) => Some(changed(reason)),
        _ => None,
    }
}

fn changed(reason: &str) -> String {
    format!("the object changed since it was linked: {reason}")
}

impl Lake {
    /// Asks for every link of a version whether it leads to what it led to. What a link leads to is read only if it has no etag;
    /// what several links lead to is asked for once. Calls `progress` now and then.
    ///
    /// # Errors
    /// As [`Lake::snapshot`] and [`Table::read`]; [`Error::LinkForbidden`] for a link to where [`Lake::allow_links`] doesn't let it lead; and
    /// what the stores report that the links lead to.
    pub async fn verify_links(&self, at: &At, mut progress: impl FnMut(&LinkReport)) -> Result<LinkReport> {
        let snapshot = self.snapshot(at).await?;
        let mut tables = Vec::new();
        let mut report = LinkReport::default();
        for name in snapshot.tables() {
            let table = snapshot.table(name).await?;
            let columns = table.schema().columns.iter().filter(|column| column.dtype == DType::Link);
            let columns: Vec<Column> = columns.cloned().collect();
            report.total += columns.len() as u64 * table.rows();
            tables.push((table, columns));
        }
        for (table, columns) in &tables {
            for column in columns {
                for start in (0..table.rows()).step_by(ROWS as usize) {
                    let rows = start..table.rows().min(start + ROWS);
                    let read = table.read(&column.name, rows.clone()).await?;
                    report.faults.extend(table.check_links(column, start, &read, &mut report.bytes).await?);
                    report.links += rows.end - rows.start;
                    progress(&report);
                }
            }
        }
        Ok(report)
    }
}

impl Table {
    /// What is wrong with links that were read; counts the bytes that were read to know.
    async fn check_links(
        &self,
        column: &Column,
        start: u64,
        read: &ColumnData,
        bytes: &mut u64,
    ) -> Result<Vec<LinkFault>> {
        let mut links = Vec::new();
        let mut faults = Vec::new();
        let mut fault = |row: usize, error: &Error| {
            let (table, column) = (self.name().to_owned(), column.name.clone());
            faults.push(LinkFault { table, column, row: start + row as u64, reason: error.to_string() });
        };
        for row in 0..read.rows {
            let Some(value) = value(read, row) else { continue };
            match self.follow(column, value) {
                Ok(linked) => links.push((row, linked)),
                Err(error @ Error::LinkForbidden { .. }) => return Err(error),
                Err(error) => fault(row, &error),
            }
        }
        // Rows whose links are answered by one question.
        let mut questions: BTreeMap<_, (&Linked, Vec<usize>)> = BTreeMap::new();
        for (row, linked) in &links {
            let range =
                linked.link.etag.is_none().then(|| (linked.link.range().start, linked.length(), linked.link.hash));
            let question = (&linked.link.url, linked.version(), range);
            questions.entry(question).or_insert((linked, Vec::new())).1.push(*row);
        }
        let mut answers = stream::iter(questions.into_values())
            .map(|(linked, rows)| async move { Ok::<_, Error>((rows, linked.check().await?)) })
            .buffered(CONCURRENCY);
        while let Some((rows, answer)) = answers.try_next().await? {
            match answer {
                Ok(length) => *bytes += length,
                Err(error) => rows.into_iter().for_each(|row| fault(row, &error)),
            }
        }
        drop(answers);
        faults.sort_by_key(|fault| fault.row);
        Ok(faults)
    }
}
