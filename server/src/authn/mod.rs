//! Who sends a request.
//!
//! Client certificates for now, checked once per connection; requests without one are anonymous.

mod x509;

use std::sync::Arc;

pub use x509::CertificateAuthenticator;

/// `user.Info` of k8s.io/apiserver: who a request is made as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Unique name.
    pub name: String,
    /// Groups, `system:authenticated` or `system:unauthenticated` included.
    pub groups: Vec<String>,
}

impl User {
    /// A request without credentials.
    pub fn anonymous() -> User {
        User { name: "system:anonymous".into(), groups: vec!["system:unauthenticated".into()] }
    }

    /// Whether the user is in that group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// What a connection's credentials turned out to be; shared by all its requests.
#[derive(Clone, Debug)]
pub enum Peer {
    /// No certificate was shown.
    Anonymous,
    /// A certificate of the client CA.
    Certificate(Arc<User>),
    /// A certificate that is not to be trusted: each request is answered 401.
    Refused,
}
