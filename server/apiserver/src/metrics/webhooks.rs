//! Calls of webhooks that authorize requests (k8s.io/apiserver `plugin/pkg/authorizer/webhook/metrics`) and
//! of those that convert objects (k8s.io/apiextensions-apiserver `pkg/apiserver/conversion/metrics.go`).
//! Names are those of the configuration of authorization, and of definitions, which only who may create them
//! chooses.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec, Registry};

use super::families::{doubling_from_a_millisecond, Families};

/// Upstream's bounds of calls that convert, in seconds.
const CONVERSIONS: &[f64] =
    &[0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];

/// How a call of a webhook that authorizes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthorizationCall {
    Success,
    Timeout,
    /// It could not be called, or its answer not be read.
    Error,
}

impl AuthorizationCall {
    fn result(self) -> &'static str {
        match self {
            AuthorizationCall::Success => "success",
            AuthorizationCall::Timeout => "timeout",
            AuthorizationCall::Error => "error",
        }
    }
}

/// Calls of webhooks that authorize, by the name that their configuration has.
pub struct AuthorizationWebhookMetrics {
    evaluations: IntCounterVec,
    durations: HistogramVec,
    failed_open: IntCounterVec,
}

impl AuthorizationWebhookMetrics {
    pub(super) fn new(registry: &Registry) -> Result<AuthorizationWebhookMetrics, prometheus::Error> {
        let (families, labels) = (Families(registry), ["name", "result"]);
        Ok(AuthorizationWebhookMetrics {
            evaluations: families.counters(
                "apiserver_authorization_webhook_evaluations_total",
                "Calls of authorization webhooks, each attempt.",
                &labels,
            )?,
            durations: families.histograms(
                "apiserver_authorization_webhook_duration_seconds",
                "Duration of calls of authorization webhooks in seconds, each attempt.",
                &labels,
                prometheus::DEFAULT_BUCKETS,
            )?,
            failed_open: families.counters(
                "apiserver_authorization_webhook_evaluations_fail_open_total",
                "Failures of authorization webhooks that left the decision to the next authorizer.",
                &labels,
            )?,
        })
    }

    /// An attempt has ended.
    pub(crate) fn called(&self, name: &str, call: AuthorizationCall, took: Duration) {
        let labels = [name, call.result()];
        self.evaluations.with_label_values(&labels).inc();
        self.durations.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// The last attempt has failed, and the next authorizer decides.
    pub(crate) fn failed_open(&self, name: &str, call: AuthorizationCall) {
        self.failed_open.with_label_values(&[name, call.result()]).inc();
    }
}

/// Why objects could not be converted by a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConversionFailure {
    Call,
    /// The answer is none to the question.
    MalformedResponse,
    /// It has fewer or more objects.
    PartialResponse,
    /// One of its objects is not that of the question.
    InvalidObject,
}

impl ConversionFailure {
    fn name(self) -> &'static str {
        match self {
            ConversionFailure::Call => "conversion_webhook_call_failure",
            ConversionFailure::MalformedResponse => "conversion_webhook_malformed_response_failure",
            ConversionFailure::PartialResponse => "conversion_webhook_partial_response_failure",
            ConversionFailure::InvalidObject => "conversion_webhook_invalid_converted_object_failure",
        }
    }
}

/// Conversions by webhooks.
pub struct ConversionMetrics {
    calls: IntCounterVec,
    durations: HistogramVec,
    definitions: HistogramVec,
}

impl ConversionMetrics {
    pub(super) fn new(registry: &Registry) -> Result<ConversionMetrics, prometheus::Error> {
        let (families, labels) = (Families(registry), ["result", "failure_type"]);
        Ok(ConversionMetrics {
            calls: families.counters(
                "apiserver_conversion_webhook_request_total",
                "Calls of conversion webhooks.",
                &labels,
            )?,
            durations: families.histograms(
                "apiserver_conversion_webhook_duration_seconds",
                "Duration of calls of conversion webhooks in seconds.",
                &labels,
                CONVERSIONS,
            )?,
            definitions: families.histograms(
                "apiserver_crd_conversion_webhook_duration_seconds",
                "Duration of conversions by webhooks in seconds, by definition.",
                &["crd_name", "from_version", "to_version", "succeeded"],
                &doubling_from_a_millisecond(),
            )?,
        })
    }

    /// A call has ended.
    pub(crate) fn called(&self, failure: Option<ConversionFailure>, took: Duration) {
        let result = if failure.is_none() { "success" } else { "failure" };
        let labels = [result, failure.map_or("", ConversionFailure::name)];
        self.calls.with_label_values(&labels).inc();
        self.durations.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Objects of a definition were converted from one of its versions to another, or could not be.
    pub(crate) fn converted(&self, definition: &str, versions: [&str; 2], succeeded: bool, took: Duration) {
        let [from, to] = versions;
        let succeeded = if succeeded { "true" } else { "false" };
        self.definitions.with_label_values(&[definition, from, to, succeeded]).observe(took.as_secs_f64());
    }
}
