//! Metrics of authentication and authorization (k8s.io/apiserver `pkg/endpoints/filters/metrics.go`,
//! `pkg/authorization/metrics`, `pkg/authentication/request/x509`). Series that requests use are looked up
//! once; users are in few classes.

use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, Registry};

use super::families::{doubling_from_a_millisecond, Families};

/// Names that upstream counts as themselves, and the classes of all others.
const USERS: [&str; 7] = [
    "admin",
    "client",
    "kube_proxy",
    "kubelet",
    "system:serviceaccount:kube-system:default",
    "email_id",
    "other",
];
/// Upstream's bounds of the remaining validity of client certificates, in seconds.
const VALIDITY: &[f64] = &[
    0.0,
    1_800.0,
    3_600.0,
    7_200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

/// The result of an authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Authentication<'a> {
    /// The user of this name.
    Success(&'a str),
    /// No credentials.
    Failure,
    /// Credentials that are invalid or could not be checked.
    Error,
}

/// The result of an authorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Authorization {
    Allowed,
    Denied,
    NoOpinion,
    Error,
}

/// Attempts with one result.
struct Attempts {
    count: IntCounter,
    duration: Histogram,
}

impl Attempts {
    fn of(result: &str, counts: &IntCounterVec, durations: &HistogramVec) -> Attempts {
        Attempts {
            count: counts.with_label_values(&[result]),
            duration: durations.with_label_values(&[result]),
        }
    }

    fn observe(&self, took: Duration) {
        self.count.inc();
        self.duration.observe(took.as_secs_f64());
    }
}

/// The families, and the series that requests use.
pub struct IdentityMetrics {
    users: [IntCounter; USERS.len()],
    /// Success, failure, error.
    authentications: [Attempts; 3],
    /// Allowed, denied, no opinion, error.
    authorizations: [Attempts; 4],
    decisions: IntCounterVec,
    certificate_validity: Histogram,
}

impl IdentityMetrics {
    pub(super) fn new(registry: &Registry) -> Result<IdentityMetrics, prometheus::Error> {
        let families = Families(registry);
        let result = ["result"];
        let users = families.counters(
            "authenticated_user_requests",
            "Authenticated requests by class of user.",
            &["username"],
        )?;
        let attempts = families.counters("authentication_attempts", "Authentications by result.", &result)?;
        let took = families.histograms(
            "authentication_duration_seconds",
            "Duration of authentications in seconds by result.",
            &result,
            &doubling_from_a_millisecond(),
        )?;
        let authentications =
            ["success", "failure", "error"].map(|result| Attempts::of(result, &attempts, &took));
        let attempts =
            families.counters("authorization_attempts_total", "Authorizations by result.", &result)?;
        let took = families.histograms(
            "authorization_duration_seconds",
            "Duration of authorizations in seconds by result.",
            &result,
            &doubling_from_a_millisecond(),
        )?;
        let authorizations =
            ["allowed", "denied", "no-opinion", "error"].map(|result| Attempts::of(result, &attempts, &took));
        Ok(IdentityMetrics {
            users: USERS.map(|name| users.with_label_values(&[name])),
            authentications,
            authorizations,
            decisions: families.counters(
                "apiserver_authorization_decisions_total",
                "Decisions that ended the chain of authorizers, by type and name of the authorizer.",
                &["type", "name", "decision"],
            )?,
            certificate_validity: families.histogram(
                "apiserver_client_certificate_expiration_seconds",
                "Remaining validity of the certificates of requests in seconds.",
                VALIDITY,
            )?,
        })
    }

    /// Counts an authentication and the class of its user.
    pub(crate) fn authenticated(&self, outcome: Authentication<'_>, took: Duration) {
        let [success, failure, error] = &self.authentications;
        match outcome {
            Authentication::Success(name) => {
                let [.., email, other] = &self.users;
                let known = USERS[..USERS.len() - 2].iter().position(|user| *user == name);
                match known.and_then(|place| self.users.get(place)) {
                    Some(user) => user.inc(),
                    None if name.contains('@') => email.inc(),
                    None => other.inc(),
                }
                success.observe(took);
            }
            Authentication::Failure => failure.observe(took),
            Authentication::Error => error.observe(took),
        }
    }

    /// Counts the authorization of a request.
    pub(crate) fn authorized(&self, result: Authorization, took: Duration) {
        let [allowed, denied, no_opinion, error] = &self.authorizations;
        let attempts = match result {
            Authorization::Allowed => allowed,
            Authorization::Denied => denied,
            Authorization::NoOpinion => no_opinion,
            Authorization::Error => error,
        };
        attempts.observe(took);
    }

    /// The decisions of an authorizer: those that allow, and those that deny.
    pub(crate) fn decisions_of(&self, kind: &str, name: &str) -> [IntCounter; 2] {
        ["allowed", "denied"].map(|decision| self.decisions.with_label_values(&[kind, name, decision]))
    }

    /// Observes how long the certificate of a request is still valid.
    pub(crate) fn certificate_valid_for(&self, remaining: Duration) {
        self.certificate_validity.observe(remaining.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_counted_in_few_classes() {
        let registry = Registry::new();
        let metrics = IdentityMetrics::new(&registry).unwrap();
        for name in ["admin", "me@example.com", "system:node:a", "anything", "kubelet"] {
            metrics.authenticated(Authentication::Success(name), Duration::ZERO);
        }
        metrics.authenticated(Authentication::Failure, Duration::ZERO);
        metrics.authenticated(Authentication::Error, Duration::ZERO);
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            "authenticated_user_requests{username=\"admin\"} 1",
            "authenticated_user_requests{username=\"email_id\"} 1",
            "authenticated_user_requests{username=\"kubelet\"} 1",
            "authenticated_user_requests{username=\"other\"} 2",
            "authentication_attempts{result=\"success\"} 5",
            "authentication_attempts{result=\"failure\"} 1",
            "authentication_attempts{result=\"error\"} 1",
            "authentication_duration_seconds_bucket{result=\"success\",le=\"16.384\"} 5",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }
}
