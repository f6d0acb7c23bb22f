//! The table that a folder of images makes, and whether an existing one can take them.

use std::{fs::File, io::Read as _, path::Path};

use forebay_format::{Column, Compression, DType, Dim, Kind, Schema};
use image::ImageFormat;

use super::{Keep, Scan, Source, decode};
use crate::{Error, Result};

/// How a folder's images fit a table.
#[derive(Debug)]
pub(crate) struct Plan {
    /// How images are kept.
    pub(crate) keep: Keep,
    /// The columns for a new table.
    pub(crate) schema: Schema,
    /// The table's label of each class of the folder.
    pub(crate) labels: Vec<i64>,
    /// The id of the first row.
    pub(crate) first_id: i64,
}

/// Columns: `image`, `label` if there are classes, `path`, `id`.
///
/// # Errors
/// If the crop is so large that a row passes the limit of one.
pub(crate) fn plan(scan: &Scan, keep: Keep, compression: Compression) -> Result<Plan> {
    let (dtype, shape, encoding, layout) = match keep {
        Keep::Pixels(recipe) => {
            (DType::U8, vec![Dim::Fixed(3), Dim::Fixed(recipe.crop), Dim::Fixed(recipe.crop)], "raw", Some("CHW"))
        }
        Keep::Encoded => (DType::Bytes, Vec::new(), encoding(scan, |image| sniff(&image.path)), None),
        Keep::Linked => {
            (DType::Link, Vec::new(), encoding(scan, |image| ImageFormat::from_path(&image.name).ok()), None)
        }
    };
    let mut image = Column::new("image", dtype, shape)?;
    image.kind = kind("image", [("encoding", Some(encoding)), ("layout", layout)]);
    image.compression = compression;
    let mut columns = vec![image];
    if !scan.classes.is_empty() {
        let mut label = Column::new("label", DType::I64, [])?;
        let names = serde_json::to_string(&scan.classes)?;
        label.kind = kind("label", [("names", Some(names.as_str()))]);
        columns.push(label);
    }
    columns.push(Column::new("path", DType::Utf8, [])?);
    columns.push(Column::new("id", DType::I64, [])?);
    let labels = (0..scan.classes.len() as i64).collect();
    Ok(Plan { keep, schema: Schema::new(columns)?, labels, first_id: 0 })
}

impl Plan {
    /// The same rows for a table that is there already and has `rows` rows.
    ///
    /// # Errors
    /// [`Error::Unfit`] if a column is missing, too many or of another type, a class is none of the table's, or the
    /// images are encoded otherwise.
    pub(crate) fn onto(mut self, table: &str, there: &Schema, rows: u64, classes: &[String]) -> Result<Self> {
        let unfit = |reason: String| Error::Unfit { table: table.to_owned(), reason };
        for column in &self.schema.columns {
            let Some(other) = there.columns.iter().find(|other| other.name == column.name) else {
                return Err(unfit(format!("it has no column '{}'", column.name)));
            };
            if other.dtype != column.dtype || other.shape != column.shape {
                return Err(unfit(format!("its column is {other}, the folder gives {column}")));
            }
            let (kept, given) = (other.kind.metadata.get("encoding"), column.kind.metadata.get("encoding"));
            if kept != given && kept.is_some_and(|kept| kept != MIXED) {
                let or = |name: Option<&String>| name.map_or("none", String::as_str).to_owned();
                return Err(unfit(format!("its images are {}, these are {}", or(kept), or(given))));
            }
        }
        if let Some(other) = there.columns.iter().find(|other| self.schema.column(&other.name).is_err()) {
            return Err(unfit(format!("its column {other} is none that a folder of images fills")));
        }
        if let Ok(label) = there.column("label") {
            let names = label.kind.metadata.get("names").map_or("[]", String::as_str);
            let names: Vec<String> = serde_json::from_str(names)?;
            let find = |class: &String| {
                let index = names.iter().position(|name| name == class);
                let missing = || unfit(format!("class '{class}' is none of its labels: {}", names.join(", ")));
                index.map(|index| index as i64).ok_or_else(missing)
            };
            self.labels = classes.iter().map(find).collect::<Result<_>>()?;
        }
        self.first_id = i64::try_from(rows).unwrap_or(i64::MAX);
        Ok(self)
    }
}

const MIXED: &str = "mixed";

/// The encoding that all images share: by their first bytes, whatever their names say, or by their names where they stay unread.
fn encoding(scan: &Scan, format: impl Fn(&Source) -> Option<ImageFormat>) -> &'static str {
    let mut shared = None;
    for image in &scan.images {
        // A file that can't be read, or is no image, is reported when it is taken.
        let Some(format) = format(image) else { continue };
        if shared.is_some_and(|shared| shared != format) {
            return MIXED;
        }
        shared = Some(format);
    }
    match shared {
        Some(ImageFormat::Jpeg) => "jpeg",
        Some(ImageFormat::Png) => "png",
        Some(ImageFormat::WebP) => "webp",
        _ => MIXED,
    }
}

fn sniff(path: &Path) -> Option<ImageFormat> {
    let mut start = Vec::with_capacity(32);
    File::open(path).ok()?.take(32).read_to_end(&mut start).ok()?;
    decode::format(&start)
}

fn kind<const N: usize>(name: &str, metadata: [(&str, Option<&str>); N]) -> Kind {
    let entries = metadata.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
    Kind { name: name.to_owned(), metadata: entries.collect() }
}
