//! Lakes, tables, snapshots, transactions: a commit graph on plain object storage.
