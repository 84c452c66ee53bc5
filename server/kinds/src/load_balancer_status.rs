//! `status.loadBalancer` of Services and Ingresses.

use std::collections::BTreeSet;

use plinth_api::api_error::Cause;
use plinth_api::field;
use plinth_codec::{names, Value};

use crate::checks::{address, check_text};
use crate::columns::or;
use crate::path::{at, list, text};
use crate::warnings::address::warn_ip;
use crate::warnings::Warnings;

pub(crate) fn validate(new: &Value, old: &Value, has_mode: bool) -> Vec<Cause> {
    const PATH: &str = "status.loadBalancer.ingress";
    let before: BTreeSet<&str> = list(old, PATH).iter().map(|point| text(point, "ip")).collect();
    let mut errors = Vec::new();
    for (i, point) in list(new, PATH).iter().enumerate() {
        let (ip, name, here) = (text(point, "ip"), text(point, "hostname"), format_args!("{PATH}[{i}]"));
        if !ip.is_empty() && !before.contains(ip) {
            address::legacy(ip, format_args!("{here}.ip"), &mut errors);
        }
        match at(point, "ipMode").and_then(Value::as_str).filter(|_| has_mode) {
            None if has_mode && !ip.is_empty() => {
                errors.push(field::required(
                    format_args!("{here}.ipMode"),
                    "must be specified when `ip` is set",
                ));
            }
            None => {}
            Some(_) if ip.is_empty() => {
                let why = "may not be specified when `ip` is not set";
                errors.push(field::forbidden(format_args!("{here}.ipMode"), why));
            }
            Some("Proxy" | "VIP") => {}
            Some(mode) => {
                errors.push(field::not_supported(format_args!("{here}.ipMode"), mode, &["Proxy", "VIP"]));
            }
        }
        if !name.is_empty() {
            let here = format_args!("{here}.hostname");
            check_text(here, name, names::dns1123_subdomain_errors, &mut errors);
            if address::sloppy(name).is_some() {
                errors.push(field::invalid(here, name, "must be a DNS name, not an IP address"));
            }
        }
    }
    errors
}

/// Warnings about addresses in `status.loadBalancer.ingress`.
pub(crate) fn warnings(new: &Value) -> Vec<String> {
    let mut found = Warnings::default();
    const PATH: &str = "status.loadBalancer.ingress";
    for (i, point) in list(new, PATH).iter().enumerate() {
        warn_ip(text(point, "ip"), &format!("{PATH}[{i}]"), &mut found);
    }
    found.into_vec()
}

/// The addresses of a load balancer, sorted, each once.
pub(crate) fn balancer_addresses(object: &Value) -> BTreeSet<&str> {
    list(object, "status.loadBalancer.ingress")
        .iter()
        .map(|ingress| or(text(ingress, "ip"), text(ingress, "hostname")))
        .filter(|address| !address.is_empty())
        .collect()
}
