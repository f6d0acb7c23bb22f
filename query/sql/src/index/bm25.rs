//! Indexes of texts: BM25 (Robertson and Zaragoza 2009) by tantivy.
//!
//! What is appended between two builds is a part: a small index of tantivy's, whose files are rows of the lake's table. Texts
//! that no part has are put into one in memory when they are first searched. Scores count the words of all parts together.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use forebay_format::{Column, ColumnData, DType, FragmentId, Kind, OwnedValues, Schema};
use forebay_versioning::{Table, TableWriter};
use tantivy::{
    DocId, Score, Searcher, SegmentOrdinal, SegmentReader, Term,
    collector::{Collector, SegmentCollector},
    columnar::Column as FastColumn,
    directory::{Directory as _, RamDirectory},
    query::{Bm25StatisticsProvider, QueryParser},
    schema::{FAST, Field, IndexRecordOption, Schema as Fields, TextFieldIndexing, TextOptions},
    tokenizer::{Language, LowerCaser, RemoveLongFilter, SimpleTokenizer, Stemmer, TextAnalyzer},
};
use tokio::sync::OnceCell;

use super::Of;
use crate::{Error, Result, change::blocking};

/// The kind of the column that describes an index.
pub(super) const KIND: &str = "bm25";
/// Words are taken apart by this tokenizer of the index's own.
const WORDS: &str = "words";
/// Bytes that the writer of a part holds.
const MEMORY: usize = 64 << 20;
/// Words that are longer, in bytes, are no words.
const LONGEST: usize = 255;
/// Rows whose texts are read at once.
const ROWS: u64 = 1 << 16;
/// The path under which a part keeps which fragments it has.
const FRAGMENTS: &str = "";

/// An index of a column of texts, opened.
#[derive(Debug)]
pub(crate) struct Texts {
    pub(crate) name: String,
    pub(crate) of: Of,
    language: Option<Language>,
    pub(super) table: Table,
    parts: OnceCell<Vec<Part>>,
    /// What the parts don't have, of the version that this is opened for.
    rest: OnceCell<Option<Part>>,
}

struct Part {
    fragments: Vec<FragmentId>,
    index: tantivy::Index,
    searcher: Searcher,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part").field("fragments", &self.fragments).finish_non_exhaustive()
    }
}

impl Texts {
    pub(super) fn of(table: Table, name: String, of: Of) -> Option<Self> {
        let language = table.schema().columns.first()?.kind.metadata.get("language")?;
        let language = language_named(language).ok()?;
        Some(Self { name, of, language, table, parts: OnceCell::new(), rest: OnceCell::new() })
    }

    async fn parts(&self) -> Result<&Vec<Part>> {
        self.parts.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<Vec<Part>> {
        let all = 0..self.table.rows();
        let (parts, paths, contents) = futures::try_join!(
            self.table.read("part", all.clone()),
            self.table.read("path", all.clone()),
            self.table.read("content", all),
        )?;
        let mut files: HashMap<Vec<u8>, Vec<(String, Vec<u8>)>> = HashMap::new();
        for ((part, path), content) in rows(&parts).zip(rows(&paths)).zip(rows(&contents)) {
            let path = String::from_utf8_lossy(path).into_owned();
            files.entry(part.to_vec()).or_default().push((path, content.to_vec()));
        }
        let language = self.language;
        blocking(move || files.into_values().map(|files| Part::open(files, language)).collect()).await
    }

    /// The fragments of a table that parts have, where the texts are as they were.
    pub(crate) async fn covered(&self, table: &Table) -> Result<Vec<bool>> {
        let known: HashSet<_> = self.parts().await?.iter().flat_map(|part| part.fragments.iter().copied()).collect();
        let fragments = table.fragments().iter().enumerate();
        Ok(fragments.map(|(at, f)| known.contains(&f.id) && table.is_plain(at, self.of.field)).collect())
    }

    /// The rows whose text matches, with their scores.
    pub(crate) async fn search(&self, table: &Table, column: &Column, query: &str) -> Result<HashMap<u64, f32>> {
        let covered = self.covered(table).await?;
        let rest = self.rest.get_or_try_init(|| self.rest(table, column, &covered)).await?;
        let parts: Vec<(Vec<FragmentId>, tantivy::Index, Searcher)> = self
            .parts()
            .await?
            .iter()
            .chain(rest)
            .map(|part| (part.fragments.clone(), part.index.clone(), part.searcher.clone()))
            .collect();
        let places: HashMap<FragmentId, usize> =
            table.fragments().iter().enumerate().map(|(at, fragment)| (fragment.id, at)).collect();
        let (table, text, rest) = (table.clone(), query.to_owned(), rest.is_some());
        blocking(move || {
            let all = All(parts.iter().map(|(_, _, searcher)| searcher.clone()).collect());
            let mut found = HashMap::new();
            for (number, (fragments, index, searcher)) in parts.iter().enumerate() {
                let is_rest = rest && number + 1 == parts.len();
                let query = QueryParser::for_index(index, vec![text_field(index)?]).parse_query(&text);
                let query = query.map_err(|error| Error::unsupported(format!("'{text}' is no text query: {error}")))?;
                for (place, score) in searcher.search_with_statistics_provider(&query, &Places, &all).map_err(failed)? {
                    let (fragment, row) = ((place >> 32) as usize, place as u32);
                    let at = fragments.get(fragment).and_then(|id| places.get(id)).copied();
                    // Of a fragment that was changed in place, the part in memory alone knows the texts.
                    let Some(at) = at.filter(|at| is_rest || covered[*at]) else { continue };
                    let deleted = &table.fragments()[at].deleted;
                    if !deleted.contains(row) {
                        found.insert(table.first_row(at) + u64::from(row - deleted.rank(row)), score);
                    }
                }
            }
            Ok(found)
        })
        .await
    }

    /// A part in memory of what the others don't have.
    async fn rest(&self, table: &Table, column: &Column, covered: &[bool]) -> Result<Option<Part>> {
        let missing: Vec<usize> = (0..covered.len()).filter(|at| !covered[*at]).collect();
        if missing.is_empty() {
            return Ok(None);
        }
        Ok(Some(Part::of(table, column, &missing, self.language).await?.1))
    }

    /// Writes a part of the fragments that no part has yet; gives how many texts it has, none if there is nothing to write.
    pub(super) async fn take_in(
        &self,
        table: &Table,
        column: &Column,
        writer: TableWriter,
    ) -> Result<(TableWriter, u64)> {
        let known: HashSet<_> = self.parts().await?.iter().flat_map(|part| part.fragments.iter().copied()).collect();
        let missing = |at: &usize| !known.contains(&table.fragments()[*at].id);
        write_part(table, column, (0..table.fragments().len()).filter(missing).collect(), self.language, writer).await
    }
}

/// The columns of an index.
pub(super) fn schema(of: &Of, language: Option<Language>) -> Result<Schema> {
    let mut part = Column::new("part", DType::Bytes, [])?;
    let mut metadata = of.metadata();
    metadata
        .insert("language".to_owned(), language.map_or_else(|| "none".to_owned(), |l| format!("{l:?}").to_lowercase()));
    part.kind = Kind { name: KIND.to_owned(), metadata };
    Ok(Schema::new(vec![part, Column::new("path", DType::Utf8, [])?, Column::new("content", DType::Bytes, [])?])?)
}

/// A language by its name; none for `none`, in which words are only cut and lowered.
pub(super) fn language_named(name: &str) -> Result<Option<Language>> {
    if name.eq_ignore_ascii_case("none") {
        return Ok(None);
    }
    let mut letters = name.chars();
    let title: String =
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters.flat_map(char::to_lowercase)).collect();
    serde_json::from_value(serde_json::Value::String(title))
        .map(Some)
        .map_err(|error| Error::unsupported(format!("language = '{name}': {error}; or none")))
}

/// Writes a part of some fragments.
pub(super) async fn write_part(
    table: &Table,
    column: &Column,
    fragments: Vec<usize>,
    language: Option<Language>,
    mut writer: TableWriter,
) -> Result<(TableWriter, u64)> {
    let fragments: Vec<usize> = fragments.into_iter().filter(|at| table.is_plain(*at, column.field)).collect();
    if fragments.is_empty() {
        return Ok((writer, 0));
    }
    let (texts, part) = Part::of(table, column, &fragments, language).await?;
    blocking(move || {
        let id = FragmentId::random();
        for (path, content) in part.files()? {
            let one = |bytes: Vec<u8>| ColumnData {
                rows: 1,
                values: OwnedValues::Ragged { offsets: vec![0, bytes.len() as u64], shapes: Vec::new(), bytes },
                validity: None,
            };
            let data = [one(id.as_bytes().to_vec()), one(path.into_bytes()), one(content)];
            writer.push(&data.iter().map(ColumnData::as_slice).collect::<Vec<_>>())?;
        }
        Ok((writer, texts))
    })
    .await
}

fn text_field(index: &tantivy::Index) -> Result<Field> {
    index.schema().get_field("text").map_err(failed)
}

fn failed(error: tantivy::TantivyError) -> Error {
    Error::unsupported(format!("the index of texts failed: {error}"))
}

/// The values of a ragged column.
fn rows(data: &ColumnData) -> impl Iterator<Item = &[u8]> {
    let (offsets, bytes): (&[u64], &[u8]) = match &data.values {
        OwnedValues::Ragged { offsets, bytes, .. } => (offsets, bytes),
        OwnedValues::Fixed(_) => (&[], &[]),
    };
    offsets.windows(2).map(|ends| &bytes[ends[0] as usize..ends[1] as usize])
}

fn fields() -> Fields {
    let mut fields = Fields::builder();
    let words =
        TextFieldIndexing::default().set_tokenizer(WORDS).set_index_option(IndexRecordOption::WithFreqsAndPositions);
    fields.add_text_field("text", TextOptions::default().set_indexing_options(words));
    fields.add_u64_field("place", FAST);
    fields.build()
}

fn tokenizer(language: Option<Language>) -> TextAnalyzer {
    let words =
        TextAnalyzer::builder(SimpleTokenizer::default()).filter(RemoveLongFilter::limit(LONGEST)).filter(LowerCaser);
    match language {
        Some(language) => words.filter(Stemmer::new(language)).build(),
        None => words.build(),
    }
}

impl Part {
    /// Puts the texts of fragments into an index in memory; gives how many these are.
    async fn of(
        table: &Table,
        column: &Column,
        fragments: &[usize],
        language: Option<Language>,
    ) -> Result<(u64, Self)> {
        let index = tantivy::Index::builder().schema(fields()).create_in_ram().map_err(failed)?;
        index.tokenizers().register(WORDS, tokenizer(language));
        let mut writer = index.writer_with_num_threads::<tantivy::TantivyDocument>(1, MEMORY).map_err(failed)?;
        let (text, place) = (text_field(&index)?, index.schema().get_field("place").map_err(failed)?);
        let mut texts = 0;
        for (number, at) in fragments.iter().enumerate() {
            let all = table.first_row(*at)..table.first_row(at + 1);
            for start in all.clone().step_by(ROWS as usize) {
                let numbers = start..all.end.min(start + ROWS);
                let data = table.read(&column.name, numbers.clone()).await?;
                let table = table.clone();
                (writer, texts) = blocking(move || {
                    for (row, value) in numbers.zip(rows(&data)).filter(|(_, value)| !value.is_empty()) {
                        let stored = table.locate(row)?.row;
                        let value = String::from_utf8_lossy(value);
                        let document =
                            tantivy::doc!(text => &*value, place => (number as u64) << 32 | u64::from(stored));
                        writer.add_document(document).map_err(failed)?;
                        texts += 1;
                    }
                    Ok((writer, texts))
                })
                .await?;
            }
        }
        let ids = fragments.iter().map(|at| table.fragments()[*at].id).collect();
        blocking(move || {
            writer.commit().map_err(failed)?;
            writer.wait_merging_threads().map_err(failed)?;
            Ok((texts, Self::ready(ids, index)?))
        })
        .await
    }

    fn ready(fragments: Vec<FragmentId>, index: tantivy::Index) -> Result<Self> {
        let reader = index.reader_builder().reload_policy(tantivy::ReloadPolicy::Manual).try_into().map_err(failed)?;
        let reader: tantivy::IndexReader = reader;
        let searcher = reader.searcher();
        Ok(Self { fragments, index, searcher })
    }

    fn open(files: Vec<(String, Vec<u8>)>, language: Option<Language>) -> Result<Self> {
        let directory = RamDirectory::create();
        let mut fragments = Vec::new();
        for (path, content) in files {
            if path == FRAGMENTS {
                let (ids, _) = content.as_chunks::<16>();
                fragments = ids.iter().map(|id| FragmentId::from_bytes(*id)).collect();
            } else {
                let stored = directory.atomic_write(Path::new(&path), &content);
                stored.map_err(|error| Error::unsupported(format!("the index of texts failed: {error}")))?;
            }
        }
        let index = tantivy::Index::open(directory).map_err(failed)?;
        index.tokenizers().register(WORDS, tokenizer(language));
        Self::ready(fragments, index)
    }

    /// Its files, with which fragments it has as one more.
    fn files(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let ids = self.fragments.iter().flat_map(|id| *id.as_bytes()).collect();
        let mut files = vec![(FRAGMENTS.to_owned(), ids)];
        let wrong = |error: String| Error::unsupported(format!("the index of texts failed: {error}"));
        let directory = self.index.directory();
        let mut paths = directory.list_managed_files();
        paths.retain(|path| directory.exists(path).unwrap_or(false));
        paths.insert("meta.json".into());
        for path in paths {
            let content = match directory.atomic_read(&path) {
                Ok(content) => content,
                Err(error) => return Err(wrong(error.to_string())),
            };
            files.push((path.to_string_lossy().into_owned(), content));
        }
        Ok(files)
    }
}

/// The words of all parts, for scores that can be compared.
struct All(Vec<Searcher>);

impl All {
    fn sum(&self, of: impl Fn(&Searcher) -> tantivy::Result<u64>) -> tantivy::Result<u64> {
        self.0.iter().try_fold(0, |sum, searcher| Ok(sum + of(searcher)?))
    }
}

impl Bm25StatisticsProvider for All {
    fn total_num_tokens(&self, field: Field) -> tantivy::Result<u64> {
        self.sum(|searcher| searcher.total_num_tokens(field))
    }

    fn total_num_docs(&self) -> tantivy::Result<u64> {
        self.sum(Bm25StatisticsProvider::total_num_docs)
    }

    fn doc_freq(&self, term: &Term) -> tantivy::Result<u64> {
        self.sum(|searcher| Bm25StatisticsProvider::doc_freq(searcher, term))
    }
}

/// Collects the place and the score of every document that matches.
struct Places;

struct PlacesOfSegment {
    places: FastColumn<u64>,
    found: Vec<(u64, Score)>,
}

impl Collector for Places {
    type Fruit = Vec<(u64, Score)>;
    type Child = PlacesOfSegment;

    fn for_segment(&self, _: SegmentOrdinal, segment: &SegmentReader) -> tantivy::Result<PlacesOfSegment> {
        Ok(PlacesOfSegment { places: segment.fast_fields().u64("place")?, found: Vec::new() })
    }

    fn requires_scoring(&self) -> bool {
        true
    }

    fn merge_fruits(&self, fruits: Vec<Self::Fruit>) -> tantivy::Result<Self::Fruit> {
        Ok(fruits.concat())
    }
}

impl SegmentCollector for PlacesOfSegment {
    type Fruit = Vec<(u64, Score)>;

    fn collect(&mut self, document: DocId, score: Score) {
        self.found.extend(self.places.first(document).map(|place| (place, score)));
    }

    fn harvest(self) -> Self::Fruit {
        self.found
    }
}
