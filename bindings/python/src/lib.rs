//! The Python package forebay.
