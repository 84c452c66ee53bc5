//! Warnings and audit annotations that authenticators produce: before the request has an audit event or a
//! response.

/// A notice about a request's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An annotation of the audit event.
    Audit(&'static str, String),
    /// A warning to the client.
    Warning(&'static str),
}
