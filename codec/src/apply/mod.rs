//! Server-side apply: field sets, managers, merge.
