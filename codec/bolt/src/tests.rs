use std::collections::BTreeMap;
use std::io::{Cursor, Write as _};

use proptest::prelude::*;

use super::*;

type Buckets = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>;

fn written(buckets: &Buckets) -> Vec<u8> {
    let mut writer = BoltWriter::new(Cursor::new(Vec::new())).unwrap();
    for (name, keys) in buckets {
        let mut bucket = writer.bucket(name);
        for (key, value) in keys {
            bucket.put(key.clone(), value.clone()).unwrap();
        }
        bucket.finish().unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// Written to where nothing can be sought: first for the layout.
fn streamed(buckets: &Buckets) -> Vec<u8> {
    let fill = |writer: &mut BoltWriter<Vec<u8>>| {
        for (name, keys) in buckets {
            let mut bucket = writer.bucket(name);
            keys.iter().for_each(|(key, value)| bucket.put(key.clone(), value.clone()).unwrap());
            bucket.finish().unwrap();
        }
    };
    let mut first = BoltWriter::new(Vec::new()).unwrap();
    fill(&mut first);
    let (_, layout) = first.finish_layout().unwrap();
    let mut second = BoltWriter::with_layout(Vec::new(), layout).unwrap();
    fill(&mut second);
    let (bytes, again) = second.finish_layout().unwrap();
    assert_eq!((again, bytes.len() as u64), (layout, layout.bytes()));
    bytes
}

fn opened(bytes: &[u8]) -> Result<BoltFile, BoltError> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    BoltFile::open(file, bytes.len() as u64)
}

fn read(bytes: &[u8], names: &[&[u8]]) -> Result<Buckets, BoltError> {
    let file = opened(bytes)?;
    let mut buckets = Buckets::new();
    for name in names {
        let mut keys = BTreeMap::new();
        file.bucket(name, &mut |key, value, place| {
            assert_eq!(file.value(place)?, value);
            keys.insert(key.to_vec(), value.to_vec());
            Ok::<(), BoltError>(())
        })?;
        buckets.insert(name.to_vec(), keys);
    }
    Ok(buckets)
}

/// A bucket whose tree has branches over branches, with values longer than a page.
fn sample() -> Buckets {
    let key = |n: u64| [n.to_be_bytes().as_slice(), b"_", &[0; 8]].concat();
    let value = |n: u64| vec![n as u8; if n.is_multiple_of(97) { 9000 } else { 40 + n as usize % 400 }];
    let keys = (1..6000).map(|n| (key(n), value(n))).collect();
    Buckets::from([(b"key".to_vec(), keys), (b"meta".to_vec(), BTreeMap::new())])
}

#[test]
fn what_was_written_is_read() {
    let buckets = sample();
    let bytes = written(&buckets);
    assert_eq!(read(&bytes, &[b"key", b"meta"]).unwrap(), buckets);
    assert_eq!(streamed(&buckets), bytes);
    assert!(matches!(read(&bytes, &[b"absent"]), Err(BoltError::NoBucket(_))));
}

#[test]
fn a_bucket_within_its_parent_is_read() {
    // What bbolt writes for a small bucket: its page lies in the value of the root's leaf.
    let mut bytes = written(&Buckets::from([(b"key".to_vec(), BTreeMap::new())]));
    let mut inline = vec![0; BUCKET + PAGE_HEADER];
    inline[BUCKET + 8..BUCKET + 12].copy_from_slice(&[2, 0, 1, 0]);
    for number in [0u32, 16, 1, 5] {
        inline.extend_from_slice(&number.to_le_bytes());
    }
    inline.extend_from_slice(b"avalue");
    let root = 3 * 4096;
    let element = [BUCKET_LEAF, 16, 3, inline.len() as u32].map(u32::to_le_bytes).concat();
    bytes[root + 16..root + 32].copy_from_slice(&element);
    bytes[root + 32..root + 35].copy_from_slice(b"key");
    bytes[root + 35..root + 35 + inline.len()].copy_from_slice(&inline);
    let found = read(&bytes, &[b"key"]).unwrap();
    assert_eq!(found[b"key".as_slice()], BTreeMap::from([(b"a".to_vec(), b"value".to_vec())]));
}

#[test]
fn the_newer_meta_page_counts_and_one_damaged_one_is_no_harm() {
    let bytes = written(&sample());
    for damaged in [0, 4096] {
        let mut bytes = bytes.clone();
        bytes[damaged + 30] ^= 1;
        assert_eq!(read(&bytes, &[b"key", b"meta"]).unwrap(), sample(), "{damaged}");
        bytes[4096 - damaged + 30] ^= 1;
        assert!(matches!(opened(&bytes), Err(BoltError::NoMeta(_))));
    }
}

#[test]
fn loops_and_strange_pages_are_named() {
    let bytes = written(&sample());
    let file = opened(&bytes).unwrap();
    // The root of "key": its first child becomes the root itself.
    let branches: Vec<usize> =
        (2..bytes.len() / 4096).filter(|page| bytes[page * 4096 + 8] == BRANCH_PAGE as u8).collect();
    let root = *branches.last().unwrap();
    drop(file);
    for (child, expected) in [(root as u64, "twice"), (1 << 40, "does not have it"), (1, "does not have it")]
    {
        let mut bytes = bytes.clone();
        bytes[root * 4096 + 24..root * 4096 + 32].copy_from_slice(&child.to_le_bytes());
        let error = read(&bytes, &[b"key"]).unwrap_err().to_string();
        assert!(error.contains(expected) && error.starts_with("page "), "{error}");
    }
}

#[test]
fn no_byte_belongs_to_two_pages_or_elements() {
    let bytes = written(&sample());
    let leaf = (2..).find(|page| bytes[page * 4096 + 8] == LEAF_PAGE as u8).unwrap() * 4096;
    // The page continues over the next one; each value ends where the page does.
    let (mut continued, mut overlapping) = (bytes.clone(), bytes.clone());
    continued[leaf + 12] += 1;
    let count = u16_at(&bytes, leaf + 10).unwrap();
    for element in (leaf + PAGE_HEADER..).step_by(LEAF_ELEMENT).take(count.into()) {
        let [distance, key] = [4, 8].map(|at| u32_at(&bytes, element + at).unwrap());
        let length = 4096 - (element - leaf) as u32 - distance - key;
        overlapping[element + 12..element + 16].copy_from_slice(&length.to_le_bytes());
    }
    for (bytes, expected) in [(continued, "twice"), (overlapping, "overlap")] {
        let error = read(&bytes, &[b"key"]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let bytes = written(&sample());
    for length in (0..bytes.len()).step_by(1021) {
        assert!(opened(&bytes[..length]).is_err(), "{length}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is changed in a file: it is read, or refused, in bounded time and memory.
    #[test]
    fn damage_is_an_error_or_harmless(changes in proptest::collection::vec((any::<u32>(), any::<u8>()), 1..8)) {
        let small = (0..200u64).map(|n| (n.to_be_bytes().to_vec(), vec![n as u8; 60])).collect();
        let mut bytes = written(&Buckets::from([(b"key".to_vec(), small)]));
        let length = bytes.len();
        for (at, byte) in changes {
            bytes[at as usize % length] = byte;
        }
        let _ = read(&bytes, &[b"key"]);
    }

    /// The same, aimed at headers and elements, where numbers decide what is read.
    #[test]
    fn damaged_numbers_are_an_error_or_harmless(page in 0usize..20, at in 0usize..64, number in any::<u32>()) {
        let small = (0..200u64).map(|n| (n.to_be_bytes().to_vec(), vec![n as u8; 60])).collect();
        let mut bytes = written(&Buckets::from([(b"key".to_vec(), small)]));
        let at = page * 4096 + at;
        if let Some(place) = bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let _ = read(&bytes, &[b"key"]);
    }
}
