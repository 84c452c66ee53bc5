//! CBOR with upstream's choices.
