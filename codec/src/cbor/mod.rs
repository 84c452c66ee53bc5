//! CBOR with upstream's options.
//!
//! Encoding: every document begins with the self-described tag; strings and keys are byte strings; members
//! are in the order of their encoded keys; numbers are as short as possible; bytes are a byte string under
//! tag 22 ("later base64"). Decoding: the same, and text strings, indefinite lengths and unknown tags;
//! refused are duplicate keys, keys that are no strings, NaN and infinity, bignums, integers beyond 64 bits,
//! simple values other than true, false and null, invalid UTF-8, and nesting deeper than 10,000.
//!
//! Source: `k8s.io/apimachinery/pkg/runtime/serializer/cbor` (KEP-4222), RFC 8949. The reader and writer are
//! not a general crate's: the options (byte strings for text, tag 22 by the schema, the refusals, the order
//! of keys) leave little for one to do.
//!
//! ```
//! use plinth_codec::{cbor, tree, Value};
//!
//! let object = tree!({ "kind": "Pod", "apiVersion": "v1" });
//! let mut bytes = Vec::new();
//! cbor::encode(&object, None, &mut bytes).unwrap();
//! assert!(bytes.starts_with(cbor::SELF_DESCRIBED));
//! assert_eq!(cbor::decode(&bytes), Ok(object));
//! ```

mod decode;
mod encode;
mod frame;

#[cfg(test)]
mod tests;

pub use decode::{decode, decode_first};
pub use encode::{encode, encode_bare, transcode_json, transcode_json_bare};
pub use frame::{write_watch_event, CborListFrame};

/// Tag 55799, which changes nothing and serves as a magic number.
pub const SELF_DESCRIBED: &[u8] = &[0xd9, 0xd9, 0xf7];

/// Why bytes were refused as CBOR. Offsets are bytes from the start.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CborError {
    /// The data ends within an item.
    #[error("cbor: unexpected EOF")]
    UnexpectedEnd,
    /// More data after the item.
    #[error("cbor: extraneous data after byte {0}")]
    Trailing(usize),
    /// A byte that cannot begin an item, or an unexpected break.
    #[error("cbor: malformed item at byte {0}")]
    Malformed(usize),
    /// Nested deeper than [`MAX_DEPTH`](crate::value::MAX_DEPTH).
    #[error("cbor: exceeded max depth")]
    TooDeep,
    /// A key that is not a string.
    #[error("cbor: map key at byte {0} is not a string")]
    Key(usize),
    /// A duplicate key in a map.
    #[error("cbor: found duplicate map key {0:?}")]
    DuplicateKey(String),
    /// A string that is no UTF-8.
    #[error("cbor: invalid UTF-8 string at byte {0}")]
    Utf8(usize),
    /// An integer that does not fit 64 bits signed.
    #[error("cbor: integer overflow at byte {0}")]
    Overflow(usize),
    /// NaN or infinity.
    #[error("cbor: floating-point NaN and infinity are not allowed (byte {0})")]
    NotFinite(usize),
    /// Tags 2 and 3.
    #[error("cbor: bignum is not allowed (byte {0})")]
    Bignum(usize),
    /// A simple value other than true, false and null.
    #[error("cbor: simple value at byte {0} is not recognized")]
    Simple(usize),
    /// A time tag around a value that is not a time.
    #[error("cbor: invalid time at byte {0}")]
    Time(usize),
}
