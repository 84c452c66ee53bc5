//! `plinth bench`: the benchmarks, and the journal that one of them measures.

use std::sync::Arc;

use plinth_benches::journal;
use plinth_benches::{run, Error, Options};
use plinth_journal::record::ClusterId;
use plinth_journal::{Founding, Journal};

use crate::replica::journal::JournalOptions;

/// The cluster of a journal that is measured: that of none.
const MEASURED: ClusterId = ClusterId(*b"measured journal");

/// Runs a benchmark.
///
/// # Errors
/// See [`Error`].
pub(super) fn bench(options: Options) -> Result<(), Error> {
    run(options, &connect)
}

/// A journal that is empty, or was measured before: that of a cluster is refused.
fn connect(options: &journal::Options) -> Result<Arc<dyn Journal>, Box<dyn std::error::Error + Send + Sync>> {
    let (journal, journal_config) = (Some(options.journal.clone()), options.journal_config.clone());
    let connector = JournalOptions { journal, journal_config }.connector()?;
    let connect = connector.ok_or("--journal names no journal")?;
    Ok(connect(MEASURED, Founding::Allowed)?)
}
