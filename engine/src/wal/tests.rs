use super::*;
use crate::log::LogEntry;
use crate::revision::Revision;

/// Appends a record as RocksDB writes it.
fn append(log: &mut Vec<u8>, mut record: &[u8]) {
    let mut begin = true;
    loop {
        if BLOCK - log.len() % BLOCK < HEADER {
            log.resize(log.len().next_multiple_of(BLOCK), 0);
        }
        let room = BLOCK - log.len() % BLOCK - HEADER;
        let (part, rest) = record.split_at(record.len().min(room));
        let kind = match (begin, rest.is_empty()) {
            (true, true) => WHOLE,
            (true, false) => FIRST,
            (false, false) => MIDDLE,
            (false, true) => LAST,
        };
        let mut checked = vec![kind];
        checked.extend_from_slice(part);
        let sum = masked(crc32c(&checked));
        log.extend_from_slice(&sum.to_le_bytes());
        log.extend_from_slice(&(part.len() as u16).to_le_bytes());
        log.extend_from_slice(&checked);
        (record, begin) = (rest, false);
        if record.is_empty() {
            return;
        }
    }
}

/// A batch that commits `revision` with a value of `size` bytes that are not zero, or a sweep's batch.
fn batch(sequence: u64, revision: Option<u64>, size: usize) -> Vec<u8> {
    let mut batch = sequence.to_le_bytes().to_vec();
    batch.extend_from_slice(&2u32.to_le_bytes());
    let mut put = |family: u8, key: &[u8], value: &[u8]| {
        batch.extend_from_slice(&[5, family, key.len() as u8]);
        batch.extend_from_slice(key);
        let (mut length, mut bytes) = (value.len(), Vec::new());
        while length > 0x7f {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        batch.extend_from_slice(&bytes);
        batch.extend_from_slice(value);
    };
    put(1, b"key", &vec![7; size]);
    match revision {
        Some(revision) => {
            let revision = Revision::new(revision);
            let mut entry = Vec::new();
            LogEntry { revision, time_ms: 1, operations: Vec::new() }.encode_into(&mut entry);
            put(3, &crate::layout::log_key(revision), &entry);
        }
        None => put(0, b"swept", b"number"),
    }
    batch
}

fn log(batches: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
    let (mut log, mut ends) = (Vec::new(), vec![0]);
    for batch in batches {
        append(&mut log, batch);
        ends.push(log.len());
    }
    (log, ends)
}

fn tail(log: &[u8]) -> Tail {
    read(log, |_| {}).tail
}

#[test]
fn revisions_and_sequence_numbers_are_read() {
    let batches = [batch(5, Some(9), 10), batch(7, None, 100_000), batch(9, Some(10), 40_000)];
    let (log, _) = log(&batches);
    let mut seen = Vec::new();
    let contents = read(&log, |batch| seen.push(revisions(batch)));
    assert_eq!(seen, [vec![Revision::new(9)], vec![], vec![Revision::new(10)]]);
    assert_eq!((contents.first, contents.next), (Some(5), Some(11)));
    assert_eq!((contents.sound, contents.tail), (log.len() as u64, Tail::Clean));
}

#[test]
fn a_log_cut_anywhere_is_torn() {
    let (log, ends) = log(&[batch(1, Some(1), 3), batch(3, Some(2), 70_000), batch(5, Some(3), 9)]);
    for cut in (0..log.len()).filter(|cut| cut % 97 == 0 || ends.iter().any(|end| end.abs_diff(*cut) < 9)) {
        let contents = read(&log[..cut], |_| {});
        let whole = ends.iter().rfind(|end| **end <= cut).copied().unwrap();
        assert_eq!(contents.sound, whole as u64, "cut at {cut}");
        assert_eq!(contents.tail, if cut == whole { Tail::Clean } else { Tail::Torn }, "cut at {cut}");
    }
}

#[test]
fn a_flipped_bit_is_damage_wherever_it_is() {
    let (log, ends) = log(&[batch(1, Some(1), 30), batch(3, Some(2), 40), batch(5, Some(3), 50)]);
    // The last record's length may point beyond the end of the file, as a torn one's does.
    let length = ends[2] + 4..ends[2] + 6;
    for bit in (0..log.len() * 8).filter(|bit| !length.contains(&(bit / 8))) {
        let mut damaged = log.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(tail(&damaged), Tail::Damaged, "bit {bit}");
    }
}

/// Sectors of the last group were not written, in any combination.
#[test]
fn a_torn_last_group_is_recognised() {
    let (log, ends) = log(&[batch(1, Some(1), 700), batch(3, Some(2), 80_000)]);
    let sectors = log.len().div_ceil(SECTOR);
    let first = ends[1] / SECTOR;
    let mut random = 1u64;
    for round in 0..400 {
        let mut torn = log.clone();
        for sector in first..sectors {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let lost = if round < sectors - first { sector == first + round } else { random >> 60 < 3 };
            if lost {
                let from = (sector * SECTOR).max(ends[1]);
                let to = ((sector + 1) * SECTOR).min(log.len());
                torn[from..to].fill(0);
            }
        }
        if torn == log {
            continue;
        }
        let contents = read(&torn, |_| {});
        assert_eq!((contents.tail, contents.sound), (Tail::Torn, ends[1] as u64), "round {round}");
    }
}

/// The header of the group's record lies in two sectors, and any of its sectors is lost, or all from one
/// of them on.
#[test]
fn a_group_whose_header_lies_in_two_sectors_is_torn() {
    for before in 1..HEADER {
        let small = (1..2 * SECTOR)
            .map(|size| batch(1, Some(1), size))
            .find(|small| log(std::slice::from_ref(small)).0.len() % SECTOR == SECTOR - before)
            .unwrap();
        let (whole, ends) = log(&[small, batch(3, Some(2), 3000)]);
        for sector in ends[1] / SECTOR..whole.len().div_ceil(SECTOR) {
            let from = (sector * SECTOR).max(ends[1]);
            for to in [((sector + 1) * SECTOR).min(whole.len()), whole.len()] {
                let mut torn = whole.clone();
                torn[from..to].fill(0);
                let what = format!("{before} bytes before the border, {from}..{to} lost");
                let contents = read(&torn, |_| {});
                assert_eq!((contents.tail, contents.sound), (Tail::Torn, ends[1] as u64), "{what}");
                let contents = read_manifest(&torn, ends[1] as u64);
                assert_eq!((contents.tail, contents.sound), (Tail::Torn, ends[1] as u64), "{what}");
            }
        }
        // A flipped bit is no lost sector.
        for bit in 0..8 * HEADER {
            let mut damaged = whole.clone();
            damaged[ends[1] + bit / 8] ^= 1 << (bit % 8);
            let tail = read(&damaged, |_| {}).tail;
            // A flipped bit in the length may lead beyond the end, as in a torn write, and one may leave
            // zeros.
            let may_be_torn = (32..48).contains(&bit) || damaged[ends[1]] == 0;
            assert!(tail == Tail::Damaged || may_be_torn, "{before}, bit {bit}: {tail:?}");
        }
    }
}

/// The part of the group in the lost sector is shorter than a header, and other records follow.
#[test]
fn a_group_whose_last_bytes_are_lost_is_torn() {
    let small = batch(1, Some(1), 100);
    let before = log(std::slice::from_ref(&small)).0.len() as u64;
    for rest in 1..=HEADER {
        let large = (SECTOR..2 * SECTOR)
            .map(|size| [small.clone(), batch(3, None, size)])
            .find(|batches| log(batches).0.len() == 2 * SECTOR + rest)
            .unwrap();
        let [small, large] = large;
        let (mut torn, _) = log(&[small, large, batch(5, Some(2), 700)]);
        torn[2 * SECTOR..].fill(0);
        let contents = read(&torn, |_| {});
        assert_eq!((contents.tail, contents.sound), (Tail::Torn, before), "{rest} bytes");
    }
}

#[test]
fn what_was_acknowledged_behind_a_lost_sector_is_damage() {
    let zeroed = |batches: &[Vec<u8>], index: usize| {
        let (mut log, ends) = log(batches);
        log[ends[index]..ends[index + 1]].fill(0);
        tail(&log)
    };
    let sweep = |sequence| batch(sequence, None, 900);
    let group = |sequence, revision| batch(sequence, Some(revision), 900);
    // The sweep's batches are synced with the next group, which was not acknowledged.
    assert_eq!(zeroed(&[group(1, 1), sweep(3), group(5, 2)], 1), Tail::Torn);
    assert_eq!(zeroed(&[group(1, 1), sweep(3), sweep(5), group(7, 2), sweep(9)], 1), Tail::Torn);
    // Revision 2 was acknowledged before 3 was written.
    assert_eq!(zeroed(&[group(1, 1), group(3, 2), group(5, 3)], 1), Tail::Damaged);
    assert_eq!(zeroed(&[group(1, 1), sweep(3), group(5, 2), group(7, 3)], 1), Tail::Damaged);
}

#[test]
fn a_manifest_ends_whole_or_torn() {
    let (manifest, ends) = log(&[b"one".to_vec(), vec![9; 2000], b"three".to_vec()]);
    let synced = manifest.len() as u64;
    assert_eq!(read_manifest(&manifest, synced).tail, Tail::Clean);
    assert_eq!(read_manifest(&manifest[..manifest.len() - 1], synced).tail, Tail::Torn);
    for bit in ends[1] * 8..(ends[2] - 6) * 8 {
        let mut damaged = manifest.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(read_manifest(&damaged, 0).tail, Tail::Damaged, "bit {bit}");
    }
    // Sectors of what was written together are lost in any order, and those of what was synced never.
    let mut damaged = manifest;
    damaged[SECTOR..2 * SECTOR].fill(0);
    let torn = read_manifest(&damaged, ends[1] as u64);
    assert_eq!((torn.tail, torn.sound), (Tail::Torn, ends[1] as u64));
    assert_eq!(read_manifest(&damaged, ends[1] as u64 + 1).tail, Tail::Damaged);
}

/// Appends an operation's data of the log alone to a batch.
fn with_note(mut batch: Vec<u8>, note: Note) -> Vec<u8> {
    let data = note.encode();
    batch.extend_from_slice(&[3, data.len() as u8]);
    batch.extend_from_slice(&data);
    batch
}

fn note_of(writer: WriterId, durable: u64) -> Note {
    Note { writer, durable: Revision::new(durable), marked: Revision::ZERO }
}

/// Replaces the end of a batch's value, which all have the same byte, by `bytes`.
fn holding(mut batch: Vec<u8>, bytes: &[u8]) -> Vec<u8> {
    let value = batch.windows(bytes.len()).position(|part| part.iter().all(|byte| *byte == 7)).unwrap();
    batch[value..value + bytes.len()].copy_from_slice(bytes);
    batch
}

#[test]
fn notes_are_read_behind_operations() {
    let note = note_of(WriterId::random(), 8);
    let (log, _) = log(&[with_note(batch(5, Some(9), 10), note), batch(7, None, 10)]);
    assert_eq!(read(&log, |_| {}).note, Some(note));
    assert_eq!(operations(&with_note(batch(5, Some(9), 10), note)).unwrap().len(), 2);
}

/// A group is torn whose value holds records: those of other logs, older ones of this one, and forged ones
/// that would follow.
#[test]
fn values_that_hold_records_are_torn_like_others() {
    let (writer, other) = (WriterId::random(), WriterId::random());
    let group = |revision: u64, size| {
        let batch = batch(2 * revision - 1, Some(revision), size);
        with_note(batch, note_of(writer, revision - 1))
    };
    let before = [group(1, 100), group(2, 200)];
    let forged: Vec<Vec<u8>> =
        (4..7).map(|n| with_note(batch(2 * n - 1, Some(n), 40), note_of(other, n - 1))).collect();
    let unnoted: Vec<Vec<u8>> = (4..7).map(|n| batch(2 * n - 1, Some(n), 40)).collect();
    for records in [&before[..], &forged, &unnoted, &[&before[..], &forged, &unnoted].concat()] {
        for size in [5000, 33_000] {
            let records = log(records).0;
            let last = holding(group(3, size), &[&[6; 900][..], &records].concat());
            let (whole, ends) = log(&[&before[..], &[last]].concat());
            for sector in (ends[2] / SECTOR..whole.len().div_ceil(SECTOR)).step_by(1 + size / 4000) {
                let from = (sector * SECTOR).max(ends[2]);
                let to = ((sector + 1) * SECTOR).min(whole.len());
                let mut lost = whole.clone();
                lost[from..to].fill(0);
                for (torn, what) in [(&lost[..], "lost"), (&whole[..from.max(ends[2] + 1)], "cut")] {
                    let contents = read(torn, |_| {});
                    let what = format!("{size}, {what} at {from}");
                    assert_eq!((contents.tail, contents.sound), (Tail::Torn, ends[2] as u64), "{what}");
                    assert!(dropped_records(torn, contents.sound).is_empty(), "{what}");
                }
            }
        }
    }
}

/// As long as logs have no notes, records that cannot follow there are recognized by their sequence numbers.
#[test]
fn records_in_values_are_recognized_by_sequence_numbers_in_old_logs() {
    let before = [batch(100_001, Some(1), 100), batch(100_003, Some(2), 200)];
    let foreign: Vec<Vec<u8>> = (3..9).map(|n| batch(1_000_000 + 2 * n, Some(n), 40)).collect();
    let records = [log(&before).0, log(&foreign).0].concat();
    let (mut torn, ends) = log(&[&before[..], &[holding(batch(100_005, Some(3), 6000), &records)]].concat());
    torn.truncate(ends[3] - 700);
    let contents = read(&torn, |_| {});
    assert_eq!((contents.tail, contents.sound), (Tail::Torn, ends[2] as u64));
}

/// What was durable when a later record was written decides, not how many records there are.
#[test]
fn notes_tell_what_was_acknowledged() {
    let writer = WriterId::random();
    let noted = |revision: u64, durable| {
        with_note(batch(2 * revision - 1, Some(revision), 900), note_of(writer, durable))
    };
    let zeroed = |batches: &[Vec<u8>], index: usize| {
        let (mut log, ends) = log(batches);
        log[ends[index]..ends[index + 1]].fill(0);
        tail(&log)
    };
    // Relaxed groups, of which none was synced behind revision 1.
    assert_eq!(zeroed(&[noted(1, 0), noted(2, 1), noted(3, 1), noted(4, 1)], 1), Tail::Torn);
    // Revision 3 was synced, and so was everything before.
    assert_eq!(zeroed(&[noted(1, 0), noted(2, 1), noted(3, 1), noted(4, 3)], 1), Tail::Damaged);
    assert_eq!(zeroed(&[noted(1, 0), noted(2, 1), noted(3, 2)], 1), Tail::Damaged);
    // The watermark names a log before its first group is acknowledged.
    assert_eq!(zeroed(&[noted(1, 0), noted(2, 1), noted(3, 2)], 0), Tail::Torn);
    // The beginning of a record in a value does not hide the next one.
    let begun = log(&[vec![5; 40_000]]).0;
    let torn = holding(noted(2, 1), &begun[..800]);
    let first = [&[FIRST][..], &[5; 60]].concat();
    let fragment = [&masked(crc32c(&first)).to_le_bytes()[..], &60u16.to_le_bytes(), &first].concat();
    let (mut hidden, ends) = log(&[noted(1, 0), holding(torn, &fragment), noted(3, 2)]);
    let lost = ends[1]..ends[1] + 20;
    assert!(lost.end.next_multiple_of(SECTOR) > ends[1]);
    hidden[lost].fill(0);
    assert_eq!(tail(&hidden), Tail::Damaged);
}

#[test]
fn a_manifest_whose_keys_hold_records_is_torn_like_others() {
    let key = log(&[vec![5; 30], vec![6; 40]]).0;
    let edit = [&[6; 400][..], &key, &[6; 2000]].concat();
    let (whole, ends) = log(&[vec![8; 300], edit]);
    for cut in [ends[2] - 1, ends[2] - 900, ends[1] + 700] {
        let contents = read_manifest(&whole[..cut], ends[1] as u64);
        assert_eq!((contents.tail, contents.sound), (Tail::Torn, ends[1] as u64), "cut at {cut}");
    }
}
