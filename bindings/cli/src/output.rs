//! What goes to standard output and standard error.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::Result;

/// Where a command writes its result.
pub(crate) struct Output {
    out: io::StdoutLock<'static>,
    bold: bool,
    json: bool,
}

impl Output {
    /// Standard output; with `json` the result is one document instead of text.
    pub(crate) fn new(json: bool) -> Self {
        let out = io::stdout().lock();
        let bold = out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { out, bold, json }
    }

    /// Writes the result: `value` as JSON, or what `text` writes.
    ///
    /// # Errors
    /// If standard output fails.
    pub(crate) fn result(&mut self, value: &impl Serialize, text: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if self.json {
            serde_json::to_writer_pretty(&mut self.out, value)?;
            writeln!(self.out)?;
        } else {
            text(self)?;
        }
        Ok(self.out.flush()?)
    }

    /// Writes a line.
    ///
    /// # Errors
    /// If standard output fails.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) -> Result<()> {
        Ok(writeln!(self.out, "{}", line.as_ref())?)
    }

    /// Writes a line that stands out on a terminal.
    ///
    /// # Errors
    /// If standard output fails.
    pub(crate) fn heading(&mut self, line: impl AsRef<str>) -> Result<()> {
        let line = line.as_ref();
        Ok(if self.bold { writeln!(self.out, "\x1b[1m{line}\x1b[0m") } else { writeln!(self.out, "{line}") }?)
    }

    /// Writes lines of which the first is a heading.
    ///
    /// # Errors
    /// If standard output fails.
    pub(crate) fn table(&mut self, lines: Vec<String>) -> Result<()> {
        let mut lines = lines.into_iter();
        if let Some(heading) = lines.next() {
            self.heading(heading)?;
        }
        lines.try_for_each(|line| self.line(line))
    }
}

/// Writes a line to standard error. If even that fails there is nobody to tell.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
