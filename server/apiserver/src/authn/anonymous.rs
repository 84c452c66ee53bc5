//! Anonymous requests (k8s.io/apiserver `pkg/authentication/request/anonymous`).

use std::sync::Arc;

use plinth_api::User;

/// Whether, and on which paths, anonymous requests are served. Immutable.
#[derive(Clone, Debug)]
pub struct Anonymous {
    user: Option<Arc<User>>,
    /// The allowed paths, compared exactly; all when empty.
    paths: Vec<String>,
}

impl Anonymous {
    /// On all paths or on none.
    pub fn new(enabled: bool) -> Anonymous {
        Anonymous { user: enabled.then(|| Arc::new(User::anonymous())), paths: Vec::new() }
    }

    /// On these paths only; on all when empty.
    pub(crate) fn only_at(mut self, paths: Vec<String>) -> Anonymous {
        self.paths = paths;
        self
    }

    /// The anonymous user, if it is served on this path.
    pub fn authenticate(&self, path: &str) -> Option<Arc<User>> {
        let served = self.paths.is_empty() || self.paths.iter().any(|p| p == path);
        self.user.clone().filter(|_| served)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_anonymous_requests_are_served() {
        let only = |paths: &[&str]| paths.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>();
        let rows = [
            (true, only(&[]), "/api", true),
            (false, only(&[]), "/livez", false),
            (true, only(&["/livez"]), "/livez", true),
            (true, only(&["/livez"]), "/livez/ping", false),
            (true, only(&["/livez"]), "/api", false),
        ];
        for (enabled, paths, path, served) in rows {
            let anonymous = Anonymous::new(enabled).only_at(paths);
            assert_eq!(anonymous.authenticate(path).is_some(), served, "{path}");
        }
    }
}
