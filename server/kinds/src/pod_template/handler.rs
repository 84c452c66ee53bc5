//! Validation of probes and lifecycle handlers.

use crate::checks::ports::{must_be_port, port_or_name};
use crate::checks::Check::{self, AtLeast, By, MustBe, Required, Within};
use crate::checks::Part;
use crate::path::text;
use crate::pod_template::pod_context::PodContext;

const ONE_HANDLER: &str = "may not specify more than 1 handler type";

const COUNTS: &[Check] = &[
    AtLeast("initialDelaySeconds", 0),
    AtLeast("timeoutSeconds", 0),
    AtLeast("periodSeconds", 0),
    AtLeast("successThreshold", 0),
    AtLeast("failureThreshold", 0),
    Within("terminationGracePeriodSeconds", 1, i64::MAX, "must be greater than 0"),
];

const HTTP_GET: &[Check] = &[
    Required("path", ""),
    By(|action| port_or_name(&action.field("port"))),
    MustBe("scheme", &["HTTP", "HTTPS"]),
    By(|action| {
        for header in action.list("httpHeaders") {
            action.check_text("httpHeaders", text(header, "name"), header_errors);
        }
    }),
];

fn header_errors(name: &str) -> Vec<String> {
    match !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        true => Vec::new(),
        false => vec!["a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')".into()],
    }
}

/// Validates that there is exactly one handler, and validates it.
fn handler(of: &Part<'_>, kinds: &[&str], context: &PodContext<'_>) {
    let mut given = kinds.iter().filter_map(|kind| Some((*kind, of.get(kind)?)));
    let Some((kind, action)) = given.next() else {
        of.required("", "must specify a handler type");
        return;
    };
    match kind {
        "exec" => action.check(&[Required("command", "")]),
        "httpGet" => action.check(HTTP_GET),
        "tcpSocket" => port_or_name(&action.field("port")),
        "grpc" => must_be_port(&action, "port"),
        _ => {
            let seconds = action.number("seconds");
            if let Some(most) = context.grace.filter(|most| !(0..=*most).contains(&seconds)) {
                let why =
                    format!("must be non-negative and less than terminationGracePeriodSeconds ({most})");
                action.invalid("", seconds, &why);
            }
        }
    }
    given.for_each(|(kind, _)| of.forbidden(kind, ONE_HANDLER));
}

/// Validates probes and lifecycle hooks. Upstream drops `stopSignal`, whose feature gate is off.
pub(crate) fn handlers(container: &Part<'_>, context: &PodContext<'_>) {
    for hook in ["lifecycle.postStart", "lifecycle.preStop"] {
        if let Some(action) = container.get(hook) {
            handler(&action, &["exec", "httpGet", "tcpSocket", "sleep"], context);
        }
    }
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get(kind) else { continue };
        handler(&probe, &["exec", "httpGet", "tcpSocket", "grpc"], context);
        probe.check(COUNTS);
        match (kind, probe.int("terminationGracePeriodSeconds"), probe.int("successThreshold")) {
            ("readinessProbe", Some(grace), _) => {
                probe.invalid("terminationGracePeriodSeconds", grace, "must not be set for readinessProbes");
            }
            ("livenessProbe" | "startupProbe", _, Some(count)) if count != 1 => {
                probe.invalid("successThreshold", count, "must be 1");
            }
            _ => {}
        }
    }
}
