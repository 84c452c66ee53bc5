//! What single built-in kinds do in the request path beyond their strategies: a row per resource.
//!
//! | module | kinds |
//! |---|---|
//! | [`service`] | Services: cluster IPs and node ports |
//! | `admission_policies` | admission policies and their bindings: their writers must be able to read the parameters |
//! | `device_claims` | claims of devices: administrators' access, and parts of the status that belong to schedulers and drivers |
//! | `binding`, `eviction`, `connect` | Pods (and what Nodes and Services proxy to) |
//! | `service_account_tokens` | TokenRequest and TokenReview |
//! | `pod_certificates` | requests for certificates of pods: who signs them |
//! | `join_tokens` | Secrets that let replicas join: who may write them |
//! | `access_reviews`, `virtual_resources` | reviews, component statuses |

mod access_reviews;
mod admission_policies;
mod binding;
mod connect;
mod device_claims;
mod eviction;
mod join_tokens;
mod pod_certificates;
pub mod service;
mod service_account_tokens;
mod virtual_resources;

use crate::authz::rbac::{self, escalation};
use crate::context::{key_namespace, Endpoint, KindHandler, Outcome, Write};
use plinth_registry::ResourceType;

/// The handler of a resource; custom resources have none, whatever their group and names.
pub fn of(resource: &ResourceType) -> &'static KindHandler {
    if resource.is_custom() {
        return &KindHandler::NONE;
    }
    let (group, plural) = (resource.group(), resource.plural());
    let row = HANDLERS.iter().find(|(g, p, _)| *g == group && *p == plural);
    row.map_or(&KindHandler::NONE, |(_, _, handler)| handler)
}

const CONNECT: Endpoint = |cx, body| Box::pin(connect::connect(cx, body));
const BIND: Endpoint = |cx, body| Box::pin(binding::bind(cx, body));
const EVICT: Endpoint = |cx, body| Box::pin(eviction::evict(cx, body));
const TOKEN: Endpoint = |cx, body| Box::pin(service_account_tokens::request(cx, body));
const REVIEW: Endpoint = |cx, body| Box::pin(virtual_resources::create(cx, body));
const COMPONENT_STATUSES: Endpoint = |cx, _| Box::pin(virtual_resources::component_statuses(cx));

const ROLE: KindHandler = KindHandler { check_grant: Some(check_grant), ..KindHandler::NONE };
const UNSTORED_REVIEW: KindHandler = KindHandler { unstored: Some(REVIEW), ..KindHandler::NONE };
const POLICY: KindHandler =
    KindHandler { check_permissions: Some(admission_policies::check_policy), ..KindHandler::NONE };
const POLICY_BINDING: KindHandler =
    KindHandler { check_permissions: Some(admission_policies::check_binding), ..KindHandler::NONE };

/// Group, plural and handler.
static HANDLERS: &[(&str, &str, KindHandler)] = &[
    ("", "bindings", KindHandler { unstored: Some(BIND), ..KindHandler::NONE }),
    ("", "componentstatuses", KindHandler { unstored: Some(COMPONENT_STATUSES), ..KindHandler::NONE }),
    ("", "nodes", KindHandler { subresources: &[("proxy", CONNECT)], ..KindHandler::NONE }),
    (
        "",
        "pods",
        KindHandler {
            subresources: &[
                ("attach", CONNECT),
                ("binding", BIND),
                ("eviction", EVICT),
                ("exec", CONNECT),
                ("log", CONNECT),
                ("portforward", CONNECT),
                ("proxy", CONNECT),
            ],
            ..KindHandler::NONE
        },
    ),
    (
        "",
        "secrets",
        KindHandler {
            check_grant: Some(join_tokens::check),
            requester_only_fields: Some(join_tokens::grant),
            ..KindHandler::NONE
        },
    ),
    ("", "serviceaccounts", KindHandler { subresources: &[("token", TOKEN)], ..KindHandler::NONE }),
    (
        "",
        "services",
        KindHandler {
            allocate: Some(|cx, old, new| Box::pin(service::allocate(cx, old, new))),
            release: Some(service::release),
            subresources: &[("proxy", CONNECT)],
            ..KindHandler::NONE
        },
    ),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies", POLICY),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", POLICY_BINDING),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", POLICY),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", POLICY_BINDING),
    ("authentication.k8s.io", "selfsubjectreviews", UNSTORED_REVIEW),
    ("authentication.k8s.io", "tokenreviews", UNSTORED_REVIEW),
    ("authorization.k8s.io", "localsubjectaccessreviews", UNSTORED_REVIEW),
    ("authorization.k8s.io", "selfsubjectaccessreviews", UNSTORED_REVIEW),
    ("authorization.k8s.io", "selfsubjectrulesreviews", UNSTORED_REVIEW),
    ("authorization.k8s.io", "subjectaccessreviews", UNSTORED_REVIEW),
    (
        "certificates.k8s.io",
        "podcertificaterequests",
        KindHandler { check_permissions: Some(pod_certificates::check_signer), ..KindHandler::NONE },
    ),
    (rbac::GROUP, "clusterrolebindings", ROLE),
    (rbac::GROUP, "clusterroles", ROLE),
    (rbac::GROUP, "rolebindings", ROLE),
    (rbac::GROUP, "roles", ROLE),
    (
        "resource.k8s.io",
        "resourceclaims",
        KindHandler { check_permissions: Some(device_claims::check_claim), ..KindHandler::NONE },
    ),
    (
        "resource.k8s.io",
        "resourceclaimtemplates",
        KindHandler { check_permissions: Some(device_claims::check_template), ..KindHandler::NONE },
    ),
];

/// Nobody grants more than they have.
fn check_grant(write: Write<'_>) -> Outcome<'_, ()> {
    Box::pin(async move {
        let Write { cx, new, old } = write;
        let (plural, namespace, name) = (cx.resource.plural(), key_namespace(cx), cx.info.name.as_str());
        let written = escalation::RoleWrite { user: &cx.user, plural, namespace, name, new, old };
        escalation::check(&cx.server.authorizer, written).await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_a_resource_and_its_subresources() {
        let known = &plinth_codec::resources::known().table.resources;
        for (group, plural, handler) in HANDLERS {
            let row = known.iter().find(|r| r.group == *group && r.plural == *plural);
            let row = row.unwrap_or_else(|| panic!("{group} {plural}"));
            for (subresource, _) in handler.subresources {
                assert!(row.subresource(subresource).is_some(), "{plural}/{subresource}");
            }
        }
    }

    #[test]
    fn every_subresource_of_another_kind_has_a_handler() {
        for row in &plinth_codec::resources::known().table.resources {
            let handler =
                HANDLERS.iter().find(|(group, plural, _)| row.group == *group && row.plural == *plural);
            for subresource in row.subresources.iter().filter(|s| s.gvk != row.gvk() && s.name != "scale") {
                let found = handler.and_then(|(_, _, handler)| handler.subresource(&subresource.name));
                assert!(found.is_some(), "{}/{}", row.plural, subresource.name);
            }
        }
    }
}
