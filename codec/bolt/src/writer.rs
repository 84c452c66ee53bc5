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

/// An unfinished file. Pages are appended; the two meta pages at its beginning name the last one.
///
/// Where the place of the file can be sought, [`BoltWriter::finish`] writes them at the end. Else it is
/// written twice: the first time to nowhere, for its [`Layout`], then with that to its place.
pub struct BoltWriter<W> {
    out: W,
    next: u64,
    /// Names and root pages.
    buckets: Vec<(Vec<u8>, u64)>,
}

/// What the meta pages of a file have to name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    root: u64,
    pages: u64,
}

impl Layout {
    /// Length of the file in bytes.
    pub fn bytes(self) -> u64 {
        self.pages * PAGE_SIZE as u64
    }
}

/// A bucket that is being written; keys must rise. Memory is that of some pages for each level of its tree.
pub struct BucketWriter<'w, W> {
    writer: &'w mut BoltWriter<W>,
    name: Vec<u8>,
    leaf: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
    /// From the leaves up, first key and number of each page that has no branch over it.
    levels: Vec<Level>,
}

#[derive(Default)]
struct Level {
    pages: Vec<(Vec<u8>, u64)>,
    /// Bytes of a branch over all of them.
    bytes: usize,
}

impl<W: Write + Seek> BoltWriter<W> {
    /// Writes the root and the meta pages. What was written is not flushed.
    ///
    /// # Errors
    /// Errors of the write.
    pub fn finish(mut self) -> io::Result<W> {
        let root = self.root()?;
        let layout = Layout { root, pages: self.next };
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&meta_pages(layout))?;
        self.out.seek(SeekFrom::End(0))?;
        Ok(self.out)
    }
}

impl<W: Write> BoltWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Errors of the write.
    pub fn new(mut out: W) -> io::Result<BoltWriter<W>> {
        out.write_all(&[0; 2 * PAGE_SIZE])?;
        Ok(BoltWriter { out, next: 2, buckets: Vec::new() })
    }

    /// Begins a file whose layout is known: the same has to be written again.
    ///
    /// # Errors
    /// Errors of the write.
    pub fn with_layout(mut out: W, layout: Layout) -> io::Result<BoltWriter<W>> {
        out.write_all(&meta_pages(layout))?;
        Ok(BoltWriter { out, next: 2, buckets: Vec::new() })
    }

    /// Writes the root, and returns the layout of what was written.
    ///
    /// # Errors
    /// Errors of the write.
    pub fn finish_layout(mut self) -> io::Result<(W, Layout)> {
        let root = self.root()?;
        Ok((self.out, Layout { root, pages: self.next }))
    }

    /// Begins a bucket.
    pub fn bucket(&mut self, name: &[u8]) -> BucketWriter<'_, W> {
        let (name, leaf, levels) = (name.to_vec(), Vec::new(), Vec::new());
        BucketWriter { writer: self, name, leaf, bytes: PAGE_HEADER, levels }
    }

    /// Writes the page with the buckets, and returns its number.
    fn root(&mut self) -> io::Result<u64> {
        let mut buckets = std::mem::take(&mut self.buckets);
        buckets.sort();
        let elements: Vec<(Vec<u8>, Vec<u8>)> =
            buckets.into_iter().map(|(name, root)| (name, [root.to_le_bytes(), [0; 8]].concat())).collect();
        self.leaf(&elements, BUCKET_LEAF)
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

impl<W: Write> BucketWriter<'_, W> {
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
        if !self.leaf.is_empty() || self.levels.is_empty() {
            self.end_leaf()?;
        }
        let mut at = 0;
        while at + 1 < self.levels.len() || self.levels.last().is_some_and(|level| level.pages.len() > 1) {
            while self.levels.get(at).is_some_and(|level| !level.pages.is_empty()) {
                self.end_branch(at)?;
            }
            at += 1;
        }
        let root = self.levels.last().and_then(|level| level.pages.first()).map_or(0, |(_, page)| *page);
        self.writer.buckets.push((self.name, root));
        Ok(())
    }

    fn end_leaf(&mut self) -> io::Result<()> {
        let elements = std::mem::take(&mut self.leaf);
        self.bytes = PAGE_HEADER;
        let page = self.writer.leaf(&elements, 0)?;
        let first = elements.into_iter().next().map(|(key, _)| key).unwrap_or_default();
        self.add(0, first, page)
    }

    /// Adds a page to a level, and writes branches over those before it that fill one.
    fn add(&mut self, at: usize, first: Vec<u8>, page: u64) -> io::Result<()> {
        if self.levels.len() <= at {
            self.levels.push(Level::default());
        }
        let Some(level) = self.levels.get_mut(at) else { return Ok(()) };
        level.bytes += BRANCH_ELEMENT + first.len();
        level.pages.push((first, page));
        // What is left is enough for another branch.
        if level.bytes > 2 * PAGE_SIZE && level.pages.len() >= 5 {
            self.end_branch(at)?;
        }
        Ok(())
    }

    /// Writes a branch over the first pages of a level: over at least two, so that levels become shorter, and
    /// never over all but one.
    fn end_branch(&mut self, at: usize) -> io::Result<()> {
        let Some(level) = self.levels.get_mut(at) else { return Ok(()) };
        let (mut bytes, mut taken) = (PAGE_HEADER, 0);
        for (key, _) in &level.pages {
            bytes += BRANCH_ELEMENT + key.len();
            if taken >= 2 && bytes > PAGE_SIZE {
                break;
            }
            taken += 1;
        }
        if level.pages.len() - taken == 1 {
            taken = if taken > 2 { taken - 1 } else { taken + 1 };
        }
        let children: Vec<_> = level.pages.drain(..taken).collect();
        level.bytes -= children.iter().map(|(key, _)| BRANCH_ELEMENT + key.len()).sum::<usize>();
        let page = self.writer.branch(&children)?;
        let first = children.into_iter().next().map(|(key, _)| key).unwrap_or_default();
        self.add(at + 1, first, page)
    }
}

/// Both meta pages.
fn meta_pages(layout: Layout) -> Vec<u8> {
    let mut pages = Vec::with_capacity(2 * PAGE_SIZE);
    for number in 0..2u64 {
        pages.extend_from_slice(&header(number, META_PAGE, 0, 0));
        let mut meta = Vec::new();
        for short in [MAGIC, VERSION, PAGE_SIZE as u32, 0] {
            meta.extend_from_slice(&short.to_le_bytes());
        }
        // The second has the higher transaction number, as after a first commit.
        for long in [layout.root, 0, NO_FREELIST, layout.pages, number + 1] {
            meta.extend_from_slice(&long.to_le_bytes());
        }
        pages.extend_from_slice(&meta);
        pages.extend_from_slice(&fnv(&meta).to_le_bytes());
        pages.resize((usize::from(number == 1) + 1) * PAGE_SIZE, 0);
    }
    pages
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
