//! Object IO: URLs and credentials, range planning, mapped local files, put-if-absent claims.
