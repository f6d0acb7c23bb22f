//! Rows of a table, by range or by list.
