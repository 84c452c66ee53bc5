//! StorageVersion (`internal.apiserver.k8s.io`): in which version each API server stores a resource. The
//! version that has the kind is off by default, and so is the gate under which API servers write such
//! objects.
//!
//! Facts: kubernetes `pkg/apis/apiserverinternal/validation`.

use std::collections::{HashMap, HashSet};

use plinth_api::Cause;
use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::Check::{self, AnyText, By};
use crate::checks::Part;
use crate::path::{list, text};
use crate::strategy::{NameRule, Strategy, BASE, STATUS_KEEPS_METADATA, STATUS_OWNS_NO_METADATA};

pub(crate) const STRATEGY: Strategy = Strategy {
    name: NameRule::GroupResource,
    unconditional_update: false,
    status_keeps: STATUS_KEEPS_METADATA,
    status_checks: STATUS_CHECKS,
    columns: COLUMNS,
    reset_fields: STATUS_OWNS_NO_METADATA,
    ..BASE
};

const SERVERS: &str = "status.storageVersions";
const COMMON: &str = "status.commonEncodingVersion";

const STATUS_CHECKS: &[Check] = &[
    By(|version| {
        let mut seen = HashSet::new();
        for server in version.each(SERVERS) {
            server.unique("apiServerID", server.text("apiServerID"), &mut seen);
            server.check(SERVER);
        }
    }),
    By(common_version),
    By(conditions),
];

const SERVER: &[Check] = &[
    AnyText("apiServerID", names::dns1123_subdomain_errors),
    By(|server| {
        let encoding = server.text("encodingVersion");
        api_version(server, "encodingVersion");
        server.each("decodableVersions").for_each(|version| api_version(&version, ""));
        let decodable = server.texts("decodableVersions");
        if !decodable.contains(&encoding) {
            let why = format!("decodableVersions must include encodingVersion {encoding}");
            server.invalid("decodableVersions", server.shown("decodableVersions"), &why);
        }
        for served in server.each("servedVersions") {
            api_version(&served, "");
            let version = served.text("");
            if !decodable.contains(&version) {
                let known = decodable.join(" ");
                let why = format!(
                    "individual served version : {version} must be included in decodableVersions : [{known}]"
                );
                served.invalid("", version, &why);
            }
        }
    }),
];

/// One error for all that is wrong with a version.
fn api_version(holder: &Part<'_>, key: &str) {
    let errors = api_version_errors(holder.text(key));
    if !errors.is_empty() {
        holder.invalid(key, holder.text(key), &errors.join(","));
    }
}

fn api_version_errors(version: &str) -> Vec<String> {
    const FORM: &str = "an apiVersion is a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')";
    const EMPTY: &str = "must be non-empty";
    let part = |name: &str, text: &str, rule: fn(&str) -> Vec<String>| match text {
        "" => vec![format!("{name} part: {EMPTY}")],
        text => rule(text).iter().map(|why| format!("{name} part: {why}")).collect(),
    };
    match version.split('/').collect::<Vec<_>>()[..] {
        [version] => part("version", version, names::dns1035_label_errors),
        [group, version] => [
            part("group", group, names::dns1123_subdomain_errors),
            part("version", version, names::dns1035_label_errors),
        ]
        .concat(),
        _ => vec![FORM.to_owned()],
    }
}

/// The version that all servers encode in, if they agree, must be the one that the status names.
fn common_version(version: &Part<'_>) {
    let mut encodings = version.list(SERVERS).iter().map(|server| text(server, "encodingVersion"));
    let first = encodings.next();
    let common = first.filter(|first| encodings.all(|encoding| encoding == *first));
    match (common, version.set_text(COMMON)) {
        (None, Some(named)) => version.invalid(COMMON, named, "should be nil if servers do not agree on the same encoding version, or if there is no server reporting the supported versions yet"),
        (Some(common), None) => {
            version.invalid(COMMON, Value::Null, &format!("the common encoding version is {common}"));
        }
        (Some(common), Some(named)) if common != named => {
            version.invalid(COMMON, named, &format!("the actual common encoding version is {common}"));
        }
        _ => {}
    }
}

/// Upstream reports conditions at the status itself.
fn conditions(version: &Part<'_>) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (i, condition) in version.each_as("status.conditions", "status").enumerate() {
        let kind = condition.text("type");
        if let Some(before) = seen.insert(kind, i) {
            let why =
                format!("the type of the condition is not unique, it also appears in conditions[{before}]");
            condition.push(Cause::invalid(condition.path("type"), kind, &why));
        }
        condition.check(&[
            AnyText("type", names::qualified_name_errors),
            AnyText("status", names::qualified_name_errors),
            Check::Required("reason", ""),
            Check::Required("message", ""),
        ]);
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("CommonEncodingVersion", COMMON, "<unset>"),
    Column::computed("StorageVersions", &[SERVERS], servers_cell),
    Column::AGE,
];

fn servers_cell(version: &Value, _: Now) -> Cell<'_> {
    const MOST: usize = 3;
    let servers = list(version, SERVERS);
    let shown: Vec<String> = servers
        .iter()
        .take(MOST)
        .map(|server| format!("{}={}", text(server, "apiServerID"), text(server, "encodingVersion")))
        .collect();
    let shown = shown.join(",");
    match servers.len().saturating_sub(MOST) {
        0 => shown.into(),
        more => format!("{shown} + {more} more...").into(),
    }
}
