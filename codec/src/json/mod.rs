//! JSON, in and out.
