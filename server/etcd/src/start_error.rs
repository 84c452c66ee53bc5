//! [`StartError`]: why a server did not start.

/// The server did not start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum StartError {
    /// A flag has no meaning.
    #[error("{flag}: {reason}")]
    Flag { flag: &'static str, reason: String },
    /// The store cannot be opened.
    #[error("cannot open the store: {0}")]
    Engine(#[from] plinth_engine::Error),
    /// A certificate or key cannot be used.
    #[error("{file}: {reason}")]
    Certificate { file: String, reason: String },
    /// An address cannot be listened on.
    #[error("cannot listen on {url}: {source}")]
    Bind { url: String, source: std::io::Error },
}
