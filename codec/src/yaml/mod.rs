//! YAML 1.1 as upstream reads it, in and out.
