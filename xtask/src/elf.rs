//! What a shared library for Linux needs and exports: the part of ELF that says so.

use anyhow::{Context, Result, bail};

/// The dynamic parts of a library.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Dynamic {
    /// Libraries that the loader brings along.
    pub(crate) needed: Vec<String>,
    /// Symbols that others may use.
    pub(crate) exported: Vec<String>,
    /// Symbols that others must have.
    pub(crate) imported: Vec<String>,
}

/// A section: its type, the number of the one that holds its texts, and its bytes.
struct Section<'a> {
    kind: u32,
    texts: usize,
    bytes: &'a [u8],
}

const DYNAMIC: u32 = 6;
const SYMBOLS: u32 = 11;
const NEEDED: u64 = 1;

impl Dynamic {
    /// Reads a 64-bit, little-endian file.
    pub(crate) fn read(file: &[u8]) -> Result<Self> {
        if file.get(..6) != Some(b"\x7fELF\x02\x01") {
            bail!("not a 64-bit, little-endian ELF file");
        }
        let sections = sections(file)?;
        let mut dynamic = Self::default();
        for section in &sections {
            let text = |at: u64| {
                let texts = sections.get(section.texts).context("a section without texts")?.bytes;
                let text = texts.get(usize::try_from(at)?..).context("a text outside its section")?;
                let end = text.iter().position(|byte| *byte == 0).context("a text without end")?;
                Ok::<_, anyhow::Error>(String::from_utf8_lossy(&text[..end]).into_owned())
            };
            match section.kind {
                DYNAMIC => {
                    for entry in section.bytes.chunks_exact(16) {
                        if number(entry, 0, 8)? == NEEDED {
                            dynamic.needed.push(text(number(entry, 8, 8)?)?);
                        }
                    }
                }
                SYMBOLS => {
                    for entry in section.bytes.chunks_exact(24) {
                        let name = text(number(entry, 0, 4)?)?;
                        // Local symbols are for nobody else; those of no section are looked for elsewhere.
                        let (local, defined) = (entry[4] >> 4 == 0, number(entry, 6, 2)? != 0);
                        if !local && !name.is_empty() {
                            if defined { dynamic.exported.push(name) } else { dynamic.imported.push(name) }
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(dynamic)
    }

    /// Why a library doesn't work on a machine without a CUDA driver, or shadows that driver's functions for others.
    pub(crate) fn bound_to_cuda(&self) -> Option<String> {
        let function =
            |name: &&String| name.starts_with("cu") && name[2..].starts_with(|c: char| c.is_ascii_uppercase());
        if let Some(library) = self.needed.iter().find(|library| library.starts_with("libcuda")) {
            return Some(format!("it needs {library} to be loaded"));
        }
        if let Some(name) = self.imported.iter().find(function) {
            return Some(format!("it needs the symbol {name}"));
        }
        self.exported.iter().find(function).map(|name| format!("it exports the symbol {name}"))
    }
}

fn sections(file: &[u8]) -> Result<Vec<Section<'_>>> {
    let (table, size, count) = (number(file, 0x28, 8)?, number(file, 0x3a, 2)?, number(file, 0x3c, 2)?);
    let section = |index: u64| {
        let header = bytes(file, table.saturating_add(index * size), size)?;
        let kind = u32::try_from(number(header, 4, 4)?)?;
        // A section of type 8 takes no place in the file.
        let length = if kind == 8 { 0 } else { number(header, 32, 8)? };
        let texts = usize::try_from(number(header, 40, 4)?)?;
        Ok(Section { kind, texts, bytes: bytes(file, number(header, 24, 8)?, length)? })
    };
    (0..count).map(section).collect()
}

fn bytes(file: &[u8], start: u64, length: u64) -> Result<&[u8]> {
    let (start, length) = (usize::try_from(start)?, usize::try_from(length)?);
    let end = start.checked_add(length).context("a length beyond memory")?;
    file.get(start..end).with_context(|| format!("cut off at byte {}, where {start} to {end} are needed", file.len()))
}

/// The little-endian number of `length` bytes at `start`.
fn number(from: &[u8], start: u64, length: u64) -> Result<u64> {
    Ok(bytes(from, start, length)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_program_of_this_test_needs_libc_and_imports_from_it() -> Result<()> {
        let dynamic = Dynamic::read(&std::fs::read(std::env::current_exe()?)?)?;
        assert!(dynamic.needed.iter().any(|library| library.starts_with("libc.")), "{:?}", dynamic.needed);
        assert!(dynamic.imported.iter().any(|name| name == "memcpy" || name == "write"), "{:?}", dynamic.imported);
        assert_eq!(dynamic.bound_to_cuda(), None);
        Ok(())
    }

    #[test]
    fn a_file_that_is_cut_off_or_no_elf_is_an_error() {
        assert!(Dynamic::read(b"MZ").is_err());
        assert!(Dynamic::read(b"\x7fELF\x02\x01 and nothing more").is_err());
    }

    #[test]
    fn a_library_that_needs_or_shadows_the_driver_is_found() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let innocent = Dynamic {
            needed: names(&["libc.so.6", "libcurl.so.4"]),
            exported: names(&["PyInit__forebay", "cursor"]),
            imported: names(&["cubic", "curl_easy_init"]),
        };
        assert_eq!(innocent.bound_to_cuda(), None);
        let needs = Dynamic { needed: names(&["libcuda.so.1"]), ..Dynamic::default() };
        assert_eq!(needs.bound_to_cuda().as_deref(), Some("it needs libcuda.so.1 to be loaded"));
        let imports = Dynamic { imported: names(&["cuInit"]), ..Dynamic::default() };
        assert_eq!(imports.bound_to_cuda().as_deref(), Some("it needs the symbol cuInit"));
        let exports = Dynamic { exported: names(&["cuMemAlloc_v2"]), ..Dynamic::default() };
        assert_eq!(exports.bound_to_cuda().as_deref(), Some("it exports the symbol cuMemAlloc_v2"));
    }
}
