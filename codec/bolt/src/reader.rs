//! [`BoltFile`]: reads buckets of a bbolt file, page by page, in constant memory but for one bit a page.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::{
    fnv, u16_at, u32_at, u64_at, BRANCH_ELEMENT, BRANCH_PAGE, BUCKET, BUCKET_LEAF, FREELIST_PAGE,
    LEAF_ELEMENT, LEAF_PAGE, MAGIC, META, META_PAGE, NO_FREELIST, PAGE_HEADER, VERSION,
};

/// Page sizes that are tried when the first meta page does not tell: those that bbolt tries.
const PAGE_SIZES: std::ops::RangeInclusive<u32> = 10..=16;
/// Deepest tree: with two children in each page, more pages than a file can have.
const MAX_DEPTH: usize = 64;
/// Largest page with those that it continues over, in bytes: a value of etcd has a few MiB at most.
const MAX_PAGE: u64 = 256 << 20;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum BoltError {
    /// The file system failed.
    #[error("reading {bytes} bytes at byte {at}: {source}")]
    Io {
        /// Bytes from the beginning of the file.
        at: u64,
        /// Number of bytes to be read.
        bytes: usize,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Neither meta page is valid.
    #[error("this is no file of bbolt, or both of its meta pages are damaged: {0}")]
    NoMeta(&'static str),
    /// A page is not what it must be.
    #[error("page {page} is damaged: {reason}")]
    Page {
        /// Counted from zero, the first meta page.
        page: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// There is no bucket of this name.
    #[error("there is no bucket {0:?}")]
    NoBucket(String),
}

/// Where a value lies in the file, to be read later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Byte of the file.
    pub at: u64,
    /// Length in bytes.
    pub length: u32,
}

/// An open file.
#[derive(Debug)]
pub struct BoltFile {
    file: File,
    page_size: u64,
    /// Pages in use are below this number.
    pages: u64,
    root: u64,
}

struct Meta {
    page_size: u32,
    root: u64,
    freelist: u64,
    pages: u64,
    transaction: u64,
}

/// A page with those that it continues over.
struct Page {
    number: u64,
    kind: u16,
    count: usize,
    bytes: Vec<u8>,
}

/// The bucket that a walk is in.
enum Root {
    Page(u64),
    /// A small bucket lies in the value of its parent's leaf: a page without a number, and where it begins.
    Inline(Page, u64),
}

/// Visits a key, its value, where the value lies, and whether it is a bucket.
type Visit<'v, E> = &'v mut dyn FnMut(&[u8], &[u8], Place, bool) -> Result<(), E>;

impl BoltFile {
    /// Opens a file of which the first `length` bytes are bbolt's.
    ///
    /// # Errors
    /// When no meta page is valid, the file is shorter than its meta page states, or the freelist is damaged.
    pub fn open(file: File, length: u64) -> Result<BoltFile, BoltError> {
        let meta = newest_meta(&file, length)?;
        let page_size = u64::from(meta.page_size);
        if meta.pages < 3 || meta.pages.checked_mul(page_size).is_none_or(|bytes| bytes > length) {
            return Err(BoltError::NoMeta("the file is shorter than its number of pages"));
        }
        let file = BoltFile { file, page_size, pages: meta.pages, root: meta.root };
        if meta.freelist != NO_FREELIST {
            file.check_freelist(meta.freelist)?;
        }
        Ok(file)
    }

    /// Visits the keys of a bucket in order.
    ///
    /// # Errors
    /// When a page is damaged, or with the first error of `visit`.
    pub fn bucket<E: From<BoltError>>(
        &self,
        name: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8], Place) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(root) = self.find_bucket(name)? else {
            return Err(BoltError::NoBucket(String::from_utf8_lossy(name).into_owned()).into());
        };
        let mut walk = Walk::new(self);
        walk.tree(root, &mut |key, value, place, is_bucket| match is_bucket {
            true => {
                Err(BoltError::Page { page: place.at / self.page_size, reason: "a bucket in a bucket" }
                    .into())
            }
            false => visit(key, value, place),
        })
    }

    /// Whether there is a bucket of this name.
    ///
    /// # Errors
    /// When a page is damaged.
    pub fn has_bucket(&self, name: &[u8]) -> Result<bool, BoltError> {
        Ok(self.find_bucket(name)?.is_some())
    }

    /// A value that was visited before.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn value(&self, place: Place) -> Result<Vec<u8>, BoltError> {
        self.read(place.at, place.length as usize)
    }

    fn find_bucket(&self, name: &[u8]) -> Result<Option<Root>, BoltError> {
        let mut found = None;
        let mut walk = Walk::new(self);
        walk.tree::<BoltError>(Root::Page(self.root), &mut |key, value, place, is_bucket| {
            if is_bucket && key == name {
                found = Some((value.to_vec(), place));
            }
            Ok(())
        })?;
        let Some((value, place)) = found else { return Ok(None) };
        let page = place.at / self.page_size;
        let damaged = |reason| BoltError::Page { page, reason };
        let root = u64_at(&value, 0).ok_or_else(|| damaged("a bucket's value is too short"))?;
        if root != 0 {
            return Ok(Some(Root::Page(root)));
        }
        let inline = value.get(BUCKET..).unwrap_or_default().to_vec();
        if inline.len() < PAGE_HEADER {
            return Err(damaged("a bucket's value is too short"));
        }
        let (kind, count) = (u16_at(&inline, 8).unwrap_or(0), u16_at(&inline, 10).unwrap_or(0));
        if kind != LEAF_PAGE {
            return Err(damaged("a bucket within its parent is no leaf"));
        }
        let inline = Page { number: page, kind, count: count.into(), bytes: inline };
        Ok(Some(Root::Inline(inline, place.at + BUCKET as u64)))
    }

    fn check_freelist(&self, number: u64) -> Result<(), BoltError> {
        let page = self.page(number)?;
        let damaged = |reason| BoltError::Page { page: number, reason };
        if page.kind != FREELIST_PAGE {
            return Err(damaged("it is not the freelist"));
        }
        // A count that does not fit 16 bits is the first number of the list.
        let (count, from) = match page.count {
            0xffff => (u64_at(&page.bytes, PAGE_HEADER).unwrap_or(u64::MAX), PAGE_HEADER + 8),
            count => (count as u64, PAGE_HEADER),
        };
        let has = (page.bytes.len().saturating_sub(from) / 8) as u64;
        if count > has || count > self.pages {
            return Err(damaged("the freelist is longer than its page"));
        }
        for at in (from..).step_by(8).take(count as usize) {
            if u64_at(&page.bytes, at).is_none_or(|free| free < 2 || free >= self.pages) {
                return Err(damaged("the freelist names a page that the file does not have"));
            }
        }
        Ok(())
    }

    fn read(&self, at: u64, bytes: usize) -> Result<Vec<u8>, BoltError> {
        let mut read = vec![0; bytes];
        self.file.read_exact_at(&mut read, at).map_err(|source| BoltError::Io { at, bytes, source })?;
        Ok(read)
    }

    /// Reads a page. Its header is checked: number, kind, and that it and its elements lie in the file.
    fn page(&self, number: u64) -> Result<Page, BoltError> {
        let damaged = |reason| BoltError::Page { page: number, reason };
        if number < 2 || number >= self.pages {
            return Err(damaged("the file does not have it"));
        }
        let at = number * self.page_size;
        let header = self.read(at, PAGE_HEADER)?;
        let id = u64_at(&header, 0).unwrap_or(0);
        let (kind, count) = (u16_at(&header, 8).unwrap_or(0), u16_at(&header, 10).unwrap_or(0));
        let overflow = u64::from(u32_at(&header, 12).unwrap_or(0));
        if id != number {
            return Err(damaged("it has the number of another page"));
        }
        if !matches!(kind, BRANCH_PAGE | LEAF_PAGE | FREELIST_PAGE) {
            return Err(damaged("it is of no known kind"));
        }
        if overflow >= self.pages - number {
            return Err(damaged("it continues behind the end of the file"));
        }
        let bytes = (overflow + 1) * self.page_size;
        if bytes > MAX_PAGE {
            return Err(damaged("it is too large"));
        }
        let bytes = self.read(at, bytes as usize)?;
        Ok(Page { number, kind, count: count.into(), bytes })
    }
}

fn newest_meta(file: &File, length: u64) -> Result<Meta, BoltError> {
    let read = |at: u64| {
        let mut bytes = [0; PAGE_HEADER + META];
        (at + bytes.len() as u64 <= length && file.read_exact_at(&mut bytes, at).is_ok()).then_some(bytes)
    };
    let first = read(0).ok_or(BoltError::NoMeta("the file is too short"))?;
    let parsed = parse_meta(&first);
    let sizes = match &parsed {
        Ok(meta) => vec![meta.page_size],
        Err(_) => PAGE_SIZES.map(|shift| 1 << shift).collect(),
    };
    let second = sizes.into_iter().find_map(|size| {
        let meta = parse_meta(&read(u64::from(size))?).ok()?;
        (meta.page_size == size).then_some(meta)
    });
    match (parsed, second) {
        (Ok(first), Some(second)) if second.transaction > first.transaction => Ok(second),
        (Ok(first), _) => Ok(first),
        (Err(_), Some(second)) => Ok(second),
        (Err(reason), None) => Err(BoltError::NoMeta(reason)),
    }
}

fn parse_meta(page: &[u8]) -> Result<Meta, &'static str> {
    let meta = page.get(PAGE_HEADER..PAGE_HEADER + META).ok_or("too short")?;
    let (short, long) = (|at| u32_at(meta, at).unwrap_or(0), |at| u64_at(meta, at).unwrap_or(0));
    if u16_at(page, 8) != Some(META_PAGE) || short(0) != MAGIC {
        return Err("the magic number does not match");
    }
    if short(4) != VERSION {
        return Err("it is of another version");
    }
    if long(56) != fnv(&meta[..56]) {
        return Err("the checksum of the meta page does not match");
    }
    let page_size = short(8);
    if !page_size.is_power_of_two() || !PAGE_SIZES.contains(&page_size.trailing_zeros()) {
        return Err("the page size is none");
    }
    Ok(Meta { page_size, root: long(16), freelist: long(32), pages: long(40), transaction: long(48) })
}

/// One walk over a tree. No page is visited twice: then the tree would have a loop, or two parents of a page.
struct Walk<'f> {
    file: &'f BoltFile,
    visited: Vec<u64>,
    /// The last key, since keys must rise.
    last: Option<Vec<u8>>,
}

impl Walk<'_> {
    fn new(file: &BoltFile) -> Walk<'_> {
        // Number of pages times page size is at most the length of the file.
        Walk { file, visited: vec![0; file.pages as usize / 64 + 1], last: None }
    }

    fn tree<E: From<BoltError>>(&mut self, root: Root, visit: Visit<'_, E>) -> Result<(), E> {
        match root {
            Root::Page(number) => self.page(number, 0, visit),
            Root::Inline(page, at) => self.leaf(&page, at, visit),
        }
    }

    fn page<E: From<BoltError>>(&mut self, number: u64, depth: usize, visit: Visit<'_, E>) -> Result<(), E> {
        let damaged = |reason| E::from(BoltError::Page { page: number, reason });
        if depth > MAX_DEPTH {
            return Err(damaged("the tree is too deep"));
        }
        let page = self.file.page(number)?;
        // With the pages that it continues over: what is read is no more than the file.
        let continued = page.bytes.len() as u64 / self.file.page_size;
        for number in number..number + continued {
            let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
            match self.visited.get_mut(word) {
                Some(seen) if *seen & bit == 0 => *seen |= bit,
                _ => return Err(damaged("the tree reaches it twice")),
            }
        }
        match page.kind {
            LEAF_PAGE => self.leaf(&page, number * self.file.page_size, visit),
            BRANCH_PAGE => {
                let children = branch(&page)?;
                // Those below may be as large.
                drop(page);
                for child in children {
                    self.page(child, depth + 1, visit)?;
                }
                Ok(())
            }
            _ => Err(damaged("it is no part of a tree")),
        }
    }

    fn leaf<E: From<BoltError>>(&mut self, page: &Page, at: u64, visit: Visit<'_, E>) -> Result<(), E> {
        let damaged = |reason| E::from(BoltError::Page { page: page.number, reason });
        let mut bytes = 0;
        for index in 0..page.count {
            let (flags, key, value, from) =
                leaf_element(page, index).ok_or_else(|| damaged("an element lies outside of it"))?;
            bytes += key.len() + value.len();
            if bytes > page.bytes.len() {
                return Err(damaged("its elements overlap"));
            }
            if self.last.as_deref().is_some_and(|last| last >= key) {
                return Err(damaged("its keys are not in order"));
            }
            match &mut self.last {
                Some(last) => {
                    last.clear();
                    last.extend_from_slice(key);
                }
                none => *none = Some(key.to_vec()),
            }
            // The length was read as 32 bits.
            let place = Place { at: at + from as u64, length: value.len() as u32 };
            visit(key, value, place, flags & BUCKET_LEAF != 0)?;
        }
        Ok(())
    }
}

/// The children of a branch page.
fn branch(page: &Page) -> Result<Vec<u64>, BoltError> {
    let damaged = |reason| BoltError::Page { page: page.number, reason };
    if page.count == 0 {
        return Err(damaged("it has no children"));
    }
    let mut children = Vec::with_capacity(page.count);
    for index in 0..page.count {
        let at = PAGE_HEADER + index * BRANCH_ELEMENT;
        let element = page.bytes.get(at..at + BRANCH_ELEMENT);
        let child = element.and_then(|element| {
            let (distance, length) = (u32_at(element, 0)? as usize, u32_at(element, 4)? as usize);
            page.bytes.get(at.checked_add(distance)?..)?.get(..length)?;
            u64_at(element, 8)
        });
        children.push(child.ok_or_else(|| damaged("an element lies outside of it"))?);
    }
    Ok(children)
}

/// Flags, key and value of an element, and where the value begins in the page.
fn leaf_element(page: &Page, index: usize) -> Option<(u32, &[u8], &[u8], usize)> {
    let at = PAGE_HEADER + index * LEAF_ELEMENT;
    let element = page.bytes.get(at..at + LEAF_ELEMENT)?;
    let flags = u32_at(element, 0)?;
    let [distance, key_length, value_length] =
        [u32_at(element, 4)?, u32_at(element, 8)?, u32_at(element, 12)?].map(|number| number as usize);
    let key_at = at.checked_add(distance)?;
    let value_at = key_at.checked_add(key_length)?;
    let key = page.bytes.get(key_at..value_at)?;
    let value = page.bytes.get(value_at..value_at.checked_add(value_length)?)?;
    Some((flags, key, value, value_at))
}
