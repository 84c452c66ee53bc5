//! The CEL variables of admission policies and of match conditions of webhooks.
//!
//! Upstream: k8s.io/apiserver `pkg/admission/plugin/cel`.

use std::sync::LazyLock;

use plinth_api::UserFields;
use plinth_cel::{Environment, VariableType};

/// Schema of `request`, without the members of the user.
const REQUEST: &str = r#"{"type":"object","properties":{
    "kind":{"type":"object","properties":{
        "group":{"type":"string"},"version":{"type":"string"},"kind":{"type":"string"}}},
    "resource":{"type":"object","properties":{
        "group":{"type":"string"},"version":{"type":"string"},"resource":{"type":"string"}}},
    "subResource":{"type":"string"},
    "requestKind":{"type":"object","properties":{
        "group":{"type":"string"},"version":{"type":"string"},"kind":{"type":"string"}}},
    "requestResource":{"type":"object","properties":{
        "group":{"type":"string"},"version":{"type":"string"},"resource":{"type":"string"}}},
    "requestSubResource":{"type":"string"},
    "name":{"type":"string"},
    "namespace":{"type":"string"},
    "operation":{"type":"string"},
    "userInfo":{"type":"object","properties":{USER}},
    "dryRun":{"type":"boolean"},
    "options":{"x-kubernetes-int-or-string":true}}}"#;

/// Schema of `namespaceObject`; other fields of the namespace are hidden.
const NAMESPACE: &str = r#"{"type":"object","properties":{
    "metadata":{"type":"object","properties":{
        "name":{"type":"string"},
        "generateName":{"type":"string"},
        "namespace":{"type":"string"},
        "labels":{"type":"object","additionalProperties":{"type":"string"}},
        "annotations":{"type":"object","additionalProperties":{"type":"string"}},
        "UID":{"type":"string"},
        "creationTimestamp":{"type":"string","format":"date-time"},
        "deletionGracePeriodSeconds":{"type":"integer"},
        "deletionTimestamp":{"type":"string","format":"date-time"},
        "generation":{"type":"integer"},
        "resourceVersion":{"type":"string"},
        "finalizers":{"type":"array","items":{"type":"string"}}}},
    "spec":{"type":"object","properties":{"finalizers":{"type":"array","items":{"type":"string"}}}},
    "status":{"type":"object","properties":{
        "conditions":{"type":"array","items":{"type":"object","properties":{
            "status":{"type":"string"},
            "type":{"type":"string"},
            "lastTransitionTime":{"type":"string","format":"date-time"},
            "message":{"type":"string"},
            "reason":{"type":"string"}}}},
        "phase":{"type":"string"}}}}}"#;

/// The variables of expressions, with or without `params` and `authorizer`.
pub fn environment(params: bool, authorizer: bool) -> &'static Environment {
    type Lazy = LazyLock<Environment>;
    static BARE: Lazy = Lazy::new(|| {
        let request = REQUEST.replace("USER", &UserFields::USER_INFO.schema());
        Environment::default()
            .with("object", VariableType::Any)
            .with("oldObject", VariableType::Any)
            .with("namespaceObject", VariableType::of_schema(NAMESPACE))
            .with("request", VariableType::of_schema(&request))
    });
    static PARAMS: Lazy = Lazy::new(|| BARE.clone().with("params", VariableType::Any));
    static AUTHORIZER: Lazy = Lazy::new(|| asking(&BARE));
    static BOTH: Lazy = Lazy::new(|| asking(&PARAMS));
    match (params, authorizer) {
        (false, false) => &BARE,
        (true, false) => &PARAMS,
        (false, true) => &AUTHORIZER,
        (true, true) => &BOTH,
    }
}

fn asking(bare: &Environment) -> Environment {
    let with_authorizer = bare.clone().with("authorizer", VariableType::Authorizer);
    with_authorizer.with("authorizer.requestResource", VariableType::ResourceCheck)
}
