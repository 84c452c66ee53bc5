//! Metrics of admission (k8s.io/apiserver `pkg/admission/metrics`, `pkg/admission/plugin/policy/*/metrics`).
//! Names of webhooks and policies are those of objects, which only who may create them chooses.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounterVec, Registry};

use super::families::Families;

/// Upstream's buckets of steps and plugins, in seconds.
const DURATIONS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
/// Of webhooks.
const WEBHOOK_DURATIONS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// Of policies.
const POLICY_DURATIONS: &[f64] = &[0.000_000_5, 0.001, 0.01, 0.1, 1.0];

/// `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The object may be changed.
    Mutating,
    /// The object may be refused.
    Validating,
}

impl Stage {
    /// `type` of steps and plugins.
    fn of_plugin(self) -> &'static str {
        match self {
            Stage::Mutating => "admit",
            Stage::Validating => "validate",
        }
    }

    /// `type` of webhooks.
    fn of_webhook(self) -> &'static str {
        match self {
            Stage::Mutating => "admit",
            Stage::Validating => "validating",
        }
    }
}

/// Stage, operation in the words of `AdmissionReview`, and whether the request was refused.
pub type AdmissionCall<'a> = (Stage, &'a str, bool);

/// The durations of one plugin, or of a whole step, by stage, operation and outcome. Looked up once each.
#[derive(Debug, Default)]
pub struct AdmissionSeries([OnceLock<Histogram>; 16]);

impl AdmissionSeries {
    fn observe(
        &self,
        (stage, operation, rejected): AdmissionCall<'_>,
        took: Duration,
        find: impl FnOnce(&[&str; 3]) -> Histogram,
    ) {
        let place = match operation {
            "CREATE" => 0,
            "UPDATE" => 1,
            "DELETE" => 2,
            _ => 3,
        };
        let place = (stage as usize) << 3 | place << 1 | usize::from(rejected);
        let Some(slot) = self.0.get(place) else { return };
        let labels = [stage.of_plugin(), operation, if rejected { "true" } else { "false" }];
        slot.get_or_init(|| find(&labels)).observe(took.as_secs_f64());
    }
}

/// How the call of a webhook ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookOutcome {
    /// The webhook allowed the request.
    Allowed,
    /// The webhook denied the request, with this code.
    Denied(u16),
    /// The webhook could not be called, or its answer not be read, and the request was refused.
    CallFailed,
    /// The same, and the failure was ignored.
    FailedOpen,
}

/// Durations and rejections of plugins, webhooks and policies.
pub struct AdmissionMetrics {
    steps: HistogramVec,
    step_series: AdmissionSeries,
    controllers: HistogramVec,
    webhooks: HistogramVec,
    webhook_requests: IntCounterVec,
    webhook_rejections: IntCounterVec,
    webhook_fail_open: IntCounterVec,
    validating_policies: (IntCounterVec, HistogramVec),
    mutating_policies: (IntCounterVec, HistogramVec),
}

impl AdmissionMetrics {
    pub(super) fn new(registry: &Registry) -> Result<AdmissionMetrics, prometheus::Error> {
        let families = Families(registry);
        let name = |name: &str| format!("apiserver_admission_{name}");
        let of_step = ["type", "operation", "rejected"];
        let named = ["name", "type", "operation", "rejected"];
        let policies = |prefix: &str, labels: &[&str]| {
            let name = |end: &str| format!("apiserver_{prefix}_admission_policy_check_{end}");
            Ok::<_, prometheus::Error>((
                families.counters(&name("total"), "Evaluations of policies.", labels)?,
                families.histograms(
                    &name("duration_seconds"),
                    "Duration of evaluations of policies in seconds.",
                    labels,
                    POLICY_DURATIONS,
                )?,
            ))
        };
        Ok(AdmissionMetrics {
            steps: families.histograms(
                &name("step_admission_duration_seconds"),
                "Duration of a step of admission (admit, validate) in seconds.",
                &of_step,
                DURATIONS,
            )?,
            step_series: AdmissionSeries::default(),
            controllers: families.histograms(
                &name("controller_admission_duration_seconds"),
                "Duration of an admission plugin in seconds.",
                &named,
                DURATIONS,
            )?,
            webhooks: families.histograms(
                &name("webhook_admission_duration_seconds"),
                "Duration of an admission webhook in seconds.",
                &named,
                WEBHOOK_DURATIONS,
            )?,
            webhook_requests: families.counters(
                &name("webhook_request_total"),
                "Requests to admission webhooks.",
                &["name", "type", "operation", "code", "rejected"],
            )?,
            webhook_rejections: families.counters(
                &name("webhook_rejection_count"),
                "Requests that admission webhooks refused, or that were refused as they failed.",
                &["name", "type", "operation", "error_type", "rejection_code"],
            )?,
            webhook_fail_open: families.counters(
                &name("webhook_fail_open_count"),
                "Failures of admission webhooks that were ignored.",
                &["name", "type"],
            )?,
            validating_policies: policies(
                "validating",
                &["policy", "policy_binding", "error_type", "enforcement_action"],
            )?,
            mutating_policies: policies("mutating", &["policy", "policy_binding", "error_type"])?,
        })
    }

    /// Observes a step: all plugins of a stage.
    pub fn step(&self, what: AdmissionCall<'_>, took: Duration) {
        self.step_series.observe(what, took, |labels| self.steps.with_label_values(labels));
    }

    /// Observes one plugin.
    pub fn plugin(&self, name: &str, series: &AdmissionSeries, what: AdmissionCall<'_>, took: Duration) {
        series.observe(what, took, |[stage, operation, rejected]| {
            self.controllers.with_label_values(&[name, stage, operation, rejected])
        });
    }

    /// Observes a call of a webhook.
    pub fn webhook(
        &self,
        name: &str,
        (stage, operation): (Stage, &str),
        outcome: WebhookOutcome,
        took: Duration,
    ) {
        let stage = stage.of_webhook();
        // The code of a failed call is upstream's, whatever failed.
        let (code, error) = match outcome {
            WebhookOutcome::Allowed => (200, None),
            WebhookOutcome::Denied(code) => (code.min(600), Some("no_error")),
            WebhookOutcome::CallFailed => (400, Some("calling_webhook_error")),
            WebhookOutcome::FailedOpen => (400, None),
        };
        let code = code.to_string();
        let refused = if error.is_some() { "true" } else { "false" };
        self.webhook_requests.with_label_values(&[name, stage, operation, &code, refused]).inc();
        let durations = self.webhooks.with_label_values(&[name, stage, operation, refused]);
        durations.observe(took.as_secs_f64());
        if let Some(error) = error {
            self.webhook_rejections.with_label_values(&[name, stage, operation, error, &code]).inc();
        }
        if outcome == WebhookOutcome::FailedOpen {
            self.webhook_fail_open.with_label_values(&[name, stage]).inc();
        }
    }

    /// Counts the evaluation of a ValidatingAdmissionPolicy: `action` is what followed, `error` the kind of
    /// an error.
    pub fn validating_policy(&self, names: (&str, &str), action: &str, error: &str, took: Duration) {
        let labels = [names.0, names.1, error, action];
        self.validating_policies.0.with_label_values(&labels).inc();
        self.validating_policies.1.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// The same of a MutatingAdmissionPolicy.
    pub fn mutating_policy(&self, names: (&str, &str), error: &str, took: Duration) {
        let labels = [names.0, names.1, error];
        self.mutating_policies.0.with_label_values(&labels).inc();
        self.mutating_policies.1.with_label_values(&labels).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plugin_has_series_of_its_own() {
        let registry = Registry::new();
        let metrics = AdmissionMetrics::new(&registry).unwrap();
        let (one, other) = (AdmissionSeries::default(), AdmissionSeries::default());
        let took = Duration::from_millis(1);
        let operations = ["CREATE", "UPDATE", "DELETE", "CONNECT"];
        for stage in [Stage::Mutating, Stage::Validating] {
            for operation in operations {
                for rejected in [false, true] {
                    metrics.plugin("One", &one, (stage, operation, rejected), took);
                    metrics.step((stage, operation, rejected), took);
                }
            }
        }
        metrics.plugin("Other", &other, (Stage::Mutating, "CREATE", false), took);
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let of = |name: &str, label: &str| {
            let counts = text.lines().filter(|line| line.contains("_count{") && line.ends_with(" 1"));
            counts.filter(|line| line.starts_with(name) && line.contains(label)).count()
        };
        assert_eq!(of("apiserver_admission_controller", "name=\"One\""), 16, "{text}");
        assert_eq!(of("apiserver_admission_controller", "name=\"Other\""), 1, "{text}");
        assert_eq!(of("apiserver_admission_step", ""), 16, "{text}");
    }
}
