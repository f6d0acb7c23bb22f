//! Numbers, times and tables for people.

use std::time::Duration;

/// Bytes with three digits and a decimal unit: `1.23 MB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if count < 1_000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1e3;
    let mut unit = 0;
    // What would be shown as 1000 goes to the next unit.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// A number with its thousands set apart: `12,345`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// A duration with as much precision as matters: `0.42 s`, `3 m 12 s`, `2 h 05 m`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{:.2} s", time.as_secs_f64()),
        60..3_600 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} m", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// Microseconds since 1970 as RFC 3339 in UTC, to the second: `2024-02-29T12:00:00Z`.
///
/// Days to dates by the algorithm of Howard Hinnant's `civil_from_days`.
pub(crate) fn time(micros: i64) -> String {
    let seconds = micros.div_euclid(1_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second % 3_600 / 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Lines of a table whose columns are as wide as their widest cell; cells of `right` columns end on one line.
pub(crate) fn table(rows: &[Vec<String>], right: &[usize]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if right.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// At most `limit` characters of a text, on one line.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    if text.chars().count() <= limit {
        return text.chars().map(clean).collect();
    }
    text.chars().take(limit.saturating_sub(1)).map(clean).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::{bytes, count, duration, shortened, table, time};
    use std::time::Duration;

    #[test]
    fn bytes_have_three_digits() {
        let shown = [0, 999, 1_000, 1_234, 99_949, 99_950, 999_499, 999_500, u64::MAX].map(bytes);
        assert_eq!(shown, ["0 B", "999 B", "1.00 kB", "1.23 kB", "99.9 kB", "100 kB", "999 kB", "1.00 MB", "18.4 EB"]);
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn durations_are_as_precise_as_matters() {
        let shown = [420, 59_994, 60_000, 3_725_000].map(|millis| duration(Duration::from_millis(millis)));
        assert_eq!(shown, ["0.42 s", "59.99 s", "1 m 00 s", "1 h 02 m"]);
    }

    #[test]
    fn times_are_dates() {
        let shown = [0, 951_782_400, 1_709_208_000, -1, 253_402_300_799].map(|seconds| time(seconds * 1_000_000));
        assert_eq!(
            shown,
            [
                "1970-01-01T00:00:00Z",
                "2000-02-29T00:00:00Z",
                "2024-02-29T12:00:00Z",
                "1969-12-31T23:59:59Z",
                "9999-12-31T23:59:59Z"
            ]
        );
    }

    #[test]
    fn cells_of_a_table_line_up() {
        let rows = [vec!["a".into(), "12".into()], vec!["é".into(), "3".into()], vec!["long".into(), "4".into()]];
        assert_eq!(table(&rows, &[1]), ["a     12", "é      3", "long   4"]);
    }

    #[test]
    fn long_text_is_shortened_and_kept_on_a_line() {
        assert_eq!(shortened("line\nbreak", 20), "line break");
        assert_eq!(shortened("äöüäöü", 4), "äöü…");
    }
}
