//! Progress on a terminal; nothing elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{human, output};

/// A bar with rates, on standard error.
pub(crate) struct Progress {
    bar: ProgressBar,
    started: Instant,
    items: u64,
    bytes: u64,
    unit: &'static str,
}

impl Progress {
    /// A bar up to `length` steps. `unit` is what the items are: `images`.
    pub(crate) fn new(length: u64, unit: &'static str) -> Self {
        // Hides itself where standard error is no terminal.
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(10));
        let template = "{wide_bar:.cyan/dim} {percent:>3} %  {msg}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸─"));
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, started: Instant::now(), items: 0, bytes: 0, unit }
    }

    /// Goes on by `steps`, which were `items` and `bytes`.
    pub(crate) fn advance(&mut self, steps: u64, items: u64, bytes: u64) {
        self.items += items;
        self.bytes += bytes;
        self.bar.inc(steps);
        if !self.bar.is_hidden() {
            let seconds = self.started.elapsed().as_secs_f64().max(1e-3);
            let rate = human::bytes((self.bytes as f64 / seconds) as u64);
            let items = human::count((self.items as f64 / seconds) as u64);
            self.bar.set_message(format!("{items} {}/s  {rate}/s", self.unit));
        }
    }

    /// Changes how far there is to go.
    pub(crate) fn set_length(&self, length: u64) {
        self.bar.set_length(length);
    }

    /// Writes a line to standard error, above the bar.
    pub(crate) fn complain(&self, line: &str) {
        self.bar.suspend(|| output::complain(line));
    }

    /// The time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
