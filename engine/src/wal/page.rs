//! Pages of a log: a synced record that leaves too little of its last page for the next one fills it.
//!
//! The system writes whole pages. A record that begins in the page where the last one ended has that page
//! written once more; a record that also crosses into the next page costs two. The rest of a page costs
//! nothing while the page is written anyway, so where the next record would cross, the one before it is
//! extended to the end of the page.

use super::{BLOCK, HEADER};

/// The unit in which the system writes files.
const PAGE: u64 = 4096;
/// What a page is filled with. Not zeros: those are a sign of a write that was lost.
const FILLER: [u8; PAGE as usize] = [0xa5; PAGE as usize];
/// Longest record that is extended: the last page of a longer one does not matter.
const LONGEST: usize = 1 << 20;
/// Type of an operation in front of its data, and the bytes of a length up to 127 and above.
const OVERHEAD: [u64; 2] = [2, 3];

/// What a batch of `size` bytes, to be appended to a log of `at` bytes, is to be extended with
/// ([`rocksdb::WriteBatch::put_log_data`]), so that one of the same size after it lies in as few pages as
/// possible.
pub(crate) fn filler(at: u64, size: usize) -> &'static [u8] {
    if size > LONGEST {
        return &[];
    }
    let end = end_of(at, size);
    let (length, used) = (end - at, end % PAGE);
    let crosses = (used + length).div_ceil(PAGE) > length.div_ceil(PAGE);
    if used == 0 || !crosses {
        return &[];
    }
    let left = PAGE - used;
    let fits = |overhead: u64| left.saturating_sub(overhead);
    let filling = match fits(OVERHEAD[0]) {
        short @ 0..128 => short,
        _ => fits(OVERHEAD[1]).max(127),
    };
    FILLER.get(..filling as usize).unwrap_or_default()
}

/// Where a log of `at` bytes ends once a record of `size` bytes was appended.
fn end_of(at: u64, size: usize) -> u64 {
    const BLOCK_BYTES: u64 = BLOCK as u64;
    const HEADER_BYTES: u64 = HEADER as u64;
    let (mut at, mut rest) = (at, size as u64);
    loop {
        let left = BLOCK_BYTES - at % BLOCK_BYTES;
        if left < HEADER_BYTES {
            at += left;
            continue;
        }
        let part = rest.min(left - HEADER_BYTES);
        at += HEADER_BYTES + part;
        rest -= part;
        if rest == 0 {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that are written for `count` records of `size` bytes, each synced, and the length of the log.
    fn pages(size: usize, count: u64, fill: bool) -> (u64, u64) {
        let (mut at, mut pages) = (0, 0);
        for _ in 0..count {
            let data = if fill { filler(at, size).len() } else { 0 };
            let overhead = match data {
                0 => 0,
                1..128 => 2,
                _ => 3,
            };
            let end = end_of(at, size + data + overhead);
            pages += end.div_ceil(PAGE) - at / PAGE;
            at = end;
        }
        (pages, at)
    }

    #[test]
    fn a_record_costs_one_page_where_it_fits_into_one() {
        for size in [50, 200, 1200, 1300, 2400, 3900] {
            let (filled, length) = pages(size, 1000, true);
            assert!(filled <= 1002, "{size}: {filled} pages");
            let (plain, shortest) = pages(size, 1000, false);
            assert!(plain > filled, "{size}: {plain} pages without filling");
            assert!(length < 2 * shortest, "{size}: a log of {length} bytes");
        }
    }

    #[test]
    fn filling_costs_no_page() {
        for size in (1..20_000).step_by(61) {
            let ((filled, _), (plain, _)) = (pages(size, 300, true), pages(size, 300, false));
            assert!(filled <= plain + 2, "{size}: {filled} pages with filling, {plain} without");
        }
    }

    #[test]
    fn a_filled_page_ends_at_its_end() {
        for at in (0..3 * BLOCK as u64).step_by(13) {
            for size in [1, 70, 1200, 5000, 40_000] {
                let data = filler(at, size).len();
                if data > 0 {
                    let overhead = if data < 128 { 2 } else { 3 };
                    let end = end_of(at, size + data + overhead);
                    assert!(end.is_multiple_of(PAGE) || PAGE - end % PAGE == 1, "{at} {size}: {end}");
                }
            }
        }
    }
}
