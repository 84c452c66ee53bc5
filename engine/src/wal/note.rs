//! Notes: what each group carries in the log alone, so that a start can tell a torn end from damage.
//!
//! Behind an unfinished record of a log other records may follow. If one of them was written after something
//! in the unfinished one was acknowledged, bytes were lost that were on disk: damage. Values must not decide
//! about this, and they may hold the bytes of any record. So a group names the process that writes it by a
//! number that no client learns, and what was durable when the group was written.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | 1, the version of the note; filling begins with a5 ([`super::page`]) |
//! | 8 | number of the writer, drawn when the store is opened |
//! | varint | the newest revision that was durable |
//! | varint | how much lower the revision in `WATERMARK` was |

use std::hash::{BuildHasher, Hasher, RandomState};

use bytes::Bytes;
use plinth_journal::{put_varint, take_varint};

use crate::revision::Revision;

const VERSION: u8 = 1;

/// The note of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    pub writer: WriterId,
    /// A revision that was durable when the group was written, not a later one.
    pub durable: Revision,
    /// The revision in `WATERMARK` then.
    pub marked: Revision,
}

/// Distinguishes what an open store writes to its logs from bytes that somebody else made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriterId(u64);

impl WriterId {
    /// Of the operating system's randomness.
    pub(crate) fn random() -> WriterId {
        WriterId(RandomState::new().build_hasher().finish())
    }
}

impl Note {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.writer.0.to_le_bytes());
        put_varint(&mut out, self.durable.get());
        put_varint(&mut out, self.durable.get().saturating_sub(self.marked.get()));
        out
    }

    pub(super) fn decode(data: &[u8]) -> Option<Note> {
        let (&VERSION, rest) = data.split_first()? else { return None };
        let (writer, rest) = rest.split_first_chunk()?;
        let mut rest = Bytes::copy_from_slice(rest);
        let durable = take_varint(&mut rest)?;
        let marked = durable.checked_sub(take_varint(&mut rest)?)?;
        rest.is_empty().then_some(Note {
            writer: WriterId(u64::from_le_bytes(*writer)),
            durable: Revision::new(durable),
            marked: Revision::new(marked),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_decodes_and_filling_does_not() {
        for (durable, marked) in [(0, 0), (1, 0), (u64::MAX, 5), (300, 300)] {
            let (durable, marked) = (Revision::new(durable), Revision::new(marked));
            let note = Note { writer: WriterId::random(), durable, marked };
            assert_eq!(Note::decode(&note.encode()), Some(note));
        }
        for length in 0..40 {
            assert_eq!(Note::decode(&[0xa5].repeat(length)), None);
        }
        // A mark ahead of what is durable.
        assert_eq!(Note::decode(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 5, 6]), None);
    }
}
