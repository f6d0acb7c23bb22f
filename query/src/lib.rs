//! Choosing rows: scans a table and hands out a selection.
