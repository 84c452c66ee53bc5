//! Reads numbers of the store by name: one, or pages of those whose names begin alike.

use bytes::Bytes;
use plinth_engine::{Engine, Error};

/// Numbers of a page.
pub(crate) const PAGE: usize = 1024;

/// The number of a name. Reads from disk.
pub(crate) fn number(engine: &Engine, name: &str) -> Result<Option<u64>, Error> {
    let found = engine.numbers(name.as_bytes(), name.as_bytes(), 1)?;
    Ok(found.first().filter(|(found, _)| found == name.as_bytes()).map(|(_, number)| *number))
}

/// The numbers whose names begin with `prefix`, by name, in pages of `limit`; the last one has fewer, or
/// none. Reads from disk. An error ends them.
pub(crate) fn pages<'e>(
    engine: &'e Engine,
    prefix: &'e [u8],
    limit: usize,
) -> impl Iterator<Item = Result<Vec<(Bytes, u64)>, Error>> + 'e {
    let mut from = Some(prefix.to_vec());
    std::iter::from_fn(move || {
        let page = engine.numbers(prefix, &from.take()?, limit);
        let last = page.as_ref().ok().filter(|page| page.len() == limit).and_then(|page| page.last());
        // The first name after that.
        from = last.map(|(name, _)| [name.as_ref(), b"\0"].concat());
        Some(page)
    })
}
