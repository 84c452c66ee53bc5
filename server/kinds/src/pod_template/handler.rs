//! Validation of probes and lifecycle handlers.

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath, ParentPath};
use plinth_codec::Value;

use crate::checks::ports::{is_port, port_or_name, PORT};
use crate::checks::Check::{self, AtLeast, By, MustBe, Required};
use crate::checks::{check_text, validate};
use crate::path::{at, int, list, text};
use crate::pod_template::volume::forbid_more;
use crate::pod_template::PodContext;

const ONE_HANDLER: &str = "may not specify more than 1 handler type";

const COUNTS: &[Check] = &[
    AtLeast("initialDelaySeconds", 0),
    AtLeast("timeoutSeconds", 0),
    AtLeast("periodSeconds", 0),
    AtLeast("successThreshold", 0),
    AtLeast("failureThreshold", 0),
];

const HTTP_GET: &[Check] = &[
    Required("path", ""),
    By(|action, path, errors| port_or_name(at(action, "port"), format_args!("{path}port"), errors)),
    MustBe("scheme", &["HTTP", "HTTPS"]),
    By(|action, path, errors| {
        for header in list(action, "httpHeaders") {
            check_text(format_args!("{path}httpHeaders"), text(header, "name"), header_errors, errors);
        }
    }),
];

fn header_errors(name: &str) -> Vec<String> {
    match !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        true => Vec::new(),
        false => vec!["a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')".into()],
    }
}

/// Validates that there is exactly one handler, and validates it; `path` ends in a dot.
fn handler(
    of: &Value,
    kinds: &[&str],
    context: &PodContext<'_>,
    path: FieldPath<'_>,
    errors: &mut Vec<Cause>,
) {
    let mut count = 0;
    for kind in kinds {
        let Some(action) = at(of, kind) else { continue };
        count += 1;
        if count > 1 {
            forbid_more(path, kind, ONE_HANDLER, errors);
            continue;
        }
        let here = format_args!("{path}{kind}.");
        match *kind {
            "exec" => validate(&[Required("command", "")], action, here, errors),
            "httpGet" => validate(HTTP_GET, action, here, errors),
            "tcpSocket" => port_or_name(at(action, "port"), format_args!("{here}port"), errors),
            "grpc" => {
                let port = int(action, "port").unwrap_or(0);
                if !is_port(port) {
                    errors.push(field::invalid(format_args!("{here}port"), port, PORT));
                }
            }
            _ => {
                let seconds = int(action, "seconds").unwrap_or(0);
                if let Some(most) = context.grace.filter(|most| !(0..=*most).contains(&seconds)) {
                    let why =
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({most})");
                    errors.push(field::invalid(format_args!("{path}{kind}"), seconds, &why));
                }
            }
        }
    }
    if count == 0 {
        errors.push(field::required(ParentPath(path), "must specify a handler type"));
    }
}

/// Validates probes and lifecycle hooks. Upstream drops `stopSignal`, whose feature gate is off.
pub(crate) fn handlers(
    container: &Value,
    context: &PodContext<'_>,
    path: FieldPath<'_>,
    errors: &mut Vec<Cause>,
) {
    lifecycle(container, context, path, errors);
    for part in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = at(container, part) else { continue };
        let path = format_args!("{path}{part}.");
        handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], context, path, errors);
        validate(COUNTS, probe, path, errors);
        let grace = int(probe, "terminationGracePeriodSeconds");
        let here = format_args!("{path}terminationGracePeriodSeconds");
        if let Some(grace) = grace.filter(|grace| *grace <= 0) {
            errors.push(field::invalid(here, grace, "must be greater than 0"));
        }
        if part == "readinessProbe" {
            if let Some(grace) = grace {
                errors.push(field::invalid(here, grace, "must not be set for readinessProbes"));
            }
        } else if let Some(successes) = int(probe, "successThreshold").filter(|n| *n != 1) {
            errors.push(field::invalid(format_args!("{path}successThreshold"), successes, "must be 1"));
        }
    }
}

fn lifecycle(container: &Value, context: &PodContext<'_>, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for hook in ["postStart", "preStop"] {
        if let Some(action) = at(container, "lifecycle").and_then(|l| at(l, hook)) {
            let path = format_args!("{path}lifecycle.{hook}.");
            handler(action, &["exec", "httpGet", "tcpSocket", "sleep"], context, path, errors);
        }
    }
}
