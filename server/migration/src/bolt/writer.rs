//! [`BoltWriter`]: writes a bbolt file from keys in order, in one pass, without a freelist.

use std::io::{self, Seek, SeekFrom, Write};

use super::{
    fnv, BRANCH_ELEMENT, BRANCH_PAGE, BUCKET_LEAF, LEAF_ELEMENT, LEAF_PAGE, MAGIC, META_PAGE, NO_FREELIST,
    PAGE_HEADER, VERSION,
};

/// The page size of the files: that of most machines. A reader takes it from the meta page.
const PAGE_SIZE: usize = 4096;
/// A page is filled up to half: bbolt's own fill percent, which leaves room for what is written later.
const FILLED: usize = PAGE_SIZE / 2;

/// An unfinished file. Pages are appended; [`BoltWriter::finish`] writes the two meta pages.
pub struct BoltWriter<W> {
    out: W,
    next: u64,
    /// Names and root pages.
    buckets: Vec<(Vec<u8>, u64)>,
}

/// A bucket that is being written; keys must rise.
pub struct BucketWriter<'w, W> {
    writer: &'w mut BoltWriter<W>,
    name: Vec<u8>,
    leaf: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
    /// First key and page of each finished leaf.
    leaves: Vec<(Vec<u8>, u64)>,
}

impl<W: Write + Seek> BoltWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Errors of the write.
    pub fn new(mut out: W) -> io::Result<BoltWriter<W>> {
        out.write_all(&[0; 2 * PAGE_SIZE])?;
        Ok(BoltWriter { out, next: 2, buckets: Vec::new() })
    }

    /// Begins a bucket.
    pub fn bucket(&mut self, name: &[u8]) -> BucketWriter<'_, W> {
        let (name, leaf, leaves) = (name.to_vec(), Vec::new(), Vec::new());
        BucketWriter { writer: self, name, leaf, bytes: PAGE_HEADER, leaves }
    }

    /// Writes the root and the meta pages. What was written is not flushed.
    ///
    /// # Errors
    /// Errors of the write.
    pub fn finish(mut self) -> io::Result<W> {
        let mut buckets = std::mem::take(&mut self.buckets);
        buckets.sort();
        let elements: Vec<(Vec<u8>, Vec<u8>)> =
            buckets.into_iter().map(|(name, root)| (name, [root.to_le_bytes(), [0; 8]].concat())).collect();
        let root = self.leaf(&elements, BUCKET_LEAF)?;
        for number in 0..2u64 {
            self.out.seek(SeekFrom::Start(number * PAGE_SIZE as u64))?;
            let mut page = header(number, META_PAGE, 0, 0);
            let mut meta = Vec::new();
            for short in [MAGIC, VERSION, PAGE_SIZE as u32, 0] {
                meta.extend_from_slice(&short.to_le_bytes());
            }
            // The second has the higher transaction number, as after a first commit.
            for long in [root, 0, NO_FREELIST, self.next, number + 1] {
                meta.extend_from_slice(&long.to_le_bytes());
            }
            page.extend_from_slice(&meta);
            page.extend_from_slice(&fnv(&meta).to_le_bytes());
            page.resize(PAGE_SIZE, 0);
            self.out.write_all(&page)?;
        }
        self.out.seek(SeekFrom::End(0))?;
        Ok(self.out)
    }

    fn leaf(&mut self, elements: &[(Vec<u8>, Vec<u8>)], flags: u32) -> io::Result<u64> {
        let mut page = Vec::new();
        let mut data = Vec::new();
        for (index, (key, value)) in elements.iter().enumerate() {
            let distance = (elements.len() - index) * LEAF_ELEMENT + data.len();
            for number in [flags, narrow(distance)?, narrow(key.len())?, narrow(value.len())?] {
                page.extend_from_slice(&number.to_le_bytes());
            }
            data.extend_from_slice(key);
            data.extend_from_slice(value);
        }
        page.append(&mut data);
        self.page(LEAF_PAGE, elements.len(), &page)
    }

    fn branch(&mut self, children: &[(Vec<u8>, u64)]) -> io::Result<u64> {
        let mut page = Vec::new();
        let mut data = Vec::new();
        for (index, (key, child)) in children.iter().enumerate() {
            let distance = (children.len() - index) * BRANCH_ELEMENT + data.len();
            page.extend_from_slice(&narrow(distance)?.to_le_bytes());
            page.extend_from_slice(&narrow(key.len())?.to_le_bytes());
            page.extend_from_slice(&child.to_le_bytes());
            data.extend_from_slice(key);
        }
        page.append(&mut data);
        self.page(BRANCH_PAGE, children.len(), &page)
    }

    /// Appends a page, and those that it continues over.
    fn page(&mut self, kind: u16, count: usize, body: &[u8]) -> io::Result<u64> {
        let count = u16::try_from(count).map_err(|_| io::Error::other("too many elements in a page"))?;
        let pages = (PAGE_HEADER + body.len()).div_ceil(PAGE_SIZE);
        let number = self.next;
        let mut page = header(number, kind, count, narrow(pages - 1)?);
        page.extend_from_slice(body);
        page.resize(pages * PAGE_SIZE, 0);
        self.out.write_all(&page)?;
        self.next += pages as u64;
        Ok(number)
    }
}

impl<W: Write + Seek> BucketWriter<'_, W> {
    /// Appends a key, which is greater than all before it.
    ///
    /// # Errors
    /// Errors of the write.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> io::Result<()> {
        let size = LEAF_ELEMENT + key.len() + value.len();
        if !self.leaf.is_empty() && self.bytes + size > FILLED {
            self.end_leaf()?;
        }
        self.bytes += size;
        self.leaf.push((key, value));
        Ok(())
    }

    /// Ends the bucket.
    ///
    /// # Errors
    /// Errors of the write.
    pub fn finish(mut self) -> io::Result<()> {
        if !self.leaf.is_empty() || self.leaves.is_empty() {
            self.end_leaf()?;
        }
        let mut level = std::mem::take(&mut self.leaves);
        while level.len() > 1 {
            level = self.branches(&level)?;
        }
        let root = level.first().map_or(0, |(_, page)| *page);
        self.writer.buckets.push((self.name, root));
        Ok(())
    }

    fn end_leaf(&mut self) -> io::Result<()> {
        let elements = std::mem::take(&mut self.leaf);
        self.bytes = PAGE_HEADER;
        let page = self.writer.leaf(&elements, 0)?;
        let first = elements.into_iter().next().map(|(key, _)| key).unwrap_or_default();
        self.leaves.push((first, page));
        Ok(())
    }

    /// The branch pages over a level of pages; at least two children each, so that levels become shorter.
    fn branches(&mut self, level: &[(Vec<u8>, u64)]) -> io::Result<Vec<(Vec<u8>, u64)>> {
        let mut above = Vec::new();
        let mut rest = level;
        while !rest.is_empty() {
            let mut bytes = PAGE_HEADER;
            let mut taken = 0;
            for (key, _) in rest {
                bytes += BRANCH_ELEMENT + key.len();
                if taken >= 2 && bytes > PAGE_SIZE {
                    break;
                }
                taken += 1;
            }
            // One that is left over would be a branch with a single child.
            if rest.len() - taken == 1 {
                taken = if taken > 2 { taken - 1 } else { taken + 1 };
            }
            let (children, behind) = rest.split_at(taken);
            let first = children.first().map(|(key, _)| key.clone()).unwrap_or_default();
            above.push((first, self.writer.branch(children)?));
            rest = behind;
        }
        Ok(above)
    }
}

fn header(number: u64, kind: u16, count: u16, overflow: u32) -> Vec<u8> {
    let mut page = Vec::with_capacity(PAGE_SIZE);
    page.extend_from_slice(&number.to_le_bytes());
    page.extend_from_slice(&kind.to_le_bytes());
    page.extend_from_slice(&count.to_le_bytes());
    page.extend_from_slice(&overflow.to_le_bytes());
    page
}

fn narrow(number: usize) -> io::Result<u32> {
    u32::try_from(number).map_err(|_| io::Error::other("a page larger than bbolt's"))
}
